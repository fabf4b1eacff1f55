"""Some members of one site in an OS process that takes orders: what `joined_sites` starts, feeds, asks and kills.

The first line on standard input is an `Assignment`: who runs here. Every line after it is an order, and is answered by
one line on standard output with the order's number, as soon as what it asks for is so. The end of the input ends the
process, so it does not outlive whoever gives the orders.

Payloads begin with the time at which they were sent. The clock is the machine's monotonic one, which all processes of
a machine share, so that a delay can be told from one of its ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct as Format
from time import monotonic_ns
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.runtime.driver.gateway import GatewayDriver
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.problems import NotAccepting, RuntimeProblem
from isthmus.runtime.site import Site, site_spec
from isthmus.runtime.transport.address import Address, listen
from isthmus.topology.file import load

TICK = 0.002
"""Seconds between two sends at a steady rate: short beside any delay that is measured."""
AT_ONCE = 64 << 10
"""Bytes per call of a sender that never pauses."""
FLOW: Nanos = 10 * MILLISECOND
"""Deliveries are counted in periods of this length, which shows how long they stood still."""

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
    """Begin to send from one process: at `rate` messages per second, or as fast as it goes; without end, or `count`."""

    process: str
    size: int = 100
    rate: float | None = None
    count: int | None = None


class Quiet(Struct, frozen=True, tag="quiet"):
    """Send nothing more. Answered with what was accepted of each process."""


class Tell(Struct, frozen=True, tag="tell"):
    """Answered with `Figures`. From here on delays are measured, or not; what was measured before is told now."""

    measure: bool = False
    flow: bool = False


class Stable(Struct, frozen=True, tag="stable"):
    """Answered when everything that was accepted here is stable in every system."""


class Close(Struct, frozen=True, tag="close"):
    """End in good order, without leaving first: for when everything ends."""


Order: TypeAlias = Send | Quiet | Tell | Stable | Close


class Numbered(Struct, frozen=True):
    number: int
    order: Order


class Answer(Struct, frozen=True):
    """`number` is that of the order, 0 for the word that all members run. `error` is empty where all went well."""

    number: int
    value: Any = None
    error: str = ""


class LinkFigures(Struct, frozen=True):
    """One end of a link. Bytes are all that went over its connections."""

    link: int
    bytes_out: int
    bytes_in: int
    up: bool
    reconnects: int


class Figures(Struct, frozen=True):
    """How things stand here at time `at`: per process what it delivered, of that what other systems sent, and so on.

    `flow`, where it is asked for, counts the latter at all processes together, by period of `FLOW` since the clock
    began. `delays` are those of them that were measured, at the first process here, in nanoseconds. `cpu` is the
    processor time that this OS process has used, in seconds.
    """

    at: Nanos
    accepted: dict[str, int]
    delivered: dict[str, int]
    imported: dict[str, int]
    stable_through: dict[str, int]
    views: dict[str, tuple[Nanos, ...]]
    links: list[LinkFigures]
    flow: dict[int, int]
    delays: list[Nanos]
    cpu: float


class Application:
    """What sits on one process: it counts, and looks at the stamps of messages that came from elsewhere."""

    def __init__(self, gateways: range, flow: Counter[int], delays: list[Nanos]) -> None:
        self.delivered = 0
        self.imported = 0
        self.measures = False
        self._gateways = gateways
        self._flow = flow
        self._delays = delays

    def take(self, batch: Batch) -> None:
        count = len(batch.messages)
        self.delivered += count
        # Gateways make no messages of their own: whatever one broadcasts came from another system.
        if slot_of(batch.sender) in self._gateways:
            self.imported += count
            now = monotonic_ns()
            self._flow[now // FLOW] += count
            if self.measures:
                stamp = _STAMP.unpack_from
                self._delays.extend([now - stamp(message.payload)[0] for message in batch.messages])


class SiteProcess:
    """The members that an assignment names, and the orders that they are given."""

    def __init__(self, assignment: Assignment) -> None:
        topology = load(Path(assignment.topology))
        system = topology.system(assignment.site)
        if system.address is None:
            raise RuntimeProblem(f"{topology.file}: systems.{system.name}.address is missing")
        addresses = [Address(*system.address.plus(place)) for place in range(len(system.members))]
        spec = site_spec(topology, system, addresses, assignment.run, **assignment.settings)
        self._assignment = assignment
        self._site = Site(topology, system.name, spec)
        self._gateways = topology.gateway_slots(system.name)
        self._flow: Counter[int] = Counter()
        self._delays: list[Nanos] = []
        self._applications: dict[str, Application] = {}
        self._drivers: dict[str, MemberDriver] = {}
        self._views: dict[str, list[Nanos]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        starting = [self._start(name) for name in self._assignment.members]
        self._drivers = dict(zip(self._assignment.members, await asyncio.gather(*starting), strict=True))

    async def _start(self, name: str) -> MemberDriver:
        process: ProcessId = self._site.names.id(self._assignment.site, name)
        views = self._views[name] = []
        application = Application(self._gateways, self._flow, self._delays)
        if not self._site.is_gateway(process):
            self._applications[name] = application
        return await self._site.start(
            process,
            listen(self._site.spec.addresses[slot_of(process)]),
            on_batch=application.take,
            on_view=lambda view: views.append(monotonic_ns()),
            joining=self._assignment.joining,
        )

    # Orders.

    async def obey(self, order: Order) -> Any:
        """Do it, and return the answer."""
        match order:
            case Send():
                driver = self._drivers[order.process]
                task = asyncio.ensure_future(_send(driver, order))
                self._senders.add(task)
                task.add_done_callback(self._senders.discard)
            case Quiet():
                await self._be_quiet()
                return {name: driver.accepted for name, driver in self._drivers.items()}
            case Tell():
                figures = self.figures(flow=order.flow)
                self._delays.clear()
                for application in list(self._applications.values())[:1]:
                    application.measures = order.measure
                return figures
            case Stable():
                await asyncio.gather(*(driver.stable(driver.accepted) for driver in self._drivers.values()))
            case Close():
                await self._be_quiet()
                for name in self._applications:
                    self._drivers[name].stop_accepting("the benchmark is over")
                # Gateways last: they carry the end of what the processes sent.
                for last in (False, True):
                    ending = [driver.close() for driver in self._drivers.values() if driver.leaves_last is last]
                    await asyncio.gather(*ending)
        return None

    async def _be_quiet(self) -> None:
        for task in list(self._senders):
            task.cancel()
        if self._senders:
            await asyncio.wait(self._senders)

    def figures(self, *, flow: bool = False) -> Figures:
        links = [
            LinkFigures(each.link, each.bytes_out, each.bytes_in, each.up, each.reconnects)
            for driver in self._drivers.values()
            if isinstance(driver, GatewayDriver)
            for each in driver.link_metrics()
        ]
        times = os.times()
        return Figures(
            at=monotonic_ns(),
            accepted={name: driver.accepted for name, driver in self._drivers.items()},
            delivered={name: each.delivered for name, each in self._applications.items()},
            imported={name: each.imported for name, each in self._applications.items()},
            stable_through={name: driver.stable_through for name, driver in self._drivers.items()},
            views={name: tuple(times) for name, times in self._views.items()},
            links=links,
            flow=dict(self._flow) if flow else {},
            delays=self._delays[:],
            cpu=times.user + times.system,
        )

    def kill(self) -> None:
        for driver in self._drivers.values():
            driver.kill("nobody gives orders any more")


async def _send(driver: MemberDriver, order: Send) -> None:
    """Send as ordered. At a rate, what a slow moment left out is made up for, unless back-pressure says no.

    Without a rate only back-pressure makes it wait: `send` takes only so much in one iteration of the event loop.
    """
    filler = bytes(max(0, order.size - _STAMP.size))
    left = order.count if order.count is not None else sys.maxsize
    at_once = max(1, min(1024, AT_ONCE // max(1, order.size)))
    started, sent = monotonic_ns(), 0
    try:
        while left > 0:
            if order.rate is None:
                due = min(left, at_once)
            else:
                due = min(left, int((monotonic_ns() - started) * order.rate / SECOND) - sent)
            if due > 0:
                await driver.send([_STAMP.pack(monotonic_ns()) + filler] * due)
                sent += due
                left -= due
            if order.rate is not None:
                await asyncio.sleep(TICK)
    except NotAccepting:
        """The process ends while we were sending: what it accepted is its business now."""


async def _serve(assignment: Assignment, orders: asyncio.StreamReader, say: Callable[[Answer], None]) -> None:
    process = SiteProcess(assignment)
    await process.start()
    say(Answer(0))
    obeying: set[asyncio.Task[bool]] = set()

    async def answer(numbered: Numbered) -> bool:
        try:
            say(Answer(numbered.number, await process.obey(numbered.order)))
        except (RuntimeProblem, KeyError) as problem:
            say(Answer(numbered.number, error=str(problem)))
        return isinstance(numbered.order, Close)

    over = False
    while not over:
        reading = asyncio.ensure_future(orders.readline())
        done: set[asyncio.Future[Any]] = set()
        while reading not in done and not over:
            done, _ = await asyncio.wait({reading, *obeying}, return_when=asyncio.FIRST_COMPLETED)
            over = any(task.result() for task in done & obeying)
            obeying -= done
        if over:
            reading.cancel()
        elif line := reading.result():
            obeying.add(asyncio.ensure_future(answer(msgspec.json.decode(line, type=Numbered))))
        else:
            process.kill()
            over = True


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

    first = await orders.readline()
    if first:
        try:
            await _serve(msgspec.json.decode(first, type=Assignment), orders, say)
        except (RuntimeProblem, OSError) as problem:
            say(Answer(0, error=str(problem)))
            return 2
    return 0


def main() -> int:
    logging.basicConfig(level=logging.ERROR, format="isthmus: %(message)s", stream=sys.stderr)
    return run_loop(_main())


if __name__ == "__main__":
    raise SystemExit(main())
