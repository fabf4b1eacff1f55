"""Segments in, appends out: the entries that a log gets from elsewhere, and the import record that goes with them.

An append whose outcome is unknown, because the connection broke, is looked up: the record is what it was, or what it
was to become, or somebody else's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Opened, Segment, join
from isthmus.runtime.log.content import NOTHING, Content
from isthmus.runtime.log.content import decode as decode_content
from isthmus.runtime.log.flow import Passing
from isthmus.runtime.log.interface import Entry, Log, LogProblem, Refused, State, Superseded, TooMany
from isthmus.runtime.log.ledger import Record, decode, encode, named, numbered, numbers_of
from isthmus.runtime.log.place import LogPlace
from isthmus.topology.kinds.log import OnRefusal

log = logging.getLogger(__name__)

MOST_MESSAGES = 4096
MOST_BYTES = 1 << 20
"""What one append takes at most; one entry may be larger by itself."""

Patiently = Callable[..., Awaitable[Any]]
"""Calls a method of the log until the broker answers."""


class Done(NamedTuple):
    """These messages are dealt with. Those in `aside` are not in the log: they were refused, or did not pass."""

    segment: Segment
    aside: Sequence[Opened] = ()


class _Way(NamedTuple):
    """What all entries of one origin have in common. `is_log`: whether its messages are encoded `Content`."""

    name: str
    path: str
    part: int
    is_log: bool
    passing: Passing | None


class Appending:
    """What waits to be appended, and the record as the broker has it. `accepted` is the record with what is under way.

    `missing` are the numbers that were parked and that reading may still come by; `skips` are the systems of which some
    messages were not to be appended, so that their numbers may have gaps in the log; `retried` are messages that were
    parked and appended later, and that no checkpoint has behind it yet.
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
        self.missing = numbers_of(record.parked, place.names)
        self.skips = set(record.skips)
        self._ways: dict[ProcessId, _Way] = {}
        self.retried = numbers_of(record.retried, place.names)
        self._waiting: deque[Segment] = deque()
        self.bytes_waiting = 0
        self._most = MOST_MESSAGES

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def is_in(self, origin: ProcessId) -> int:
        """Up to which number messages of an origin are in the log, or may be."""
        return self.accepted.get(origin)

    def add(self, segment: Segment) -> None:
        self._waiting.append(segment)
        self.bytes_waiting += segment.payload_bytes

    async def append(self) -> Done:
        """Append the next messages: as many as fit one append, and none behind one that is put aside.

        Whoever reads the log has to have heard of that one before it sees what stands behind it.
        """
        batch = join(self._next())
        aside: list[Opened] = []
        done = 0
        while batch and not done:
            messages = list(batch.cut(self._most)[0])
            try:
                await self._write(messages, aside)
                done = len(messages)
            except TooMany as too_many:
                self._most = too_many.most
            except Refused as refused:
                await self._write(messages[: refused.index], aside)
                await self._park(messages[refused.index], refused.reason)
                aside.append(messages[refused.index])
                done = refused.index + 1
        batch, rest = batch.cut(done)
        if rest:
            self._waiting.appendleft(rest)
            self.bytes_waiting += rest.payload_bytes
        return Done(batch, aside)

    async def retry(self, origin: ProcessId, entry: Entry) -> None:
        """Append an entry that was parked, and say so in the record. Raises `Refused` if it is refused again."""
        system = self._place.names.name(origin).system
        passing = self._place.passing(system)
        content = entry.content if passing is None else passing(entry.content)
        if content is None:
            raise Refused(0, f"joins.of does not let it pass into {self._place.system.name}")
        message = origin, entry.seq
        self.retried.add(message)
        try:
            again = Entry(content, entry.origin, entry.seq, self._place.paths[system], entry.part)
            await self._surely(self.marks, self._log.append, [again])
        except Refused:
            self.retried.discard(message)
            raise

    def _next(self) -> list[Segment]:
        taken: list[Segment] = []
        messages = size = 0
        while self._waiting and messages < self._most and size < MOST_BYTES:
            segment = self._waiting.popleft()
            fitting = segment.fitting(self._most - messages, MOST_BYTES - size, MOST_BYTES)
            segment, rest = segment.cut(max(1, fitting))
            if rest:
                self._waiting.appendleft(rest)
            taken.append(segment)
            messages += segment.messages
            size += segment.payload_bytes
        self.bytes_waiting -= size
        return taken

    async def _write(self, messages: Sequence[Opened], aside: list[Opened]) -> None:
        """Append all of these that pass. `Refused` names the first of the messages that is not taken."""
        entries, places, skipped = [], [], []
        for place, (origin, seq, payload) in enumerate(messages):
            way = self._ways.get(origin) or self._way_of(origin)
            try:
                content = decode_content(payload) if way.is_log else Content(body=payload)
            except ValueError as error:
                raise Refused(place, str(error)) from error
            passes: Content | None = content
            if content.place < 0 and content == NOTHING:
                passes = None
            elif way.passing is not None:
                passes = way.passing(content)
            if passes is None:
                skipped.append(messages[place])
                self.skips.add(self._place.names.name(origin).system)
            else:
                places.append(place)
                entries.append(Entry(passes, way.name, seq, way.path, way.part))
        if messages:
            self.accepted = after = self._record_with(messages)
            try:
                await self._surely(after, self._log.append, entries)
            except Refused as refused:
                raise Refused(places[refused.index], refused.reason) from refused
            self.marks = after
            aside.extend(skipped)

    def _way_of(self, origin: ProcessId) -> _Way:
        place, name = self._place, self._place.names.name(origin)
        is_log, passing = slot_of(origin) in place.logs, place.passing(name.system)
        way = _Way(str(name), place.paths[name.system], place.part_for(origin), is_log, passing)
        self._ways[origin] = way
        return way

    def _entry(self, origin: ProcessId, seq: int, content: Content) -> Entry:
        way = self._way_of(origin)
        return Entry(content, way.name, seq, way.path, way.part)

    def _record_with(self, messages: Sequence[Opened]) -> SlotMarks:
        after = self.marks.copy()
        after.update({origin: seq for origin, seq, _ in messages})
        return after

    async def _park(self, message: Opened, reason: str) -> None:
        origin, seq, payload = message
        name, here = self._place.names.name(origin), self._place.system.name
        if self._on_refusal == "stop":
            raise LogProblem(
                f"{here}: the broker refuses message {seq} of {name}: {reason}. Change what the broker takes, or write "
                f'on-refusal = "park" in systems.{here}.'
            )
        log.warning("%s: message %d of %s was refused and is parked: %s", here, seq, name, reason)
        self.missing.add((origin, seq))
        self.accepted = after = self._record_with([message])
        try:
            content = self._place.content_of(origin, payload)
        except ValueError:
            content = Content(body=payload)
        await self._surely(after, self._log.park, self._entry(origin, seq, content), reason)
        self.marks = after

    async def _surely(self, after: SlotMarks, write: Callable[..., Awaitable[None]], *what: object) -> None:
        """Write, with the record that follows; after a broken connection find out what has come of it."""
        names = self._place.names
        record = encode(
            Record(
                marks=named(after.counted(), names),
                parked=named(sorted(self.missing), names),
                skips=sorted(self.skips),
                retried=named(sorted(self.retried), names),
            )
        )
        unknown = False

        async def attempt() -> None:
            nonlocal unknown
            if unknown:
                state: State = await self._log.state()
                if state.token != self._token:
                    raise Superseded
                if state.record == record:
                    return
                if state.record != self._written:
                    # The broker has lost more than this append: whoever claims next begins with what is left.
                    raise Superseded
            unknown = True
            await write(*what, record, self._written)

        await self._patiently(attempt)
        self._written = record
