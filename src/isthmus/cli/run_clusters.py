"""`isthmus run` of a system of clusters: its processes here, and an application that writes to single processes."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from random import Random
from socket import socket
from time import perf_counter

from isthmus.cli.console import HOLDS, VIOLATED, Output, err, print_json, table
from isthmus.cli.load import TICK, Load
from isthmus.core.ids import ProcessId
from isthmus.core.message import Addressed
from isthmus.runtime.clusters import ClusterDriver, ClusterSite
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.problems import NotAccepting

ANSWERED = 0.5
"""The chance that a message is answered, by a message to whomever its sender wrote to before: chains of causes."""

CLOSE_WITHIN = 30.0


def run_clusters(
    site: ClusterSite, listeners: dict[str, socket], load: Load | None, seconds: float | None, output: Output
) -> int:
    """Run until a signal or the end of the time. What was sent is seen through; exit code 1 says that it was not."""
    job = Job(site, listeners, load, seconds)
    unfinished = run_loop(job.run())
    result = {
        "site": site.spec.system,
        "accepted": {name: driver.process.sent for name, driver in site.drivers.items()},
        "delivered": job.delivered,
        "clean": not unfinished,
        "unfinished": unfinished,
    }
    if output is Output.JSON:
        print_json(result)
    else:
        title = f"{site.spec.system}: {job.delivered:,} messages delivered here"
        listing = table(title, "process", "sent", "clusters")
        for name, driver in site.drivers.items():
            clusters = site.tree.clusters_of(driver.process.id)
            listing.add_row(name, f"{driver.process.sent:,}", ", ".join(each.name or "topmost" for each in clusters))
        err.print(listing)
        for line in unfinished:
            err.print(f"isthmus: {line}", markup=False)
    return VIOLATED if unfinished else HOLDS


class Job:
    """The processes of one system of clusters in this OS process, and the load on them."""

    def __init__(
        self, site: ClusterSite, listeners: dict[str, socket], load: Load | None, seconds: float | None
    ) -> None:
        self.site = site
        self.listeners = listeners
        self.load = load
        self.seconds = seconds
        self.delivered = 0
        self._rng = Random()
        self._targets = sorted(site.tree.home)
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
        unfinished = await self.site.close(CLOSE_WITHIN)
        await asyncio.gather(*sending, *self._answers, return_exceptions=True)
        return unfinished

    def _take(self, here: ProcessId, message: Addressed) -> None:
        self.delivered += 1
        if self.load is not None and len(message.payload) >= 2 and self._rng.random() < ANSWERED:
            task = asyncio.ensure_future(self._answer(here, int.from_bytes(message.payload[:2], "big")))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, here: ProcessId, named: ProcessId) -> None:
        if named in self.site.tree.home:
            await self._write(self._driver(here), named)

    def _driver(self, process: ProcessId) -> ClusterDriver:
        return self.site.drivers[self.site.names.name(process).process]

    async def _send_steadily(self, driver: ClusterDriver) -> None:
        """Keep to the rate on average, to anybody."""
        assert self.load is not None
        started, sent = perf_counter(), 0
        while (elapsed := perf_counter() - started) < self.load.seconds and not driver.refusal:
            for _ in range(int(elapsed * self.load.rate) - sent):
                await self._write(driver, self._rng.choice(self._targets))
                sent += 1
            await asyncio.sleep(TICK)

    async def _write(self, driver: ClusterDriver, target: ProcessId) -> None:
        """The first two bytes name whom this process wrote to before: whoever answers writes there."""
        assert self.load is not None
        me = driver.process.id
        before = self._before.get(me, target)
        self._before[me] = target
        payload = before.to_bytes(2, "big") + bytes(max(0, self.load.size - 2))
        try:
            await driver.send(target, payload)
        except NotAccepting:
            pass
