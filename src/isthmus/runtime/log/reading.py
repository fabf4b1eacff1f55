"""Entries in, segments out: whose each entry is, and which number it has.

An entry was brought in by us if its headers say so and all of this is true: they name the one way by which messages of
that origin come here, the number is the next one of its origin in this log, and it lies within the import record.
Clients copy headers; what was copied from this log has an older number, what was copied from another one names another
way. Everything else is the log's own, and gets the next number of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Opened, Segment
from isthmus.runtime.log.content import TooLarge, encode
from isthmus.runtime.log.interface import Entry, Position, Slice, Trimmed
from isthmus.runtime.log.ledger import Checkpoint, id_of, named, numbered, numbers_of
from isthmus.runtime.log.place import LogPlace

_MOST_NAMES = 65_536
"""Of origins in headers, remembered with the processes that they stand for."""


class Stretch(NamedTuple):
    """What was read in one go: its marks, the place behind it and all marks there, and its size."""

    marks: tuple[tuple[ProcessId, int], ...]
    position: Position
    there: tuple[tuple[ProcessId, int], ...]
    messages: int
    size: int
    retried: frozenset[tuple[ProcessId, int]]


class Oversized(NamedTuple):
    """An entry of the log's own that is too large to be carried anywhere."""

    entry: Entry
    reason: str


class Headers:
    """What an entry's headers may say to be believed: everything but what only its place in the log shows.

    `is_in` says of an origin up to which number it is in the import record. `retried` are messages that were put aside
    and brought in later (docs/design/brokers.md, "What was put aside"): each is believed once.
    """

    def __init__(
        self, place: LogPlace, is_in: Callable[[ProcessId], int], retried: Iterable[tuple[ProcessId, int]] = ()
    ) -> None:
        self._place = place
        self._is_in = is_in
        self.retried = set(retried)
        self._ways: dict[str, tuple[ProcessId, str] | None] = {}

    def origin_of(self, entry: Entry) -> ProcessId | None:
        """Whom it is from, if it names one of elsewhere, the way here, and a number that was brought in."""
        origin = self._named(entry)
        return origin if origin is not None and 0 < entry.seq <= self._is_in(origin) else None

    def is_beyond(self, entry: Entry) -> bool:
        """Whether only its number speaks against it: nobody has brought in so many, as far as we know."""
        origin = self._named(entry)
        return origin is not None and entry.seq > self._is_in(origin)

    def _named(self, entry: Entry) -> ProcessId | None:
        """The process of elsewhere that an entry names, if it names the way here, too."""
        name = entry.origin
        if not name:
            return None
        way = self._ways[name] if name in self._ways else self._way_of(name)
        return None if way is None or entry.path != way[1] else way[0]

    def _way_of(self, name: str) -> tuple[ProcessId, str] | None:
        """Who has this name, if that is one of elsewhere, and by which systems its messages come here."""
        if len(self._ways) >= _MOST_NAMES:  # clients may write what they like there
            self._ways.clear()
        origin = id_of(name, self._place.names)
        path = self._place.paths.get(name.partition("/")[0])
        way = None
        if origin is not None and path is not None and slot_of(origin) not in self._place.parts:
            way = origin, path
        self._ways[name] = way
        return way

    def is_retried(self, origin: ProcessId, seq: int) -> bool:
        """Whether this is what was put aside before and appended later; asked a second time, it is a copy."""
        if (origin, seq) not in self.retried:
            return False
        self.retried.discard((origin, seq))
        return True


class Reading:
    """Where reading stands in the log: behind `position`, where the `marks` are.

    `is_in` says of an origin up to which number it is in the import record, with what is being appended; `skips` are
    the systems whose numbers may have gaps. `aside` are messages that have no entry, each with the read during which it
    was put there; `oversized` are entries of the last slice that cannot be carried; `retried` are messages that were
    put aside once and whose entries were read.
    """

    def __init__(
        self,
        place: LogPlace,
        checkpoint: Checkpoint,
        is_in: Callable[[ProcessId], int],
        skips: Collection[str] = frozenset(),
        retried: Collection[tuple[ProcessId, int]] = frozenset(),
    ) -> None:
        self.place = place
        self.lives = checkpoint.lives
        self.again = checkpoint.again
        self.position = checkpoint.position
        self.marks = numbered(checkpoint.marks, place.names)
        self._skips = skips
        self.aside: dict[ProcessId, dict[int, tuple[int, bytes]]] = {}
        self._reads = 0
        self.oversized: list[Oversized] = []
        self._own = place.origins(checkpoint.lives)
        came = numbers_of(checkpoint.retried, place.names)
        self._headers = Headers(place, is_in, set(retried) - came)
        self.retried = came

    def may_come_again(self, retried: Iterable[tuple[ProcessId, int]]) -> None:
        """These were put aside and have been appended since."""
        self._headers.retried |= set(retried) - self.retried

    def begin_anew(self, position: Position) -> None:
        """Go on from here after a loss that somebody has accepted: as a new origin, whose numbers begin at 1."""
        self.lives += 1
        self.again = True
        self.position = position
        self._own = self.place.origins(self.lives)

    def begin(self) -> int:
        """Another read begins. What is put aside from here on may belong behind what it brings. Returns its number."""
        self._reads += 1
        return self._reads

    def is_puzzled_by(self, read: Slice) -> bool:
        """Whether some entry looks as if it had been brought in, but by somebody who knows more than we."""
        return any(entry.origin and self._headers.is_beyond(entry) for entry in read.entries)

    def take(self, read: Slice, number: int | None = None) -> tuple[list[Segment], Stretch]:
        """The messages that these entries are, in their order. `number` is that of the read that brought them.

        Without one it is the latest read.
        """
        number = self._reads if number is None else number
        messages: list[Opened] = []
        for entry in read.entries:
            origin = self._brought_in(entry) if entry.origin else None
            if origin is None:
                self._add_own(entry, messages)
            elif entry.seq > self.marks.get(origin):
                if self.aside:
                    self._add_aside(origin, entry.seq, self._reads + 1, messages)
                self._add(messages, origin, entry.seq, self.place.payload_of(origin, entry.content))
        if not read.entries:
            # Everything has been read that was there, so it is the turn of what was put aside before.
            for origin in list(self.aside):
                self._add_aside(origin, max(self.aside[origin]) + 1, number, messages)
            self.again = False
        self.position = read.position
        marks = {origin: seq for origin, seq, _ in messages}
        size = sum([len(payload) for _, _, payload in messages])
        stretch = Stretch(
            tuple(marks.items()),
            read.position,
            tuple(self.marks.counted()),
            len(messages),
            size,
            frozenset(self.retried),
        )
        most = MAX_SEGMENT_MESSAGES
        return [Segment.pack(messages[start : start + most]) for start in range(0, len(messages), most)], stretch

    def _add_own(self, entry: Entry, messages: list[Opened]) -> None:
        try:
            payload = encode(entry.content)
        except TooLarge as error:
            self.oversized.append(Oversized(entry, str(error)))
            return
        own = self._own[entry.part]
        self._add(messages, own, self.marks.get(own) + 1, payload)

    def _add(self, messages: list[Opened], origin: ProcessId, seq: int, payload: bytes) -> None:
        self.marks.raise_to(origin, seq)
        messages.append((origin, seq, payload))

    def _brought_in(self, entry: Entry) -> ProcessId | None:
        """Whose entry it is that we brought in; None if we did not, or if it is a copy of one that we brought in."""
        origin = self._headers.origin_of(entry)
        if origin is None:
            return None
        name = entry.origin
        before = self.marks.get(origin)
        if entry.seq == before + 1 and not self._headers.retried:
            return origin
        is_retried = self._headers.is_retried(origin, entry.seq)
        if is_retried:
            self.retried.add((origin, entry.seq))
        if entry.seq <= before:
            return origin if self.again or is_retried else None
        aside = self.aside.get(origin, ())
        may_miss = self.again or name.partition("/")[0] in self._skips
        for seq in range(before + 1, entry.seq):
            if seq not in aside:
                if not may_miss:
                    raise Trimmed(f"message {seq} of {name} was brought in and is gone from the log")
                self.put_aside(origin, seq, self.place.nothing_of(origin))
        return origin

    def put_aside(self, origin: ProcessId, seq: int, payload: bytes) -> None:
        """This one has no entry here. Those who hear of this log through us may get it all the same."""
        self.aside.setdefault(origin, {})[seq] = self._reads, payload

    def _add_aside(self, origin: ProcessId, before: int, reads: int, messages: list[Opened]) -> None:
        """Put in their places what comes before this number of its origin and was put aside before so many reads."""
        aside = self.aside.get(origin)
        while aside and (due := self.marks.get(origin) + 1) < before and due in aside and aside[due][0] < reads:
            self._add(messages, origin, due, aside.pop(due)[1])
        if aside is not None and not aside:
            del self.aside[origin]

    def checkpoint(
        self, position: Position, there: Iterable[tuple[ProcessId, int]], retried: Iterable[tuple[ProcessId, int]]
    ) -> Checkpoint:
        names = self.place.names
        return Checkpoint(
            lives=self.lives,
            again=self.again,
            position=position,
            marks=named(there, names),
            retried=named(sorted(retried), names),
        )
