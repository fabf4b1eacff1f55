"""Logs in memory, joined in a chain by real gateways over real links, which tests start, stop and kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import patience
from memory_log import MemoryBroker, MemoryLog

from isthmus.lab.harness.os_process import Ports
from isthmus.runtime.log.driver import Options
from isthmus.runtime.log.site import LogSite
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

LOG = '[systems.{name}]\nkind = "redis"\nurl = "redis://{name}"\nstream = "orders"\ngateways = 1\n{more}'
JOIN = '[[joins]]\nbetween = ["{near}", "{far}"]\norder = "causal"\nlinks = {links}\n'


class Logs:
    """A chain of logs in memory, each with a broker and any number of hosts."""

    def __init__(
        self, ports: Ports, names: str = "ab", links: int = 1, more: str = "", join: str = "", trace: Path | None = None
    ):
        first = ports.take(len(names) * 2)
        text = "".join(
            LOG.format(
                name=name,
                more=f'link-address = ["127.0.0.1:{first + 2 * place}", "127.0.0.1:{first + 2 * place + 1}"]\n{more}',
            )
            for place, name in enumerate(names)
        )
        text += "".join(JOIN.format(near=near, far=far, links=links) for near, far in pairwise(names)) + join
        self.topology: Topology = parse(text, "logs.toml")
        self.brokers = {name: MemoryBroker() for name in names}
        self.trace = trace
        self.hosts: list[asyncio.Task[None]] = []
        self.sites: dict[str, LogSite] = {}
        self._stops: dict[asyncio.Task[None], asyncio.Event] = {}

    def start(self, name: str, **options: Any) -> asyncio.Task[None]:
        system = self.topology.system(name)
        log = MemoryLog(self.brokers[name])
        site = LogSite(self.topology, system, log, "run", Options(lease=0.5, **options), trace=self.trace)
        stop = asyncio.Event()
        host = asyncio.ensure_future(site.run(stop))
        self.sites[name] = site
        self._stops[host] = stop
        self.hosts.append(host)
        return host

    async def stop(self, host: asyncio.Task[None]) -> None:
        self._stops[host].set()
        await asyncio.wait_for(host, patience.seconds(10))

    async def kill(self, host: asyncio.Task[None]) -> None:
        """As a crash: nothing is released, nothing is said."""
        host.cancel()
        await asyncio.gather(host, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(patience.seconds(15)):
            while not condition():
                for host in self.hosts:
                    if host.done() and not host.cancelled():
                        host.result()
                await asyncio.sleep(0.01)


@asynccontextmanager
async def logs(*arguments: Any, **options: Any) -> AsyncIterator[Logs]:
    ports = Ports()
    made = Logs(ports, *arguments, **options)
    try:
        yield made
    finally:
        for host in made.hosts:
            await made.kill(host)
        ports.release()
