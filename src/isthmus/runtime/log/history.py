"""The trace of a log: what its clients wrote is what it sent and delivered at once, what we brought in it delivered.

An entry of its own is two rows, any other is one, in the order of the log. So a gateway that reads again what its
predecessor had read knows from the marks which rows are in the file already, and goes on behind them. It needs the
file for that: gateways on several machines write to one directory that they share, or only one of them writes a trace.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

import msgspec

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.segment import Segment
from isthmus.runtime.log.place import LogPlace
from isthmus.runtime.log.reading import Reading
from isthmus.runtime.problems import RuntimeProblem
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.writer import JsonlSink, ProcessLog, log_path

log = logging.getLogger(__name__)

_TAIL = 64 << 10
"""Bytes at the end of a file that surely hold a whole row."""


class _Written(NamedTuple):
    """What a file holds: rows up to this index, the first of them behind as many as the log had before."""

    next_index: int = 0
    behind: int = 0


class LogHistory:
    """The rows of all streams of one log, from where `reading` begins, or from behind what is written already."""

    def __init__(self, directory: Path, run: str, place: LogPlace, reading: Reading, *, fsync: bool = False) -> None:
        self._own = place.origins(reading.lives)
        self._place = place
        self._logs: dict[ProcessId, ProcessLog] = {}
        self._skip: dict[ProcessId, int] = {}
        self._lost = False
        before = dict.fromkeys(self._own, 0)
        for origin, seq in reading.marks.counted():
            before[self._stream_of(origin)] += seq * self._rows_of(origin)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for own in self._own:
                self._open(own, log_path(directory, run, *place.names.name(own)), run, before[own], fsync)
        except (TraceError, OSError) as error:
            raise RuntimeProblem(str(error)) from error

    def _open(self, own: ProcessId, path: Path, run: str, before: int, fsync: bool) -> None:
        name = self._place.names.name(own)
        written = _look_at(path)
        history = ProcessLog(JsonlSink(path, fsync=fsync), run, name.system, name.process, "app", self._place.names)
        self._logs[own] = history
        if written is None:
            history.event("join" if before or own != slot_of(own) else "start", time_ns(), note=f"behind {before} rows")
            history.flush()
        else:
            known = written.behind + written.next_index - 1 - before
            # Rows that never got to the disk leave a gap, which readers report.
            history.next_index = written.next_index - min(known, 0)
            self._skip[own] = max(known, 0)

    def _stream_of(self, origin: ProcessId) -> ProcessId:
        """Our stream that entries of this origin are in."""
        if slot_of(origin) in self._place.parts:
            return self._own[self._place.parts.index(slot_of(origin))]
        return self._own[self._place.part_for(origin)]

    def _rows_of(self, origin: ProcessId) -> int:
        return 2 if slot_of(origin) in self._place.parts else 1

    def read(self, segment: Segment) -> None:
        """These entries were read, in this order."""
        now = time_ns()
        for part in segment.along(self._stream_of):
            history = self._logs[self._stream_of(next(iter(part.marks)))]
            for stretch in part.along(self._rows_of):
                self._or_give_up(self._add, history, now, stretch)

    def _add(self, history: ProcessLog, now: int, stretch: Segment) -> None:
        """The rows of these entries, which are all of the log's own or all from elsewhere, but for those known."""
        rows = self._rows_of(next(iter(stretch.marks)))
        own = self._stream_of(next(iter(stretch.marks)))
        known = min(self._skip.get(own, 0), rows * stretch.messages)
        if known > 0:
            self._skip[own] -= known
            torn = known % rows  # its second row was not written
            stretch = stretch.cut(known // rows)[1]
            if torn:
                first, stretch = stretch.cut(1)
                history.messages("deliver", now, first, 0)
        if rows == 1:
            history.messages("deliver", now, stretch, 0)
        else:
            history.messages("send", now, stretch, 0, then="deliver")

    def flush(self) -> None:
        for history in self._logs.values():
            self._or_give_up(history.flush)

    def close(self, *, complete: bool) -> None:
        """With `complete`, say that this is all there is so far. Who goes on later takes that back.

        Without, rows that were not written are dropped: whoever has the claim now may write to the file already, and
        reads those entries again, since no checkpoint is behind them.
        """
        for history in self._logs.values():
            if complete:
                self._or_give_up(history.event, "end", time_ns())
                self._or_give_up(history.close)
            else:
                self._or_give_up(history.sink.close)

    def _or_give_up(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except TraceError as error:
            if not self._lost:
                log.warning("the trace of %s is incomplete from here on: %s", self._place.system.name, error)
            self._lost = True


def _look_at(path: Path) -> _Written | None:
    """What is in a file that another gateway wrote, once a torn last line and an `end` are cut off; None: no file."""
    if not path.exists():
        return None
    with path.open("r+b") as file:
        first = msgspec.json.decode(file.readline() or b"null", type=Event | None)
        if first is None:
            return None
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _TAIL))
        tail = file.read()
        whole = tail.rfind(b"\n") + 1
        lines = tail[:whole].splitlines(keepends=True)
        last = msgspec.json.decode(lines[-1], type=Event)
        if last.event == "end":
            whole -= len(lines[-1])
            last = msgspec.json.decode(lines[-2], type=Event)
        file.truncate(start + whole)
        behind = int((first.note or "behind 0").split()[1])
        return _Written(last.index + 1, behind)
