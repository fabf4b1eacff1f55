"""Clusters in the simulator: causal order and exactly once under every fault of the model, and what lies beyond it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from known_holes import news
from simulation_support import example, together

from isthmus.lab.soak import CLUSTERS, run_chunk
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.run import Run, promised
from isthmus.simulator.systems.table import expected
from isthmus.topology.file import parse

SEEDS = range(1, 9)


@pytest.mark.parametrize("name", [name for name in CLUSTERS if name != "clusters-crash"])
def test_no_run_of_a_sample_breaks_a_promise_and_the_sample_is_not_vacuous(name: str) -> None:
    source = example(name)
    topology = parse(*source)
    outcomes = run_chunk(source, SEEDS)
    assert not news(outcomes, f"isthmus simulate {source[1]}")
    reached = {case for outcome in outcomes for case in outcome.sometimes}
    assert reached >= set(expected(topology))
    for outcome in outcomes:
        assert {each.property: each.verdict for each in outcome.report.verdicts} == dict.fromkeys(
            promised(topology), "holds"
        )


def test_messages_that_go_together_have_one_header_among_them() -> None:
    """They are one run on every hop: at the far end each has its share in a matrix of nine numbers."""
    run = Run(parse(*together("clusters-two-layers", 9)), 1)
    outcome = run.play()
    assert not news([outcome])
    rows = [row for row in run.sink.events if row.event == "deliver" and row.origin_process != row.process]
    sent = Counter((row.process, row.time_ns, row.destinations) for row in run.sink.events if row.event == "send")
    headers = [row.control_bytes or 0 for row in rows]
    assert max(sent.values()) == 9
    assert min(headers) < 9 < max(headers)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    topology = parse(*example("clusters-mixed"))
    for directory in ("one", "two"):
        Run(topology, 3, trace=tmp_path / directory).play()
    one, two = (sorted((tmp_path / each).iterdir()) for each in ("one", "two"))
    assert [file.name for file in one] == [file.name for file in two]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_a_trace_says_who_a_message_was_for_and_which_way_it_went() -> None:
    run = Run(parse(*example("clusters-two-layers")), 1)
    run.play()
    rows = run.sink.events
    sent = {(row.origin_process, row.origin_seq): row.destinations for row in rows if row.event == "send"}
    delivered = [row for row in rows if row.event == "deliver"]
    assert delivered
    for row in delivered:
        assert row.destinations == sent[row.origin_process, row.origin_seq] == (f"shop/{row.process}",)
        # Nine numbers of a matrix, or none where a process wrote to itself.
        assert row.control_bytes is not None
        assert (row.control_bytes > 9) == (row.origin_process != row.process)
    ways = {
        (row.process, row.peer)
        for row in rows
        if row.event == "transfer" and sent[row.origin_process, row.origin_seq] == ("shop/c3",)
    }
    assert {("a1", "shop/c1"), ("b1", "shop/c1"), ("c1", "shop/c3")} <= ways


def test_a_crash_of_a_relay_leaves_a_causal_gap_and_the_run_says_what_is_held_and_why() -> None:
    outcomes = [run_seed(example("clusters-crash"), seed) for seed in range(24, 30)]
    assert any("crash" in outcome.faults for outcome in outcomes)
    assert not news(outcomes)
    held = [outcome.unpromised.held for outcome in outcomes]
    assert any(" holds " in each and "which waits until message" in each for each in held), held
    missing = [outcome for outcome in outcomes if outcome.missing]
    assert all((each.excused, list(each.missing)) == (("agreement",), ["after a crash"]) for each in missing)
    for outcome in outcomes:
        verdicts = {verdict.property: verdict.verdict for verdict in outcome.report.verdicts}
        assert (verdicts["fifo"], verdicts["causal"], verdicts["integrity"]) == ("holds", "holds", "holds")


@pytest.mark.parametrize("delivery", ["rst", "coordinator"])
def test_flat_systems_are_clusters_of_one(delivery: str) -> None:
    text, file = example("clusters-two-layers")
    tree = text[text.index("[systems.shop.clusters]") : text.index("[simulation]")]
    flat = text.replace(tree, f'[systems.shop.clusters]\ndelivery = "{delivery}"\n')
    for seed in (1, 2):
        outcome = run_seed((flat, file), seed)
        assert not outcome.violated, outcome.reasons
        assert outcome.deliveries
        assert "relay" not in outcome.sometimes
