"""Simulated logs: brokers that die and lose what was not durable, gateways that do not know that they were replaced."""

from __future__ import annotations

from collections import Counter

import pytest
from known_holes import news
from simulation_support import example

from isthmus.lab.soak import BROKERS, run_chunk
from isthmus.simulator.campaign import play_seed, run_seed
from isthmus.simulator.run import promised
from isthmus.simulator.systems.log import other_contents
from isthmus.simulator.systems.table import asked_for, expected, never_happened
from isthmus.topology.file import parse
from isthmus.trace.schema import Event

SEEDS = range(1, 7)


@pytest.mark.parametrize("name", BROKERS)
def test_no_run_of_a_sample_breaks_a_promise(name: str) -> None:
    outcomes = run_chunk(example(name), SEEDS)
    assert not news(outcomes, f"isthmus simulate {example(name)[1]}")
    assert all(outcome.deliveries for outcome in outcomes)


def test_every_fault_and_every_rare_case_of_two_logs_takes_place() -> None:
    source = example("redis-redis")
    topology = parse(*source)
    reached = sum((Counter(outcome.sometimes) for outcome in run_chunk(source, range(1, 61))), Counter[str]())
    assert not never_happened(reached, 60, topology)
    assert {"gateway paused", "broker died", "log trimmed", "log recreated"} <= set(asked_for(topology))
    # The first is for groups, and with one link words of a new epoch come before what is left of the old one.
    elsewhere = {"crash after delivery", "block of an older epoch"}
    assert not [case for case in expected(topology) if not reached[case] and case not in elsewhere]
    assert reached["old gateway refused"]
    assert reached["join stopped"]


def test_a_join_that_stops_says_so_and_what_is_missing_then_is_counted() -> None:
    outcomes = [run_seed(example("redis-redis"), seed) for seed in range(1, 31)]
    stopped = [outcome for outcome in outcomes if outcome.sometimes.get("join stopped")]
    assert any(outcome.missing.get("of a stopped join") for outcome in stopped)
    assert all("of a stopped join" not in outcome.missing for outcome in outcomes if outcome not in stopped)
    text, file = example("redis-redis")
    calm = text.replace("trims = 1\nrecreations = 1\n", "")
    assert not any(run_seed((calm, file), seed).sometimes.get("join stopped") for seed in range(1, 11))


def test_what_was_brought_in_before_an_entry_is_a_cause_of_it() -> None:
    """The rows of a log are in its own order, what came in among what its clients wrote."""
    rows = [row for row in play_seed(example("redis-redis"), 2).events if row.system == "orders" and row.role == "app"]
    sends = [place for place, row in enumerate(rows) if row.event == "send"]
    came_in = [place for place, row in enumerate(rows) if row.event == "deliver" and row.origin_system == "archive"]
    assert sends[0] < came_in[-1]
    assert came_in[0] < sends[-1]
    for place in sends:
        assert (rows[place + 1].event, rows[place + 1].origin_seq) == ("deliver", rows[place].origin_seq)


def test_logs_alone_are_not_judged_by_views() -> None:
    assert "same-view" not in promised(parse(*example("redis-redis")))
    assert "same-view" in promised(parse(*example("redis-embedded")))


def test_another_message_under_the_number_of_one_that_was_sent_is_found() -> None:
    def row(event: str, system: str, size: int) -> Event:
        return Event(
            run="r",
            system=system,
            process="p",
            role="app",
            index=0,
            event=event,  # type: ignore[arg-type]
            origin_system="a",
            origin_process="p",
            origin_seq=1,
            payload_bytes=size,
            time_ns=0,
        )

    assert not other_contents([row("send", "a", 5), row("deliver", "b", 5)])
    assert "b/p delivered something else under a/p/1" in other_contents([row("send", "a", 5), row("deliver", "b", 6)])
