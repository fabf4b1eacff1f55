"""SIGKILL in the middle of the load, for real: of a gateway, the sequencer, the last gateway, a whole site."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import seconds
from runtime_support import run_with_children

from isthmus.core.ids import SECOND
from isthmus.lab.benchmarks.kills import VICTIMS, Victim, kill_again_and_again

SOON = 2.0
"""Seconds from the death's being noticed until messages flow: it took 18 with full queues when words waited behind."""


@pytest.mark.real
@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, victim: Victim) -> None:
    outcome = run_with_children(kill_again_and_again(tmp_path, victim, rounds=2), within=seconds(80))
    assert not outcome.report.violations, outcome.report.violations[0].why
    assert {verdict.verdict for verdict in outcome.report.verdicts} == {"holds"}
    assert all(verdict.checked for verdict in outcome.report.verdicts if verdict.property != "same-view")
    assert all(kill.flowing < seconds(20) * SECOND for kill in outcome.kills)


@pytest.mark.real
@pytest.mark.parametrize("victim", ["gateway", "sequencer", "relay"])
def test_full_queues_do_not_delay_who_takes_over(tmp_path: Path, victim: Victim) -> None:
    play = kill_again_and_again(tmp_path, victim, rounds=1, queues="full")
    outcome = run_with_children(play, within=seconds(80))
    assert {verdict.verdict for verdict in outcome.report.verdicts} == {"holds"}
    assert all(kill.recovery < seconds(SOON) * SECOND for kill in outcome.kills), outcome.kills
