"""`isthmus run` of clusters or of a daisy: its processes here, and an application that writes to some of them."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from random import Random
from socket import socket
from time import perf_counter
from typing import Any

from isthmus.cli.console import HOLDS, VIOLATED, Output, err, print_json, table
from isthmus.cli.load import TICK, Load
from isthmus.core.ids import ProcessId
from isthmus.core.message import Addressed
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite

ANSWERED = 0.5
"""The chance that a message is answered, by a message to whomever its sender wrote to before: chains of causes."""

CLOSE_WITHIN = 30.0
LINGER = 2.0
"""Seconds at rest before the end where others run elsewhere: longer than an OS process may have to wait its turn."""


def run_addressed(
    site: AddressedSite[Any],
    listeners: dict[str, socket],
    load: Load | None,
    seconds: float | None,
    output: Output,
) -> int:
    """Run until a signal or the end of the time. What was sent is seen through; exit code 1 says that it was not."""
    job = Job(site, listeners, load, seconds)
    unfinished = run_loop(job.run())
    drivers = site.drivers
    result = {
        "site": site.spec.system,
        "accepted": {name: driver.accepted for name, driver in drivers.items()},
        "delivered": job.delivered,
        "clean": not unfinished,
        "unfinished": unfinished,
    }
    if output is Output.JSON:
        print_json(result)
    else:
        title = f"{site.spec.system}: {job.delivered:,} messages delivered here"
        listing = table(title, "process", "sent", site.parts)
        for name, driver in drivers.items():
            listing.add_row(name, f"{driver.accepted:,}", site.describe(driver.endpoint.id))
        err.print(listing)
        for line in unfinished:
            err.print(f"isthmus: {line}", markup=False)
    return VIOLATED if unfinished else HOLDS


class Job:
    """The processes of one such system in this OS process, and the load on them."""

    def __init__(
        self,
        site: AddressedSite[Any],
        listeners: dict[str, socket],
        load: Load | None,
        seconds: float | None,
    ) -> None:
        self.site = site
        self.listeners = listeners
        self.load = load
        self.seconds = seconds
        self.delivered = 0
        self._rng = Random()
        self._before: dict[ProcessId, ProcessId] = {}
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self) -> list[str]:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, told.set)
        ids = {name: self.site.names.id(self.site.spec.system, name) for name in self.listeners}
        drivers = await asyncio.gather(
            *(
                self.site.start(ids[name], listener, partial(self._take, ids[name]))
                for name, listener in self.listeners.items()
            )
        )
        err.print(f"isthmus: {self.site.spec.system} runs: {', '.join(self.listeners)}", markup=False)
        sending = [asyncio.ensure_future(self._send_steadily(driver)) for driver in drivers if self.load]
        try:
            await asyncio.wait_for(told.wait(), self.seconds)
        except TimeoutError:
            pass
        unfinished = await self.site.close(CLOSE_WITHIN, LINGER)
        await asyncio.gather(*sending, *self._answers, return_exceptions=True)
        return unfinished

    def _take(self, here: ProcessId, message: Addressed) -> None:
        self.delivered += 1
        # One answer for every two messages, whatever the number of those who get them: else it would never end.
        chance = ANSWERED / len(message.destinations)
        if self.load is not None and len(message.payload) >= 2 and self._rng.random() < chance:
            task = asyncio.ensure_future(self._answer(here, int.from_bytes(message.payload[:2], "big")))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, here: ProcessId, named: ProcessId) -> None:
        if named in self.site.everybody:
            await self._write(self.site.drivers[self.site.names.name(here).process], named)

    async def _send_steadily(self, driver: AddressedDriver) -> None:
        """Keep to the rate on average, to anybody."""
        assert self.load is not None
        started, sent = perf_counter(), 0
        while (elapsed := perf_counter() - started) < self.load.seconds and not driver.refusal:
            for _ in range(int(elapsed * self.load.rate) - sent):
                await self._write(driver, self._rng.choice(self.site.everybody))
                sent += 1
            await asyncio.sleep(TICK)

    async def _write(self, driver: AddressedDriver, target: ProcessId) -> None:
        """The first two bytes name whom this process wrote to before: whoever answers writes there."""
        assert self.load is not None
        me = driver.endpoint.id
        before = self._before.get(me, target)
        self._before[me] = target
        payload = before.to_bytes(2, "big") + bytes(max(0, self.load.size - 2))
        try:
            await self.site.write(driver, target, payload, self._rng)
        except NotAccepting:
            pass
