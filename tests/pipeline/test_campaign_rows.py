"""The audit of a run that is still in memory, against the definition of the properties."""

from __future__ import annotations

from collections import Counter

from known_mistakes import relayed, swapped
from properties_by_definition import verdicts
from trace_files import all_rows, executions

from isthmus.pipeline.campaign.rows import judge_rows
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event

EXECUTIONS = 400


def sound(events: list[Event]) -> list[Event]:
    """Without the rows that an ingest would put into quarantine: no writer makes them."""
    claims: dict[tuple[str, str, int], set[Event]] = {}
    for event in events:
        claims.setdefault((event.system, event.process, event.index), set()).add(event)
    return [next(iter(rows)) for rows in claims.values() if len(rows) == 1]


def test_every_verdict_is_the_one_by_definition() -> None:
    met: Counter[tuple[str, str]] = Counter()
    for run, events in executions(range(EXECUTIONS)).items():
        rows = sound(events)
        expected = verdicts(rows)
        assert judge_rows(rows, PROPERTIES).verdicts == expected, run
        met.update(expected.items())
    # A comparison that never meets a case proves nothing about it.
    assert len(met) == 3 * len(PROPERTIES)


def test_a_witness_names_processes_and_messages() -> None:
    judged = judge_rows(all_rows(swapped()))
    causal = next(each for each in judged.violations if each.property == "causal")
    assert (causal.run, causal.process) == ("swapped", "a/p2")
    assert (causal.second, causal.why.split(" was delivered")[0]) == ("a/p0/41", "a/p0/41")
    assert f"before its cause {causal.first}" in causal.why


def test_messages_to_some_keep_their_destinations() -> None:
    judged = judge_rows(all_rows(relayed()))
    assert judged.verdicts["causal"] == "violated"
    assert judged.verdicts["agreement"] == judged.verdicts["integrity"] == "holds"
    assert [(each.process, each.first, each.second) for each in judged.violations] == [("a/d", "a/a/1", "a/c/1")]
