"""Load generators: what sends messages of no meaning from the processes of a site, steadily or as fast as it goes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from time import perf_counter
from typing import Any

from msgspec import Struct

from isthmus.core.ids import ProcessId
from isthmus.core.message import Addressed
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite

TICK = 0.01
"""Seconds between two sends at a steady rate."""
AT_ONCE = 64 << 10
"""Bytes per call of a sender that never pauses."""
ANSWERED = 0.5
"""The chance that a message is answered, by a message to whomever its sender wrote to before: chains of causes."""


class Load(Struct, frozen=True):
    """`count` messages of `size` bytes, `rate` of them per second; without a rate, as fast as back-pressure allows."""

    size: int
    rate: float | None = None
    count: int = sys.maxsize
    tick: float = TICK


async def send_steadily(load: Load, send: Callable[[int], Awaitable[object]]) -> None:
    """Have `send` send so many, again and again, until it is refused because the process ends.

    It keeps to the rate on average: what a slow moment left out is made up for, unless back-pressure says no.
    """
    at_once = max(1, min(1024, AT_ONCE // max(1, load.size)))
    started, sent = perf_counter(), 0
    try:
        while sent < load.count:
            due = at_once if load.rate is None else int((perf_counter() - started) * load.rate) - sent
            due = min(due, load.count - sent)
            if due > 0:
                await send(due)
                sent += due
            if load.rate is not None:
                await asyncio.sleep(load.tick)
    except NotAccepting:
        """What was accepted is the business of the process now."""


class Conversation:
    """A load on processes whose messages are for some others each: they write to anybody, and answer what they get."""

    def __init__(self, site: AddressedSite[Any], size: int) -> None:
        self.site = site
        self.delivered: Counter[ProcessId] = Counter()
        self.answers = True
        self._size = size
        self._rng = Random()
        self._before: dict[ProcessId, ProcessId] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def take(self, here: ProcessId, message: Addressed) -> None:
        self.delivered[here] += 1
        # One answer for every two messages, whatever the number of those who get them: else it would never end.
        chance = ANSWERED / len(message.destinations)
        if self.answers and len(message.payload) >= 2 and self._rng.random() < chance:
            task = asyncio.ensure_future(self._answer(here, int.from_bytes(message.payload[:2], "big")))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def write_to_anybody(self, driver: AddressedDriver[Any], count: int) -> None:
        for _ in range(count):
            await self._write(driver, self._rng.choice(self.site.everybody))

    async def _answer(self, here: ProcessId, named: ProcessId) -> None:
        if named in self.site.everybody:
            try:
                await self._write(self.site.drivers[self.site.names.name(here).process], named)
            except NotAccepting:
                """The system ends."""

    async def _write(self, driver: AddressedDriver[Any], target: ProcessId) -> None:
        """The first two bytes name whom this process wrote to before: whoever answers writes there."""
        me = driver.endpoint.id
        before = self._before.get(me, target)
        self._before[me] = target
        await self.site.write(driver, target, before.to_bytes(2, "big") + bytes(max(0, self._size - 2)), self._rng)
