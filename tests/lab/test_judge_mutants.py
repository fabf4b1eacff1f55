"""Every mistake in a judge is caught by the second opinion: a judge that nobody judges proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from chain_checks import broken_chains
from random_executions import execution
from second_opinion import Opinion, opinion

from isthmus.lab.mutants.judges import JUDGE_MUTANTS
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.pipeline.campaign.rows import judge_rows
from isthmus.pipeline.engine.judges import judges_of
from isthmus.pipeline.engine.run import run_of
from isthmus.pipeline.follow.run import MAX_HELD, feed
from isthmus.pipeline.follow.state import RunState, row_of
from isthmus.trace.oracles import judge
from isthmus.trace.schema import LAST_EVENTS, Event, Verdict, Violation

JUDGED = ("integrity", "agreement", "fifo", "causal", "total")
SEEDS = (*range(300), 383, 1282)
"""In the last two, what senders saw is not enough to judge by: causes are hidden behind messages to others."""


@pytest.mark.parametrize("mutant", JUDGE_MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_judge_with_a_mistake_is_caught(mutant: Mutant) -> None:
    with alive(mutant):
        assert next(disagreements(), None) is not None, mutant.mistake


def test_judges_without_a_mistake_agree() -> None:
    assert list(disagreements()) == []


def disagreements() -> Iterator[str]:
    """Where a judge differs from the second opinion in a verdict or a count, or shows a chain that is none."""
    for seed in SEEDS:
        events = execution(Random(seed))
        expected = opinion(events)
        violations = judge(events, JUDGED).violations
        if said(judge(events, JUDGED).verdicts) != expected or broken_chains(events, violations):
            yield f"seed {seed}: the oracles"
        if len({(row.system, row.process, row.index) for row in events}) < len(events):
            continue  # the others are given rows that nobody disputes
        found = run_of(events).judge(judges_of(JUDGED))
        answers = {each.judged: (each.verdict, each.checked, each.violations) for each in found}
        if answers != expected or broken_chains(events, judge_rows(events).violations):
            yield f"seed {seed}: the engine"
        if goes_on_after_its_end(events):
            continue  # where it ends for one who reads as it grows
        verdicts, violations = followed(events)
        wrong = {name: answer for name, answer in verdicts.items() if answer[0] == "violated" != expected[name][0]}
        missed = {name for name, answer in verdicts.items() if answer[0] == "holds" != expected[name][0]}
        if wrong or missed or broken_chains(events, violations):
            yield f"seed {seed}: the streaming audit"


def goes_on_after_its_end(events: list[Event]) -> bool:
    last: dict[tuple[str, str], int] = {}
    for row in events:
        last[row.system, row.process] = max(row.index, last.get((row.system, row.process), 0))
    return any(row.event in LAST_EVENTS and row.index < last[row.system, row.process] for row in events)


def said(verdicts: list[Verdict]) -> dict[str, Opinion]:
    return {each.property: (each.verdict, each.checked, each.violations) for each in verdicts}


def followed(events: list[Event]) -> tuple[dict[str, Opinion], list[Violation]]:
    rows = list(map(row_of, events))
    _, found = feed(RunState("r", MAX_HELD), rows, lambda: [rows])
    return said(found.verdicts), found.violations
