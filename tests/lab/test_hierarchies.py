"""Daisies and three layers of clusters as real OS processes: nothing lost, doubled or out of causal order."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime_support import run_with_children

from isthmus.lab.benchmarks.hierarchies import FOUNDERS, HierarchyOutcome, run_changing, run_clusters, run_daisy
from isthmus.lab.benchmarks.joined_daisies import run_joined

WITHIN = 150.0
DELIVERIES = 10


def assert_holds(outcome: HierarchyOutcome) -> None:
    assert not outcome.report.violations, outcome.report.violations[0].why
    verdicts = {verdict.property: verdict.verdict for verdict in outcome.report.verdicts}
    assert set(verdicts) >= {"integrity", "agreement", "fifo", "causal"}
    assert set(verdicts.values()) == {"holds"}
    assert all(verdict.checked for verdict in outcome.report.verdicts if verdict.property != "same-view")


@pytest.mark.real
def test_a_server_of_a_daisy_is_killed_under_load(tmp_path: Path) -> None:
    """Three groups of four. The next server of the group sees to what the first had not passed on."""
    outcome = run_with_children(run_daisy(tmp_path, ("a1",), ("abc",), rate=4, deliveries=DELIVERIES), WITHIN)
    assert_holds(outcome)
    (kill,) = outcome.kills
    assert 0 < kill.noticed < kill.flowing


@pytest.mark.real
def test_three_layers_of_clusters_in_three_os_processes(tmp_path: Path) -> None:
    outcome = run_with_children(run_clusters(tmp_path, rate=8, deliveries=DELIVERIES), WITHIN)
    assert_holds(outcome)
    assert (outcome.processes, outcome.os_processes) == (12, 3)


@pytest.mark.real
def test_groups_split_when_others_come_and_even_out_when_their_server_is_killed(tmp_path: Path) -> None:
    """daisy, Sect. 3.1, Fig. 4, with messages flowing all the time; the victim is the topmost server."""
    outcome = run_with_children(run_changing(tmp_path, rate=4, deliveries=5), WITHIN)
    assert_holds(outcome)
    last = outcome.changes[-1]
    assert sorted(map(len, last.groups)) in ([4, 4], [4, 5])
    assert any(FOUNDERS[0] in group for group in outcome.changes[0].groups)


@pytest.mark.real
def test_a_gateway_of_a_daisy_that_is_joined_is_killed_under_load(tmp_path: Path) -> None:
    """It is the sequencer of its side and the server of its local group: a new epoch, a new server, nothing missing."""
    outcome = run_with_children(run_joined(tmp_path, ("g1",), deliveries=20), WITHIN)
    assert_holds(outcome)
    (kill,) = outcome.kills
    assert 0 < kill.noticed <= kill.flowing
