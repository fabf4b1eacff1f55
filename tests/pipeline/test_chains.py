"""Chains of causes: every violation of order that is shown has its whole chain, whoever found it."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest
from chain_checks import broken_chains
from follow_harness import Following, arrival, can_be_followed, follow
from known_mistakes import relayed_far, relays
from random_executions import execution
from test_second_opinion import undisputed

from isthmus.pipeline.campaign.rows import judge_rows
from isthmus.trace.oracles import judge
from isthmus.trace.schema import Event, Report, Violation

if TYPE_CHECKING:
    from conftest import Audits

SEEDS = range(int(os.environ.get("ISTHMUS_EXECUTIONS", "600")))


def by_oracles(events: list[Event]) -> list[Violation]:
    return judge(events).violations


def by_the_engine(events: list[Event]) -> list[Violation]:
    return judge_rows(undisputed(events)).violations


def by_following(events: list[Event]) -> list[Violation]:
    random = Random(len(events))
    return follow(arrival(events, random), random).violations


JUDGES: list[Callable[[list[Event]], list[Violation]]] = [by_oracles, by_the_engine, by_following]


@pytest.mark.parametrize("found_by", JUDGES)
def test_every_violation_of_order_in_random_executions_has_its_whole_chain(
    found_by: Callable[[list[Event]], list[Violation]],
) -> None:
    long = 0
    for seed in SEEDS:
        events = execution(Random(seed))
        if found_by is by_following and not can_be_followed(events):
            continue
        violations = found_by(events)
        assert broken_chains(events, violations) == [], f"seed {seed}"
        long += sum(len(each.chain) > 2 for each in violations)
    assert long > len(SEEDS) // 100  # chains of two need no search


@pytest.mark.parametrize("found_by", JUDGES)
@pytest.mark.parametrize("seed", [5255, 5647])
def test_a_chain_leads_over_a_lost_send_row_and_out_of_a_circle(
    found_by: Callable[[list[Event]], list[Violation]], seed: int
) -> None:
    events = execution(Random(seed))
    if found_by is by_following and not can_be_followed(events):
        return
    assert broken_chains(events, found_by(events)) == []


@pytest.mark.parametrize("found_by", JUDGES)
def test_a_chain_over_many_relays_is_found_whole(found_by: Callable[[list[Event]], list[Violation]]) -> None:
    events = relayed_far("r")
    [violation] = [each for each in found_by(events) if each.property == "causal"]
    assert violation.chain == relays()
    assert violation.why.endswith(f"the chain of causes: {', '.join(relays())}")


def test_following_keeps_the_links_of_a_chain_after_all_have_delivered_them() -> None:
    """The relays are stable many feeds before the last message overtakes the first."""
    events = sorted(relayed_far("r"), key=lambda event: (event.process == "last", event.process, event.index))
    following = Following()
    for event in events:
        following.feed([event])
        following.feed([])
    [violation] = [each for each in following.violations if each.property == "causal"]
    assert violation.chain == relays()


@pytest.mark.parametrize(("way", "least"), [("in_one_task", 20), ("spread", 5)])
def test_the_audits_of_tables_show_whole_chains(
    request: pytest.FixtureRequest, audits: Audits, way: str, least: int
) -> None:
    report: Report = request.getfixturevalue(way)
    shown = [each for each in report.violations if each.property in ("fifo", "causal")]
    for run in {each.run for each in shown}:
        of_run = [each for each in shown if each.run == run]
        assert broken_chains(audits.runs[run], of_run) == [], run
    assert len([each for each in shown if each.property == "causal"]) > least
    [far] = [each for each in shown if each.run == "relayed far" and each.property == "causal"]
    assert far.chain == relays()
