"""The RST algorithm in one cluster: what a matrix holds, and that rows as wholes are as good as entries one by one."""

from __future__ import annotations

from random import Random

import pytest

from isthmus.core.message import Addressed, Several
from isthmus.core.wire.clusters import Hop
from isthmus.ordering.addressed.delivery import Onward
from isthmus.ordering.addressed.rst import RstDelivery

MESSAGE = Addressed(0, 1, b"", (1,))


def members(size: int) -> list[RstDelivery]:
    return [RstDelivery(0, rank, size) for rank in range(size)]


def sent(sender: RstDelivery, target: int) -> Hop:
    onward: Onward = []
    sender.send(target, MESSAGE, onward)
    ((_, hop),) = onward
    return hop


def received(receiver: RstDelivery, sender: int, hop: Hop) -> list[Hop]:
    ready: list[Hop] = []
    receiver.receive(sender, hop, ready, [], [])
    receiver.invariants()
    return ready


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_hop_carries_the_whole_matrix_as_it_was_before_the_hop(size: int) -> None:
    """ "Every message transmitted by P_i is tagged with the contents of SENT_i." (cluster, Sect. III.C)"""
    first, *_ = members(size)
    one, two = sent(first, 1), sent(first, 1)
    assert [sum(map(len, hop.rows)) for hop in (one, two)] == [size * size] * 2
    assert [hop.rows[0][1] for hop in (one, two)] == [0, 1]
    assert first.sent[0][1] == 2


def test_messages_of_one_member_are_delivered_in_their_order() -> None:
    a, b = members(2)
    one, two = sent(a, 1), sent(a, 1)
    assert received(b, 0, two) == []
    assert received(b, 0, one) == [one, two]


def test_a_cause_by_way_of_two_others_is_waited_for() -> None:
    a, b, c, d = members(4)
    cause = sent(a, 3)
    received(b, 0, sent(a, 1))
    received(c, 1, sent(b, 2))
    effect = sent(c, 3)
    assert received(d, 2, effect) == []
    assert [(held.awaited, held.number) for held in d.waiting()] == [(0, 1)]
    assert received(d, 0, cause) == [cause, effect]


def test_what_was_sent_to_others_is_not_waited_for() -> None:
    a, b, _ = members(3)
    sent(a, 2)
    hop = sent(a, 1)
    assert received(b, 0, hop) == [hop]


@pytest.mark.parametrize("seed", range(10))
def test_the_later_row_is_the_maximum_of_both(seed: int) -> None:
    """Rows as wholes against the algorithm as it is written, entry by entry."""
    rng = Random(seed)
    size = 4
    rows = members(size)
    entries = [[[0] * size for _ in range(size)] for _ in range(size)]
    under_way: list[tuple[int, int, Hop, list[list[int]]]] = []
    for _ in range(200):
        if under_way and rng.random() < 0.6:
            sender, target, hop, matrix = rng.choice(under_way)
            receiver = rows[target]
            if any(matrix[member][target] > receiver.delivered[member] for member in range(size)):
                continue
            under_way.remove((sender, target, hop, matrix))
            assert received(receiver, sender, hop) == [hop]
            own = entries[target]
            for i in range(size):
                for j in range(size):
                    own[i][j] = max(own[i][j], matrix[i][j] + (i == sender and j == target))
        else:
            sender, target = rng.sample(range(size), 2)
            under_way.append((sender, target, sent(rows[sender], target), [list(row) for row in entries[sender]]))
            assert [list(row) for row in under_way[-1][2].rows] == under_way[-1][3]
            entries[sender][sender][target] += 1
        assert [[list(row) for row in each.sent] for each in rows] == entries


def test_a_run_counts_with_all_its_messages() -> None:
    """It is delivered whole, and what follows from it waits for all of it."""
    a, b, c = members(3)
    onward: Onward = []
    a.send(2, Addressed(0, 3, Several(3, b"abc"), (2,)), onward)
    (_, run), to_b = *onward, sent(a, 1)
    assert [row[2] for row in to_b.rows] == [3, 0, 0]
    received(b, 0, to_b)
    effect = sent(b, 2)
    assert received(c, 1, effect) == []
    assert [(held.awaited, held.number) for held in c.waiting()] == [(0, 3)]
    assert received(c, 0, run) == [run, effect]
    assert c.delivered == [3, 1, 0]


def test_matrices_share_their_rows() -> None:
    """That is why a cluster of thousands can be simulated."""
    a, b, *_ = members(1000)
    received(b, 0, sent(a, 1))
    hop = sent(b, 2)
    assert len({id(row) for row in hop.rows}) == 2
