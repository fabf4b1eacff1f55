"""Marks that forget processes that came back, against marks of every process there ever was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.freeze import freeze
from isthmus.core.ids import LIFE, incarnation_of, slot_of
from isthmus.core.marks import EVERYTHING, SlotMarks

INCARNATIONS = (0, 1, 2, 5, LIFE, LIFE + 1)
ORIGINS = tuple(incarnation_of(slot, incarnation) for slot in (0, 7) for incarnation in INCARNATIONS)
P1, P1_AGAIN, P1_LATER, P1_IN_ITS_NEXT_LIFE = (incarnation_of(3, incarnation) for incarnation in (0, 1, 2, LIFE))

Message = tuple[int, int]

counts = st.fixed_dictionaries(dict.fromkeys(ORIGINS, st.integers(0, 3)))
"""How many messages of each process were ever delivered."""


@st.composite
def deliveries(draw: st.DrawFn) -> list[Message]:
    """Messages as they are delivered: of one slot in one life, those of a process before those of its successor."""
    streams: dict[int, list[Message]] = {}
    for origin, count in sorted(draw(counts).items()):
        streams.setdefault(slot_of(origin), []).extend((origin, seq) for seq in range(1, count + 1))
    order = draw(st.permutations([stream for stream, messages in streams.items() for _ in messages]))
    return [streams[stream].pop(0) for stream in order]


def every_mark(messages: Iterable[Message]) -> dict[int, int]:
    """A mark of every process that ever sent anything."""
    return dict(messages)


def raised(messages: Iterable[Message], marks: SlotMarks | None = None) -> SlotMarks:
    marks = SlotMarks() if marks is None else marks
    for origin, seq in messages:
        marks.raise_to(origin, seq)
    return marks


def same(one: SlotMarks, other: SlotMarks) -> bool:
    return one.counted() == other.counted() and one.items() == other.items() and one.total() == other.total()


def followers(origin: int) -> Iterator[int]:
    return (each for each in ORIGINS if slot_of(each) == slot_of(origin) and each > origin)


@given(deliveries(), st.data())
def test_whatever_is_asked_of_them_is_answered_as_if_nothing_was_forgotten(
    messages: list[Message], data: st.DataObject
) -> None:
    """What is asked about are messages that were delivered up to some moment, or are delivered later."""
    moment = data.draw(st.integers(0, len(messages)))
    marks, everything = raised(messages[:moment]), every_mark(messages[:moment])
    for origin, seq in messages:
        assert (marks.get(origin) >= seq) is (everything.get(origin, 0) >= seq), (origin, seq)
    for origin in ORIGINS:
        over = any(each in everything for each in followers(origin))
        assert marks.is_over(origin) is over
        assert marks.get(origin, -1) == (EVERYTHING if over else everything.get(origin, -1))
    assert marks.total() == sum(everything.values())
    assert marks.at(ORIGINS) == {origin: marks.get(origin) for origin in ORIGINS if marks.get(origin, -1) >= 0}
    assert len(marks.counted()) <= 2 * len(set(map(slot_of, ORIGINS)))


@given(deliveries(), st.data())
def test_old_news_changes_nothing(messages: list[Message], data: st.DataObject) -> None:
    marks = raised(messages)
    again = data.draw(st.lists(st.sampled_from(messages), max_size=6)) if messages else []
    assert not any(marks.raise_to(*each) for each in again)
    assert not marks.update(every_mark(again))
    assert same(marks, raised(messages))


@given(deliveries())
def test_what_is_written_down_is_all_there_is_to_know(messages: list[Message]) -> None:
    marks = raised(messages)
    assert same(SlotMarks(marks.counted()), marks)
    assert same(SlotMarks(every_mark(messages).items()), marks), "and so are the marks of everybody"


@given(deliveries(), st.data())
def test_who_comes_late_and_is_told_knows_what_everybody_knows(messages: list[Message], data: st.DataObject) -> None:
    """It delivers from some moment on, and is told how far all was at that moment or at a later one."""
    came = data.draw(st.integers(0, len(messages)), label="came")
    told = data.draw(st.integers(came, len(messages)), label="told of")
    heard = data.draw(st.integers(told, len(messages)), label="heard")
    late = raised(messages[came:heard], SlotMarks(late=True))
    late.go_on_from(raised(messages[:told]).counted())
    assert same(raised(messages[heard:], late), raised(messages))


@given(deliveries(), st.data())
def test_of_several_accounts_the_furthest_one_counts_of_each_slot(messages: list[Message], data: st.DataObject) -> None:
    """Accounts of one history, each up to some message of each slot, in any order."""
    streams = sorted(set(map(slot_of, ORIGINS)))
    accounts = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(streams, st.integers(0, 12))), max_size=3))
    furthest = {stream: max((account[stream] for account in accounts), default=0) for stream in streams}
    merged = SlotMarks()
    for account in accounts:
        merged.merge(raised(shortened(messages, account)).counted())
    assert same(merged, raised(shortened(messages, furthest)))


def shortened(messages: list[Message], lengths: dict[int, int]) -> Iterator[Message]:
    seen = dict.fromkeys(lengths, 0)
    for origin, seq in messages:
        seen[slot_of(origin)] += 1
        if seen[slot_of(origin)] <= lengths[slot_of(origin)]:
            yield origin, seq


def test_a_late_repeat_of_one_that_came_back_is_no_news() -> None:
    marks = raised([(P1, 1), (P1, 2), (P1_AGAIN, 1)])
    assert marks.get(P1) == EVERYTHING
    assert not marks.raise_to(P1, 2)
    assert not marks.raise_to(P1, 9), "it never sent that many, or nobody will ever deliver them"
    assert marks.items() == [(P1_AGAIN, 1)]
    assert marks.counted() == [(P1, 2), (P1_AGAIN, 1)], "the first id of a stream says how many there were"


def test_the_mark_of_a_successor_is_later_than_any_of_its_predecessor() -> None:
    assert raised([(P1, 900)]).of(P1) < raised([(P1_AGAIN, 1)]).of(P1) < raised([(P1_LATER, 1)]).of(P1)
    assert SlotMarks().of(P1_LATER) == (P1, 0)


def test_a_later_life_of_a_whole_system_follows_the_one_before() -> None:
    marks = raised([(P1, 1), (P1_AGAIN, 3), (P1_IN_ITS_NEXT_LIFE, 2)])
    assert marks.get(P1_AGAIN) == EVERYTHING
    assert marks.counted() == [(P1, 4), (P1_IN_ITS_NEXT_LIFE, 2)], "one slot, however many lives"


@given(deliveries(), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_who_follows_others_that_came_late_counts_what_they_did(
    messages: list[Message], first: int, second: int, overlap: int
) -> None:
    """One came at `first`, another at `second` and was told by the one; then both are told what lay before."""
    early = raised(messages[first:], SlotMarks(late=True))
    came = raised(messages[first + second :], SlotMarks(late=True))
    came.follow(raised(messages[first : first + second + overlap], SlotMarks(late=True)).since())
    assert came.since() == early.since()
    came.go_on_from(raised(messages[:first]).counted())
    assert same(came, raised(messages))


def test_a_copy_is_one_of_its_own() -> None:
    marks = raised([(P1, 1), (P1_AGAIN, 1)], SlotMarks(late=True))
    before = freeze(marks)
    raised([(P1_LATER, 4)], marks.copy())
    raised([(P1_LATER, 4)], deepcopy(marks))
    assert freeze(marks) == before


def test_cleared_marks_are_empty() -> None:
    marks = raised([(P1, 1), (P1_AGAIN, 1)])
    assert marks
    marks.clear()
    assert not marks
    assert same(marks, SlotMarks())
