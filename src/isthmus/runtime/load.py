"""Load generators: what sends messages of no meaning from the processes of a site, steadily or as fast as it goes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from socket import socket
from time import perf_counter
from typing import Any

from msgspec import Struct

from isthmus.core.ids import ProcessId
from isthmus.core.message import Addressed, Batch
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.site import Site
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite

TICK = 0.01
"""Seconds between two sends at a steady rate."""
AT_ONCE = 64
AT_ONCE_BYTES = 64 << 10
"""Messages and bytes per call of a sender that never pauses."""
ANSWERED = 0.5
"""The chance that a message is answered, by a message to whomever its sender wrote to before: chains of causes."""


class LoadPlan(Struct, frozen=True):
    """`count` messages of `size` bytes, `rate` of them per second; without a rate, as fast as back-pressure allows."""

    size: int
    rate: float | None = None
    count: int = sys.maxsize
    tick: float = TICK


async def send_steadily(load: LoadPlan, send: Callable[[int], Awaitable[object]]) -> None:
    """Have `send` send so many, again and again, until it is refused because the process ends.

    It keeps to the rate on average: what a slow moment left out is made up for, unless back-pressure says no.
    """
    at_once = max(1, min(AT_ONCE, AT_ONCE_BYTES // max(1, load.size)))
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


class Broadcasting:
    """A load on the processes of a site that broadcasts; `delivered` counts what each of them gets."""

    def __init__(self, site: Site, *, joining: bool = False) -> None:
        self.site = site
        self.delivered: Counter[ProcessId] = Counter()
        self._joining = joining

    def sends(self, process: ProcessId) -> bool:
        return not self.site.is_gateway(process)

    def start(self, process: ProcessId, listener: socket) -> Coroutine[Any, Any, MemberDriver]:
        return self.site.start(process, listener, on_batch=partial(self.take, process), joining=self._joining)

    def take(self, here: ProcessId, batch: Batch) -> None:
        self.delivered[here] += batch.segment.messages

    def sending(self, driver: MemberDriver, load: LoadPlan) -> Coroutine[Any, Any, None]:
        return send_steadily(load, lambda count: driver.send([self.payload(load.size)] * count))

    def payload(self, size: int) -> bytes:
        return bytes(size)


class Conversation:
    """A load on processes whose messages are for some others each: they write to anybody, and answer what they get."""

    def __init__(self, site: AddressedSite[Any]) -> None:
        self.site = site
        self.delivered: Counter[ProcessId] = Counter()
        self._size: int | None = None
        """Of an answer; where nobody sends anything, nobody answers."""
        self._rng = Random()
        self._before: dict[ProcessId, ProcessId] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def sends(self, process: ProcessId) -> bool:
        return True

    def start(self, process: ProcessId, listener: socket) -> Coroutine[Any, Any, AddressedDriver[Any]]:
        return self.site.start(process, listener, partial(self.take, process))

    def take(self, here: ProcessId, run: Addressed) -> None:
        self.delivered[here] += run.segment.messages
        # One answer for every two messages, whatever the number of those who get them: else it would never end.
        chance = ANSWERED / len(run.destinations)
        for payload in run.segment.payloads():
            if self._size is not None and len(payload) >= 2 and self._rng.random() < chance:
                named = int.from_bytes(payload[:2], "big")
                task = asyncio.ensure_future(self._answer(here, named, self._size))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def sending(self, driver: AddressedDriver[Any], load: LoadPlan) -> Coroutine[Any, Any, None]:
        self._size = load.size

        async def write_to_anybody(count: int) -> None:
            for _ in range(count):
                await self._write(driver, self._rng.choice(self.site.everybody), load.size)

        return send_steadily(load, write_to_anybody)

    async def _answer(self, here: ProcessId, named: ProcessId, size: int) -> None:
        if named in self.site.everybody:
            try:
                await self._write(self.site.drivers[self.site.names.name(here).process], named, size)
            except NotAccepting:
                """The system ends."""

    async def _write(self, driver: AddressedDriver[Any], target: ProcessId, size: int) -> None:
        """The first two bytes name whom this process wrote to before: whoever answers writes there."""
        me = driver.endpoint.id
        before = self._before.get(me, target)
        self._before[me] = target
        await self.site.write(driver, target, before.to_bytes(2, "big") + bytes(max(0, size - 2)), self._rng)
