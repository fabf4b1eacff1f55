"""What an export keeps, against a model that keeps everything and looks it up by reading from the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.core.ids import SLOT_BITS, incarnation_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Opened, Run, Segment
from isthmus.join.outgoing import Outstanding

NOTHING = SlotMarks()
ORIGINS = (1, 2, 3)

marks = st.dictionaries(st.sampled_from(ORIGINS), st.integers(0, 12))
runs = st.lists(st.tuples(st.sampled_from(ORIGINS), st.integers(1, 9), st.integers(1, 4)), max_size=8)


def message(origin: int, seq: int) -> Opened:
    return origin, seq, b"%d/%d" % (origin, seq)


def segment(ids: Iterable[tuple[int, int]]) -> Segment:
    return Segment.pack([message(*each) for each in ids])


def opened(segments: Iterable[Segment]) -> list[Opened]:
    return list(chain.from_iterable(segments))


def in_pieces(messages: Sequence[Opened], counts: Iterable[int]) -> Iterator[Segment]:
    """Messages as segments of these lengths, and one of what is left."""
    start = 0
    for count in counts:
        yield Segment.pack(messages[start : start + count])
        start += count
    yield Segment.pack(messages[start:])


def one_by_one(runs: Iterable[Run]) -> list[tuple[int, int]]:
    return [(origin, seq) for origin, first, count in runs for seq in range(first, first + count)]


def left(marks: Mapping[int, int], messages: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(origin, seq) for origin, seq in messages if seq > marks.get(origin, 0)]


# Runs


@given(marks, runs)
def test_beyond_leaves_exactly_what_is_above_the_marks_in_its_order(marks: dict[int, int], runs: list[Run]) -> None:
    rest = segment(one_by_one(runs)).beyond(marks)
    expected = left(marks, one_by_one(runs))
    assert list(rest) == [message(*each) for each in expected]
    assert one_by_one(rest.runs()) == expected
    assert all(count > 0 for _, _, count in rest.runs())


@given(marks, marks, runs)
def test_beyond_one_and_another_is_beyond_both(one: dict[int, int], other: dict[int, int], runs: list[Run]) -> None:
    both = {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in ORIGINS}
    everything = segment(one_by_one(runs))
    assert list(everything.beyond(other).beyond(one)) == list(everything.beyond(both))


# The messages of one origin


class OneOrigin(RuleBasedStateMachine):
    """What is kept of one origin beside the numbers of all its messages, which come in segments of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Outstanding()
        self.first, self.last, self.confirmed = 50, 49, 0

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        new = [message(1, seq) for seq in range(self.last + 1, self.last + count + 1)]
        assert list(self.kept.add(Segment.pack(new))) == new
        self.last += count

    @rule(beyond_first=st.integers(-3, 12))
    def drop_through(self, beyond_first: int) -> None:
        seq = self.first + beyond_first
        assert self.kept.confirm([(1, seq)]) is (seq > self.confirmed)
        self.confirmed = max(self.confirmed, seq)

    @precondition(lambda self: self.first > 9 and self.last >= self.first)
    @rule(counts=st.lists(st.integers(0, 3), max_size=3))
    def prepend(self, counts: list[int]) -> None:
        start = self.first - sum(counts)
        self.kept.add_earlier(list(in_pieces([message(1, seq) for seq in range(start, self.first)], counts)))
        self.first = start

    @property
    def first_kept(self) -> int:
        return max(self.first, self.confirmed + 1)

    @invariant()
    def it_holds_what_it_should(self) -> None:
        self.kept.invariants()
        assert dict(self.kept.delivered()) == ({1: self.last} if self.last >= self.first else {})
        everything = [message(1, seq) for seq in range(self.first_kept, self.last + 1)]
        assert opened(self.kept.after(NOTHING)) == everything
        assert list(self.kept.find([(1, self.first_kept, len(everything))])) == everything

    @precondition(lambda self: self.last >= self.first_kept)
    @rule(data=st.data())
    def any_span_is_found(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.first_kept, self.last))
        count = data.draw(st.integers(1, self.last - first + 1))
        assert list(self.kept.find([(1, first, count)])) == [message(1, seq) for seq in range(first, first + count)]


TestOneOrigin = OneOrigin.TestCase
TestOneOrigin.settings = settings(stateful_step_count=25)


# All messages of one direction


class OneDirection(RuleBasedStateMachine):
    """What was delivered, in one list; and of each origin what the far side has confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.outstanding = Outstanding()
        self.delivered: list[tuple[int, int]] = []
        self.confirmed: dict[int, int] = {}

    def last(self, origin: int) -> int:
        return max((seq for each, seq in self.delivered if each == origin), default=0)

    @rule(batch=st.lists(st.sampled_from(ORIGINS), min_size=1, max_size=6))
    def a_batch_is_delivered(self, batch: list[int]) -> None:
        new = []
        for origin in batch:
            new.append((origin, self.last(origin) + 1))
            self.delivered.append(new[-1])
        assert list(self.outstanding.add(segment(new))) == [message(*each) for each in new]

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def what_is_known_comes_again(self, data: st.DataObject) -> None:
        """Known, or confirmed and forgotten: in neither case is it news."""
        old = data.draw(st.lists(st.sampled_from(self.delivered), min_size=1, max_size=4))
        assert not self.outstanding.add(segment(old))

    @rule(origin=st.sampled_from(ORIGINS))
    def one_beyond_a_gap_comes(self, origin: int) -> None:
        """No system delivers such a thing; it must not be taken for what is missing."""
        assume(self.last(origin))
        assert not self.outstanding.add(segment([(origin, self.last(origin) + 2)]))

    @rule(marks=marks)
    def the_far_side_confirms(self, marks: dict[int, int]) -> None:
        """Marks may be old, and may be ahead: fellows have delivered more than this gateway."""
        news = any(seq > self.confirmed.get(origin, 0) for origin, seq in marks.items())
        assert self.outstanding.confirm(marks.items()) is news
        for origin, seq in marks.items():
            self.confirmed[origin] = max(seq, self.confirmed.get(origin, 0))

    @rule(final=marks)
    def what_an_epoch_has_to_carry_is_found(self, final: dict[int, int]) -> None:
        after = list(self.outstanding.after(SlotMarks(final.items())))
        expected = left(final, left(self.confirmed, self.delivered))
        assert all(after), "nothing but messages"
        assert opened(after) == [message(*each) for each in expected]
        runs = [run for each in after for run in each.runs()]
        assert list(self.outstanding.find(runs)) == [message(*each) for each in expected]

    @rule(data=st.data())
    def any_runs_of_it_are_found(self, data: st.DataObject) -> None:
        """A sequencer names runs as they were delivered to it; here they may have come in other segments."""
        unconfirmed = left(self.confirmed, self.delivered)
        assume(unconfirmed)
        runs = []
        for origin, first in data.draw(st.lists(st.sampled_from(unconfirmed), max_size=4)):
            runs.append((origin, first, data.draw(st.integers(1, self.last(origin) - first + 1))))
        assert list(self.outstanding.find(runs)) == [message(*each) for each in one_by_one(runs)]

    @rule(data=st.data())
    def what_a_log_holds_is_found_with_its_place(self, data: st.DataObject) -> None:
        """Where everybody delivers in one order, an epoch begins behind some of it."""
        before = data.draw(st.integers(0, len(self.delivered)))
        self.outstanding.final = SlotMarks(self.delivered[:before])
        numbered = [
            (place, each) for first, part in self.outstanding.numbered() for place, each in enumerate(part.ids(), first)
        ]
        beyond = list(enumerate(self.delivered[before:], 1))
        assert numbered == [(place, each) for place, each in beyond if left(self.confirmed, [each])]
        assert self.outstanding.last_number() == len(beyond)

    @invariant()
    def every_question_is_answered_as_the_model_does(self) -> None:
        self.outstanding.invariants()
        assert dict(self.outstanding.delivered()) == {
            origin: self.last(origin) for origin in ORIGINS if self.last(origin)
        }
        for origin in ORIGINS:
            last = self.last(origin)
            assert self.outstanding.has_delivered(origin, last) is (last > 0)
            assert not self.outstanding.has_delivered(origin, last + 1)
            assert not self.outstanding.has((origin, max(last, 1), 2))
            confirmed = self.confirmed.get(origin, 0)
            assert self.outstanding.is_confirmed(origin, confirmed)
            assert not self.outstanding.is_confirmed(origin, confirmed + 1)


TestOneDirection = OneDirection.TestCase
TestOneDirection.settings = settings(stateful_step_count=25)


# A gateway that comes late


@given(st.lists(st.sampled_from(ORIGINS), max_size=20), st.data())
def test_who_hears_of_the_past_after_the_present_keeps_the_same_as_who_was_there(
    origins: list[int], data: st.DataObject
) -> None:
    """One has been there all the time. One came at some point, and got from it what was not confirmed by then."""
    split = data.draw(st.integers(0, len(origins)), label="when it came")
    everything = [message(origin, origins[: index + 1].count(origin)) for index, origin in enumerate(origins)]
    last = {origin: origins[:split].count(origin) for origin in ORIGINS}
    confirmed = {origin: data.draw(st.integers(0, count)) for origin, count in last.items()}
    counts = data.draw(st.lists(st.integers(0, 4), max_size=4), label="segments")
    old = Outstanding()
    for each in in_pieces(everything[:split], counts):
        old.add(each)
    old.confirm(confirmed.items())
    state = list(old.after(NOTHING)), old.last.counted(), old.confirmed.items()
    old.add(Segment.pack(everything[split:]))

    new = Outstanding(late=True)
    for each in in_pieces(everything[split:], counts):
        new.add(each)
    new.confirm(state[2])
    new.add_earlier(state[0])
    new.take_as_delivered(state[1])
    new.invariants()

    unconfirmed = [each for each in everything if each[1] > confirmed[each[0]]]
    assert opened(new.after(NOTHING)) == opened(old.after(NOTHING)) == unconfirmed
    for origin in ORIGINS:
        own = [each for each in unconfirmed if each[0] == origin]
        if own:
            run = (origin, own[0][1], len(own))
            assert list(new.find([run])) == list(old.find([run])) == own
    assert dict(new.delivered()) == dict(old.delivered())
    assert new.confirmed.items() == old.confirmed.items()
    assert new.last.counted() == old.last.counted()
    following = segment((origin, origins.count(origin) + 1) for origin in ORIGINS)
    assert list(new.add(following)) == list(old.add(following)) == list(following)


@pytest.mark.parametrize("confirmed", [4, 5, 6])
def test_the_past_finds_its_place_when_the_present_is_confirmed_already(confirmed: int) -> None:
    """5 and 6 were delivered here; a fellow's word that they are confirmed overtakes another's account of 3 and 4."""
    outstanding = Outstanding()
    outstanding.add(segment([(1, 5), (1, 6)]))
    outstanding.confirm([(1, confirmed)])
    outstanding.add_earlier([segment([(1, 3), (1, 4)])])
    outstanding.add(segment([(1, 7)]))
    outstanding.invariants()
    unconfirmed = [message(1, seq) for seq in range(confirmed + 1, 8)]
    assert opened(outstanding.after(NOTHING)) == unconfirmed
    assert list(outstanding.find([(1, confirmed + 1, 7 - confirmed)])) == unconfirmed
    assert dict(outstanding.delivered()) == {1: 7}


# Origins that come back


@given(st.lists(st.integers(0, 3), max_size=16), st.data())
def test_what_is_open_is_the_same_as_if_no_origin_was_ever_forgotten(senders: list[int], data: st.DataObject) -> None:
    """Two slots; now and then the process in one is replaced. What the far side has is a part from the beginning."""
    origins, everything = [incarnation_of(1, 0), incarnation_of(2, 0)], list[tuple[int, int]]()
    for sender in senders:
        slot, returns = divmod(sender, 2)
        origins[slot] += returns << SLOT_BITS
        everything.append((origins[slot], 1 + sum(origin == origins[slot] for origin, _ in everything)))
    delivered, confirmed, final = (data.draw(st.integers(0, len(everything)), label=label) for label in "dcf")
    outstanding = Outstanding()
    for each in everything[:delivered]:
        outstanding.add(segment([each]))
    outstanding.confirm(SlotMarks(everything[:confirmed]).items())
    outstanding.final = SlotMarks(SlotMarks(everything[:final]).counted())
    outstanding.invariants()

    open_yet = [message(*each) for each in everything[max(confirmed, final) : delivered]]
    assert opened(outstanding.after(outstanding.final)) == open_yet
    assert list(outstanding.find([(origin, seq, 1) for origin, seq, _ in open_yet])) == open_yet
    assert outstanding.last_number() == delivered - final
    assert not any(outstanding.add(segment([each])) for each in everything[:delivered]), "late repeats"
