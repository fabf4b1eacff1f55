"""Stability and back-pressure: nothing is forgotten that somebody may need, and nothing piles up."""

from __future__ import annotations

import pytest
from group_network import HEARTBEAT, SUSPECT_AFTER, Network, UnderWay, kept, texts

from isthmus.core.message import Batch
from isthmus.core.wire.group import Status
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

CHANGE = SUSPECT_AFTER + 10 * HEARTBEAT
BY_HAND = GroupSettings(auto_confirm=False)


def test_stable_only_after_every_member_confirmed() -> None:
    network = Network(3, settings=BY_HAND)
    network.broadcast(1, "m")
    network.pass_time(2 * HEARTBEAT)
    assert all(network.delivered(member) == ["m"] for member in network.founders)
    for member in (3, 1):
        network.confirm(member, 1, 1)
        network.pass_time(2 * HEARTBEAT)
        assert network.stable[1] == []
    network.confirm(2, 1, 1)
    network.pass_time(2 * HEARTBEAT)
    assert texts(network.stable[1]) == ["m"]
    assert network.stable[2] == network.stable[3] == [], "only the sender is told"


def test_a_batch_is_confirmed_by_itself_only_if_the_settings_say_so() -> None:
    network = Network(2)
    network.broadcast(1, "m")
    network.pass_time(2 * HEARTBEAT)
    assert texts(network.stable[1]) == ["m"]


def test_own_batches_become_stable_in_order_and_once() -> None:
    network = Network(3)
    for payload in ("a", "b", "c", "d"):
        network.broadcast(2, payload)
        network.carry()
    network.pass_time(4 * HEARTBEAT)
    assert texts(network.stable[2]) == ["a", "b", "c", "d"]


def test_buffers_are_freed_when_stable_and_not_before() -> None:
    network = Network(3, settings=BY_HAND)
    network.broadcast(1, "m")
    network.pass_time(4 * HEARTBEAT)
    assert [kept(network[member]) for member in network.founders] == [1, 1, 1]
    for member in network.founders:
        network.confirm(member, 1, 1)
    network.pass_time(4 * HEARTBEAT)
    assert [kept(network[member]) for member in network.founders] == [0, 0, 0]


def test_a_crashed_member_is_not_waited_for_once_it_is_out() -> None:
    network = Network(3)
    network.crash(3)
    network.broadcast(1, "m")
    network.pass_time(4 * HEARTBEAT)
    assert network.stable[1] == []
    network.pass_time(CHANGE)
    assert texts(network.stable[1]) == ["m"]


@pytest.mark.parametrize("settings", [GroupSettings(), BY_HAND])
def test_what_a_departed_sender_left_behind_is_freed_in_the_end(settings: GroupSettings) -> None:
    network = Network(3, settings=settings)
    network.broadcast(3, "m")
    network.carry(Batch)
    network.lose()
    network.crash(3)
    network.pass_time(CHANGE)
    if not settings.auto_confirm:
        assert kept(network[1]) == kept(network[2]) == 1
        network.confirm(1, 3, 1)
        network.pass_time(4 * HEARTBEAT)
        assert kept(network[1]) == 1, "p2 has not finished with it"
        network.confirm(2, 3, 1)
    network.pass_time(4 * HEARTBEAT)
    assert kept(network[1]) == kept(network[2]) == 0


def test_what_a_departed_sender_left_behind_is_freed_by_those_who_know_less() -> None:
    """p1 learns before the view ends that everybody has finished with p3's message; p2 does not hear p1 say so.

    In the new view p1 has nothing of p3 to speak of any more, and that must be word enough for p2.
    """
    network = Network(3)
    network.broadcast(3, "m")
    network.carry_all()
    network.cut_line(1, 2)
    network.pass_time(3 * HEARTBEAT)
    network.crash(3)
    network.mend()
    network.pass_time(2 * HEARTBEAT, every=lambda: network.lose(Status, source=1, to=2))
    assert (kept(network[1]), kept(network[2])) == (0, 1)
    network.lose()
    keep_p2_from_suspecting(network)
    network.pass_time(CHANGE, every=lambda: network.lose(Status, source=1, to=2, where=in_the_first_view))
    assert network.views(1) == network.views(2) == [(1, 2)]
    assert (kept(network[1]), kept(network[2])) == (0, 0)


def in_the_first_view(each: UnderWay) -> bool:
    return isinstance(each.pdu, Status) and each.pdu.view == 1


def keep_p2_from_suspecting(network: Network) -> None:
    """Until p3 is suspected, p2 hears p1 often enough, but none of what it says."""
    while not network[1].membership.blocked:
        network.now += HEARTBEAT
        for member in (1, 2):
            network.wake(member)
        network.lose(Status, source=1, to=2)
        network.inject(1, 2)
        network.carry(Status)


# The window


def test_credit_falls_to_zero_and_comes_back() -> None:
    network = Network(3, settings=GroupSettings(window_messages=4))
    assert network[1].credit() == 4
    network.broadcast(1, "a", "b", "c")
    assert network[1].credit() == 1
    network.broadcast(1, "d")
    assert network[1].credit() == 0
    network.pass_time(2 * HEARTBEAT)
    assert network[1].credit() == 4


def test_credit_counts_bytes_too() -> None:
    network = Network(2, settings=GroupSettings(window_bytes=10))
    network.broadcast(1, "123456789")
    assert network[1].credit() > 0
    network.broadcast(1, "0")
    assert network[1].credit() == 0
    network.pass_time(2 * HEARTBEAT)
    assert network[1].credit() > 0


def test_what_exceeds_the_window_waits_and_goes_out_later_in_order() -> None:
    network = Network(2, settings=GroupSettings(window_messages=2, batch_messages=1))
    payloads = [str(number) for number in range(7)]
    network.broadcast(1, *payloads)
    assert len(network.sent(Batch)) == 2
    assert network[1].unfinished() == 7
    assert network[1].credit() == 0
    network.pass_time(8 * HEARTBEAT)
    assert network.delivered(2) == network.delivered(1) == payloads
    assert network[1].unfinished() == 0
    assert network[1].credit() == 2


def test_a_message_larger_than_the_window_still_goes_out() -> None:
    network = Network(2, settings=GroupSettings(window_bytes=10, batch_bytes=5))
    network.broadcast(1, "x" * 100, "y" * 100)
    network.pass_time(4 * HEARTBEAT)
    assert network.delivered(2) == ["x" * 100, "y" * 100]


def test_one_slow_application_holds_its_senders_back_and_nobody_else_loses_anything() -> None:
    network = Network(3, settings=GroupSettings(window_messages=4, auto_confirm=False))
    network.broadcast(1, "a", "b", "c", "d")
    network.pass_time(2 * HEARTBEAT)
    for member in (1, 2):
        network.confirm(member, 1, 1)
    network.pass_time(10 * CHANGE)
    assert network[1].credit() == 0, "p3 is slow"
    assert network[2].credit() == 4
    network.confirm(3, 1, 1)
    network.pass_time(2 * HEARTBEAT)
    assert network[1].credit() == 4


def test_credit_comes_back_before_the_next_heartbeat_under_load() -> None:
    """A quarter of the window is worth a word at once; otherwise throughput would be one window per heartbeat."""
    network = Network(2, settings=GroupSettings(window_messages=8))
    network.broadcast(1, *(str(number) for number in range(8)))
    assert network[1].credit() == 0
    network.carry_all()
    assert network[1].credit() == 8


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])
def test_the_window_is_whole_again_after_a_view_change(order: type) -> None:
    network = Network(4, order, GroupSettings(window_messages=6, batch_messages=2))
    for member in (1, 2, 4):
        network.broadcast(member, *(f"{member}{number}" for number in range(6)))
    network.carry(to=2)
    network.lose()
    network.crash(4)
    network.pass_time(2 * CHANGE)
    for member in (1, 2, 3):
        assert network[member].credit() == 6
        assert network[member].unfinished() == 0
        assert kept(network[member]) == 0
    assert set(network.delivered(3)) >= {f"{member}{number}" for member in (1, 2) for number in range(6)}


def test_confirming_twice_or_backwards_changes_nothing() -> None:
    network = Network(2, settings=BY_HAND)
    network.broadcast(1, "a")
    network.broadcast(1, "b")
    network.carry_all()
    for number in (2, 1, 2):
        network.confirm(2, 1, number)
    assert network[2].stability.mine[1] == 2
