"""Two joined sites in one event loop, over real sockets: started, fed, judged, killed member by member."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runtime_support import soon, until

from isthmus.core.ids import LIFE, slot_of
from isthmus.core.message import Batch
from isthmus.lab.harness.os_process import Ports
from isthmus.runtime.driver.gateway import GatewayDriver
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.journal import begin_life
from isthmus.runtime.site import Site, journal_of, site_spec
from isthmus.runtime.systems.members import provide_medium
from isthmus.runtime.transport.address import Address, listen
from isthmus.runtime.transport.hub import Hub
from isthmus.simulator.run import promised_by
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Report

TOPOLOGY = """
[systems.madrid]
kind = "embedded"
order = "{order}"
processes = ["p1", "p2"]
gateways = {gateways}
address = "127.0.0.1:{madrid}"
suspect-after = "300ms"
{both}
{near}

[systems.valencia]
kind = "embedded"
order = "{order}"
processes = ["p1", "p2"]
gateways = {gateways}
address = "127.0.0.1:{valencia}"
link-address = "127.0.0.1:{links}"
suspect-after = "300ms"
{both}

[[joins]]
between = ["madrid", "valencia"]
order = "{order}"
{join}
"""


class JoinedPair:
    """`madrid` and `valencia`. Drivers are found as `madrid/p1`; one that came later as `madrid/g1+1`."""

    def __init__(
        self,
        directory: Path,
        *,
        order: str = "causal",
        gateways: int = 2,
        near: str = "",
        both: str = "",
        join: str = "",
    ) -> None:
        self.directory = directory
        self.trace = directory / "trace"
        self.ports = Ports()
        first = self.ports.take(3 * (2 + gateways))
        text = TOPOLOGY.format(
            order=order,
            gateways=gateways,
            madrid=first,
            valencia=first + 2 + gateways,
            links=first + 4 + 2 * gateways,
            near=near,
            both=both,
            join=join,
        )
        self.file = directory / "topology.toml"
        self.file.write_text(text)
        self.order = order
        self.drivers: dict[str, MemberDriver] = {}
        self.delivered: dict[str, list[bytes]] = {}
        self._sites: dict[str, Site] = {}
        self._hubs: list[Hub] = []

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(self.start(site) for site in ("madrid", "valencia") if not self.living(site)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for driver in self.drivers.values():
            if driver.ended is None:
                driver.kill("the test is over")
        for hub in self._hubs:
            hub.close()
        self.ports.release()

    async def start(self, site: str, only: Sequence[str] | None = None, *, joining: bool = False) -> None:
        """Start a site, in its next life if it keeps a journal; or some of its members, which join those that live."""
        topology = load(self.file)
        system = topology.system(site)
        if not joining:
            journal = journal_of(topology, system)
            life = begin_life(journal) if journal is not None else 0
            assert system.address is not None
            addresses = [Address(*system.address.plus(place)) for place in range(len(system.members))]
            settings: dict[str, Any] = {"trace": str(self.trace), "trace_sync": True, "retry_after": 50_000_000}
            spec = site_spec(topology, system, addresses, "run", life=life, **settings)
            spec, hub = await provide_medium(spec)
            if hub is not None:
                self._hubs.append(hub)
            self._sites[site] = Site(topology, site, spec)
            only = [f"{name}+{life * LIFE}" if life else name for name in system.founders]
        assert only is not None
        await asyncio.gather(*(self._start(self._sites[site], name, joining) for name in only))

    async def _start(self, site: Site, name: str, joining: bool) -> None:
        full = f"{site.system.name}/{name}"
        process = site.names.id(site.system.name, name)
        received = self.delivered[full] = []

        def take(batch: Batch) -> None:
            received.extend(batch.segment.payloads())

        driver = await soon(
            site.start(process, listen(site.spec.addresses[slot_of(process)]), on_batch=take, joining=joining)
        )
        self.drivers[full] = driver

    def __getitem__(self, name: str) -> MemberDriver:
        return self.drivers[name]

    def gateway(self, name: str) -> GatewayDriver:
        driver = self.drivers[name]
        assert isinstance(driver, GatewayDriver)
        return driver

    def kill(self, *names: str) -> None:
        for name in names:
            self.drivers[name].kill()

    def living(self, site: str) -> list[str]:
        return [name for name, each in self.drivers.items() if name.startswith(f"{site}/") and each.ended is None]

    async def send(self, name: str, *texts: str) -> None:
        await soon(self.drivers[name].send([text.encode() for text in texts]))

    async def until_delivered(self, name: str, *texts: str) -> None:
        wanted = {text.encode() for text in texts}
        await until(lambda: wanted.issubset(self.delivered[name]))

    async def until_stable(self) -> None:
        """Everything that living processes have sent is stable everywhere."""
        for driver in list(self.drivers.values()):
            if driver.ended is None:
                await soon(driver.stable(driver.accepted))

    async def verdicts(self) -> Report:
        """End everything that lives, and judge the traces."""
        for driver in self.drivers.values():
            if driver.ended is None:
                await driver.close()
        return judge(list(read_trace([self.trace]).events()), promised_by(self.order))  # type: ignore[index]
