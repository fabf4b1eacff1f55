"""`isthmus run`: one site for real. Its options are in `run_options`, which can be read without the runtime."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from socket import socket

from msgspec import structs

from isthmus.adapters.embedded import EmbeddedProcess
from isthmus.cli.console import HOLDS, VIOLATED, Output, err, fail, out, print_json, table
from isthmus.cli.load import Load, send_steadily
from isthmus.cli.run_acknowledged import MediumOptions, medium_address, on_medium, run_hub
from isthmus.cli.run_addressed import run_addressed
from isthmus.cli.run_options import MediumName
from isthmus.core.ids import LIFE
from isthmus.core.message import Batch
from isthmus.core.units import parse_duration
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.journal import begin_life
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.node import Node, Outcome
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.site import Site, journal_of, site_spec
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.topology.file import load
from isthmus.topology.model import System, Topology

SECOND = 1e9


def run_site(
    topology: Path,
    site: str,
    process: list[str] | None,
    joining: bool,
    trace: Path | None,
    trace_sync: bool,
    run_name: str | None,
    lines: bool,
    rate: float,
    size: int,
    life: int | None,
    journal_sync: bool,
    duration: str | None,
    medium: MediumName,
    loss: float,
    loss_seed: int,
    hub: bool,
    output: Output,
) -> int:
    """What `isthmus run` does; its options are in `run_options`."""
    loaded = load(topology)
    system = _embedded(loaded, site)
    logging.basicConfig(level=logging.INFO, format="isthmus: %(message)s", stream=sys.stderr)
    chosen = process or ([] if hub else list(system.founders))
    on_the_medium = MediumOptions(medium, loss, loss_seed, hub)
    on_the_medium.check(str(topology), system)
    kind = KINDS[system.kind]
    if kind.fixed and (joining or (lines and not system.broadcasts) or life is not None):
        options = "--joining and --life are" if system.broadcasts else "--joining, --lines and --life are"
        fail(f"{topology}: systems.{site} {kind.fixed}: {options} for groups")
    life = _life(loaded, system, chosen, life)
    if life and not process:
        chosen = [f"{name}+{life * LIFE}" for name in system.founders]
    again = next((name for name in chosen if "+" in name), None)
    if again is not None and not joining and not life:
        fail(f"--process {again}: a process that comes again joins those that are there; add --joining")
    spec, listeners = _plan(loaded, system, chosen, run_name)
    spec = structs.replace(spec, trace=str(trace) if trace is not None else None, trace_sync=trace_sync, life=life)
    spec = on_the_medium.apply(spec)
    try:
        seconds = parse_duration(duration) / SECOND if duration else None
    except ValueError as error:
        fail(f"--duration {duration}: {error}")
    if joining and not process:
        fail("--joining needs --process: the name of the one process that joins, such as p1+1")
    load_here = Load(rate, size, seconds or float("inf")) if rate else None
    if kind.site is not None and not system.broadcasts:
        return run_addressed(kind.site(loaded, system, spec), listeners, load_here, seconds, output)
    if not chosen:
        return run_hub(spec, medium_address(system), seconds)
    site_here = Site(loaded, site, spec, journal_sync=journal_sync)
    job = Job(site_here, listeners, joining, load_here, seconds, lines, hub)
    outcome = run_loop(job.run())
    _report(job, outcome, output)
    return HOLDS if outcome.clean else VIOLATED


class Job:
    """The processes of one site in this OS process."""

    def __init__(
        self,
        site: Site,
        listeners: dict[str, socket],
        joining: bool,
        load: Load | None,
        seconds: float | None,
        lines: bool,
        hub: bool = False,
    ) -> None:
        self.site = site
        self.spec = site.spec
        self.listeners = listeners
        self.joining = joining
        self.load = load
        self.seconds = seconds
        self.lines = lines
        here = {name.partition("+")[0] for name in listeners}
        self.provides_medium = hub or here >= set(site.system.founders)
        self.delivered = 0
        self.accepted: dict[str, int] = {}
        self.names = site.names

    async def run(self) -> Outcome:
        at = medium_address(self.site.system)
        try:
            async with on_medium(self.spec, at, provides=self.provides_medium) as self.site.spec:
                return await self._run()
        finally:
            for listener in self.listeners.values():
                listener.close()

    async def _run(self) -> Outcome:
        starting = [self._start(name, listener) for name, listener in self.listeners.items()]
        drivers = dict(zip(self.listeners, await asyncio.gather(*starting), strict=True))
        err.print(f"isthmus: {self.spec.system} runs: {', '.join(drivers)}", markup=False)
        # On a medium that loses, who is left over by the others may never hear that they have gone.
        kind = KINDS[self.spec.kind]
        together = kind.end_together or (self.provides_medium and kind.provide is not None)
        node = Node(drivers, together=together, at_rest=kind.at_rest)
        outcome = await node.run(self._application(drivers))
        self.accepted = {name: driver.accepted for name, driver in drivers.items()}
        return outcome

    async def _start(self, name: str, listener: socket) -> MemberDriver:
        process = self.names.id(self.spec.system, name)
        return await self.site.start(process, listener, on_batch=self._take, joining=self.joining)

    def _take(self, batch: Batch) -> None:
        self.delivered += len(batch.messages)
        if self.lines:
            for message in batch.messages:
                text = message.payload.decode(errors="replace")
                out.print(f"{self.names.name(message.origin)}/{message.seq} {text}", markup=False)

    async def _application(self, drivers: dict[str, MemberDriver]) -> None:
        try:
            await self._work(drivers)
        except* NotAccepting:
            """Told to stop while we were sending: what was accepted is seen through by the processes."""

    async def _work(self, drivers: dict[str, MemberDriver]) -> None:
        async with asyncio.TaskGroup() as tasks:
            senders = [driver for driver in drivers.values() if not self.site.is_gateway(driver.member.id)]
            for driver in senders:
                if self.load is not None:
                    tasks.create_task(send_steadily(EmbeddedProcess(driver, self.names), self.load))
            if self.lines and senders:
                tasks.create_task(_send_lines(senders[0]))
            elif self.seconds is None:
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(self.seconds)


async def _send_lines(driver: MemberDriver) -> None:
    """Everything from standard input, line by line, as messages of one process."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await driver.send([line.rstrip(b"\n")])


def _embedded(topology: Topology, site: str) -> System:
    try:
        system = topology.system(site)
    except KeyError:
        names = ", ".join(each.name for each in topology.systems)
        fail(f"{topology.file}: there is no system {site!r}; --site takes one of {names}")
    if system.kind not in KINDS:
        fail(f"{topology.file}: systems.{site}.kind is {system.provider!r}; only embedded systems can be run so far")
    return system


def _plan(
    topology: Topology, system: System, chosen: list[str], run_name: str | None
) -> tuple[SystemSpec, dict[str, socket]]:
    """What the processes have to agree on, and the listening sockets of those that run here."""
    unknown = [name for name in chosen if not _is_life_of(name, system)]
    if unknown:
        fail(f"--process {unknown[0]}: {system.name} has no such process; it has {', '.join(system.members)}")
    if topology.joins and run_name is None:
        run_name = Path(topology.file).stem
    run_name = run_name or f"run-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    if system.address is None:
        if {name.partition("+")[0] for name in chosen} != set(system.members):
            fail(f"{topology.file}: systems.{system.name} has no address; give one to run its processes one by one")
        listeners = {name: listen(Address(LOOPBACK, 0)) for name in chosen}
        addresses = [address_of(listener) for listener in listeners.values()]
    else:
        addresses = [Address(*system.address.plus(place)) for place in range(len(system.members))]
        places = {name: system.members.index(name.partition("+")[0]) for name in chosen}
        listeners = {name: listen(addresses[place]) for name, place in places.items()}
    return site_spec(topology, system, addresses, run_name), listeners


def _life(topology: Topology, system: System, chosen: list[str], life: int | None) -> int:
    """Which life of the site this is. A whole site counts for itself; its processes one by one have to be told."""
    journal = journal_of(topology, system)
    if journal is None:
        return life or 0
    if life is None and set(chosen) != set(system.founders):
        life = 0
    return begin_life(journal, life)


def _is_life_of(name: str, system: System) -> bool:
    """Whether this is a process of the system: `p1`, or `p1+2` for its second life after the first."""
    base, plus, incarnation = name.partition("+")
    return base in system.members and (not plus or (incarnation.isdecimal() and len(incarnation) < 10))


def _report(job: Job, outcome: Outcome, output: Output) -> None:
    result = {
        "site": job.spec.system,
        "accepted": job.accepted,
        "delivered": job.delivered,
        "clean": outcome.clean,
        "ended": {name: str(stopped) for name, stopped in outcome.stopped.items()},
    }
    if output is Output.JSON:
        print_json(result)
        return
    listing = table(f"{job.spec.system}: {job.delivered:,} messages delivered here", "process", "accepted", "ended")
    for name, stopped in outcome.stopped.items():
        listing.add_row(name, f"{job.accepted[name.rpartition('/')[2]]:,}", str(stopped))
    err.print(listing)
