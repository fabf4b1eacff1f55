"""Matrices for batches with several receivers: what is waited for, and causal order in every schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.endpoint import Hold
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY
from isthmus.ordering.orders.matrix import MatrixOrder

ALWAYS = 1 << 60


class Group:
    """Members by rank, and the batches on the way from one to another, in order."""

    def __init__(self, size: int, *, safe: bool = True) -> None:
        self.members = [MatrixOrder(range(size), rank) for rank in range(size)]
        self.lines: dict[tuple[int, int], list[Batch]] = {}
        self.delivered: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        self.sent = [0] * size
        self.holds: list[Hold] = []
        if safe:
            for member in self.members:
                for rank in range(size):
                    member.safe(rank, ALWAYS, [])

    def send(self, sender: int, *receivers: int) -> Batch:
        everybody = sorted({sender, *receivers})
        self.sent[sender] += 1
        batch = Batch(1, sender, self.sent[sender], self.members[sender].stamp(everybody), 0, EMPTY)
        for each in everybody:
            self.lines.setdefault((sender, each), []).append(batch)
        self.arrive(sender, sender)
        return batch

    def arrive(self, sender: int, receiver: int) -> list[tuple[int, int]]:
        """The next batch on this line. Returns what that let out, as (sender, number)."""
        batch = self.lines[sender, receiver].pop(0)
        member = self.members[receiver]
        assert member.well_formed(sender, batch)
        ready: list[Batch] = []
        member.arrived(sender, batch, ready, self.holds)
        member.invariants()
        news = [(each.sender, each.number) for each in ready]
        self.delivered[receiver] += news
        return news


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_stamp_is_the_square_of_the_group_and_counts_the_batch_itself(size: int) -> None:
    """ "This requires the use of matrices of size m² for groups of size m" (daisy, Sect. 3.4)"""
    group = Group(size)
    batch = group.send(0, size - 1)
    assert len(batch.stamp) == size**2
    assert group.members[size - 1].count(0, batch) == 1


def test_what_went_to_others_is_not_waited_for() -> None:
    group = Group(4)
    group.send(0, 2)
    group.send(0, 1, 3)
    assert group.arrive(0, 3) == [(0, 2)]


def test_an_effect_waits_for_a_cause_that_went_to_both() -> None:
    """The second receiver of a batch gets an answer of the first before the batch itself."""
    group = Group(3)
    group.send(0, 1, 2)
    group.arrive(0, 1)
    group.send(1, 2)
    assert group.arrive(1, 2) == []
    (hold,) = group.members[2].waiting()
    assert (hold.reason, hold.awaited, hold.number) == ("delivered", 0, 1)
    assert group.arrive(0, 2) == [(0, 1), (1, 1)]


def test_an_answer_does_not_come_before_the_own_message() -> None:
    """A sender delivers what it sent when that is safe, and what follows from it after that."""
    group = Group(2, safe=False)
    sender, other = group.members
    group.send(0, 1)
    other.safe(0, 1, [])
    assert group.arrive(0, 1) == [(0, 1)]
    group.send(1, 0)
    sender.safe(1, 1, [])
    assert group.arrive(1, 0) == []
    ready: list[Batch] = []
    sender.safe(0, 1, ready)
    assert [(each.sender, each.number) for each in ready] == [(0, 1), (1, 1)]


def test_nothing_is_delivered_before_it_is_safe() -> None:
    group = Group(3, safe=False)
    group.send(0, 1)
    assert group.arrive(0, 1) == []
    (hold,) = group.members[1].waiting()
    assert (hold.reason, hold.awaited, hold.number) == ("safe", 0, 1)
    ready: list[Batch] = []
    group.members[1].safe(0, 1, ready)
    assert [each.number for each in ready] == [1]


@pytest.mark.parametrize("stamp", [[], [1] * 3, [1] * 5, [1, 0, 0, 0]])
def test_a_stamp_that_makes_no_sense_is_seen(stamp: list[int]) -> None:
    """Of another size, or of a batch that goes elsewhere."""
    assert not MatrixOrder((0, 1), 1).well_formed(0, Batch(1, 0, 1, stamp, 0, EMPTY))


@given(st.data())
def test_causal_order_in_every_schedule_and_nothing_is_left(data: st.DataObject) -> None:
    """Against what happened before each send, as nobody inside could know it."""
    size = data.draw(st.integers(2, 5))
    group = Group(size)
    past: dict[tuple[int, int], frozenset[tuple[int, int]]] = {}
    to: dict[tuple[int, int], set[int]] = {}
    for _ in range(data.draw(st.integers(1, 14))):
        open_lines = sorted(line for line, batches in group.lines.items() if batches)
        arrives: bool = data.draw(st.booleans())
        if open_lines and arrives:
            group.arrive(*data.draw(st.sampled_from(open_lines)))
            continue
        sender = data.draw(st.integers(0, size - 1))
        receivers = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
        before = frozenset(group.delivered[sender])
        batch = group.send(sender, *receivers)
        past[sender, batch.number] = before.union(*(past[each] for each in before))
        to[sender, batch.number] = {sender, *receivers}
    while left := sorted(line for line, batches in group.lines.items() if batches):
        group.arrive(*data.draw(st.sampled_from(left)))
    for rank, delivered in enumerate(group.delivered):
        assert sorted(delivered) == sorted(each for each, receivers in to.items() if rank in receivers)
        for place, each in enumerate(delivered):
            late = past[each].intersection(delivered[place + 1 :])
            assert not late, f"{rank} delivers {each} before {late}"
