"""Logs in every schedule: the real gateway and a log in memory, with a death of it or of its broker at any moment."""

from __future__ import annotations

import pytest
from example_files import example_file
from msgspec.structs import replace

from isthmus.explorer.kinds import KINDS
from isthmus.explorer.limits import left_out, refusal
from isthmus.explorer.scenario import scenario_of
from isthmus.explorer.search import SearchOutcome, explore
from isthmus.explorer.world import make_gateways
from isthmus.lab.explorations import PINNED
from isthmus.lab.mutants.catalogue import find
from isthmus.lab.mutants.mutant import alive
from isthmus.topology.file import load, parse
from isthmus.topology.model import Topology


def outcome_of(topology: Topology, sends: str, crashes: int = 1, stability: str = "late") -> SearchOutcome:
    directory = topology.directory()
    senders = tuple(directory.id(*each.split("/")) for each in sends.split())
    scenario = replace(scenario_of(topology, crashes=crashes), sends=senders, stability=stability)
    return explore(topology, make_gateways(topology), scenario)


@pytest.mark.parametrize(
    ("example", "sends", "crashes", "states"),
    [
        ("explored-logs", "orders/orders archive/archive", 0, 3_614),
        ("explored-logs", "orders/orders", 1, 2_073),
        ("explored-log-and-group", "orders/orders", 1, 754),
        ("explored-log-and-group", "shop/p", 1, 1_512),
    ],
)
def test_no_schedule_breaks_a_promise(example: str, sends: str, crashes: int, states: int) -> None:
    outcome = outcome_of(load(example_file(example)), sends, crashes)
    found = outcome.counterexample
    assert found is None, "\n".join([*map(str, found.lines), found.violation.why])
    assert outcome.complete
    assert outcome.ends
    assert outcome.states == states


def test_nor_where_word_that_something_is_durable_comes_at_any_time() -> None:
    outcome = outcome_of(load(example_file("explored-logs")), "orders/orders", 1, "any")
    assert (outcome.counterexample, outcome.complete) == (None, True)


def test_all_of_both_examples_is_explored_by_the_long_campaign() -> None:
    assert {"explored-logs", "explored-log-and-group"} <= set(PINNED)


@pytest.mark.parametrize(
    ("mutant", "judged", "events"),
    [
        ("log-new-holder-ignored", "agreement", 18),
        ("log-durable-without-a-look", "stable", 14),
        ("log-confirmed-before-durable", "stable", 9),
        ("log-without-a-fence", "integrity", 14),
        ("log-record-after-entries", "integrity", 8),
    ],
)
def test_a_mistake_is_found_with_a_shortest_schedule(mutant: str, judged: str, events: int) -> None:
    with alive(find(mutant)):
        found = outcome_of(load(example_file("explored-logs")), "orders/orders").counterexample
    assert found is not None
    assert (found.violation.property, len(found.lines)) == (judged, events)


def test_a_schedule_tells_of_logs_in_words() -> None:
    with alive(find("log-without-a-fence")):
        found = outcome_of(load(example_file("explored-logs")), "orders/orders").counterexample
    assert found is not None
    told = "\n".join(map(str, found.lines))
    for words in (
        "orders/g1 reads what is in the log",
        "archive/g1 takes the claim with token 2",
        "archive/g1 is dead, and its last append arrives; broadcasts orders/orders/1",
        "orders/g1 has its link to archive/g1 again",
    ):
        assert words in told


def test_what_is_assumed_of_a_broker_is_said_and_what_is_not_looked_at_refused() -> None:
    topology = load(example_file("explored-logs"))
    assert refusal(topology, 1) is None
    assert any(
        "orders" in line and "log in memory" in line for line in left_out(topology, outcome_of(topology, "", 0), 0)
    )
    lonely = parse('[systems.s]\nkind = "redis"\nurl = "redis://127.0.0.1"\nstream = "x"\n', "t.toml")
    assert "nothing joins this log" in str(refusal(lonely, 0))
    text = example_file("explored-logs").read_text().replace('stream = "orders"', 'streams = ["a", "b"]')
    several = parse(text.replace('order = "causal"', 'order = "fifo"').replace('"orders/orders", ', ""), "t.toml")
    assert "one stream" in str(refusal(several, 0))
    assert KINDS["log"].alone is None
