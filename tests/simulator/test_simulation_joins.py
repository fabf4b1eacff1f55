"""Joined systems in simulation: a sample of the long campaign, and what watches over joins beside the oracles."""

from __future__ import annotations

from collections import Counter

import pytest
from example_files import EXAMPLES
from known_holes import news
from msgspec.structs import replace
from simulation_support import example

from isthmus.core.segment import Segment
from isthmus.core.wire.join import Block, Epoch, LinkPdu, Progress, Resume, first_epoch
from isthmus.lab.soak import ACKNOWLEDGED, BROKERS, CLUSTERS, DAISIES, GROUPS, JOINED, run_chunk, soak, sources
from isthmus.lab.standard import standard_group
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.checks.links import LinkWatch
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.checks.stability import too_early
from isthmus.topology.file import parse
from isthmus.trace.schema import Event, EventName, Role

SEEDS = range(1, 5)
EPOCH = first_epoch()
LATER = Epoch(1, 2, 0)


# The sample


@pytest.mark.parametrize("name", JOINED)
def test_no_run_of_a_sample_breaks_a_promise(name: str) -> None:
    outcomes = run_chunk(example(name), SEEDS)
    assert not news(outcomes, f"isthmus simulate {example(name)[1]}")
    assert all(outcome.deliveries for outcome in outcomes)


def test_runs_that_ended_badly_once_end_well() -> None:
    """Seeds that found faults of joins, and that fall into no known hole."""
    for name, seed in (("star-parallel", 35), ("two-logs", 92)):
        outcome = run_seed(example(name), seed)
        assert not outcome.violated, f"{name}, seed {seed}: {outcome.reasons}"


def test_the_campaign_covers_both_orders_all_shares_and_all_kinds_of_systems() -> None:
    topologies = [parse(*example(name)) for name in JOINED]
    joins = [join for topology in topologies for join in topology.joins]
    kinds = {(join.order, join.assign) for join in joins}
    assert {("causal", "striped"), ("causal", "transfer-sets"), ("fifo", "transfer-sets"), ("fifo", "paths")} <= kinds
    assert {system.order for topology in topologies for system in topology.systems} == {"fifo", "causal", "total"}
    shapes = {
        "chain",
        "star-fifo",
        "star-parallel",
        "tree",
        "two-sites",
        "message-passing-fig-2",
        "parallel-fig-3",
        "parallel-fig-4",
    }
    assert shapes <= set(JOINED)


# The campaign


def test_a_campaign_shares_its_runs_evenly_and_counts_what_it_saw() -> None:
    files = sources(EXAMPLES)
    assert len(files) == sum(map(len, (GROUPS, JOINED, CLUSTERS, ACKNOWLEDGED, DAISIES, BROKERS)))
    *_, tallies = soak(files[:2], 5, 5, jobs=1)
    assert [(tally.name, tally.runs) for tally in tallies] == [("fifo-group", 3), ("causal-group", 2)]
    alone = run_chunk(files[1], range(5, 7))
    assert tallies[1].deliveries == sum(outcome.deliveries for outcome in alone)
    assert tallies[1].sometimes == sum((Counter(outcome.sometimes) for outcome in alone), Counter())
    assert set(tallies[1].never()) == {case for case in tallies[1].expected if not tallies[1].sometimes[case]}


def test_a_campaign_that_is_out_of_time_finishes_what_it_has_begun_and_begins_nothing() -> None:
    clock = iter(range(0, 1000, 10))
    *_, tallies = soak([standard_group("fifo")], 1, 1000, jobs=1, seconds=15, clock=lambda: float(next(clock)))
    assert [tally.runs for tally in tallies] == [8]


def test_workers_see_the_same_as_one_process_alone() -> None:
    def totals(jobs: int) -> list[tuple[str, int, int]]:
        *_, tallies = soak(sources(EXAMPLES)[:3], 1, 6, jobs=jobs)
        return [(tally.name, tally.runs, tally.deliveries) for tally in tallies]

    assert totals(2) == totals(1)


# Beside the links


def block(first: int, count: int = 1, epoch: Epoch = EPOCH) -> Block:
    return Block(epoch, first, Segment.of(0, first, [b""] * count), [])


def watched(*pdus: tuple[int, LinkPdu], window: int = 4) -> Sometimes:
    """Two links of one join; what end 0 or 1 puts on the first arrives at once."""
    sometimes = Sometimes()
    watch = LinkWatch([0, 0], window, sometimes)
    for end, pdu in pdus:
        watch.sent(0, end, pdu)
        watch.arrived(0, 1 - end, pdu)
    return sometimes


def test_a_number_beyond_the_window_is_an_error() -> None:
    watched((0, block(1, 4)), (1, Progress(EPOCH, 1)), (0, block(5)))
    with pytest.raises(AssertionError, match=r"number 5 is under way, the far side has said 0, and the window is 4"):
        watched((0, block(1, 4)), (0, block(5)))


def test_word_of_another_epoch_or_direction_opens_no_window() -> None:
    for word in ((1, Progress(LATER, 4)), (0, Progress(EPOCH, 4))):
        with pytest.raises(AssertionError):
            watched((0, block(1, 4)), word, (0, block(5)))


def test_messages_without_numbers_have_no_window() -> None:
    assert watched(*((0, block(0)) for _ in range(9))) == {}


def test_rare_cases_of_joins_are_counted() -> None:
    assert watched((0, block(2)))["number before its turn"] == 1
    assert watched((0, block(1, 4)))["window full"] == 1
    assert watched((1, Resume(LATER, [])), (0, block(1)))["block of an older epoch"] == 1


# Stable means everywhere


def row(
    process: str, event: EventName, time: int, seq: int | None = None, role: Role = "app", system: str = "s"
) -> Event:
    bare = Event(run="run", system=system, process=process, role=role, index=0, event=event, time_ns=time)
    return bare if seq is None else replace(bare, origin_system="s", origin_process="p", origin_seq=seq)


def life(
    process: str,
    delivered_at: int | None,
    system: str = "s",
    start: EventName = "start",
    end: EventName = "end",
) -> list[Event]:
    rows = [row(process, start, 0, system=system), row(process, end, 100, system=system)]
    return rows if delivered_at is None else [*rows, row(process, "deliver", delivered_at, 1, system=system)]


def test_stable_is_too_early_when_somebody_in_any_system_has_not_delivered() -> None:
    stable = row("p", "stable", 20, 1)
    assert too_early([stable, *life("p", 5), *life("q", 20, "far")]) == ""
    late = too_early([stable, *life("p", 5), *life("q", 21, "far")])
    assert late == "s/p/1 was called stable at 20 ns, before far/q had delivered it"
    assert too_early([stable, *life("p", 5), *life("q", None)])


@pytest.mark.parametrize(("start", "end"), [("join", "end"), ("start", "crash"), ("start", "leave")])
def test_who_came_later_or_is_gone_is_not_waited_for(start: EventName, end: EventName) -> None:
    assert too_early([row("p", "stable", 20, 1), *life("p", 5), *life("q", None, start=start, end=end)]) == ""


def test_what_a_gateway_calls_stable_is_about_its_own_system() -> None:
    assert too_early([row("g", "stable", 20, 1, "gateway"), *life("q", None, "far")]) == ""
