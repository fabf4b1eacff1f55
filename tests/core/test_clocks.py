"""Vectors compare entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.clocks import dominates, first_excess, merge

SIZE = 4
vectors = st.lists(st.integers(0, 3), min_size=SIZE, max_size=SIZE)


@given(vectors, vectors)
def test_a_vector_dominates_when_no_entry_of_the_other_exceeds_it(high: list[int], low: list[int]) -> None:
    assert dominates(high, low) == all(low[rank] <= high[rank] for rank in range(SIZE))


@given(vectors, vectors)
def test_the_first_excess_is_the_first_unmet_entry(low: list[int], high: list[int]) -> None:
    excesses = [rank for rank in range(SIZE) if low[rank] > high[rank]]
    assert first_excess(low, high) == (excesses[0] if excesses else -1)
    assert (first_excess(low, high) == -1) == dominates(high, low)


@given(vectors, vectors, vectors)
def test_a_merge_is_the_least_vector_that_dominates_both(left: list[int], right: list[int], other: list[int]) -> None:
    merged = left.copy()
    merge(merged, right)
    assert dominates(merged, left)
    assert dominates(merged, right)
    if dominates(other, left) and dominates(other, right):
        assert dominates(other, merged)


def test_a_merge_happens_in_place() -> None:
    mine = [1, 5]
    same = mine
    merge(mine, (3, 2))
    assert same == [3, 5]
