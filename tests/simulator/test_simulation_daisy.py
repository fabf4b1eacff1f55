"""Daisies in the simulator: causal order, exactly once and nothing lost, whoever crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation_support import example

from isthmus.interconnect.topology_file import parse
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.run import Outcome, Run, promised
from isthmus.simulator.soak import DAISIES
from isthmus.simulator.standard import standard

SEEDS = (1, 2)


def explain(outcome: Outcome) -> str:
    reasons = [violation.why for violation in outcome.report.violations[:3]] + [outcome.stuck, outcome.broken]
    return f"seed {outcome.seed}: {'; '.join(filter(None, reasons))}"


@pytest.mark.parametrize("name", DAISIES)
def test_no_run_of_a_sample_breaks_a_promise(name: str) -> None:
    source = example(f"{name}.toml")
    topology = parse(*source)
    outcomes = [run_seed(source, seed) for seed in SEEDS]
    failures = [explain(outcome) for outcome in outcomes if outcome.violated]
    assert not failures, f"isthmus simulate examples/{name}.toml: " + "\n".join(failures)
    for outcome in outcomes:
        assert outcome.deliveries
        assert {each.property for each in outcome.report.verdicts} == set(promised(topology))


def test_servers_crash_one_after_the_other_and_nothing_is_lost() -> None:
    """daisy, Theorem 4.4: "Every message that is sent by a process that does not crash is delivered to all its
    recipients that do not crash." """
    outcomes = [run_seed(standard("daisy", "causal"), seed) for seed in (1, 2)]
    assert not [explain(outcome) for outcome in outcomes if outcome.violated]
    reached = {case for outcome in outcomes for case in outcome.sometimes}
    assert {"server crashed", "crash inside a multicast", "view change", "relay", "loss", "reordering"} <= reached


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    topology = parse(*example("daisy-two-levels.toml"))
    for directory in ("one", "two"):
        Run(topology, 5, trace=tmp_path / directory).play()
    one, two = (sorted((tmp_path / each).iterdir()) for each in ("one", "two"))
    assert [file.name for file in one] == [file.name for file in two]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_a_message_is_seen_only_where_somebody_is_to_have_it() -> None:
    """daisy, Sect. 3.1: a server multicasts in its local group "if some of the intended recipients of this message
    belong to its local group"."""
    run = Run(parse(*example("daisy-two-levels.toml")), 1)
    run.play()
    sent = {(row.origin_process, row.origin_seq): row.destinations for row in run.sink.events if row.event == "send"}
    delivered = [row for row in run.sink.events if row.event == "deliver"]
    assert delivered
    for row in delivered:
        destinations = sent[row.origin_process, row.origin_seq]
        assert destinations is not None
        assert f"shop/{row.process}" in destinations
    for row in run.sink.events:
        # Held, relayed or delivered in a group: then somebody of that group sent it or is to have it.
        if row.event in ("hold", "deliver") and row.origin_process is not None and row.process[1] != "1":
            group = row.process[0]
            meant = sent[row.origin_process, row.origin_seq] or ()
            assert row.origin_process[0] == group or any(each.startswith(f"shop/{group}") for each in meant)
