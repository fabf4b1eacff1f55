"""`isthmus run`: one site for real. Its options are in `run_options`, which can be read without the runtime."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from socket import socket
from typing import Any

from msgspec import structs

from isthmus.cli.console import HOLDS, VIOLATED, Output, duration_of, err, fail, out, print_json, table
from isthmus.cli.run_acknowledged import MediumOptions, medium_address, on_medium, refuse_needless_hub
from isthmus.cli.run_log import run_log
from isthmus.cli.run_options import MediumName
from isthmus.core.ids import LIFE, SECOND, ProcessId
from isthmus.core.message import Batch
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.host import SystemHost
from isthmus.runtime.journal import begin_life
from isthmus.runtime.load import Broadcasting, Conversation, LoadPlan
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.site import Site, journal_of, site_spec
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.topology.file import load as load_topology
from isthmus.topology.model import System, Topology

LEAVE_WITHIN, END_WITHIN = 10.0, 30.0
"""Seconds to see everything through: for a process that leaves others, and for a system that ends as a whole."""


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
    accept_loss: bool,
    trace_open: bool,
    output: Output,
) -> int:
    """What `isthmus run` does; its options are in `run_options`."""
    loaded = load_topology(topology)
    system = _runnable(loaded, site)
    if system.acts_alone:
        given = (process, joining, lines, rate, life, journal_sync, loss, hub)
        if any(given) or medium is not MediumName.AUTO:
            fail(
                f"{topology}: systems.{site} is a {system.provider} broker: only --trace, --run, --duration and "
                "--accept-loss are for its gateway"
            )
        seconds = duration_of("--duration", duration) / SECOND if duration else None
        return run_log(
            loaded,
            system,
            run_name,
            trace,
            seconds,
            output,
            trace_sync=trace_sync,
            accept_loss=accept_loss,
            trace_open=trace_open,
        )
    if trace_open:
        fail(f"--trace-open: {site} is no broker, whose log goes on when its gateway stops")
    if accept_loss:
        fail(f"--accept-loss: {site} is no broker, and loses nothing that could be accepted")
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
    _refuse_other_lives(chosen, life)
    again = next((name for name in chosen if "+" in name), None)
    if again is not None and not joining and not life:
        fail(f"--process {again}: a process that comes again joins those that are there; add --joining")
    spec, listeners = _plan(loaded, system, chosen, run_name)
    spec = structs.replace(spec, trace=str(trace) if trace is not None else None, trace_sync=trace_sync, life=life)
    spec = on_the_medium.apply(spec)
    seconds = duration_of("--duration", duration) / SECOND if duration else None
    if joining and not process:
        fail("--joining needs --process: the name of the one process that joins, such as p1+1")
    load = LoadPlan(size, rate) if rate else None
    application: Broadcasting | Conversation
    if kind.site is not None and not system.broadcasts:
        application = Conversation(kind.site(loaded, system, spec))
    else:
        site_here = Site(loaded, site, spec, journal_sync=journal_sync)
        application = (Lines if lines else Broadcasting)(site_here, joining=joining)
    return run_loop(_run(application, system, listeners, load, seconds, hub, output))


async def _run(
    application: Broadcasting | Conversation,
    system: System,
    listeners: dict[str, socket],
    load: LoadPlan | None,
    seconds: float | None,
    hub: bool,
    output: Output,
) -> int:
    """Run what was asked for, until a signal or the end of the time. Without a process there is only the hub."""
    site = application.site
    provides = hub or {name.partition("+")[0] for name in listeners} >= set(system.founders)
    try:
        async with on_medium(site.spec, medium_address(system), provides=provides) as site.spec:
            if not listeners:
                refuse_needless_hub(site.spec)
            # On a medium that loses, who is left over by the others may never hear that they have gone.
            together = provides and KINDS[system.kind].provide is not None
            timeout = LEAVE_WITHIN if system.broadcasts else END_WITHIN
            host: SystemHost[Any] = SystemHost(site.spec, together=together, stop_timeout=timeout)
            ids = {name: site.names.id(system.name, name) for name in listeners}
            over = asyncio.get_running_loop().call_later(seconds, host.stop) if seconds is not None else None
            await host.start({name: application.start(ids[name], listener) for name, listener in listeners.items()})
            if over is not None:
                over.cancel()
            if host.processes:
                # Not by `err`: to load what prints tables takes 0.1 s, and a second on a busy machine, in which nobody
                # hears of processes that have only just begun.
                print(f"isthmus: {system.name} runs: {', '.join(listeners)}", file=sys.stderr, flush=True)
            await host.run(_work(application, host, load, seconds))
    finally:
        for listener in listeners.values():
            listener.close()
    if listeners:
        _report(application, host, output)
    return VIOLATED if host.unfinished() else HOLDS


async def _work(application: Any, host: SystemHost[Any], load: LoadPlan | None, seconds: float | None) -> None:
    """Send, for so long; or until all lines are sent."""
    drivers = [driver for driver in host.processes.values() if application.sends(driver.endpoint.id)]
    typed = [_send_lines(driver) for driver in drivers[:1] if isinstance(application, Lines)]
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for sender in [*(application.sending(driver, load) for driver in drivers if load), *typed]:
                tasks.create_task(sender)
            if not typed:
                await asyncio.Event().wait()
    except TimeoutError:
        """That was it."""


class Lines(Broadcasting):
    """Prints what is delivered, line by line."""

    def take(self, here: ProcessId, batch: Batch) -> None:
        super().take(here, batch)
        for origin, seq, payload in batch.segment:
            text = payload.decode(errors="replace")
            out.print(f"{self.site.names.name(origin)}/{seq} {text}", markup=False)


async def _send_lines(driver: MemberDriver) -> None:
    """Everything from standard input, line by line, as messages of one process."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            await driver.send([line.rstrip(b"\n")])
    except NotAccepting:
        """Told to stop meanwhile: what was accepted is seen through."""


def _report(application: Broadcasting | Conversation, host: SystemHost[Any], output: Output) -> None:
    processes, unfinished, delivered = host.processes, host.unfinished(), application.delivered.total()
    last: dict[str, Any]
    if isinstance(application, Conversation):
        columns, last = ("sent", application.site.parts), {"unfinished": unfinished}
        described = {name: application.site.describe(driver.endpoint.id) for name, driver in processes.items()}
    else:
        described = {name: str(driver.stopped) for name, driver in processes.items()}
        columns, last = ("accepted", "ended"), {"ended": described}
    accepted = {name: driver.accepted for name, driver in processes.items()}
    if output is Output.JSON:
        result = {"site": host.spec.system, "accepted": accepted, "delivered": delivered, "clean": not unfinished}
        print_json(result | last)
        return
    listing = table(f"{host.spec.system}: {delivered:,} messages delivered here", "process", *columns)
    for name, count in accepted.items():
        listing.add_row(name, f"{count:,}", described[name])
    err.print(listing)
    for line in unfinished:
        err.print(f"isthmus: {line}", markup=False)


def _runnable(topology: Topology, site: str) -> System:
    try:
        system = topology.system(site)
    except KeyError:
        names = ", ".join(each.name for each in topology.systems)
        fail(f"{topology.file}: there is no system {site!r}; --site takes one of {names}")
    if system.kind not in KINDS and not system.acts_alone:
        fail(f"{topology.file}: systems.{site}.kind is {system.provider!r}; nothing runs it")
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


def _refuse_other_lives(chosen: list[str], life: int) -> None:
    """A process is named after the life of its site that it is in: its id says so to everybody else."""
    for name in chosen:
        base, _, incarnation = name.partition("+")
        if incarnation.isdecimal() and int(incarnation) // LIFE != life:
            first = f"{base}+{life * LIFE}" if life else base
            fail(f"--process {name}: is in life {int(incarnation) // LIFE}; in life {life} {base} begins with {first}")


def _is_life_of(name: str, system: System) -> bool:
    """Whether this is a process of the system: `p1`, or `p1+2` for its second life after the first."""
    base, plus, incarnation = name.partition("+")
    return base in system.members and (not plus or (incarnation.isdecimal() and len(incarnation) < 10))
