"""Which groups a daisy should have: within their sizes, by who talks to whom, and at rest once they are so."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.hierarchy.daisy.shape import (
    Shape,
    Sizes,
    admit,
    arrange,
    crossing,
    fit,
    names_given,
    regroup,
    traffic_of,
)

Traffic = dict[tuple[int, int], int]


def local(*processes: int, name: str = "") -> Shape:
    return Shape(name, processes)


def above(*parts: Shape, name: str = "") -> Shape:
    return Shape(name, (), parts)


@st.composite
def shapes(draw: st.DrawFn, depth: int = 3) -> Shape:
    """Any tree of up to thirty processes, with groups that are empty, too small and too large."""

    def divided(processes: list[int], levels: int) -> Shape:
        if not levels or len(processes) < 2 or draw(st.booleans()):
            return Shape("old", tuple(processes))
        count = draw(st.integers(1, min(6, len(processes))))
        inner = st.lists(st.integers(0, len(processes)), min_size=count - 1, max_size=count - 1)
        cuts = [0, *sorted(draw(inner)), len(processes)]
        parts = tuple(divided(processes[a:b], levels - 1) for a, b in pairwise(cuts))
        return Shape("old", (), parts)

    return divided(list(range(draw(st.integers(1, 30)))), depth)


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    least = draw(st.integers(1, 4))
    return Sizes(least, draw(st.integers(max(2, 2 * least - 1), 9)))


def traffics() -> st.SearchStrategy[Traffic]:
    pairs = st.tuples(st.integers(0, 29), st.integers(0, 29)).filter(lambda pair: pair[0] < pair[1])
    return st.dictionaries(pairs, st.integers(1, 50), max_size=20)


def is_within(shape: Shape, size: Sizes) -> bool:
    if shape.is_local:
        return len(shape.processes) <= size.most
    return 2 <= len(shape.parts) <= size.most and all(is_within(part, size) for part in shape.parts)


@settings(max_examples=150)
@given(shapes(), sizes(), traffics(), st.data())
def test_groups_come_within_their_sizes_and_to_rest(
    shape: Shape, size: Sizes, traffic: Traffic, data: st.DataObject
) -> None:
    living = data.draw(st.sets(st.sampled_from(sorted(shape.everybody())), min_size=1))
    fitted = fit(shape.only(living), size, traffic)
    assert set(fitted.everybody()) == living
    assert len(list(fitted.everybody())) == len(living)
    assert is_within(fitted, size)
    if not fitted.is_local:
        assert all(len(group.processes) >= size.least for group in fitted.locals())
    assert fit(fitted, size, traffic) is fitted


@settings(max_examples=100)
@given(shapes(), sizes(), traffics())
def test_sorting_by_traffic_is_done_only_where_it_pays(shape: Shape, size: Sizes, traffic: Traffic) -> None:
    sorted_anew = regroup(shape, size, traffic)
    if sorted_anew is not None:
        assert set(sorted_anew.everybody()) == set(shape.everybody())
        assert is_within(sorted_anew, size)


def test_a_group_that_is_too_large_splits_between_those_who_have_least_to_do_with_each_other() -> None:
    """daisy, footnote 4: "if two processes communicate frequently they will become members of the same group"."""
    talk = dict.fromkeys([*combinations((0, 2, 4), 2), *combinations((1, 3, 5), 2)], 10) | {(0, 1): 3}
    split = fit(local(0, 1, 2, 3, 4, 5), Sizes(2, 4), talk)
    assert {group.processes for group in split.locals()} == {(0, 2, 4), (1, 3, 5)}


def test_a_group_that_is_too_small_merges_with_whom_it_has_most_to_do_with() -> None:
    shape = above(local(0, 1, 2), local(3, 4, 5), local(6))
    merged = fit(shape, Sizes(2, 5), {(4, 6): 5, (0, 6): 2})
    assert {group.processes for group in merged.locals()} == {(0, 1, 2), (3, 4, 5, 6)}


def test_merged_groups_that_are_too_large_are_divided_again() -> None:
    shape = above(local(0, 1, 2, 3, 4), local(5))
    assert sorted(len(group.processes) for group in fit(shape, Sizes(3, 5), {}).locals()) == [3, 3]


def test_groups_that_have_become_one_need_no_servers() -> None:
    assert fit(above(above(local(0), local()), local(1)), Sizes(2, 4), {}).same_as(local(0, 1))


def test_many_groups_get_a_level_of_servers_more() -> None:
    fitted = fit(above(*(local(2 * each, 2 * each + 1) for each in range(5))), Sizes(2, 4), {})
    assert sorted(len(part.parts) for part in fitted.parts) == [2, 3]


def test_everybody_is_sorted_anew_where_that_halves_what_goes_from_group_to_group() -> None:
    shape = above(local(0, 1), local(2, 3))
    assert regroup(shape, Sizes(1, 2), {(0, 2): 9, (1, 3): 9, (0, 1): 1}) == above(local(0, 2), local(1, 3))
    assert regroup(shape, Sizes(1, 2), {(0, 2): 9, (0, 1): 9}) is None
    assert crossing(shape, {(0, 2): 9, (0, 1): 9, (7, 0): 5}) == 9


def test_newcomers_go_where_fewest_are() -> None:
    assert admit(above(local(0, 1, 2), local(3, 4)), {9, 8}) == above(local(0, 1, 2, 9), local(3, 4, 8))


@pytest.mark.parametrize(("units", "count"), [(7, 3), (8, 3), (9, 3), (2, 2), (5, 1)])
def test_heaps_differ_by_one_at_most(units: int, count: int) -> None:
    clique = dict.fromkeys(combinations(range(units), 2), 4)
    heaps = arrange([(each,) for each in range(units)], count, clique)
    assert sorted(place for heap in heaps for place in heap) == list(range(units))
    assert max(map(len, heaps)) - min(map(len, heaps)) <= 1


def test_new_groups_get_names_and_others_keep_theirs() -> None:
    named = names_given(above(local(0, name="a"), above(local(1), local(2, name="c"))), "g3")
    assert [part.name for part in named.parts] == ["a", "g3-1"]
    assert [part.name for part in named.parts[1].parts] == ["g3-2", "c"]


def test_traffic_is_what_both_have_told() -> None:
    assert traffic_of({0: [(1, 3), (0, 5)], 1: [(0, 4)], 2: []}) == {(0, 1): 7}
