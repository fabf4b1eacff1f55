"""Stable is what every member of the view has confirmed, no more and no less, from one view to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.ordering.group.stability import Stability

A, B, C, D = 1, 2, 3, 4

counts = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 5))


def group_of(*members: int, at: int = 0) -> Stability:
    stability = Stability()
    stability.install(members[0], members, dict.fromkeys(members, at), ())
    return stability


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), counts), max_size=12))
def test_stable_is_the_minimum_of_what_the_members_have_said(gossip: list[tuple[int, dict[int, int]]]) -> None:
    stability = group_of(A, B, C)
    said = {member: dict.fromkeys((A, B, C), 0) for member in (A, B, C)}
    for member, heard in gossip:
        if member == A:
            for sender, number in heard.items():
                stability.confirm(sender, number)
        else:
            stability.learn(member, heard.items())
        said[member] = {sender: max(number, heard.get(sender, 0)) for sender, number in said[member].items()}
    for sender in (A, B, C):
        assert stability.stable(sender) == min(row[sender] for row in said.values())


@given(counts, counts)
def test_old_news_changes_nothing(newer: dict[int, int], older: dict[int, int]) -> None:
    stability = group_of(A, B)
    stability.learn(B, newer.items())
    before = dict(stability.rows[B])
    stability.learn(B, [(sender, min(number, newer.get(sender, 0))) for sender, number in older.items()])
    assert stability.rows[B] == before


def test_what_a_stranger_says_does_not_count() -> None:
    stability = group_of(A, B)
    stability.confirm(A, 3)
    stability.learn(D, [(A, 9)])
    assert stability.stable(A) == 0
    assert D not in stability.rows


def test_a_member_that_left_is_not_waited_for() -> None:
    stability = group_of(A, B, C)
    stability.confirm(A, 3)
    stability.learn(B, [(A, 3)])
    assert stability.stable(A) == 0
    stability.install(A, (A, B), {A: 3, B: 0, C: 0}, ())
    assert stability.stable(A) == 3


def test_a_member_that_stays_keeps_its_counts() -> None:
    stability = group_of(A, B)
    stability.learn(B, [(A, 2)])
    stability.confirm(A, 5)
    stability.install(A, (A, B, C), {A: 5, B: 0}, ())
    assert stability.stable(A) == 2


def test_a_member_that_comes_has_finished_with_everything_before_the_cut() -> None:
    stability = group_of(A, B)
    stability.confirm(A, 4)
    stability.learn(B, [(A, 4)])
    stability.install(A, (A, B, C), {A: 4, B: 0}, ())
    assert stability.stable(A) == 4
    stability.confirm(A, 5)
    stability.learn(B, [(A, 5)])
    assert stability.stable(A) == 4


def test_one_that_comes_to_take_over_has_finished_with_nothing() -> None:
    stability = Stability()
    stability.install(C, (A, B, C), {A: 4, B: 0}, (), caught_up=False)
    assert stability.stable(A) == 0
    stability.confirm(A, 3)
    assert stability.stable(A) == 3


def test_the_messages_of_one_that_departed_become_stable_all_the_same() -> None:
    stability = group_of(A, B, C)
    stability.confirm(C, 2)
    stability.learn(B, [(C, 1)])
    stability.install(A, (A, B), {A: 0, B: 0, C: 2}, (C,))
    assert stability.stable(C) == 1
    stability.learn(B, [(C, 2)])
    assert stability.stable(C) == 2


def test_nothing_is_kept_of_senders_that_are_forgotten() -> None:
    stability = group_of(A, B, C)
    stability.install(A, (A, B, D), {A: 0, B: 0, C: 7}, (C,))
    assert all(C in row for row in stability.rows.values())
    stability.forget(C)
    assert not any(C in row for row in stability.rows.values())


def test_nothing_is_kept_of_senders_that_departed_without_leaving_anything_behind() -> None:
    stability = group_of(A, B, C)
    stability.install(A, (A, B, D), {A: 0, B: 0, C: 7}, ())
    assert all(row.keys() == {A, B, D} for row in stability.rows.values())
