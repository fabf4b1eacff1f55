"""What an export keeps, against a model that keeps everything and looks it up by reading from the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.core.message import Message
from isthmus.join.outgoing import OriginLog, Outstanding, Run, beyond

ORIGINS = (1, 2, 3)

marks = st.dictionaries(st.sampled_from(ORIGINS), st.integers(0, 12))
runs = st.lists(st.tuples(st.sampled_from(ORIGINS), st.integers(1, 9), st.integers(1, 4)), max_size=8)


def message(origin: int, seq: int) -> Message:
    return Message(origin, seq, b"%d/%d" % (origin, seq))


def one_by_one(runs: Iterable[Run]) -> list[tuple[int, int]]:
    return [(origin, seq) for origin, first, count in runs for seq in range(first, first + count)]


def left(marks: Mapping[int, int], messages: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(origin, seq) for origin, seq in messages if seq > marks.get(origin, 0)]


# Runs


@given(marks, runs)
def test_beyond_leaves_exactly_what_is_above_the_marks_in_its_order(marks: dict[int, int], runs: list[Run]) -> None:
    rest = list(beyond(marks, runs))
    assert one_by_one(rest) == left(marks, one_by_one(runs))
    assert all(count > 0 for _, _, count in rest)


@given(marks, marks, runs)
def test_beyond_one_and_another_is_beyond_both(one: dict[int, int], other: dict[int, int], runs: list[Run]) -> None:
    both = {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in ORIGINS}
    assert list(beyond(one, beyond(other, runs))) == list(beyond(both, runs))


# The messages of one origin


class OneOrigin(RuleBasedStateMachine):
    """A log beside a plain dictionary of all messages that were ever put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.log = OriginLog(50)
        self.first, self.last = 50, 49

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.log.append(message(1, self.last))

    @rule(beyond_first=st.integers(-3, 12))
    def drop_through(self, beyond_first: int) -> None:
        seq = self.first + beyond_first
        self.log.drop_through(seq)
        self.first = max(self.first, min(seq, self.last) + 1)

    @precondition(lambda self: self.first > 5)
    @rule(count=st.integers(0, 5))
    def prepend(self, count: int) -> None:
        self.log.prepend([message(1, seq) for seq in range(self.first - count, self.first)])
        self.first -= count

    @invariant()
    def it_holds_what_it_should(self) -> None:
        assert (self.log.first, self.log.last) == (self.first, self.last)
        everything = [message(1, seq) for seq in range(self.first, self.last + 1)]
        assert self.log.span(self.first, len(everything)) == everything

    @rule(data=st.data())
    def any_span_is_found(self, data: st.DataObject) -> None:
        assume(self.last >= self.first)
        first = data.draw(st.integers(self.first, self.last))
        count = data.draw(st.integers(1, self.last - first + 1))
        assert self.log.span(first, count) == [message(1, seq) for seq in range(first, first + count)]


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
        assert one_by_one(self.outstanding.add([message(*each) for each in new])) == new

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def what_is_known_comes_again(self, data: st.DataObject) -> None:
        """Known, or confirmed and forgotten: in neither case is it news."""
        old = data.draw(st.lists(st.sampled_from(self.delivered), min_size=1, max_size=4))
        assert self.outstanding.add([message(*each) for each in old]) == []

    @rule(origin=st.sampled_from(ORIGINS))
    def one_beyond_a_gap_comes(self, origin: int) -> None:
        """No system delivers such a thing; it must not be taken for what is missing."""
        assume(self.last(origin))
        assert self.outstanding.add([message(origin, self.last(origin) + 2)]) == []

    @rule(marks=marks)
    def the_far_side_confirms(self, marks: dict[int, int]) -> None:
        """Marks may be old, and may be ahead: fellows have delivered more than this gateway."""
        news = any(seq > self.confirmed.get(origin, 0) for origin, seq in marks.items())
        assert self.outstanding.confirm(marks.items()) is news
        for origin, seq in marks.items():
            self.confirmed[origin] = max(seq, self.confirmed.get(origin, 0))

    @rule(final=marks)
    def what_an_epoch_has_to_carry_is_found(self, final: dict[int, int]) -> None:
        after = list(self.outstanding.after(final))
        expected = left(final, left(self.confirmed, self.delivered))
        assert one_by_one(after) == expected
        assert self.outstanding.messages(after) == [message(*each) for each in expected]

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
    old = Outstanding()
    old.add(everything[:split])
    old.confirm(confirmed.items())
    state = old.messages(old.after({})), sorted(old.delivered()), sorted(old.confirmed.items())
    old.add(everything[split:])

    new = Outstanding()
    new.add(everything[split:])
    new.confirm(state[2])
    new.add_earlier(state[0])
    new.take_as_delivered(state[1])
    new.invariants()

    assert one_by_one(new.after({})) == one_by_one(old.after({}))
    assert new.messages(new.after({})) == old.messages(old.after({}))
    assert dict(new.delivered()) == dict(old.delivered())
    assert new.confirmed == old.confirmed
    following = [message(origin, origins.count(origin) + 1) for origin in ORIGINS]
    assert one_by_one(new.add(following)) == one_by_one(old.add(following))


def test_a_gateway_that_begins_again_forgets_deliveries_but_not_confirmations() -> None:
    outstanding = Outstanding()
    outstanding.add([message(1, 1), message(1, 2)])
    outstanding.confirm([(1, 1)])
    outstanding.forget_deliveries()
    assert list(outstanding.after({})) == []
    assert dict(outstanding.delivered()) == {}
    assert outstanding.is_confirmed(1, 1)
    assert outstanding.add([message(1, 3)]) == [(1, 3, 1)], "it begins wherever its first view begins"


@pytest.mark.parametrize("confirmed", [4, 5, 6])
def test_the_past_finds_its_place_when_the_present_is_confirmed_already(confirmed: int) -> None:
    """5 and 6 were delivered here; a fellow's word that they are confirmed overtakes another's account of 3 and 4."""
    outstanding = Outstanding()
    outstanding.add([message(1, 5), message(1, 6)])
    outstanding.confirm([(1, confirmed)])
    outstanding.add_earlier([message(1, 3), message(1, 4)])
    outstanding.add([message(1, 7)])
    unconfirmed = [message(1, seq) for seq in range(confirmed + 1, 8)]
    assert outstanding.messages(outstanding.after({})) == unconfirmed
    assert dict(outstanding.delivered()) == {1: 7}
