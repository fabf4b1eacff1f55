"""How one batch goes from its sender to everybody: after how many hops, on whose word, and in which order."""

from __future__ import annotations

import pytest
from group_network import HEARTBEAT, SETTINGS, Network

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.message import Batch
from isthmus.core.wire.group import Ack, Safe, Status
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

FAST = GroupSettings(uniform=False)


def hops_until(network: Network, member: int, payload: str) -> int:
    """How many hops it takes until a process delivers something that is on its way."""
    hops = 0
    while payload not in network.delivered(member):
        assert network.carry(), f"p{member} will never deliver {payload}"
        hops += 1
    return hops


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder])
@pytest.mark.parametrize("size", [2, 3])
def test_up_to_three_members_deliver_after_one_hop(order: type, size: int) -> None:
    """Sender and receiver are a quorum by themselves."""
    for member in range(2, size + 1):
        network = Network(size, order)
        network.broadcast(1, "m")
        assert hops_until(network, member, "m") == 1


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder])
def test_five_members_deliver_after_three_hops(order: type) -> None:
    """Batch, acknowledgement, word that it is safe."""
    for member in range(2, 6):
        network = Network(5, order)
        network.broadcast(1, "m")
        assert hops_until(network, member, "m") == 3


def test_five_members_deliver_in_total_order_after_four_hops() -> None:
    """Batch; the sequencer places it; acknowledgements of its placement; word that the placement is safe."""
    network = Network(5, TotalOrder)
    network.broadcast(2, "m")
    assert hops_until(network, 3, "m") == 4


def test_fast_delivery_takes_one_hop_whatever_the_size() -> None:
    network = Network(7, CausalOrder, FAST)
    network.broadcast(1, "m")
    assert network.delivered(1) == ["m"]
    assert hops_until(network, 7, "m") == 1


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])
@pytest.mark.parametrize("size", [1, 2])
def test_a_process_that_is_a_quorum_by_itself_delivers_its_own_at_once(order: type, size: int) -> None:
    network = Network(size, order)
    out = network.step(1, network[1].broadcast, [b"m"])
    assert out is not None
    assert network.delivered(1) == ["m"]
    assert out.holds == []
    assert len(network.under_way) == size - 1


def test_a_batch_is_delivered_only_when_a_quorum_holds_it() -> None:
    network = Network(5)
    network.broadcast(1, "m")
    network.carry(Batch, to=2)
    network.carry(Ack)
    assert network.delivered(1) == network.delivered(2) == [], "two of five hold it"
    network.carry(Batch, to=3)
    assert network.delivered(3) == [], "three of five hold it, but p3 cannot know"
    network.carry(Ack)
    assert network.delivered(1) == ["m"], "three of five hold it, and p1 knows"
    assert network.delivered(2) == []
    network.carry(Safe, to=2)
    assert network.delivered(2) == ["m"]


def test_exactly_half_is_a_quorum_with_the_first_member_and_only_then() -> None:
    network = Network(4)
    network.broadcast(2, "m")
    network.carry(Batch, to=3)
    network.carry(Ack)
    assert network.delivered(2) == network.delivered(3) == []
    network.carry(Batch, to=1)
    assert network.delivered(1) == ["m"], "p1 and the sender are half of four, and p1 is the first"
    network.carry(Ack)
    assert network.delivered(2) == ["m"]


def test_the_sender_says_what_is_safe_with_its_next_batch_or_by_itself() -> None:
    network = Network(5)
    network.broadcast(1, "a")
    network.carry()
    network.carry(Ack)
    assert [each.pdu for each in network.sent(Safe)] == [Safe(1, 1)] * 4, "it has nothing else to say"
    network.lose(Safe)
    network.broadcast(1, "b")
    network.carry(Batch)
    assert network.delivered(4) == ["a"], "the batch of b says that a is safe"


def test_lost_word_that_a_batch_is_safe_comes_with_the_next_heartbeat() -> None:
    network = Network(5)
    network.broadcast(1, "m")
    network.carry()
    network.carry(Ack)
    network.lose(Safe)
    network.pass_time(HEARTBEAT, every=lambda: network.lose(Safe))
    assert network.delivered(5) == ["m"]


def test_messages_that_wait_together_travel_together() -> None:
    network = Network(3)
    network.broadcast(1, "a", "b", "c")
    assert len(network.sent(Batch)) == 2, "one batch to each of the others"
    network.carry()
    assert network.delivered(2) == ["a", "b", "c"]


def test_a_batch_is_no_larger_than_the_settings_say() -> None:
    network = Network(2, settings=GroupSettings(batch_messages=3, batch_bytes=10))
    network.broadcast(1, "1", "2", "3", "4", "55555", "66666", "7", "88888888888888")
    network.carry(Batch)
    sizes = [len(batch.segment) for batch in network.history[2] if isinstance(batch, Batch)]
    assert sizes == [3, 2, 2, 1], "three messages; then ten bytes; what is too large for any batch has one to itself"
    assert network.delivered(2) == ["1", "2", "3", "4", "55555", "66666", "7", "88888888888888"]


def test_sequence_numbers_are_stamped_in_the_order_of_acceptance() -> None:
    network = Network(2)
    out = Outbox()
    assert network[1].broadcast([b"a", b"b"], 0, out) == 1
    assert network[1].broadcast([b"c"], 0, out) == 3
    segments = [batch.segment for batch in out.deliveries if isinstance(batch, Batch)]
    assert [each for segment in segments for each in segment.ids()] == [(1, 1), (1, 2), (1, 3)]


# Loss, doubles, gaps


def test_a_gap_is_reported_and_filled() -> None:
    network = Network(2)
    network.broadcast(1, "a")
    network.lose(Batch)
    network.pass_time(HEARTBEAT // 2)  # beyond a quarter of the retry time
    network.now += HEARTBEAT
    network.broadcast(1, "b")
    network.carry(Batch)
    assert network.delivered(2) == []
    assert Ack(1, 0, 2) in [each.pdu for each in network.sent(Ack)]
    network.carry_all()
    assert network.delivered(2) == ["a", "b"]


def test_the_loss_of_the_last_batch_shows_in_a_heartbeat() -> None:
    network = Network(2)
    network.broadcast(1, "m")
    network.lose(Batch)
    network.now = HEARTBEAT
    network.wake(1)
    network.lose(Batch)
    network.carry(Status)
    assert network.carry(Ack, source=2) == 1
    network.carry_all()
    assert network.delivered(2) == ["m"]


def test_doubles_are_delivered_once() -> None:
    network = Network(3)
    network.broadcast(1, "m")
    batch = network.under_way[0].pdu
    network.carry()
    network.inject(1, 2, batch, batch)
    network.carry_all()
    network.inject(1, 2, batch)
    assert network.delivered(2) == ["m"]


# Orders


def test_an_effect_is_held_until_its_cause_is_there() -> None:
    network = Network(3)
    network.broadcast(1, "cause")
    network.carry(to=2)
    network.broadcast(2, "effect")
    network.carry(Batch, source=2, to=3)
    assert network.delivered(3) == []
    (hold,) = network[3].waiting()
    assert hold == Hold(hold.batch, "delivered", 1, 1)
    network.carry(Batch, source=1, to=3)
    assert network.delivered(3) == ["cause", "effect"]
    assert list(network[3].waiting()) == []


@pytest.mark.parametrize(("size", "settings"), [(3, SETTINGS), (7, FAST)])
@pytest.mark.parametrize("order", [FifoOrder, CausalOrder])
def test_what_is_delivered_at_once_was_never_held(order: type, size: int, settings: GroupSettings) -> None:
    """A trace that shows a hold where there was none sends its readers looking for a cause that is not there."""
    network = Network(size, order, settings)
    network.broadcast(1, "m")
    out = network.step(2, network[2].receive, 1, [network.under_way[0].pdu])
    assert out is not None
    assert network.delivered(2) == ["m"]
    assert out.holds == []


def test_fifo_order_does_not_wait_for_causes() -> None:
    network = Network(3, FifoOrder)
    network.broadcast(1, "cause")
    network.carry(to=2)
    network.broadcast(2, "effect")
    network.carry(Batch, source=2, to=3)
    assert network.delivered(3) == ["effect"]


def test_a_named_cause_is_safe_because_somebody_delivered_it() -> None:
    """p3 holds the cause and has no word yet that it is safe; p2 delivered it, so it is."""
    network = Network(5)
    network.broadcast(1, "cause")
    network.carry(Batch)
    network.carry(Ack)
    network.carry(Safe, to=2)
    network.broadcast(2, "effect")
    assert network.delivered(3) == []
    network.carry(Batch, source=2, to=3)
    assert network.delivered(3) == ["cause"]


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_total_order_is_the_same_at_everybody_when_everybody_sends_at_once(size: int) -> None:
    network = Network(size, TotalOrder)
    for member in network.founders:
        network.broadcast(member, f"a{member}")
    for member in reversed(network.founders):
        network.carry(Batch, to=member)
        network.broadcast(member, f"b{member}")
    network.carry_all()
    network.pass_time(2 * HEARTBEAT)
    orders = {tuple(network.delivered(member)) for member in network.founders}
    assert len(orders) == 1
    assert len(orders.pop()) == 2 * size


def test_the_sequencer_places_batches_at_once_even_with_nothing_to_say() -> None:
    network = Network(3, TotalOrder)
    network.broadcast(2, "m")
    network.carry(Batch, to=1)
    placements = [each.pdu for each in network.sent(Batch) if each.source == 1]
    assert [placement.stamp for placement in placements if isinstance(placement, Batch)] == [[1, 1], [1, 1]]
    assert all(isinstance(placement, Batch) and not placement.segment for placement in placements)


# Forks and snapshots, for the explorer


def test_a_fork_goes_its_own_way() -> None:
    network = Network(3)
    network.broadcast(1, "a")
    original = network[2]
    before = original.snapshot()
    fork = original.fork()
    assert fork.snapshot() == before
    out = Outbox()
    fork.receive(1, [network.under_way[0].pdu], 0, out)
    assert fork.snapshot() != before
    assert original.snapshot() == before
    assert fork.membership.host is fork


def test_equal_inputs_lead_to_equal_states_and_outputs() -> None:
    def run() -> Network:
        network = Network(4, settings=SETTINGS)
        for member in (1, 2, 3):
            network.broadcast(member, f"m{member}")
        network.carry(to=(1, 4))
        network.pass_time(3 * HEARTBEAT)
        network.crash(4)
        network.pass_time(20 * HEARTBEAT)
        return network

    one, other = run(), run()
    assert one.journal == other.journal
    assert [one[member].snapshot() for member in one.members] == [other[m].snapshot() for m in other.members]


def test_a_change_of_view_changes_the_snapshot() -> None:
    network = Network(3)
    before = network[1].snapshot()
    network.crash(3)
    network.pass_time(20 * HEARTBEAT)
    assert network.views(1) == [(1, 2)]
    assert network[1].snapshot() != before
