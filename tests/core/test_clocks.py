"""Vectors compare entry by entry; a matrix knows what everybody has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.clocks import MatrixClock, concurrent, dominates, first_excess, merge

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


@given(vectors, vectors)
def test_two_vectors_are_ordered_one_way_or_equal_or_concurrent(left: list[int], right: list[int]) -> None:
    assert concurrent(left, right) == (not dominates(left, right) and not dominates(right, left))
    assert concurrent(left, right) == concurrent(right, left)
    assert not concurrent(left, left)


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


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), vectors), max_size=12))
def test_the_column_minimum_is_what_everybody_has(updates: list[tuple[int, list[int]]]) -> None:
    clock = MatrixClock(SIZE)
    for row, vector in updates:
        clock.update(row, vector)
    for column, minimum in enumerate(clock.column_minimum()):
        highest = [max((vector[column] for row, vector in updates if row == each), default=0) for each in range(SIZE)]
        assert minimum == min(highest)


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), vectors), max_size=8), st.integers(0, 8))
def test_merging_two_matrices_is_having_heard_everything_both_heard(
    updates: list[tuple[int, list[int]]], split: int
) -> None:
    first, second, both = MatrixClock(SIZE), MatrixClock(SIZE), MatrixClock(SIZE)
    for index, (row, vector) in enumerate(updates):
        (first if index < split else second).update(row, vector)
        both.update(row, vector)
    first.merge(second)
    assert first.rows == both.rows
