"""A sample of the campaign that `make soak` runs at length: no run breaks a promise, and rare cases do occur."""

from __future__ import annotations

from collections import Counter

import pytest
from known_holes import news
from simulation_support import example

from isthmus.lab.standard import standard_group
from isthmus.simulator.campaign import run_seed, run_seeds
from isthmus.simulator.run import promised_by
from isthmus.simulator.systems.table import expected
from isthmus.topology.file import parse

SEEDS = range(1, 61)
RARE = {"crash in a view change", "coordinators competed", "proposal taken over", "flush fetched"}
"""Met once in tens of runs: a sample of sixty may miss them."""


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_no_run_of_a_sample_breaks_a_promise_and_the_sample_is_not_vacuous(order: str) -> None:
    text, file = example(f"{order}-group")
    cases: Counter[str] = Counter()
    deliveries = 0
    failures: list[str] = []
    for seed in SEEDS:
        outcome = run_seed((text, file), seed)
        cases.update(outcome.sometimes)
        deliveries += outcome.deliveries
        failures += news([outcome], f"isthmus simulate {file}")
        judged = {verdict.property: verdict.verdict for verdict in outcome.report.verdicts}
        assert judged == dict.fromkeys(promised_by(parse(text, file).promise()), "holds") or outcome.violated
    assert not failures, "\n".join(failures)
    assert not [case for case in expected(parse(text, file)) if case not in RARE and not cases[case]]
    assert deliveries > 10_000


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_the_standard_group_is_the_example_file(order: str) -> None:
    standard, file = parse(*standard_group(order)), parse(*example(f"{order}-group"))
    assert (standard.systems, standard.simulation) == (file.systems, file.simulation)


def test_workers_give_the_same_outcomes_in_the_order_of_the_seeds() -> None:
    source = example("causal-group")
    seeds = [5, 3, 4, 8]
    alone = list(run_seeds(source, seeds, jobs=1))
    assert [outcome.seed for outcome in alone] == seeds
    assert list(run_seeds(source, seeds, jobs=2)) == alone


def test_a_campaign_that_is_closed_early_stops() -> None:
    outcomes = run_seeds(example("fifo-group"), range(1, 1_000_000), jobs=1)
    assert next(outcomes).seed == 1
    outcomes.close()  # type: ignore[attr-defined]
    assert list(outcomes) == []
