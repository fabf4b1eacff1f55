"""Between batches and marks: join/grouped.py."""

from __future__ import annotations

from join_support import Desk, two_systems

from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.join.grouped import Unsettled

G1, G2 = 10, 11


def batch(sender: int, number: int, *messages: tuple[int, int]) -> Batch:
    return Batch(1, sender, number, [], 0, Segment.pack([(origin, seq, b"") for origin, seq in messages]))


def test_marks_rise_in_order_of_delivery_whoever_broadcast_the_messages() -> None:
    unsettled = Unsettled()
    unsettled.add(batch(G1, 1, (5, 1)))
    unsettled.add(batch(G2, 1, (5, 2), (6, 1)))
    assert unsettled.settle(G2, 1) == {}, "everything up to 5/2 would include 5/1"
    assert unsettled.settle(G1, 1) == {5: 2, 6: 1}


def test_what_is_settled_already_is_no_news() -> None:
    unsettled = Unsettled()
    unsettled.add(batch(G1, 1, (5, 1)))
    assert unsettled.settle(G1, 1) == {5: 1}
    assert unsettled.settle(G1, 1) == {}


def test_who_is_gone_and_has_nothing_open_is_forgotten_and_the_rest_still_counts() -> None:
    unsettled = Unsettled()
    unsettled.add(batch(G1, 1, (5, 1)))
    unsettled.add(batch(G2, 1, (6, 1)))
    assert unsettled.settle(G2, 1) == {}
    unsettled.forget_departed()
    assert unsettled.settle(G1, 1) == {5: 1, 6: 1}


def test_own_messages_that_have_not_crossed_hold_up_nothing_that_was_brought_in() -> None:
    """Else each of two systems would wait for the other to confirm first."""
    g1 = Desk(two_systems("causal"), "g1")
    g1.delivers("p1/1")
    g1.delivers("q1/1", "g1")
    assert "link 0: confirm q1/1" in g1.settled("g1", 1)


def test_a_process_that_came_back_is_finished_with_after_the_one_before_it() -> None:
    g1 = Desk(two_systems("fifo"), "g1")
    g1.delivers("p1/1")
    g1.delivers("p1+1/1")
    assert g1.link(0, "confirm p1+1/1")[:2] == ["finish p1 1", "finish p1+1 1"]
