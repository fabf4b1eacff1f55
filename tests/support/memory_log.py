"""A broker in memory that keeps every promise of a log, and can be told to be away, to refuse, or to lose things.

For tests of what stands on the interface: the real brokers have the conformance suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    Parked,
    Position,
    Recreated,
    Refused,
    Slice,
    State,
    Superseded,
    TooMany,
    Trimmed,
    Unavailable,
)


class MemoryBroker:
    """The entries and the state. `away` refuses all calls, `breaks` the answers of so many appends that are done.

    An append takes `most` entries, if that is not 0. What is written becomes durable while `disk` is set; `crash` loses
    everything since it was not.
    """

    def __init__(self, parts: int = 1) -> None:
        self.entries: list[Entry] = []
        self.parts = parts
        self.first = 0
        self.identity = 1
        self.state = State(0, b"", b"")
        self.holder: object = None
        self.lease_over = 0.0
        self.parked: list[tuple[Entry, str]] = []
        self.away = False
        self.breaks = 0
        self.most = 0
        self.refuses: Callable[[Entry], str] = lambda entry: ""
        self.news = asyncio.Event()
        self.disk = asyncio.Event()
        self.disk.set()
        self._on_disk = (0, self.state)

    def fill_disk(self) -> None:
        """From here on nothing becomes durable."""
        self.disk.clear()
        self._on_disk = (len(self.entries), self.state)

    def crash(self) -> None:
        """Come back with what was durable; it is on disk again from then on."""
        length, state = self._on_disk
        del self.entries[length:]
        # Nobody loses a claim: it is on disk before anybody hears of it.
        self.state = state._replace(token=self.state.token)
        self.disk.set()

    def write(self, *bodies: bytes, part: int = 0) -> None:
        """As a client that knows nothing of us."""
        self.put(*(Entry(Content(body=body), part=part) for body in bodies))

    def put(self, *entries: Entry) -> None:
        self.entries += entries
        self.news.set()
        self.news = asyncio.Event()

    def trim(self, keep: int) -> None:
        self.first = max(self.first, len(self.entries) - keep)

    def bodies(self) -> list[bytes]:
        return [entry.content.body for entry in self.entries]


class MemoryLog:
    """One adapter on it."""

    _numbers = count()

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.me = next(self._numbers)
        self.token = -1

    def _answer(self) -> None:
        if self.broker.away:
            raise Unavailable("it is away")

    async def open(self) -> Sequence[str]:
        self._answer()
        return ()

    async def claim(self, holder: str, lease: float) -> State | None:
        self._answer()
        broker, now = self.broker, asyncio.get_running_loop().time()
        if broker.holder not in (None, self.me) and broker.lease_over > now:
            return None
        broker.holder, broker.lease_over = self.me, now + lease
        broker.state = broker.state._replace(token=broker.state.token + 1)
        self.token = broker.state.token
        return broker.state

    def _check(self) -> None:
        self._answer()
        if self.token != self.broker.state.token:
            raise Superseded

    async def renew(self, lease: float) -> None:
        self._check()
        self.broker.lease_over = asyncio.get_running_loop().time() + lease

    async def release(self) -> None:
        self._answer()
        if self.token == self.broker.state.token:
            self.broker.lease_over = 0

    async def state(self) -> State:
        self._answer()
        return self.broker.state

    async def find(self, start: str) -> Position:
        self._answer()
        place = len(self.broker.entries) if start == "now" else self.broker.first if start == "start" else int(start)
        return f"{self.broker.identity}/{place}"

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        self._answer()
        broker = self.broker
        identity, _, place = after.partition("/")
        if after != BEGINNING and int(identity) != broker.identity:
            raise Recreated("it is another log")
        begin = int(place or 0)
        if begin < broker.first:
            raise Trimmed(f"{broker.first - begin} entries are gone")
        if begin == len(broker.entries):
            try:
                await asyncio.wait_for(broker.news.wait(), 0.05)
            except TimeoutError:
                return Slice((), after)
            self._answer()
        taken = broker.entries[begin : begin + entries]
        return Slice(taken, f"{broker.identity}/{begin + len(taken)}")

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        self._check()
        broker = self.broker
        if broker.state.record != expected:
            raise Superseded
        if 0 < broker.most < len(entries):
            raise TooMany(broker.most)
        for index, entry in enumerate(entries):
            if reason := broker.refuses(entry):
                raise Refused(index, reason)
        await asyncio.sleep(0)
        self._check()
        broker.put(*entries)
        broker.state = broker.state._replace(record=record)
        if broker.breaks:
            broker.breaks -= 1
            raise Unavailable("the connection broke")

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        self._check()
        assert self.broker.state.record == expected
        self.broker.parked.append((entry, reason))
        self.broker.state = self.broker.state._replace(record=record)

    async def parked(self, limit: int) -> Sequence[Parked]:
        self._answer()
        return [Parked(f"{entry.origin}-{entry.seq}", why, entry) for entry, why in self.broker.parked][:limit]

    async def unpark(self, id: str) -> None:
        self._answer()
        self.broker.parked = [each for each in self.broker.parked if f"{each[0].origin}-{each[0].seq}" != id]

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        self._check()
        self.broker.state = self.broker.state._replace(checkpoint=checkpoint)

    async def durable(self) -> None:
        self._answer()
        await self.broker.disk.wait()

    async def close(self) -> None:
        """Nothing to let go of."""
