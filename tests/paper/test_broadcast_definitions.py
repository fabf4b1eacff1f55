"""What the papers say about one broadcast system, claim by claim, measured in simulated groups.

Each test quotes its claim. The definitions are written out here once more, by brute force and straight from the papers,
so that nothing is judged by the code that it judges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import pytest

from isthmus.core.ids import MILLISECOND, SECOND, Directory, Nanos, ProcessName
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.order import Order
from isthmus.ordering.orders.total import TotalOrder
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Exponential, Fixed
from isthmus.trace.recorder import Recorder

Id = tuple[int, int]
Histories = list[list[tuple[str, Id]]]
"""By process: its `bc-send` and `bc-recv` events, in order."""

D: Nanos = 10 * MILLISECOND
FAULTS = NetworkFaults(loss=0.15, duplication=0.1, reordering=0.2)
SEEDS = range(4)


class Group:
    """A simulated group whose every send, delivery and word of stability is written down with its time."""

    def __init__(
        self,
        size: int,
        order: Callable[[], Order],
        *,
        seed: int = 0,
        faults: NetworkFaults | None = None,
        settings: GroupSettings | None = None,
    ) -> None:
        self.size = size
        self.events: list[tuple[Nanos, int, str, Id]] = []
        self.batches: list[Batch] = []
        self.rng = Random(seed)
        delay = Fixed(D) if faults is None else Exponential(2 * MILLISECOND)
        sometimes = Sometimes()
        network = Network(Random(seed), delay, None, faults or NetworkFaults(), sometimes)
        names = Directory([ProcessName("s", f"p{rank}") for rank in range(size)])
        self.world = World(names, network, sometimes, check=True)
        self._count_batches(network)
        self.hosts: list[Host] = []
        for rank in range(size):
            member = GroupMember(rank, range(size), order, settings or GroupSettings(), 0)
            tape: Any = Tape(self, rank)
            self.hosts.append(Host(member, Recorder(rank, tape), self._answer))
            self.world.start(self.hosts[-1])
        self.answers = 0.0

    def _count_batches(self, network: Network) -> None:
        arrivals, together = network.arrivals, network.together

        def counted(source: int, destination: int, pdu: Pdu, now: Nanos) -> Any:
            if isinstance(pdu, Batch):
                self.batches.append(pdu)
            return arrivals(source, destination, pdu, now)

        def counted_together(source: int, destinations: tuple[int, ...], pdu: Pdu, now: Nanos) -> Nanos | None:
            arrival = together(source, destinations, pdu, now)
            if arrival is not None and isinstance(pdu, Batch):
                self.batches.extend([pdu] * len(destinations))
            return arrival

        network.arrivals = counted  # type: ignore[method-assign]
        network.together = counted_together  # type: ignore[method-assign]

    def _answer(self, host: Host, batch: Batch) -> None:
        for payload in batch.segment.payloads():
            if payload != b"\0" and self.rng.random() < self.answers:
                self.world.at(self.world.now + self.rng.randrange(D), self.send, host.id, payload[0] - 1)

    def send(self, rank: int, answers_left: int = 0) -> None:
        host = self.hosts[rank]
        if host.alive and host.endpoint.credit():
            self.world.send(host, host.member.broadcast, [bytes([answers_left])])

    def chatter(self, messages: int) -> None:
        """Everybody sends at random times, and answers what it delivers: long chains of causes."""
        self.answers = 1 / self.size
        for _ in range(messages):
            self.world.at(self.rng.randrange(300 * MILLISECOND), self.send, self.rng.randrange(self.size), 4)

    def run(self, duration: Nanos = SECOND) -> Group:
        self.world.run_until(self.world.now + duration)
        return self

    def histories(self) -> Histories:
        wanted = ("send", "deliver")
        return [
            [(event, message) for _, process, event, message in self.events if process == rank and event in wanted]
            for rank in range(self.size)
        ]

    def alive(self) -> list[int]:
        return [rank for rank, host in enumerate(self.hosts) if host.alive]

    def time_of(self, event: str, process: int, message: Id) -> Nanos:
        (time,) = [at for at, *what in self.events if what == [process, event, message]]
        return time


class Tape:
    """Stands in for a process's log."""

    def __init__(self, group: Group, rank: int) -> None:
        self.names = group.world.names
        self._group = group
        self._rank = rank

    def messages(self, event: str, now: Nanos, segment: Segment, *_: Any, **__: Any) -> None:
        self._group.events += [(now, self._rank, event, each) for each in segment.ids()]

    def event(self, *_: Any, **__: Any) -> None:
        pass


# The definitions


def received(history: list[tuple[str, Id]]) -> list[Id]:
    return [message for event, message in history if event == "deliver"]


def sent(histories: Histories) -> set[Id]:
    return {message for history in histories for event, message in history if event == "send"}


def is_fifo_ordered(histories: Histories) -> bool:
    """parallel, Definition 1."""
    for history in histories:
        seen: set[Id] = set()
        for sender, seq in received(history):
            if not {(sender, earlier) for earlier in range(1, seq)} <= seen:
                return False
            seen.add((sender, seq))
    return True


def causal_past(histories: Histories) -> dict[Id, set[Id]]:
    """What happens before each message: what its sender received or sent earlier, and so on by a chain of these."""
    direct: dict[Id, set[Id]] = {}
    for history in histories:
        earlier: set[Id] = set()
        for event, message in history:
            if event == "send":
                direct[message] = set(earlier)
            earlier.add(message)
    past: dict[Id, set[Id]] = {}
    for message in direct:
        reached: set[Id] = set()
        frontier = [message]
        while frontier:
            new = direct.get(frontier.pop(), set()) - reached
            reached |= new
            frontier += new
        past[message] = reached
    return past


def is_causally_ordered(histories: Histories) -> bool:
    """parallel, Definition 2."""
    past = causal_past(histories)
    for history in histories:
        seen: set[Id] = set()
        for message in received(history):
            if not past[message] <= seen:
                return False
            seen.add(message)
    return True


def is_totally_ordered(histories: Histories) -> bool:
    """message-passing, Definition 1."""
    orders = [{message: place for place, message in enumerate(received(history))} for history in histories]
    return all(
        (one[first] < one[second]) == (other[first] < other[second])
        for one, other in combinations(orders, 2)
        for first, second in combinations(one.keys() & other.keys(), 2)
    )


ORDERS = pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])


@cache
def chattering(order: type[Order], seed: int) -> Group:
    """Four processes that send and answer over a network with every fault, until everything has been delivered."""
    group = Group(4, order, seed=seed, faults=FAULTS)
    group.chatter(25)
    return group.run()


# The service


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_is_received_once_and_only_once_and_was_sent(order: type[Order], seed: int) -> None:
    """parallel, Sect. 2: "every message received was previously sent, and every message that is sent is received
    once and only once in each process."
    """
    group = chattering(order, seed)
    histories = group.histories()
    everything = sent(histories)
    assert len(everything) >= 25
    for history in histories:
        assert sorted(received(history)) == sorted(everything)
    times = {message: at for at, _, event, message in group.events if event == "send"}
    assert all(times[message] <= at for at, _, event, message in group.events if event == "deliver")


@ORDERS
def test_each_message_sent_is_eventually_received_in_every_process(order: type[Order]) -> None:
    """parallel, Sect. 2 (Liveness): "each message sent must eventually be received in every process of the system."

    Here under the worst that channels may do: nearly everything is lost.
    """
    group = Group(3, order, faults=NetworkFaults(loss=0.5, reordering=0.5))
    for rank in range(3):
        group.send(rank)
    group.run(10 * SECOND)
    alive = group.alive()
    assert len(alive) >= 2
    for rank in alive:
        assert {(each, 1) for each in alive} <= set(received(group.histories()[rank]))


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_a_system_is_fifo_ordered(order: type[Order], seed: int) -> None:
    """parallel, Definition 1: "if p_i sends m_1 before it sends m_2, then m_2 is not received at p_j before m_1." """
    assert is_fifo_ordered(chattering(order, seed).histories())


@pytest.mark.parametrize("order", [CausalOrder, TotalOrder])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_system_is_causally_ordered(order: type[Order], seed: int) -> None:
    """parallel, Definition 2: "if m_1 happens-before m_2, then m_2 is not received at p_i before m_1 is." """
    assert is_causally_ordered(chattering(order, seed).histories())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_system_is_totally_ordered(seed: int) -> None:
    """message-passing, Definition 1: "if m_1 is received at p_i before m_2, then m_2 is not received at p_j before
    m_1."
    """
    assert is_totally_ordered(chattering(TotalOrder, seed).histories())


def test_the_definitions_tell_the_orders_apart() -> None:
    """A FIFO system that is not causal, and a causal one that is not total: else the tests above could not fail."""
    assert not all(is_causally_ordered(chattering(FifoOrder, seed).histories()) for seed in SEEDS)
    assert not all(is_totally_ordered(chattering(CausalOrder, seed).histories()) for seed in SEEDS)
    swapped: Histories = [[("send", (0, 1)), ("send", (0, 2))], [("deliver", (0, 2)), ("deliver", (0, 1))]]
    assert not is_fifo_ordered(swapped)
    assert not is_causally_ordered(swapped)


# Failures


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_delivery_is_uniform(order: type[Order], seed: int) -> None:
    """parallel, Sect. 2: "all broadcast primitives described in this paper are assumed uniform": what any process
    delivered, even one that crashed, every process that does not crash delivers.
    """
    group = Group(5, order, seed=seed, faults=NetworkFaults(loss=0.1))
    group.chatter(25)
    for rank in (1, 3):
        at = group.rng.randrange(50 * MILLISECOND, 250 * MILLISECOND)
        group.world.at(at, lambda rank=rank: group.world.crash(group.hosts[rank], "by plan"))
    group.run()
    histories = group.histories()
    alive = group.alive()
    assert len(alive) >= 3
    delivered_anywhere = {message for history in histories for message in received(history)}
    for rank in alive:
        assert set(received(histories[rank])) == delivered_anywhere
    assert any(received(histories[rank]) for rank in (1, 3)), "nobody crashed after it had delivered something"


@ORDERS
def test_nothing_is_recycled_before_everybody_has_it(order: type[Order]) -> None:
    """parallel, Sect. 7: "such message can not be 'garbage recycled' in the sender process until such stable delivery
    is ensured."
    """
    group = chattering(order, 1)
    stable = [(at, message) for at, _, event, message in group.events if event == "stable"]
    assert {message for _, message in stable} == sent(group.histories())
    for at, message in stable:
        assert all(group.time_of("deliver", rank, message) <= at for rank in range(4))


# Costs


@pytest.mark.parametrize("size", range(2, 9))
@pytest.mark.parametrize("order", [FifoOrder, CausalOrder])
def test_one_broadcast_takes_one_message_per_other_process(order: type[Order], size: int) -> None:
    """parallel, Sect. 8.1: "if there are n nodes in a system, only n - 1 messages are needed."

    Counted are the PDUs that carry the message. The acknowledgements, which the paper's reliable channels keep to
    themselves, carry none.
    """
    group = Group(size, order)
    group.send(size - 1)
    group.run()
    assert all((size - 1, 1) in received(history) for history in group.histories())
    assert len(group.batches) == size - 1


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_a_message_carries_one_vector_as_long_as_the_group(size: int) -> None:
    """daisy, Sect. 3.3: "a message always carries a single vector of length m, where m is the size of the (local or
    servers) group the message is being sent in."
    """
    group = Group(size, CausalOrder)
    group.chatter(10)
    group.run()
    assert len(sent(group.histories())) >= 10
    assert all(len(batch.stamp) == size for batch in group.batches)
    assert bool(group.batches) == (size > 1)


# Total order cannot be quick


def local_delays(group: Group) -> list[Nanos]:
    """By process: how long after its send each delivers its own message, when all send at the same time."""
    for rank in range(group.size):
        group.send(rank)
    group.run()
    return [
        group.time_of("deliver", rank, (rank, 1)) - group.time_of("send", rank, (rank, 1)) for rank in range(group.size)
    ]


@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_a_totally_ordered_system_does_not_deliver_locally_before_d(size: int) -> None:
    """message-passing, Lemma 1: "For any totally ordered system S with at least two processes, we have that
    t_local >= d."
    """
    assert min(local_delays(Group(size, TotalOrder))) >= D


def test_of_two_processes_in_total_order_only_one_can_be_quick() -> None:
    """message-passing, Lemma 1, for two processes, where it holds for one of them only.

    The proof supposes that *both* processes deliver their own messages before d. A sequencer may: everybody else's
    messages wait for its word. In a group of two the first member is a quorum, and the sequencer, all by itself.
    """
    first, second = local_delays(Group(2, TotalOrder))
    assert first == 0
    assert second >= D


def test_a_system_that_is_not_totally_ordered_may_deliver_locally_at_once() -> None:
    """The other side of message-passing, Lemma 1: it is total order that costs the time."""
    assert local_delays(Group(4, CausalOrder, settings=GroupSettings(uniform=False))) == [0, 0, 0, 0]
