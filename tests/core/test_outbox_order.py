"""Whoever runs an endpoint carries its outbox out in the order that the outbox states: simulator and runtime alike.

Each is given one entry of every kind that it can carry out, and everything that it then does is written down: what it
keeps, records, delivers, sends, and that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_support import run_test

from isthmus.core.endpoint import AddressedDelivery, Carried, Hold, Outbox, Staged, View
from isthmus.core.ids import Directory, Nanos, ProcessId, ProcessName
from isthmus.core.message import Addressed, Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Busy
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.driver.gateway import GatewayDriver
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.systems.clusters import ClusterDriver
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Fixed
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event
from isthmus.trace.writer import ProcessLog

ROWS = [
    "row receive",
    "row deliver",
    "row view",
    "row deliver",
    "row stable",
    "row hold",
    "row transfer",
]
STATED = ["store", *ROWS, "deliver batch", "view", "deliver message", "send", "link", "row crash"]
"""What an outbox with one entry of every kind leads to, in the order that its docstring states."""

NAMES = Directory([ProcessName("s", "p0"), ProcessName("s", "p1")])
SEGMENT = Segment.of(1, 1, [b"x"])
BATCH = Batch(1, 1, 1, [], 0, SEGMENT)
MESSAGE = Addressed(1, 1, b"x", (0,))


def everything(out: Outbox) -> None:
    """One entry of every kind, and the last first, so that nobody gets it right by chance."""
    out.stopped = "excluded"
    out.links.append((9, None))  # type: ignore[arg-type]
    out.sends.append(((1,), Busy(1, 1)))
    out.carried.append(Carried("transfer", 9, SEGMENT))
    out.holds.append(Hold(BATCH, "safe", 1, 1))
    out.settled.append((1, 1))
    out.stable.append(BATCH)
    out.addressed.append(AddressedDelivery(MESSAGE, None))
    out.deliveries.extend([BATCH, View(2, (0, 1))])
    out.stages.append(Staged("receive", BATCH))
    out.stored.append(BATCH)


class Scripted:
    """An endpoint of which one step wants everything done that whoever runs it can do."""

    id = 0

    def __init__(self, *but_not: str) -> None:
        self._but_not = but_not

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        everything(out)
        for field in self._but_not:
            getattr(out, field).clear()

    def deadline(self) -> None:
        return None

    def credit(self) -> int:
        return 0


class Written:
    """Everything that was done, in its order. It is the sink of the trace, the journal and the network as well."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.me = SimpleNamespace(label="s/p0")
        self.receive: Callable[..., None] = lambda peer, pdus: None

    def log(self, flush_rows: int = 1) -> ProcessLog:
        return ProcessLog(self, "run", "s", "p0", "app", NAMES, flush_rows=flush_rows)

    def says(self, what: str) -> Callable[..., None]:
        return lambda *arguments: self.done.append(what)

    def write(self, events: Iterable[Event]) -> None:
        self.done += [f"row {event.event}" for event in events if event.event != "start"]

    def store(self, batches: object) -> None:
        self.done.append("store")

    def __iadd__(self, segments: Sequence[Segment]) -> Written:
        self.done += ["store"] * len(segments)
        return self

    def send(self, destinations: object, frame: bytes) -> None:
        self.done.append("send")

    def close(self) -> None: ...


class ScriptedLinks:
    """No links at first; what is put on one is written down."""

    def __init__(self, written: Written) -> None:
        self.send = written.says("link")

    def __iter__(self) -> Any:
        return iter(())

    def open(self) -> None: ...
    def abort(self) -> None: ...


# Those who run endpoints


def simulated(recorder: Callable[[Written], Recorder], step: Callable[[World, Host], None]) -> list[str]:
    written, sometimes = Written(), Sometimes()
    network = Network(Random(1), Fixed(1), None, NetworkFaults(), sometimes)
    network.together = lambda *arguments: None  # type: ignore[method-assign]
    network.arrivals = lambda *arguments: written.send((), b"") or ()  # type: ignore[func-returns-value,method-assign]
    world = World(NAMES, network, sometimes, check=False)
    world.send_on_link = written.says("link")
    world.on_view = written.says("view")
    host = Host(
        Scripted(),  # type: ignore[arg-type]
        recorder(written),
        written.says("deliver batch"),
        written.says("deliver message"),
    )
    host.journal = written  # type: ignore[assignment]
    world.start(host)
    step(world, host)
    return written.done


def one_step(world: World, host: Host) -> None:
    world.step(host, lambda now, out: everything(out))


def simulator() -> list[str]:
    return simulated(lambda written: Recorder(0, written.log()), one_step)


def driven(make: Callable[[Any, LiveRecorder], MemberDriver | ClusterDriver]) -> list[str]:
    async def scenario() -> list[str]:
        written = Written()
        driver = make(written, LiveRecorder(0, written.log()))
        driver.start()
        written.receive(1, [Busy(1, 1)])
        return written.done

    return run_test(scenario())


def seeing(driver: Any, written: Written) -> Any:
    """Drivers of this class that write down when they are in another view."""

    class Seeing(driver):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            if name == "view" and value == View(2, (0, 1)):
                written.done.append("view")
            super().__setattr__(name, value)

    return Seeing


def member_driver() -> list[str]:
    """A member has no journal, no links, and no messages that are for some processes only."""
    member: Any = Scripted("links")
    return driven(
        lambda written, recorder: seeing(MemberDriver, written)(
            member,
            written,
            recorder,
            on_batch=written.says("deliver batch"),
        )
    )


def gateway_driver() -> list[str]:
    """The application of a gateway is its joins, which are a part of the endpoint."""
    member: Any = Scripted()
    return driven(
        lambda written, recorder: seeing(GatewayDriver, written)(
            member,
            written,
            recorder,
            make_links=lambda callbacks: ScriptedLinks(written),  # type: ignore[arg-type,return-value]
            journal=written,
        )
    )


def addressing_driver() -> list[str]:
    """A process whose messages are for some processes only has no journal, no links and no batches."""
    process: Any = Scripted("links")
    return driven(lambda written, recorder: ClusterDriver(process, written.says("deliver message"), written, recorder))


@pytest.mark.parametrize(
    ("runner", "cannot"),
    [
        (simulator, []),
        (member_driver, ["store", "deliver message", "link"]),
        (gateway_driver, ["deliver batch", "deliver message"]),
        (addressing_driver, ["store", "deliver batch", "view", "link"]),
    ],
)
def test_an_outbox_is_carried_out_in_the_order_that_it_states(
    runner: Callable[[], list[str]], cannot: list[str]
) -> None:
    assert runner() == [effect for effect in STATED if effect not in cannot]


# The same with mistakes


class HoldsFirst(Recorder):
    """Writes why something waits before what has become stable."""

    def step(self, out: Outbox, now: Nanos) -> None:
        later = Outbox()
        later.stable, out.stable = out.stable, []
        super().step(out, now)
        super().step(later, now)
        out.stable = later.stable


def sends_first(world: World, host: Host) -> None:
    """Speaks before it keeps, records and delivers."""
    whole = Outbox()
    everything(whole)

    def speak(now: Nanos, out: Outbox) -> None:
        out.sends += whole.sends

    def do_the_rest(now: Nanos, out: Outbox) -> None:
        everything(out)
        out.sends.clear()

    world.step(host, speak)
    world.step(host, do_the_rest)


@pytest.mark.parametrize(
    ("recorder", "step"),
    [
        (lambda written: HoldsFirst(0, written.log()), one_step),
        (lambda written: Recorder(0, written.log()), sends_first),
        (lambda written: Recorder(0, written.log(flush_rows=len(ROWS) + 1)), one_step),
    ],
    ids=["rows in another order", "sends first", "records last"],
)
def test_another_order_is_noticed(recorder: Callable[[Written], Recorder], step: Callable[[World, Host], None]) -> None:
    done = simulated(recorder, step)
    assert done != STATED
    assert sorted(done) == sorted(STATED)
