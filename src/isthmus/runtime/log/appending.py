"""Segments in, appends out: the entries that a log gets from elsewhere, and the import record that goes with them.

An append whose outcome is unknown, because the connection broke, is looked up: the record is what it was, or what it
was to become, or somebody else's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from isthmus.core.ids import ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Segment
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogProblem, Refused, State, Superseded, Unavailable
from isthmus.runtime.log.ledger import Record, decode, encode, id_of, named, numbered
from isthmus.runtime.log.place import LogPlace
from isthmus.topology.kinds.log import OnRefusal

MOST_MESSAGES = 4096
MOST_BYTES = 1 << 20
"""What one append takes at most; one entry may be larger by itself."""

Patiently = Callable[..., Awaitable[Any]]
"""Calls a method of the log until the broker answers."""


class Done(NamedTuple):
    """What has happened to these messages: they are in the log, or `parked`, with their payloads."""

    segment: Segment
    parked: bool = False


class Appending:
    """What waits to be appended, and the record as the broker has it. `accepted` is the record with what is under way.

    `missing` are the numbers that were parked and that reading may still come by.
    """

    def __init__(self, place: LogPlace, log: Log, state: State, on_refusal: OnRefusal, patiently: Patiently) -> None:
        self._place = place
        self._log = log
        self._token = state.token
        self._written = state.record
        self._on_refusal = on_refusal
        self._patiently = patiently
        record = decode(state.record, Record, place.system.name) if state.record else Record()
        self.marks = numbered(record.marks, place.names)
        self.accepted = self.marks.copy()
        parked = [(id_of(name, place.names), seq) for name, seq in record.parked]
        self.missing = {(origin, seq) for origin, seq in parked if origin is not None}
        self._waiting: deque[Segment] = deque()
        self.bytes_waiting = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def is_in(self, origin: ProcessId) -> int:
        """Up to which number messages of an origin are in the log, or may be."""
        return self.accepted.get(origin)

    def add(self, segment: Segment) -> None:
        self._waiting.append(segment)
        self.bytes_waiting += segment.payload_bytes

    async def append(self) -> list[Done]:
        """Append the next messages, as many as fit one append."""
        segments = self._next()
        entries = [(origin, seq, payload) for segment in segments for origin, seq, payload in segment]
        done: list[Done] = []
        while entries:
            try:
                made = [self._entry(*each, place) for place, each in enumerate(entries)]
                await self._write(made, self._record_with(entries))
            except Refused as refused:
                if refused.index:
                    fine, entries = entries[: refused.index], entries[refused.index :]
                    await self._write([self._entry(*each, 0) for each in fine], self._record_with(fine))
                    done.append(Done(Segment.pack(fine)))
                done.append(await self._put_aside(entries.pop(0), refused.reason))
            else:
                done.append(Done(Segment.pack(entries)))
                entries = []
        return done

    def _next(self) -> list[Segment]:
        taken: list[Segment] = []
        messages = size = 0
        while self._waiting and messages < MOST_MESSAGES and size < MOST_BYTES:
            segment = self._waiting.popleft()
            fitting = segment.fitting(MOST_MESSAGES - messages, MOST_BYTES - size, MOST_BYTES)
            segment, rest = segment.cut(max(1, fitting))
            if rest:
                self._waiting.appendleft(rest)
            taken.append(segment)
            messages += segment.messages
            size += segment.payload_bytes
        self.bytes_waiting -= size
        return taken

    def _entry(self, origin: ProcessId, seq: int, payload: bytes, place: int) -> Entry:
        name = self._place.names.name(origin)
        try:
            content = self._place.content_of(origin, payload)
        except ValueError as error:
            raise Refused(place, str(error)) from error
        return Entry(content, str(name), seq, self._place.paths[name.system], self._place.part_for(origin))

    def _record_with(self, entries: list[tuple[ProcessId, int, bytes]]) -> SlotMarks:
        after = self.marks.copy()
        for origin, seq, _ in entries:
            after.raise_to(origin, seq)
        return after

    async def _write(self, entries: list[Entry], after: SlotMarks) -> None:
        self.accepted = after
        await self._surely(after, self._log.append, entries)
        self.marks = after

    async def _put_aside(self, message: tuple[ProcessId, int, bytes], reason: str) -> Done:
        origin, seq, payload = message
        name = str(self._place.names.name(origin))
        if self._on_refusal == "stop":
            raise LogProblem(
                f"{self._place.system.name}: the broker refuses message {seq} of {name}: {reason}. Change what the "
                f'broker takes, or write on-refusal = "park" in systems.{self._place.system.name}.'
            )
        after = self._record_with([message])
        self.missing.add((origin, seq))
        self.accepted = after
        try:
            entry = self._entry(origin, seq, payload, 0)
        except Refused:
            entry = Entry(Content(body=payload), name, seq)
        await self._surely(after, self._log.park, entry, reason)
        self.marks = after
        return Done(Segment.pack([message]), parked=True)

    async def _surely(self, after: SlotMarks, write: Callable[..., Awaitable[None]], *what: object) -> None:
        """Write, with the record that follows; after a broken connection find out what has come of it."""
        names = self._place.names
        record = encode(Record(marks=named(after.counted(), names), parked=named(sorted(self.missing), names)))
        while True:
            try:
                await write(*what, record, self._written)
                break
            except Unavailable:
                state: State = await self._patiently(self._log.state)
                if state.token != self._token:
                    raise Superseded from None
                if state.record == record:
                    break
                if state.record != self._written:
                    raise LogProblem(
                        f"{self._place.system.name}: the broker's import record is neither what it was nor what we "
                        "wrote: it has been changed or set back. Start again, which reads it anew."
                    ) from None
        self._written = record
