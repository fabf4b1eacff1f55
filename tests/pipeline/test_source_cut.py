"""The cuts at which micro-batches end, against their definition: all cuts, one by one, by brute force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from isthmus.pipeline.source.cut import Cut, Histories

Row = tuple[str | None, int]
"""The sender of the message (None: a row about no message) and its number, below 0 to send it here."""


@dataclass
class Logs:
    """Histories of a few rows, who has ended, which rows count, and an order of reading them in pieces."""

    rows: dict[str, list[Row]]
    selected: dict[str, list[int]]
    ended: set[str]
    pieces: list[tuple[str, int]]


@st.composite
def logs(draw: st.DrawFn, honest: bool = False) -> Logs:
    """Anything that logs can claim. With `honest`, nobody knows a message before it was sent."""
    names = ["p", "q", "r"][: draw(st.integers(1, 3))]
    rows: dict[str, list[Row]] = {name: [] for name in names}
    highest = dict.fromkeys(names, 0)
    for name in draw(st.lists(st.sampled_from(names), max_size=14)):
        kind = draw(st.sampled_from(["nothing", "send", "know", "know"]))
        if kind == "send":
            highest[name] += draw(st.sampled_from([1, 1, 1, 2]))
            rows[name].append((name, -highest[name]))
        elif kind == "know":
            origin = draw(st.sampled_from(names))
            sent = [-seq for _, seq in rows[origin] if seq < 0]
            if honest and not sent:
                continue
            rows[name].append((origin, draw(st.sampled_from(sent) if honest else st.integers(1, 4))))
        else:
            rows[name].append((None, 0))
    pieces = draw(st.lists(st.tuples(st.sampled_from(names), st.integers(1, 4)), max_size=12))
    return Logs(
        rows,
        {name: [draw(st.integers(0, 1)) for _ in rows[name]] for name in names},
        set(draw(st.lists(st.sampled_from(names), unique=True))),
        pieces,
    )


class Reading:
    """Feeds logs to the code under test piece by piece, and knows by definition what is right."""

    def __init__(self, given_logs: Logs) -> None:
        self.logs = given_logs
        self.read: Cut = dict.fromkeys(given_logs.rows, 0)
        self.histories = Histories()

    def take(self, name: str, count: int) -> None:
        rows = self.logs.rows[name][self.read[name] : self.read[name] + count]
        if not rows:
            return
        begin = self.read[name]
        self.read[name] += len(rows)
        self.histories.append(
            self.histories.history(name),
            [None if origin is None else self.histories.history(origin) for origin, _ in rows],
            [seq for _, seq in rows],
            bytes(self.logs.selected[name][begin : self.read[name]]),
            ended=self.has_ended(name),
        )
        self.histories.advance()

    def take_all(self) -> None:
        for name, rows in self.logs.rows.items():
            self.take(name, len(rows))

    # By definition

    def has_ended(self, name: str) -> bool:
        return name in self.logs.ended and 0 < self.read[name] == len(self.logs.rows[name])

    def sends(self, name: str) -> dict[int, int]:
        """Number to index of what a process sent, as far as was read; the first time counts."""
        found: dict[int, int] = {}
        for index, (_, seq) in enumerate(self.logs.rows[name][: self.read[name]]):
            if seq < 0:
                found.setdefault(-seq, index)
        return found

    def is_closed(self, cut: Mapping[str, int]) -> bool:
        for name, count in cut.items():
            for origin, seq in self.logs.rows[name][:count]:
                if origin is None or seq < 0:
                    continue
                sends = self.sends(origin)
                if seq in sends:
                    if cut.get(origin, 0) <= sends[seq]:
                        return False
                elif not (self.has_ended(origin) or any(other > seq for other in sends)):
                    return False  # it may still come
        return True

    def greatest_closed(self) -> Cut:
        names = sorted(self.logs.rows)
        closed = [
            counts
            for counts in product(*(range(self.read[name] + 1) for name in names))
            if self.is_closed(dict(zip(names, counts, strict=True)))
        ]
        greatest = tuple(max(column) for column in zip(*closed, strict=True))
        assert greatest in closed, "closed cuts are closed under union"
        return {name: count for name, count in zip(names, greatest, strict=True) if count}

    def counted(self, start: Mapping[str, int], cut: Mapping[str, int]) -> int:
        """Selected rows between two cuts."""
        return sum(sum(self.logs.selected[name][start.get(name, 0) : count]) for name, count in cut.items())


def at_most(small: Mapping[str, int], great: Mapping[str, int]) -> bool:
    return all(count <= great.get(name, 0) for name, count in small.items())


@settings(max_examples=150, deadline=None)
@given(logs())
def test_the_cut_is_the_greatest_closed_one_whatever_was_read(given_logs: Logs) -> None:
    reading = Reading(given_logs)
    before: Cut = {}
    for name, count in given_logs.pieces:
        reading.take(name, count)
        greatest = reading.histories.greatest()
        assert greatest == reading.greatest_closed()
        assert at_most(before, greatest), "it never goes back"
        before = greatest


@settings(max_examples=150, deadline=None)
@given(logs(), st.integers(1, 4))
def test_a_limited_cut_is_closed_and_always_goes_on(given_logs: Logs, limit: int) -> None:
    reading = Reading(given_logs)
    start: Cut = {}
    for name, count in [*given_logs.pieces, *((name, len(rows)) for name, rows in given_logs.rows.items())]:
        reading.take(name, count)
        reading.histories.settle(start)
        cut = reading.histories.cut(limit)
        available = reading.counted(start, reading.greatest_closed())
        assert reading.is_closed(cut)
        assert at_most(start, cut)
        assert at_most(cut, reading.greatest_closed())
        assert reading.counted(start, cut) >= min(limit, available)
        start = cut
    while start != reading.histories.greatest():
        reading.histories.settle(start)
        following = reading.histories.cut(limit)
        assert following != start, "it stalls"
        assert at_most(start, following)
        start = following
    assert start == reading.greatest_closed()


@settings(max_examples=150, deadline=None)
@given(logs(honest=True), st.integers(1, 4))
def test_a_limit_is_kept_to_the_row_where_no_circle_forbids_it(given_logs: Logs, limit: int) -> None:
    reading = Reading(given_logs)
    reading.take_all()
    start: Cut = {}
    for _ in range(20):
        available = reading.counted(start, reading.greatest_closed())
        reading.histories.settle(start)
        cut = reading.histories.cut(limit)
        assert reading.counted(start, cut) == min(limit, available)
        start = cut


@settings(max_examples=100, deadline=None)
@given(logs())
def test_ranks_do_not_depend_on_how_the_logs_were_read(given_logs: Logs) -> None:
    in_pieces, at_once = Reading(given_logs), Reading(given_logs)
    for name, count in given_logs.pieces:
        in_pieces.take(name, count)
    in_pieces.take_all()
    at_once.take_all()
    assert in_pieces.histories.greatest() == at_once.histories.greatest()
    for name, count in at_once.histories.greatest().items():
        ranks = at_once.histories.ranks(name, 0, count)
        assert in_pieces.histories.ranks(name, 0, count) == ranks
        assert list(ranks) == sorted(set(ranks)), "they grow along a history"


@settings(max_examples=100, deadline=None)
@given(logs(honest=True))
def test_a_message_is_known_at_a_higher_rank_than_it_was_sent(given_logs: Logs) -> None:
    reading = Reading(given_logs)
    reading.take_all()
    cut = reading.histories.greatest()
    for name, count in cut.items():
        ranks = reading.histories.ranks(name, 0, count)
        for (origin, seq), rank in zip(given_logs.rows[name], ranks, strict=False):
            if origin is not None and seq > 0 and seq in reading.sends(origin):
                sent_at = reading.sends(origin)[seq]
                assert reading.histories.ranks(origin, sent_at, sent_at + 1)[0] < rank
                event("a message and its sender")


# Single cases ---------------------------------------------------------------------------------------------------------


def reading_of(**rows: list[Row]) -> Reading:
    given_logs = Logs(rows, {name: [1] * len(each) for name, each in rows.items()}, set(), [])
    reading = Reading(given_logs)
    reading.take_all()
    return reading


def test_a_delivery_waits_for_the_log_of_its_sender() -> None:
    reading = reading_of(p=[("q", 1), (None, 0)], q=[(None, 0)])
    assert reading.histories.greatest() == {"q": 1}
    assert reading.histories.waits() == [("p", 0, "q", 1)]


def test_a_circle_comes_as_one_even_beyond_the_limit() -> None:
    """P's log has the delivery of an answer before the question, as a log that is written late may have."""
    reading = reading_of(p=[("q", 1), ("p", -1)], q=[("p", 1), ("q", -1)])
    assert reading.histories.cut(1) == {"p": 2, "q": 2}


def test_half_a_circle_is_not_taken() -> None:
    reading = reading_of(p=[("q", 1), ("p", -1)], q=[("p", 1), ("q", 7), ("q", -1)])
    assert reading.histories.greatest() == {}


def test_a_message_whose_send_row_is_lost_holds_nobody_up() -> None:
    reading = reading_of(p=[("q", 1)], q=[("q", -2)])
    assert reading.histories.greatest() == {"p": 1, "q": 1}


def test_numbers_with_wide_gaps_cost_no_memory() -> None:
    reading = reading_of(p=[("q", 1 << 40)], q=[("q", -(1 << 40))])
    assert reading.histories.greatest() == {"p": 1, "q": 1}


@pytest.mark.parametrize(
    ("mistake", "cut"),
    [("a delivery without its send", {"p": 0, "q": 1}), ("a send without what its sender knew", {"p": 2, "q": 0})],
)
def test_the_definition_tells_an_open_cut(mistake: str, cut: Cut) -> None:
    reading = reading_of(p=[("p", -1), ("q", 1)], q=[("p", 1), ("q", -1)])
    assert not reading.is_closed(cut), mistake
    assert reading.is_closed({"p": 1, "q": 2})
