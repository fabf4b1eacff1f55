"""What a log holds, in columns of numbers: whose each entry is, and digests of what it says.

Whose an entry is, is decided as the gateway decides it (`reading.py`), but that nothing is refused here: what the
gateway would stop at is what a comparison is there to find.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple

from isthmus.core.ids import ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.runtime.log.content import Content, TooLarge, encode
from isthmus.runtime.log.flow import Passing
from isthmus.runtime.log.interface import BEGINNING, Entry, Position, State
from isthmus.runtime.log.ledger import Checkpoint, Record, decode, numbered, numbers_of
from isthmus.runtime.log.outside import Outside
from isthmus.runtime.log.reading import Headers
from isthmus.runtime.problems import RuntimeProblem

BYTES_PER_ENTRY = 6 * 8 + 1
"""Of memory: whose it is, its number, three digests, its place among the log's own, and one byte of marks."""

_SLICE_ENTRIES, _SLICE_BYTES = 2048, 1 << 20
_FEW, _SMALL = 64, 64 << 10
"""Entries and bytes of a slice that is near the end of a log that grows."""
_MOST_PARKED = 1_000_000
_BARE = 1
_LARGE = MAX_PAYLOAD // 2

_CARRIED_ELSEWHERE = frozenset((b"key", b"subject"))
"""Fields in which Redis keeps what other kinds have beside their headers."""


class Suspect(NamedTuple):
    """An entry that says it is one that was read before: twice, late, or with headers that a client copied."""

    place: int
    origin: ProcessId
    seq: int


class Contents:
    """One log, read from its beginning to where `follow` came, in its order.

    Entry i is message `seqs[i]` of `origins[whose[i]]`; of the log's own, `own[part]` are the places, in their order.
    `complete`: nothing stood behind what was read when it was read.
    """

    def __init__(self, outside: Outside, fars: Iterable[tuple[str, Passing]] = ()) -> None:
        self.outside = outside
        self.place = outside.place
        self.name = outside.name
        self.origins: list[ProcessId] = []
        self.whose, self.seqs = array("q"), array("q")
        self.bodies, self.headers, self.keys = array("Q"), array("Q"), array("Q")
        self.flags = bytearray()
        self.own: list[array[int]] = []
        self.suspects: list[Suspect] = []
        self.parked: set[tuple[ProcessId, int]] = set()
        self.retried: set[tuple[ProcessId, int]] = set()
        """Messages that were put aside and appended later: they are not where they should be, as was asked for."""
        self.complete = False
        self.is_known = False
        """Whether a gateway of this run ever held the claim."""
        self._fars = dict(fars)
        self.filtered: dict[str, array[int]] = {name: array("q") for name in self._fars}
        """By the other system: places of what does not pass on the way there."""
        self.marks = SlotMarks()
        self.record = SlotMarks()
        self.settled = SlotMarks()
        """A record all of whose messages were there to be read."""
        self._indexes: dict[ProcessId, int] = {}
        self._position: Position = BEGINNING
        self._headers = Headers(self.place, self._is_in)
        self._known_retried: set[tuple[ProcessId, int]] = set()

    def __len__(self) -> int:
        return len(self.whose)

    async def begin(self) -> None:
        state = await self.outside(self.outside.log.state)
        self.is_known = state.token > 0
        lives = 0
        if state.checkpoint:
            checkpoint = decode(state.checkpoint, Checkpoint, self.name)
            lives = checkpoint.lives
            self._learn_retried(numbers_of(checkpoint.retried, self.place.names))
        self.own_origins = self.place.origins(lives)
        self.own = [array("q") for _ in self.own_origins]
        self._own_indexes = [self._index_of(origin) for origin in self.own_origins]
        self._learn(state)
        self._position = await self.outside(self.outside.log.find, "start")

    def _is_in(self, origin: ProcessId) -> int:
        return self.record.get(origin)

    def _learn(self, state: State) -> None:
        if state.record:
            record = decode(state.record, Record, self.name)
            self.record = numbered(record.marks, self.place.names)
            self.parked |= numbers_of(record.parked, self.place.names)
            self._learn_retried(numbers_of(record.retried, self.place.names))

    def _learn_retried(self, retried: set[tuple[ProcessId, int]]) -> None:
        self._headers.retried |= retried - self._known_retried
        self._known_retried |= retried

    async def follow(self, until: float, tell: Callable[[str, int], None]) -> int:
        """Read on to the end; how many entries came. A log that never ends for now is followed until then."""
        before, loop = len(self), asyncio.get_running_loop()
        log, outside = self.outside.log, self.outside
        while True:
            got = await outside(log.read, self._position, _SLICE_ENTRIES, _SLICE_BYTES)
            self._position = got.position
            self.complete = not got.entries
            if self.complete:
                # This record is older than the reading that found nothing more.
                self.settled = self.record
                break
            # And this one is younger than what was read, so it covers it.
            self._learn(await outside(log.state))
            for entry in got.entries:
                self._add(entry)
            tell(self.name, len(self))
            if loop.time() >= until and len(got.entries) < _FEW and _size(got.entries) < _SMALL:
                break
        for parked in await outside(log.parked, _MOST_PARKED):
            origin, seq = self._origin_of_parked(parked.entry), parked.entry.seq
            if origin is not None:
                self.parked.add((origin, seq))
        return len(self) - before

    def _origin_of_parked(self, entry: Entry) -> ProcessId | None:
        found = numbers_of([(entry.origin, entry.seq)], self.place.names) if entry.origin else set()
        return next(iter(found))[0] if found else None

    def _add(self, entry: Entry) -> None:
        content = entry.content
        if len(content.body) > _LARGE or len(content.headers) > 100:
            try:
                encode(content)
            except TooLarge:
                return  # nobody carries it, and it has no number
        place = len(self.whose)
        origin = self._headers.origin_of(entry)
        if origin is not None:
            is_retried = self._headers.is_retried(origin, entry.seq)
            if is_retried:
                self.retried.add((origin, entry.seq))
            if entry.seq > self.marks.get(origin) or is_retried:
                self.marks.raise_to(origin, entry.seq)
                self._put(self._index_of(origin), entry.seq, content, 0)
                return
            self.suspects.append(Suspect(place, origin, entry.seq))
        for name, passes in self._fars.items():
            if passes(content) is None:
                self.filtered[name].append(place)
        own = self.own[entry.part]
        own.append(place)
        self._put(self._own_indexes[entry.part], len(own), content, 0 if entry.origin else _BARE)

    def _put(self, index: int, seq: int, content: Content, flags: int) -> None:
        self.whose.append(index)
        self.seqs.append(seq)
        self.bodies.append(_digest(content.body))
        key = content.key
        headers = content.headers
        if headers:
            if key is None:
                key = next((value for name, value in headers if name == b"key"), None)
            headers = sorted(
                pair for pair in headers if pair[0] not in _CARRIED_ELSEWHERE and pair[0][:5].lower() != b"nats-"
            )
        self.headers.append(_digest(*(part for pair in headers for part in pair)) if headers else 0)
        self.keys.append(0 if key is None else _digest(key))
        self.flags.append(flags)

    def _index_of(self, origin: ProcessId) -> int:
        index = self._indexes.get(origin)
        if index is None:
            index = self._indexes[origin] = len(self.origins)
            self.origins.append(origin)
        return index

    def index_of(self, origin: ProcessId) -> int:
        """Which of `origins` this is; -1: there is nothing of it here."""
        return self._indexes.get(origin, -1)

    def is_bare(self, place: int) -> bool:
        """Whether no header says that it comes from elsewhere."""
        return bool(self.flags[place] & _BARE)


def _size(entries: Iterable[Entry]) -> int:
    return sum(len(entry.content.body) for entry in entries)


def _digest(*parts: bytes) -> int:
    digest = blake2b(digest_size=8)
    for part in parts:
        if len(parts) > 1:
            digest.update(b"%d:" % len(part))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big")


async def begun(contents: Iterable[Contents], run: str) -> None:
    """Begin all of these; `RuntimeProblem` where this run never was."""
    for each in contents:
        await each.begin()
        if not each.is_known:
            raise RuntimeProblem(
                f"{each.name}: no gateway of the run {run!r} ever held the claim there. Name the run as `isthmus run` "
                "was told to, with --run."
            )
