"""The audit against the definition of the properties, on thousands of small executions of every kind.

`ISTHMUS_EXECUTIONS=20000 pytest tests/pipeline/test_audit_verdicts.py --timeout 0` compares more of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from properties_by_definition import verdicts

from isthmus.trace.oracles import judge
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Audits


def answers(report: Report) -> dict[tuple[str, str], str]:
    return {(each.run, each.property): each.verdict for each in report.verdicts}


def executions_of(audits: Audits) -> dict[str, list[Event]]:
    """Without the known mistakes: those are too large for a definition that looks at all pairs of messages."""
    return {run: events for run, events in audits.runs.items() if run.startswith("x")}


def expected_of(audits: Audits) -> dict[tuple[str, str], str]:
    return {
        (run, judged): answer
        for run, events in executions_of(audits).items()
        for judged, answer in verdicts(events).items()
    }


def test_every_verdict_is_the_one_by_definition(audits: Audits, in_one_task: Report) -> None:
    expected = expected_of(audits)
    assert {place: answer for place, answer in answers(in_one_task).items() if place in expected} == expected
    # A comparison that never meets a case proves nothing about it.
    assert len(Counter((judged, answer) for (_, judged), answer in expected.items())) == 3 * len(PROPERTIES)


def test_a_run_that_is_spread_over_tasks_has_the_same_verdicts_counts_and_witnesses(
    in_one_task: Report, spread: Report
) -> None:
    runs = {each.run for each in spread.verdicts}
    assert spread.verdicts == [each for each in in_one_task.verdicts if each.run in runs]
    last_shown = max(each.run for each in in_one_task.violations)
    shown = [each for each in in_one_task.violations if each.run in runs]
    assert [each for each in spread.violations if each.run < last_shown] == [
        each for each in shown if each.run < last_shown
    ]


def test_counts_are_those_of_the_oracles_in_memory(audits: Audits, in_one_task: Report) -> None:
    counted = {(each.run, each.property): (each.checked, each.violations) for each in in_one_task.verdicts}
    for events in audits.runs.values():
        for each in judge(events).verdicts:
            assert counted[each.run, each.property] == (each.checked, each.violations)


def test_every_witness_is_one(audits: Audits, in_one_task: Report, spread: Report) -> None:
    for report in (in_one_task, spread):
        shown = {(each.run, each.property) for each in report.violations}
        last_shown = max(each.run for each in report.violations)
        assert {(each.run, each.property) for each in report.violated if each.run < last_shown} <= shown
        for each in report.violations:
            places = delivery_places(audits.runs[each.run], each.process)
            if each.property in ("fifo", "causal"):
                assert places.get(each.first, 1 << 60) >= places[each.second or ""]
            elif each.property == "total":
                assert places[each.first] < places[each.second or ""]
            elif each.property == "agreement":
                assert each.first not in places


def delivery_places(events: list[Event], process: str) -> dict[str, int]:
    rows = sorted(set(events), key=lambda event: event.index, reverse=True)
    return {
        f"{event.origin_system}/{event.origin_process}/{event.origin_seq}": event.index
        for event in rows
        if f"{event.system}/{event.process}" == process and event.event == "deliver" and event.role == "app"
    }


def test_rows_that_claim_one_place_are_quarantined_and_counted(
    spark: SparkSession, audits: Audits, in_one_task: Report
) -> None:
    claims: dict[tuple[str, str, str, int], list[Event]] = {}
    for events in audits.runs.values():
        for event in events:
            claims.setdefault((event.run, event.system, event.process, event.index), []).append(event)
    expected = sum(len(rows) if len(set(rows)) > 1 else len(rows) - 1 for rows in claims.values())
    assert audits.table.quarantined(spark) == in_one_task.quarantined == expected > 0
