"""Every judge against a second opinion that was written from docs/trace-format.md alone: verdicts and counts.

`ISTHMUS_EXECUTIONS=20000 pytest tests/pipeline/test_second_opinion.py --timeout 0` compares more executions.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from follow_harness import arrival, can_be_followed, follow, is_finished
from random_executions import execution
from second_opinion import Opinion, opinion

from isthmus.pipeline.engine.judges import judges_of
from isthmus.pipeline.engine.run import Run, run_of
from isthmus.pipeline.engine.store import InFiles
from isthmus.trace.oracles import judge
from isthmus.trace.schema import Event, Report, Verdict

if TYPE_CHECKING:
    from conftest import Audits

SEEDS = range(int(os.environ.get("ISTHMUS_EXECUTIONS", "600")))
JUDGED = ("integrity", "agreement", "fifo", "causal", "total")


@cache
def executions() -> list[tuple[list[Event], dict[str, Opinion]]]:
    rows = [execution(Random(seed)) for seed in SEEDS]
    return [(events, opinion(events)) for events in rows]


def said(verdicts: Iterable[Verdict]) -> dict[str, Opinion]:
    return {
        each.property: (each.verdict, each.checked, each.violations) for each in verdicts if each.property in JUDGED
    }


def test_the_second_opinion_has_less_than_150_lines_and_meets_every_verdict() -> None:
    text = Path(__file__).parents[1].joinpath("support", "second_opinion.py").read_text()
    assert text.count("\n") < 150
    met = Counter((name, answer) for _, expected in executions() for name, (answer, _, _) in expected.items())
    assert all(met[name, answer] > len(SEEDS) // 100 for name in JUDGED for answer in ("holds", "violated", "unknown"))


def test_the_oracles_agree_with_the_second_opinion() -> None:
    for seed, (events, expected) in enumerate(executions()):
        assert said(judge(events, JUDGED).verdicts) == expected, f"seed {seed}"


def found_by_the_engine(run: Run) -> dict[str, Opinion]:
    found = run.judge(judges_of(JUDGED))
    return {each.judged: (each.verdict, each.checked, each.violations) for each in found}


def test_the_engine_of_the_audit_agrees_with_the_second_opinion() -> None:
    for seed, (events, expected) in enumerate(executions()):
        assert found_by_the_engine(run_of(undisputed(events))) == expected, f"seed {seed}"


def test_the_engine_agrees_where_logs_are_cut_anywhere_and_passes_meet_in_files(tmp_path: Path) -> None:
    for seed, (events, expected) in enumerate(executions()):
        directory = tmp_path / str(seed)
        directory.mkdir()
        run = run_of(undisputed(events), block_rows=1 + seed % 7, store=InFiles(directory))
        assert found_by_the_engine(run) == expected, f"seed {seed}"


def undisputed(events: Sequence[Event]) -> list[Event]:
    """What ingest leaves of rows that claim one place."""
    claims: dict[tuple[str, str, int], set[Event]] = defaultdict(set)
    for event in events:
        claims[event.system, event.process, event.index].add(event)
    return [event for _, rows in sorted(claims.items()) if len(rows) == 1 for event in rows]


def test_following_agrees_with_the_second_opinion() -> None:
    """All of it where a trace is finished. Elsewhere it may know less, and says nothing that is not so."""
    compared: Counter[str] = Counter()
    for seed, (events, expected) in enumerate(executions()):
        random = Random(seed)
        verdicts = said(follow(arrival(events, random), random).found.verdicts)
        if is_finished(events):
            assert verdicts == expected, f"seed {seed}"
            compared["finished"] += 1
        elif can_be_followed(events):
            answers = {name: answer for name, (answer, _, _) in verdicts.items()}
            assert all(answer in ("unknown", expected[name][0]) for name, answer in answers.items()), f"seed {seed}"
            compared["unfinished"] += 1
        else:  # another row for a place may come when the first was read, which then counts
            assert "holds" not in [answer for answer, _, _ in verdicts.values()], f"seed {seed}"
            compared["disputed"] += 1
    assert min(compared.values()) > len(SEEDS) // 20, compared


@pytest.mark.parametrize("seed", [2211, 15976])
def test_one_who_joined_delivers_what_was_settled_without_it(seed: int) -> None:
    """Once the state forgot what such a process had just delivered, and could not be read any more."""
    random, events = Random(seed), execution(Random(seed))
    verdicts = said(follow(arrival(events, random), random).found.verdicts)
    expected = opinion(events)
    assert all(answer in ("unknown", expected[name][0]) for name, (answer, _, _) in verdicts.items())


def test_the_audit_of_a_table_agrees_with_the_second_opinion(audits: Audits, in_one_task: Report) -> None:
    runs = {run: opinion(events) for run, events in audits.runs.items() if run.startswith("x") and run[1:].isdigit()}
    verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
    for each in in_one_task.verdicts:
        verdicts[each.run].append(each)
    for run, expected in runs.items():
        assert said(verdicts[run]) == expected, f"seed {run[1:]}"
