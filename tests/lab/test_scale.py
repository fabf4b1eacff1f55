"""`isthmus bench scale`: small ones of each kind keep their promises, and who breaks one is found out."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from isthmus.core.endpoint import Destinations
from isthmus.lab.benchmarks.scale import Book, Figure, Scenario, Witness, judge, scenarios, simulate


def value(figure: Figure, what: str) -> tuple[float, float | None]:
    return next((each.simulated, each.forecast) for each in figure.values if each.what == what)


def test_everything_is_delivered_everywhere_in_a_small_tree_of_groups() -> None:
    figure = simulate(Scenario("joined", 24, 4, 1.0))
    assert figure.violations == []
    assert figure.deliveries == 24 * figure.messages > 0
    assert value(figure, "copies of a message") == (27, 27), "n + m - 1 (message-passing, Sect. 4)"
    assert value(figure, "relays per message") == (3, 3)


def test_ways_and_headers_in_small_clusters_are_as_forecast() -> None:
    figure = simulate(Scenario("clusters", 16, 4, 1.0))
    assert figure.violations == []
    assert figure.deliveries == figure.messages > 0
    for what in ("copies of a message", "numbers in headers per message", "delay p50, ms", "delay p99, ms"):
        simulated, forecast = value(figure, what)
        assert simulated == forecast, what


def test_a_message_in_a_small_daisy_takes_no_longer_than_forecast() -> None:
    figure = simulate(Scenario("daisy", 16, 4, 1.0))
    assert figure.violations == []
    assert figure.deliveries > figure.messages > 0
    simulated, forecast = value(figure, "delay, longest, ms")
    assert forecast is not None
    assert 0 < simulated <= forecast


def test_one_seed_is_one_run() -> None:
    one, other = (simulate(Scenario("joined", 12, 2, 0.5, seed=7)) for _ in range(2))
    assert (one.steps, one.values) == (other.steps, other.values)
    assert simulate(Scenario("joined", 12, 2, 0.5, seed=8)).steps != one.steps


def test_sizes_are_those_wanted_unless_told_otherwise() -> None:
    assert [(each.name, each.processes, each.parts) for each in scenarios(None, None, 30.0)] == [
        ("clusters", 4096, 64),
        ("daisy", 4096, 64),
        ("joined", 10_000, 100),
    ]
    assert [(each.processes, each.parts) for each in scenarios(102, 5, 1.0)] == [(100, 10), (100, 10), (100, 5)]


def book_of(*deliveries: Sequence[int], audiences: Sequence[Destinations | None] = (None, None, None)) -> Book:
    """Process 0 sends message 0; process 1 has it, and sends message 1; process 0 sends message 2 after all that."""
    book = Book()
    for process, delivered in enumerate(deliveries):
        witness = Witness(process, book, is_app=True)
        witness.began("start", None, 0)
        witness.delivered = array("I", delivered)
    for (origin, seq, after), audience in zip([(0, 1, 0), (1, 1, 1), (0, 2, 2)], audiences, strict=True):
        book.sent(origin, seq, audience, after, 0)
    return book


IN_ORDER = (0, 1, 2)


def test_deliveries_in_order_are_sound() -> None:
    assert list(judge(book_of(IN_ORDER, IN_ORDER, IN_ORDER))) == []


@pytest.mark.parametrize(
    ("third", "words"),
    [
        ((0, 1, 1, 2), "twice"),
        ((0, 1), "has not delivered 1 messages"),
        ((1, 0, 2), "before its cause 0"),
        ((0, 2, 1), "before its cause 1"),
    ],
)
def test_a_process_that_breaks_a_promise_is_named(third: Sequence[int], words: str) -> None:
    found = list(judge(book_of(IN_ORDER, IN_ORDER, third)))
    assert found
    assert all(each.startswith("2 ") for each in found)
    assert words in found[0]


def test_a_cause_by_way_of_somebody_else_is_a_cause() -> None:
    """Message 0 is for 1 and 2, 1 is for 0 alone, and 2 for 2 alone: 2 has to have 0 first, of which 0 knows anyway."""
    audiences = [(1, 2), (0,), (2,)]
    assert list(judge(book_of((1,), (0,), (0, 2), audiences=audiences))) == []
    (found,) = judge(book_of((1,), (0,), (2, 0), audiences=audiences))
    assert found == "2 delivers 2 of 0 before its cause 0"


def test_what_is_not_for_a_process_is_not_delivered_to_it() -> None:
    found = list(judge(book_of((1,), (0, 2), (0, 2), audiences=[(1, 2), (0,), (2,)])))
    assert found == ["1 delivers 2 of 0 twice, or though it is not for it"]
