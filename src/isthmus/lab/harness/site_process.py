"""Some processes of one site in an OS process that takes orders: what `sites` starts, feeds, asks and kills.

The first line on standard input is an `Assignment`: who runs here. Every line after it is an order, and is answered by
one line on standard output with the order's number, as soon as what it asks for is so. The end of the input ends the
process, so it does not outlive whoever gives the orders.

What processes broadcast begins with the time at which it was sent. The clock is the machine's monotonic one, which all
processes of a machine share, so that a delay can be told from one of its ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from struct import Struct as Format
from time import monotonic_ns
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.runtime.driver.gateway import GatewayDriver
from isthmus.runtime.host import SystemHost
from isthmus.runtime.load import Broadcasting, Conversation, LoadPlan
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.metrics import LinkMetrics
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.site import Site, site_spec
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import Address, listen
from isthmus.topology.file import load

TICK = 0.002
"""Seconds between two sends at a steady rate: short beside any delay that is measured."""
SIZE = 100
"""Bytes of a message, where nothing else is said."""
END_WITHIN = 30.0

_STAMP = Format(">Q")


class Assignment(Struct, frozen=True, kw_only=True):
    """Who runs here. Members that come back are named `g1+1`, and join. `settings` are more fields of `SystemSpec`."""

    topology: str
    site: str
    members: tuple[str, ...]
    run: str
    joining: bool = False
    settings: dict[str, Any] = {}


class Send(Struct, frozen=True, tag="send"):
    """Begin to send from one process."""

    process: str
    load: LoadPlan


class Quiet(Struct, frozen=True, tag="quiet"):
    """Send nothing more. Answered with what was accepted of each process."""


class Tell(Struct, frozen=True, tag="tell"):
    """Answered with `SiteFigures`. From here on delays are measured, or not; what was measured before is told now."""

    measure: bool = False


class Stable(Struct, frozen=True, tag="stable"):
    """Answered when everything that was accepted here is stable in every system."""


class Close(Struct, frozen=True, tag="close"):
    """See everything through and end, without leaving first: for when everything ends."""


Order: TypeAlias = Send | Quiet | Tell | Stable | Close


class NumberedOrder(Struct, frozen=True):
    number: int
    order: Order


class Answer(Struct, frozen=True):
    """`number` is that of the order, 0 for the word that all members run. `error` is empty where all went well."""

    number: int
    value: Any = None
    error: str = ""


class SiteFigures(Struct, frozen=True):
    """How things stand here at time `at`: per process what it delivered, of that what other systems sent, and so on.

    `views` are who is in the view of each process, where it has had one since it began. `delays` are those of messages
    from other systems, while they were measured, at the first process here, in nanoseconds. `cpu` is the processor time
    that this OS process has used, in seconds.
    """

    at: Nanos
    accepted: dict[str, int]
    delivered: dict[str, int]
    imported: dict[str, int]
    views: dict[str, list[str]]
    links: list[LinkMetrics]
    delays: list[Nanos]
    cpu: float


class Meter(Broadcasting):
    """Counts what comes from other systems as well, and measures how long that took, by stamps."""

    def __init__(self, site: Site, *, joining: bool) -> None:
        super().__init__(site, joining=joining)
        self.imported: Counter[ProcessId] = Counter()
        self.delays: list[Nanos] = []
        self.measured: ProcessId | None = None
        self._gateways = site.topology.gateway_slots(site.system.name)

    def payload(self, size: int) -> bytes:
        return _STAMP.pack(monotonic_ns()) + bytes(max(0, size - _STAMP.size))

    def take(self, here: ProcessId, batch: Batch) -> None:
        super().take(here, batch)
        # Gateways send nothing of their own.
        if slot_of(batch.sender) in self._gateways:
            # Like any application, it looks at each of them.
            self.imported[here] += sum([bool(payload) for payload in batch.segment.payloads()])
            if here == self.measured:
                now, stamp = monotonic_ns(), _STAMP.unpack_from
                self.delays.extend([now - stamp(payload)[0] for payload in batch.segment.payloads()])


class SiteProcess:
    """The processes that an assignment names, and the orders that they are given."""

    def __init__(self, assignment: Assignment, say: Callable[[Answer], None]) -> None:
        topology = load(Path(assignment.topology))
        system = topology.system(assignment.site)
        if system.address is None:
            raise RuntimeProblem(f"{topology.file}: systems.{system.name}.address is missing")
        addresses = [Address(*system.address.plus(place)) for place in range(len(system.members))]
        spec = site_spec(topology, system, addresses, assignment.run, **assignment.settings)
        kind = KINDS[system.kind]
        self._meter: Meter | None = None
        self._application: Any
        if kind.site is not None and not system.broadcasts:
            self._application = Conversation(kind.site(topology, system, spec))
        else:
            self._application = self._meter = Meter(Site(topology, system.name, spec), joining=assignment.joining)
        self._host: SystemHost[Any] = SystemHost(spec, together=True, stop_timeout=END_WITHIN)
        self._names = spec.directory()
        self._ids = {name: self._names.id(system.name, name) for name in assignment.members}
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        self._senders: set[asyncio.Task[None]] = set()

    async def run(self, orders: asyncio.StreamReader) -> None:
        """Obey until it is told to close, or until nobody gives orders any more."""
        addresses = self._host.spec.addresses
        closing = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(self._serve(orders, closing))
        await self._host.start(
            {
                name: self._application.start(process, listen(addresses[slot_of(process)]))
                for name, process in self._ids.items()
            }
        )
        self._say(Answer(0, error="" if self._host.processes else "; ".join(self._host.unfinished())))
        await self._host.run(serving)
        if closing.done():
            self._say(Answer(closing.result(), error="; ".join(self._host.unfinished())))

    async def _serve(self, orders: asyncio.StreamReader, closing: asyncio.Future[int]) -> None:
        while line := await orders.readline():
            numbered = msgspec.json.decode(line, type=NumberedOrder)
            if isinstance(numbered.order, Close):
                closing.set_result(numbered.number)
                return
            self._keep(self._tasks, self._answer(numbered))
        self._host.stop()
        self._host.kill("nobody gives orders any more")

    def _keep(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, numbered: NumberedOrder) -> None:
        try:
            self._say(Answer(numbered.number, await self._obey(numbered.order)))
        except (RuntimeProblem, KeyError) as problem:
            self._say(Answer(numbered.number, error=str(problem)))

    async def _obey(self, order: Order) -> Any:
        """Do it, and return the answer."""
        processes = self._host.processes
        match order:
            case Send():
                sending = self._application.sending(processes[order.process], order.load)
                self._keep(self._senders, sending)
            case Quiet():
                senders = list(self._senders)
                for task in senders:
                    task.cancel()
                await asyncio.gather(*senders, return_exceptions=True)
                return {name: driver.accepted for name, driver in processes.items()}
            case Tell():
                figures = self._figures()
                if self._meter is not None:
                    processes_here = filter(self._meter.sends, self._ids.values())
                    self._meter.delays.clear()
                    self._meter.measured = next(processes_here, None) if order.measure else None
                return figures
            case Stable():
                await asyncio.gather(*(driver.see_through() for driver in processes.values()))
        return None

    def _figures(self) -> SiteFigures:
        application, meter, processes = self._application, self._meter, self._host.processes
        counted = {name: process for name, process in self._ids.items() if application.sends(process)}
        times = os.times()
        return SiteFigures(
            at=monotonic_ns(),
            accepted={name: driver.accepted for name, driver in processes.items()},
            delivered={name: application.delivered[process] for name, process in counted.items()},
            imported={name: meter.imported[process] for name, process in counted.items()} if meter else {},
            views={
                name: [self._names.name(each).process for each in driver.view.members] if driver.view else []
                for name, driver in processes.items()
            },
            links=[
                metrics
                for driver in processes.values()
                if isinstance(driver, GatewayDriver)
                for metrics in driver.link_metrics()
            ],
            delays=meter.delays[:] if meter else [],
            cpu=times.user + times.system,
        )


async def _main() -> int:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)

    def say(answer: Answer) -> None:
        try:
            answers.write(msgspec.json.encode(answer) + b"\n")
        except BrokenPipeError:
            pass

    if first := await orders.readline():
        try:
            await SiteProcess(msgspec.json.decode(first, type=Assignment), say).run(orders)
        except (RuntimeProblem, OSError) as problem:
            say(Answer(0, error=str(problem)))
            return 2
    return 0


def main() -> int:
    logging.basicConfig(level=logging.ERROR, format="isthmus: %(message)s", stream=sys.stderr)
    return run_loop(_main())


if __name__ == "__main__":
    raise SystemExit(main())
