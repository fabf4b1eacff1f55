"""The centralised approach in one cluster: one member's sequence, and no header."""

from __future__ import annotations

import pytest

from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop
from isthmus.ordering.addressed.coordinator import CoordinatorDelivery
from isthmus.ordering.addressed.delivery import Onward

COORDINATOR, MEMBER, OTHER = 1, 0, 2


def member(rank: int) -> CoordinatorDelivery:
    return CoordinatorDelivery(0, rank, 3, COORDINATOR)


def message(seq: int) -> Addressed:
    return Addressed(0, seq, b"", (OTHER,))


def test_a_member_sends_to_the_coordinator_whoever_it_is_for() -> None:
    onward: Onward = []
    member(MEMBER).send(OTHER, message(1), onward)
    member(MEMBER).send(COORDINATOR, message(2), onward)
    assert [(rank, hop.target, hop.rows) for rank, hop in onward] == [(COORDINATOR, OTHER, ()), (COORDINATOR, 1, ())]


def test_the_coordinator_passes_on_in_the_order_in_which_it_received_and_sent() -> None:
    coordinator = member(COORDINATOR)
    onward: Onward = []
    ready: list[Hop] = []
    coordinator.receive(MEMBER, Hop(0, OTHER, (), message(1)), ready, onward, [])
    coordinator.send(OTHER, message(2), onward)
    coordinator.receive(MEMBER, Hop(0, COORDINATOR, (), message(3)), ready, onward, [])
    coordinator.receive(MEMBER, Hop(0, OTHER, (), message(4)), ready, onward, [])
    assert [(rank, hop.run.last) for rank, hop in onward] == [(OTHER, 1), (OTHER, 2), (OTHER, 4)]
    assert [hop.run.last for hop in ready] == [3]


@pytest.mark.parametrize(
    ("rank", "sender", "hop", "accepted"),
    [
        (OTHER, COORDINATOR, Hop(0, OTHER, (), message(1)), True),
        (OTHER, MEMBER, Hop(0, OTHER, (), message(1)), False),
        (OTHER, COORDINATOR, Hop(0, MEMBER, (), message(1)), False),
        (OTHER, COORDINATOR, Hop(0, OTHER, ((0,),), message(1)), False),
        (COORDINATOR, MEMBER, Hop(0, OTHER, (), message(1)), True),
        (COORDINATOR, MEMBER, Hop(0, MEMBER, (), message(1)), False),
        (COORDINATOR, MEMBER, Hop(0, 3, (), message(1)), False),
    ],
)
def test_members_hear_the_coordinator_only(rank: int, sender: int, hop: Hop, accepted: bool) -> None:
    assert member(rank).accepts(sender, hop) is accepted
