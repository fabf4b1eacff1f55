"""Virtual time: what happens when, to whom, and in which order; and where in a step a process can die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import cast

import pytest

from isthmus.core.endpoint import Member, Outbox
from isthmus.core.ids import MILLISECOND, Directory, Nanos, ProcessId, ProcessName, incarnation_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.pdu import Pdu
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Fixed
from isthmus.trace.recorder import Recorder
from isthmus.trace.writer import MemorySink, ProcessLog

HOP = MILLISECOND
EVERYBODY = (0, 1, 2, 3, 4)


def batch(number: int, sender: ProcessId = 0) -> Batch:
    return Batch(1, sender, number, [], 0, Segment.of(sender, number, [b"x"]))


class Scripted:
    """A member that does what a test tells it, and remembers what it was told."""

    def __init__(self, process: ProcessId) -> None:
        self.id = process
        self.heard: list[tuple[Nanos, ProcessId, list[Pdu]]] = []
        self.woken: list[Nanos] = []
        self.next_wake: Nanos | None = None
        self.checks = 0
        self.sound = True

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        self.heard.append((now, source, list(pdus)))

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.woken.append(now)
        self.next_wake = None

    def deadline(self) -> Nanos | None:
        return self.next_wake

    def invariants(self) -> None:
        self.checks += 1
        assert self.sound, "the books do not balance"

    def numbers(self) -> list[int]:
        return [pdu.number for _, _, pdus in self.heard for pdu in pdus if isinstance(pdu, Batch)]


class Stage:
    """A world of five scripted processes that are one hop apart."""

    def __init__(self, *, check: bool = False) -> None:
        names = Directory([ProcessName("s", f"p{slot}") for slot in EVERYBODY])
        self.sometimes = Sometimes()
        self.network = Network(Random(1), Fixed(HOP), None, NetworkFaults(), self.sometimes)
        self.world = World(names, self.network, self.sometimes, check=check)
        self.rows = MemorySink()
        self.happened: list[str] = []
        self.hosts = [self.host(slot, names) for slot in EVERYBODY]

    def host(self, process: ProcessId, names: Directory) -> Host:
        name = names.name(process)
        log = ProcessLog(self.rows, "run", name.system, name.process, "app", names, flush_rows=1)
        recorder = Recorder(process, log)
        host = Host(
            cast(Member, Scripted(process)), recorder, lambda host, each: self.happened.append(f"deliver {each.number}")
        )
        self.world.start(host)
        return host

    def endpoint(self, slot: int) -> Scripted:
        return cast(Scripted, self.hosts[slot].endpoint)

    def step(self, slot: int, action: Callable[[Outbox], None]) -> None:
        """One step of a process, in which its endpoint does this."""
        self.world.step(self.hosts[slot], lambda now, out: action(out))

    def events(self, slot: int) -> list[str]:
        return [row.event for row in self.rows.events if row.process == f"p{slot}"]


def multicast(*numbers: int, to: tuple[ProcessId, ...] = EVERYBODY[1:]) -> Callable[[Outbox], None]:
    def act(out: Outbox) -> None:
        out.sends.extend((to, batch(number)) for number in numbers)

    return act


# Time


def test_what_is_due_at_the_same_time_happens_in_the_order_of_scheduling() -> None:
    world = Stage().world
    happened: list[str] = []
    for name in "abc":
        world.at(5, happened.append, name)
    world.at(4, happened.append, "earlier")
    world.run_until(5)
    assert happened == ["earlier", "a", "b", "c"]


def test_what_is_scheduled_meanwhile_for_now_happens_after_what_was_scheduled_before() -> None:
    world = Stage().world
    happened: list[str] = []
    world.at(5, lambda: world.at(5, happened.append, "by the first"))
    world.at(5, happened.append, "second")
    world.run_until(5)
    assert happened == ["second", "by the first"]


def test_time_runs_up_to_the_end_and_includes_it() -> None:
    world = Stage().world
    happened: list[str] = []
    world.at(10, happened.append, "at the end")
    world.at(11, happened.append, "too late")
    world.run_until(10)
    assert (happened, world.now) == (["at the end"], 10)


def test_an_endpoint_is_woken_at_its_deadline() -> None:
    stage = Stage()
    stage.endpoint(0).next_wake = 7 * HOP
    stage.step(0, lambda out: None)
    stage.world.run_until(20 * HOP)
    assert stage.endpoint(0).woken == [7 * HOP]


def test_a_deadline_that_moves_forward_is_met() -> None:
    stage = Stage()
    stage.endpoint(0).next_wake = 7 * HOP
    stage.step(0, lambda out: None)
    stage.endpoint(0).next_wake = 3 * HOP
    stage.step(0, lambda out: None)
    stage.world.run_until(5 * HOP)
    assert stage.endpoint(0).woken == [3 * HOP]


def test_a_deadline_in_the_past_means_at_once() -> None:
    stage = Stage()
    stage.world.run_until(5 * HOP)
    stage.endpoint(0).next_wake = HOP
    stage.step(0, lambda out: None)
    stage.world.run_until(6 * HOP)
    assert stage.endpoint(0).woken == [5 * HOP + 1]


# One step


def test_a_multicast_arrives_everywhere_as_one_list() -> None:
    stage = Stage()
    stage.step(0, multicast(1))
    stage.world.run_until(HOP)
    assert [stage.endpoint(slot).heard for slot in EVERYBODY] == [[]] + [[(HOP, 0, [batch(1)])]] * 4
    assert stage.world.pdus_sent == 4


def test_the_outbox_is_empty_for_the_next_step() -> None:
    stage = Stage()
    stage.step(0, multicast(1))
    stage.step(0, lambda out: None)
    assert stage.world.pdus_sent == 4


def test_invariants_are_checked_after_every_step_and_only_when_asked() -> None:
    checked, unchecked = Stage(check=True), Stage()
    for stage in (checked, unchecked):
        stage.step(0, lambda out: None)
        stage.step(0, lambda out: None)
    assert (checked.endpoint(0).checks, unchecked.endpoint(0).checks) == (2, 0)


def test_a_broken_invariant_ends_the_run_where_it_happened() -> None:
    stage = Stage(check=True)
    stage.endpoint(2).sound = False
    stage.step(0, multicast(1))
    stage.step(0, multicast(2))
    with pytest.raises(AssertionError, match="books"):
        stage.world.run_until(HOP)
    assert len(stage.endpoint(2).heard) == 1


# Crashes


@pytest.mark.parametrize(("progress", "reached"), [(0.25, [1]), (0.5, [1, 2]), (0.75, [1, 2, 3]), (0.99, [1, 2, 3])])
def test_a_process_dies_inside_a_multicast(progress: float, reached: list[int]) -> None:
    stage = Stage()
    stage.hosts[0].dies_after = progress
    stage.step(0, multicast(1))
    stage.world.run_until(HOP)
    assert [slot for slot in EVERYBODY if stage.endpoint(slot).heard] == reached
    assert not stage.hosts[0].alive
    assert stage.events(0) == ["crash"]
    assert stage.sometimes["crash inside a multicast"] == 1


def test_a_process_dies_between_two_multicasts() -> None:
    stage = Stage()
    stage.hosts[0].dies_after = 0.5
    stage.step(0, multicast(1, 2, to=(1, 2)))
    stage.world.run_until(HOP)
    assert stage.endpoint(1).numbers() == stage.endpoint(2).numbers() == [1]


def test_a_process_dies_after_what_it_sent_to_its_fellows_and_before_the_links() -> None:
    stage = Stage()
    stage.world.send_on_link = lambda link, source, pdu: stage.happened.append(f"link {link}")
    stage.hosts[0].dies_after = 0.5

    def both(out: Outbox) -> None:
        out.sends.append(((1, 2), batch(1)))
        out.links.extend([(7, None), (8, None)])  # type: ignore[list-item]

    stage.step(0, both)
    stage.world.run_until(HOP)
    assert (stage.endpoint(2).numbers(), stage.happened) == ([1], [])


def test_a_process_dies_after_it_delivered_and_before_it_said_anything() -> None:
    stage = Stage()
    stage.hosts[0].dies_after = 0.0

    def deliver_and_send(out: Outbox) -> None:
        out.deliveries.append(batch(1))
        multicast(2)(out)

    stage.step(0, deliver_and_send)
    stage.world.run_until(HOP)
    assert stage.events(0) == ["deliver", "crash"]
    assert not any(stage.endpoint(slot).heard for slot in EVERYBODY)
    assert stage.sometimes["crash after delivery"] == 1


def test_who_is_doomed_lives_on_until_a_step_that_is_worth_dying_in() -> None:
    stage = Stage()
    stage.hosts[0].dies_after = 0.0
    stage.step(0, multicast(1))
    assert stage.hosts[0].alive
    stage.hosts[0].dies_after = 0.5
    stage.step(0, lambda out: None)
    assert stage.hosts[0].alive


def test_the_dead_hear_say_and_do_nothing() -> None:
    stage = Stage()
    stage.endpoint(1).next_wake = 5 * HOP
    stage.step(1, lambda out: None)
    stage.step(0, multicast(1))
    stage.world.crash(stage.hosts[1], "by a test")
    stage.step(1, multicast(2))
    stage.world.run_until(10 * HOP)
    assert (stage.endpoint(1).heard, stage.endpoint(1).woken, stage.endpoint(2).numbers()) == ([], [], [1])


def test_a_new_process_hears_nothing_that_was_sent_to_its_predecessor() -> None:
    stage = Stage()
    stage.step(0, multicast(1))
    stage.world.crash(stage.hosts[1], "by a test")
    successor = incarnation_of(1, 1)
    stage.hosts[1] = stage.host(successor, stage.world.names)
    stage.step(0, multicast(2, to=(successor,)))
    stage.world.run_until(2 * HOP)
    assert stage.endpoint(1).numbers() == [2]


# Slowness and ends


def test_a_slow_process_works_off_what_arrives_one_by_one() -> None:
    stage = Stage()
    stage.hosts[1].pause = 10 * HOP
    stage.step(0, multicast(1, 2, 3))
    stage.world.run_until(100 * HOP)
    # Later PDUs of a line arrive a nanosecond after the ones before them, and queue.
    assert [now for now, _, _ in stage.endpoint(1).heard] == [11 * HOP, 21 * HOP, 31 * HOP]
    assert [now for now, _, _ in stage.endpoint(2).heard] == [HOP, HOP + 1, HOP + 2]


@pytest.mark.parametrize(("stopped", "event", "case"), [("left", "leave", "leave"), ("excluded", "crash", "exclusion")])
def test_an_endpoint_that_stops_is_gone_and_its_log_says_how(stopped: str, event: str, case: str) -> None:
    stage = Stage()
    ended: list[Host] = []
    stage.world.on_end = ended.append

    def stop(out: Outbox) -> None:
        out.stopped = stopped

    stage.step(0, stop)
    assert stage.events(0) == [event]
    assert (stage.sometimes[case], ended) == (1, [stage.hosts[0]])
    assert stage.hosts[0] not in stage.world.living()
