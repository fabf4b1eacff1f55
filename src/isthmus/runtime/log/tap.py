"""A small consumer of a log that writes down what it saw: the trace of an app process, with what entries say if wanted.

Every entry is one `deliver` row, in the order of the log. The file is all that the tap keeps: the last row of each read
says in its note where reading stands. Whoever is killed goes on there, and leaves out rows that are written already.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any, Literal, TypeAlias

import msgspec

from isthmus.core.ids import ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Opened
from isthmus.runtime.log.content import NOTHING, Content
from isthmus.runtime.log.driver import Patience
from isthmus.runtime.log.interface import LogProblem, Slice, State, Trimmed
from isthmus.runtime.log.ledger import Checkpoint, Record, decode, encode, numbered, numbers_of
from isthmus.runtime.log.outside import Outside
from isthmus.runtime.log.reading import Reading
from isthmus.runtime.problems import RuntimeProblem
from isthmus.trace.schema import Event
from isthmus.trace.writer import log_path

log = logging.getLogger(__name__)

Keep: TypeAlias = Literal["nothing", "body", "all"]

LONGEST_LINE = 1 << 20
"""Of a trace. What says more is a row without it."""
_SLICE_ENTRIES, _SLICE_BYTES = 2048, 1 << 20
_MOST_PARKED = 1_000_000
_TAIL = 4 << 20
"""Bytes at the end of a file that nearly always hold what was read last."""
_AT = "at "


class Row(Event, frozen=True, gc=False, kw_only=True):
    """A row of a trace, with what the message said (docs/pipeline.md, `payload`)."""

    payload: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


def last_rows(descriptor: int) -> tuple[list[Row], int]:
    """The rows at the end of a file, newest first, down to one that says where reading stood; all, if none does.

    With the size of the file without its torn last line, which nobody has read.
    """
    size = os.lseek(descriptor, 0, os.SEEK_END)
    tail = _TAIL
    while True:
        start = max(0, size - tail)
        data = os.pread(descriptor, size - start, start)
        whole = data.rfind(b"\n") + 1
        rows: list[Row] = []
        for line in reversed(data[:whole].splitlines()[1 if start else 0 :]):
            rows.append(_decoder.decode(line))
            if (rows[-1].note or "").startswith(_AT):
                return rows, start + whole
        if not start:
            return rows, whole
        tail *= 4


class TapFile:
    """The one file of a tap: what is in it, and rows that are added to it. Nobody else may write it meanwhile.

    `state` is what its last note says; `written` are the numbers that the rows behind that note have, by origin.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_index = 0
        self.state = b""
        self.written: dict[tuple[str, str], int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                raise RuntimeProblem(f"{path}: another tap writes it. Stop that, or choose another --name.") from None
            self._look()
        except OSError as error:
            raise self._problem(error) from error

    def _look(self) -> None:
        """Find the last note and what follows it; cut off a torn last line, which nobody has read."""
        try:
            rows, size = last_rows(self._descriptor)
        except msgspec.MsgspecError as error:
            raise RuntimeProblem(
                f"{self.path}: a row near its end cannot be read ({error}), so nobody knows where the tap stood. "
                "Repair it, or choose another --name."
            ) from error
        os.ftruncate(self._descriptor, size)
        self._learn(rows)

    def _learn(self, rows: list[Row]) -> None:
        """The last note is in the last of these; the others are the rows behind it, newest first."""
        if not rows:
            return
        self.next_index = rows[0].index + 1
        if rows[0].event == "end":
            raise RuntimeProblem(f"{self.path}: this tap has ended (--end). Choose another --name.")
        *behind, noted = rows
        note = noted.note or ""
        if not note.startswith(_AT):
            raise RuntimeProblem(f"{self.path}: no tap has written this. Choose another --name, or another directory.")
        self.state = note.removeprefix(_AT).encode()
        for row in reversed(behind):
            self.written[row.origin_system or "", row.origin_process or ""] = row.origin_seq or 0

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> RuntimeProblem:
        return RuntimeProblem(f"{self.path}: {error.strerror or error}. Make room, or choose another directory.")

    def close(self) -> None:
        os.close(self._descriptor)


class Tap:
    """Reads one log as the process `name` of its system, and writes what it saw into `directory`."""

    def __init__(self, outside: Outside, run: str, name: str, directory: Path, keep: Keep, start: str) -> None:
        """`start` is where the first gateway began; empty: where the gateway is now."""
        self._outside = outside
        self._place = outside.place
        self._start = start
        self._keep = keep
        self._patiently = Patience(outside.name, "read")
        self._file = TapFile(log_path(directory, run, outside.name, name))
        self._common: dict[str, Any] = {"run": run, "system": outside.name, "process": name, "role": "app"}
        self._record = SlotMarks()
        self._skips: set[str] = set()
        self._parked: set[tuple[ProcessId, int]] = set()
        self._known_retried: set[tuple[ProcessId, int]] = set()
        self._names: dict[ProcessId, tuple[str, str]] = {}
        self._is_cut = False
        self.delivered = 0

    async def run(self, stop: asyncio.Event, quiet: float | None = None, *, end: bool = False) -> None:
        """Read until `stop`, or until nothing has come for so many seconds. With `end`, say then that this is all."""
        loop = asyncio.get_running_loop()
        try:
            self._checkpoint = await self._begin()
            reading = self._reading()
            last = loop.time()
            while not stop.is_set() and (quiet is None or loop.time() - last < quiet):
                reading.begin()
                after = reading.position
                reader = asyncio.ensure_future(
                    self._patiently(self._outside.log.read, after, _SLICE_ENTRIES, _SLICE_BYTES)
                )
                stopped = asyncio.ensure_future(stop.wait())
                await asyncio.wait((reader, stopped), return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if not reader.done():
                    reader.cancel()
                    await asyncio.gather(reader, return_exceptions=True)
                    break
                got: Slice = reader.result()
                # The record is read after the entries, so it covers them.
                self._learn(await self._patiently(self._outside.log.state))
                reading, messages = await self._take(reading, got)
                if messages:
                    last = loop.time()
                    self._write(messages)
            if end:
                self._file.write(self._line(self._row("end")))
        finally:
            self._file.close()

    # Where it stands

    async def _begin(self) -> Checkpoint:
        outside = self._outside
        state = await self._patiently(outside.log.state)
        self._learn(state)
        await self._look_at_parked()
        if self._file.state:
            return decode(self._file.state, Checkpoint, str(self._file.path))
        there = decode(state.checkpoint, Checkpoint, outside.name) if state.checkpoint else None
        if self._start:
            begin = Checkpoint(position=await self._patiently(outside.log.find, self._start))
            if there is not None:
                await self._check_count(begin, there)
        elif there is None:
            raise LogProblem(f"{outside.name}: no gateway has read it yet. Run one, or begin with --from start.")
        else:
            begin = there
        event = "start" if self._start else "join"
        self._file.write(self._line(self._row(event, note=_note(begin))))
        return begin

    async def _check_count(self, begin: Checkpoint, there: Checkpoint) -> None:
        """Whether who counts from the beginning has the numbers that the gateway has, which may have begun earlier."""
        problem = LogProblem(
            f"{self._outside.name}: the oldest entries that the join has read are gone, so nobody can count from the "
            "beginning. Begin with --from now."
        )
        own = self._place.origins(0)
        if there.lives:
            raise problem
        for _ in range(3):
            # What the gateway would count next is the landmark; where there is nothing yet, the count itself.
            near, landmark = await self._read_until(there, lambda message: message[0] in own)
            try:
                far, found = await self._read_until(begin, partial(_is_about, landmark))
            except Trimmed:
                raise problem from None
            if landmark is not None and found is not None:
                if found != landmark:
                    raise problem
                return
            if landmark is None and [near.marks.get(each) for each in own] == [far.marks.get(each) for each in own]:
                return
        raise problem

    async def _read_until(self, begin: Checkpoint, is_it: Callable[[Opened], bool]) -> tuple[Reading, Opened | None]:
        """Read from there to the first such message, or to the end; nothing of it is written down."""
        self._checkpoint = begin
        reading = self._reading()
        while True:
            reading.begin()
            got = await self._patiently(self._outside.log.read, reading.position, _SLICE_ENTRIES, _SLICE_BYTES)
            self._learn(await self._patiently(self._outside.log.state))
            reading, messages = await self._take(reading, got)
            found = next((message for message in messages if is_it(message)), None)
            if found is not None or not got.entries:
                return reading, found

    def _reading(self) -> Reading:
        retried = self._known_retried
        reading = Reading(self._place, self._checkpoint, self._record_of, self._skips, retried)
        self._put_aside(reading)
        return reading

    def _record_of(self, origin: ProcessId) -> int:
        return self._record.get(origin)

    def _learn(self, state: State) -> None:
        names = self._place.names
        if state.record:
            record = decode(state.record, Record, self._outside.name)
            self._record = numbered(record.marks, names)
            self._skips.update(record.skips)
            self._parked |= numbers_of(record.parked, names)
            self._known_retried |= numbers_of(record.retried, names)
        if state.checkpoint:
            checkpoint = decode(state.checkpoint, Checkpoint, self._outside.name)
            self._known_retried |= numbers_of(checkpoint.retried, names)

    async def _look_at_parked(self) -> None:
        for parked in await self._patiently(self._outside.log.parked, _MOST_PARKED):
            self._parked |= numbers_of([(parked.entry.origin, parked.entry.seq)], self._place.names)

    def _put_aside(self, reading: Reading) -> None:
        """Messages that have no entry have a place all the same, or nobody could tell them from lost ones."""
        for origin, seq in self._parked:
            if seq > reading.marks.get(origin) and seq not in reading.aside.get(origin, ()):
                reading.put_aside(origin, seq, self._place.nothing_of(origin))

    async def _take(self, reading: Reading, got: Slice) -> tuple[Reading, list[Opened]]:
        reading.may_come_again(self._known_retried)
        self._put_aside(reading)
        try:
            segments, stretch = reading.take(got)
        except Trimmed:
            # It may have been put aside, and passed by the gateway, between two looks at the record.
            await self._look_at_parked()
            reading = self._reading()
            segments, stretch = reading.take(got)
        for oversized in reading.oversized:
            log.warning("%s: %s; it has no row", self._outside.name, oversized.reason)
        reading.oversized.clear()
        self._checkpoint = reading.checkpoint(stretch.position, stretch.there, stretch.retried)
        return reading, [message for segment in segments for message in segment]

    # Rows

    def _write(self, messages: list[Opened]) -> None:
        lines: list[bytes] = []
        last: Opened | None = None
        for message in messages:
            if message[1] <= self._file.written.get(self._name(message[0]), 0):
                continue  # it was written before we were killed
            if last is not None:
                lines.append(self._deliver(*last))
            last = message
        if last is not None:
            lines.append(self._deliver(*last, note=_note(self._checkpoint)))
            self._file.write(b"".join(lines))
            self.delivered += len(lines)

    def _name(self, origin: ProcessId) -> tuple[str, str]:
        name = self._names.get(origin)
        if name is None:
            system, process = self._place.names.name(origin)
            name = self._names[origin] = (system, process)
        return name

    def _deliver(self, origin: ProcessId, seq: int, payload: bytes, note: str | None = None) -> bytes:
        system, process = self._name(origin)
        content = self._place.content_of(origin, payload)
        said = None if self._keep == "nothing" else _said(content, self._keep)
        row = self._row(
            "deliver",
            origin_system=system,
            origin_process=process,
            origin_seq=seq,
            payload_bytes=len(content.body),
            note=note,
            payload=said,
        )
        line = self._line(row)
        if len(line) > LONGEST_LINE:
            if not self._is_cut:
                log.warning("%s: what is too long for a line of a trace is left out of its row", self._outside.name)
            self._is_cut = True
            line = self._line(msgspec.structs.replace(row, payload=None))
        return line

    def _row(self, event: Any, **columns: Any) -> Row:
        row = Row(**self._common, index=self._file.next_index, event=event, time_ns=time_ns(), **columns)
        self._file.next_index += 1
        return row

    def _line(self, row: Row) -> bytes:
        return _encoder.encode(row) + b"\n"


def _is_about(landmark: Opened | None, message: Opened) -> bool:
    return landmark is not None and message[:2] == landmark[:2]


def _note(checkpoint: Checkpoint) -> str:
    return _AT + encode(checkpoint).decode()


def _said(content: Content, keep: Keep) -> str | None:
    """The body as text; with `all`, JSON of everything that the entry has. What is no UTF-8 is in base64."""
    if content == NOTHING:
        return None
    if keep == "body":
        return None if content.place < 0 else _text(content.body)
    return msgspec.json.encode(
        {
            "body": None if content.place < 0 else _text(content.body),
            "headers": [(_text(name), _text(value)) for name, value in content.headers],
            "subject": content.subject,
            "key": None if content.key is None else _text(content.key),
            "time": content.time,
        }
    ).decode()


def _text(data: bytes) -> str:
    with suppress(UnicodeDecodeError):
        return data.decode()
    return f"base64:{b64encode(data).decode()}"
