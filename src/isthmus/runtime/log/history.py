"""The trace of a log: what its clients wrote is what it sent, and all that stands in it is what it delivered.

Every entry is one `deliver` row, in the order of the log; one of its own has a `send` row before that. The last row of
each read says in its note how many entries are behind it, so a gateway that reads again what its predecessor had read
knows which rows are in the file already, and goes on behind them. It needs the file for that: gateways on several
machines write to one directory that they share, or only one of them writes a trace.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple, TypeVar

import msgspec

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.segment import Segment
from isthmus.runtime.log.place import LogPlace
from isthmus.runtime.log.reading import Reading
from isthmus.runtime.problems import RuntimeProblem
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.writer import JsonlSink, ProcessLog, log_path

log = logging.getLogger(__name__)

_TAIL = 1 << 20
"""Bytes at the end of a file that nearly always hold what was written last."""
_BEHIND = "behind "

_decoder = msgspec.json.Decoder(Event)

AnyRow = TypeVar("AnyRow", bound=Event)


def last_rows(descriptor: int, decoder: msgspec.json.Decoder[AnyRow], mark: str) -> tuple[list[AnyRow], int, int]:
    """The rows at the end of a file, newest first, down to the one whose note begins with `mark`; all, if none does.

    With the size of the file without its torn last line, which nobody has read, and that of the newest row.
    """
    size = os.lseek(descriptor, 0, os.SEEK_END)
    tail = _TAIL
    while True:
        start = max(0, size - tail)
        data = os.pread(descriptor, size - start, start)
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines(keepends=True)[1 if start else 0 :]
        rows: list[AnyRow] = []
        for line in reversed(lines):
            rows.append(decoder.decode(line))
            if (rows[-1].note or "").startswith(mark):
                break
        if not start or (rows and (rows[-1].note or "").startswith(mark)):
            return rows, start + whole, len(lines[-1]) if lines else 0
        tail *= 4


class _Written(NamedTuple):
    """What a file holds: rows up to this index, so many entries, and of its last messages those only sent so far."""

    next_index: int
    entries: int
    pending: list[Event]


class LogHistory:
    """The rows of all streams of one log, from where `reading` begins, or from behind what is written already."""

    def __init__(self, directory: Path, run: str, place: LogPlace, reading: Reading, *, fsync: bool = False) -> None:
        self._own = place.origins(reading.lives)
        self._place = place
        self._logs: dict[ProcessId, ProcessLog] = {}
        self._skip: dict[ProcessId, int] = {}
        self._entries: dict[ProcessId, int] = {}
        self._lost = False
        before = dict.fromkeys(self._own, 0)
        for origin, seq in reading.marks.counted():
            before[self._stream_of(origin)] += seq
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
        self._entries[own] = before
        if written is None:
            history.event(
                "join" if before or own != slot_of(own) else "start", time_ns(), note=f"{_BEHIND}{before} entries"
            )
            history.flush()
            return
        history.next_index = written.next_index
        self._skip[own] = written.entries - before
        for row in written.pending:
            self._delivered_too(history, own, row)

    def _delivered_too(self, history: ProcessLog, own: ProcessId, row: Event) -> None:
        """Write what whoever was killed had no time for: what was sent stands in the log, and was delivered so."""
        assert row.origin_seq is not None
        message = Segment.pack([(own, row.origin_seq, bytes(row.payload_bytes or 0))])
        history.messages("deliver", time_ns(), message, 0)

    def _stream_of(self, origin: ProcessId) -> ProcessId:
        """Our stream that entries of this origin are in."""
        if slot_of(origin) in self._place.parts:
            return self._own[self._place.parts.index(slot_of(origin))]
        return self._own[self._place.part_for(origin)]

    def read(self, segment: Segment) -> None:
        """These entries were read, in this order."""
        for part in segment.along(self._stream_of):
            own = self._stream_of(next(iter(part.marks)))
            known = min(max(0, self._skip.get(own, 0)), part.messages)
            if known:
                self._skip[own] -= known
            self._entries[own] += part.messages
            self._write(own, part.cut(known)[1])

    def _write(self, own: ProcessId, new: Segment) -> None:
        now, history = time_ns(), self._logs[own]
        stretches = new.along(lambda origin: origin in self._logs)
        for stretch in stretches:
            if next(iter(stretch.marks)) in self._logs:
                self._or_give_up(history.messages, "send", now, stretch, 0)
            others, last = stretch.cut(stretch.messages - (stretch is stretches[-1]))
            note = f"{_BEHIND}{self._entries[own]} entries"
            self._or_give_up(history.messages, "deliver", now, others, 0)
            self._or_give_up(history.messages, "deliver", now, last, 0, None, note)

    def flush(self) -> None:
        for history in self._logs.values():
            self._or_give_up(history.flush)

    def close(self, *, complete: bool) -> None:
        """With `complete`, say that this is all there is so far. Who goes on later takes that back."""
        for history in self._logs.values():
            if complete:
                self._or_give_up(history.event, "end", time_ns())
            self._or_give_up(history.close)

    def _or_give_up(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except TraceError as error:
            if not self._lost:
                log.warning("the trace of %s is incomplete from here on: %s", self._place.system.name, error)
            self._lost = True


def _look_at(path: Path) -> _Written | None:
    """What is in a file that another gateway wrote, once a torn last line and an `end` are cut off; None: nothing."""
    if not path.exists():
        return None
    with path.open("r+b") as file:
        rows, size, last = last_rows(file.fileno(), _decoder, _BEHIND)
        if rows and rows[0].event == "end":
            rows, size = rows[1:], size - last
        file.truncate(size)
    if not rows:
        return None
    noted = rows[-1]
    entries = int((noted.note or "").removeprefix(_BEHIND).split()[0])
    delivered = {(row.origin_system, row.origin_process, row.origin_seq) for row in rows if row.event == "deliver"}
    pending = [
        row
        for row in reversed(rows[:-1])
        if row.event == "send" and (row.origin_system, row.origin_process, row.origin_seq) not in delivered
    ]
    news = sum(row.event == "deliver" for row in rows[:-1])
    return _Written(rows[0].index + 1, entries + news + len(pending), pending)
