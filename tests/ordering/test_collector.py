"""What a collector says is true at any time, whatever is lost, late or said twice, and in the end it is all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.wire.group import Status
from isthmus.ordering.group.collector import Collector

ME, A, B, C = 0, 1, 2, 3
EVERYBODY = (ME, A, B, C)
GONE = 9


def status(*confirmed: int, departed: dict[int, int] | None = None) -> Status:
    return Status(1, 0, 0, list(confirmed), list((departed or {}).items()), [], 0)


def told(*reports: Status) -> Collector:
    """A collector that A, B and C have reported to."""
    collector = Collector((A, B, C))
    for member, report in zip((A, B, C), reports, strict=False):
        collector.report(member, report)
    return collector


def test_nothing_is_said_before_everybody_has_reported() -> None:
    assert told(status(1, 1, 1, 1), status(1, 1, 1, 1)).word(1, [1, 1, 1, 1], {}) is None


def test_the_word_is_the_minimum_and_is_said_once() -> None:
    collector = told(status(3, 1, 5, 0), status(2, 4, 5, 0), status(4, 4, 4, 0))
    word = collector.word(1, [9, 9, 9, 9], {})
    assert word is not None
    assert word.confirmed == [2, 1, 4, 0]
    assert collector.word(1, [9, 9, 9, 9], {}) is None


def test_it_is_time_for_a_word_when_everybody_has_reported_since_the_last() -> None:
    collector = told(status(1, 1, 1, 1), status(1, 1, 1, 1), status(1, 1, 1, 1))
    assert collector.has_heard_all
    collector.word(1, [1, 1, 1, 1], {})
    collector.report(A, status(2, 1, 1, 1))
    assert not collector.has_heard_all


def test_who_repeats_what_it_could_know_has_missed_the_word() -> None:
    collector = told(status(1, 0, 0, 0), status(1, 0, 0, 0), status(1, 0, 0, 0))
    assert not collector.has_missed_it(status(1, 0, 0, 0))
    collector.word(1, [1, 0, 0, 0], {})
    assert collector.has_missed_it(status(1, 0, 0, 0))
    assert not collector.has_missed_it(status(2, 0, 0, 0))


def test_who_does_not_report_and_is_behind_lags_from_the_second_heartbeat_on() -> None:
    collector = told(status(2, 0, 0, 0), status(1, 0, 0, 0))
    assert collector.lagging([2, 0, 0, 0]) == [], "their heartbeats may come after ours"
    collector.report(A, status(2, 0, 0, 0))
    assert collector.lagging([2, 0, 0, 0]) == [B, C], "B has confirmed less, and C has never said anything"
    collector.report(B, status(2, 0, 0, 0))
    assert collector.lagging([2, 0, 0, 0]) == [C], "A has said all that there is"
    collector.rest()
    assert collector.lagging([2, 0, 0, 0]) == []


def test_of_senders_that_are_gone_the_minimum_is_over_those_that_keep_something() -> None:
    collector = told(status(0, 0, 0, 0, departed={GONE: 5}), status(0, 0, 0, 0), status(0, 0, 0, 0, departed={GONE: 7}))
    word = collector.word(1, [0, 0, 0, 0], {GONE: 6})
    assert word is not None
    assert word.departed == [(GONE, 5)]
    collector.report(A, status(0, 0, 0, 0))
    word = collector.word(1, [0, 0, 0, 0], {GONE: 6})
    assert word is not None
    assert word.departed == [(GONE, 6)]


@given(st.data())
def test_no_word_says_more_than_everybody_has_confirmed(data: st.DataObject) -> None:
    """Members confirm and report at random; reports arrive in any order, again, or never."""
    collector = Collector((A, B, C))
    counts = {member: [0, 0] for member in EVERYBODY}
    under_way: list[tuple[int, Status]] = []
    for _ in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["confirm", "report", "arrive", "say"]))
        member = data.draw(st.sampled_from(EVERYBODY))
        if action == "confirm":
            counts[member][data.draw(st.integers(0, 1))] += data.draw(st.integers(1, 3))
        elif action == "report" and member != ME:
            under_way.append((member, status(*counts[member])))
        elif action == "arrive" and under_way:
            collector.report(*data.draw(st.sampled_from(under_way)))
        elif action == "say" and (word := collector.word(1, counts[ME], {})) is not None:
            everybody = [min(column) for column in zip(*counts.values(), strict=True)]
            assert all(said <= true for said, true in zip(word.confirmed, everybody, strict=True))
    for member in (A, B, C):
        collector.report(member, status(*counts[member]))
    collector.word(1, counts[ME], {})
    assert collector.said is not None
    assert collector.said.confirmed == [min(column) for column in zip(*counts.values(), strict=True)]
