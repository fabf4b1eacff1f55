"""Any two quorums of a view share a member, and a level counts once a quorum has reached it."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.ordering.group.quorum import is_quorum, quorum_level


def subsets(members: range) -> list[set[int]]:
    return [set(some) for some in chain.from_iterable(combinations(members, size) for size in range(len(members) + 1))]


def level_by_definition(levels: list[int]) -> int:
    """The highest level that the members of some quorum have all reached."""
    members = range(len(levels))
    quorums = [some for some in subsets(members) if is_quorum(some, members)]
    return max(min(levels[member] for member in quorum) for quorum in quorums)


@pytest.mark.parametrize("size", range(1, 7))
def test_any_two_quorums_share_a_member(size: int) -> None:
    members = range(10, 10 + size)
    quorums = [some for some in subsets(members) if is_quorum(some, members)]
    assert quorums
    assert all(one & other for one in quorums for other in quorums)


@pytest.mark.parametrize("size", range(1, 7))
def test_of_two_halves_exactly_one_can_go_on(size: int) -> None:
    members = range(size)
    for side in subsets(members):
        assert is_quorum(side, members) != is_quorum(set(members) - side, members)


@pytest.mark.parametrize("size", range(1, 7))
def test_whoever_joins_a_quorum_leaves_it_a_quorum(size: int) -> None:
    members = range(size)
    for some in subsets(members):
        if is_quorum(some, members):
            assert all(is_quorum(some | {other}, members) for other in members)


@pytest.mark.parametrize("size", range(1, 5))
def test_the_quorum_level_is_that_of_the_best_quorum_for_all_small_groups(size: int) -> None:
    for levels in product(range(4), repeat=size):
        assert quorum_level(levels) == level_by_definition(list(levels))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_the_quorum_level_is_that_of_the_best_quorum(levels: list[int]) -> None:
    assert quorum_level(levels) == level_by_definition(levels)
