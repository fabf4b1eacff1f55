"""ShiViz logs in the pipeline: what is written of a violation, and that a log has the verdict of its run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from random_executions import row
from shiviz_support import read
from trace_files import write_jsonl

from isthmus.cli.main import main
from isthmus.pipeline.shiviz import nth_violation, witness
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event, Report, TraceError, Violation
from isthmus.trace.shiviz.exporter import PARSER, export_rows, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Audits

RUNS = 20


def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, Any]:
    """Exit code and what the command printed, with the Spark that is there."""
    monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments), "-o", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().out


# Witnesses ------------------------------------------------------------------------------------------------------------


def read_back(rows: list[Event], captions: dict[tuple[str, int], str]) -> tuple[list[Event], list[str]]:
    """What somebody sees who opens the log, and the rows that are in it."""
    text = "".join(export_rows(rows, captions))
    return read(text), text.split("\n")[3::3]


@pytest.mark.parametrize(
    ("run", "judged", "seen"),
    [
        (
            "relayed",
            "causal",
            [
                *("send a/a/1", "send a/a/2", "deliver a/a/2", "send a/b/1", "deliver a/b/1", "send a/c/1"),
                *("deliver a/c/1 [too early]", "deliver a/a/1 [too late]"),
            ],
        ),
        ("dropped", "agreement", ["send a/p1/60", "deliver a/p1/60", "end [never delivered a/p1/60]"]),
        ("repeated", "integrity", ["send a/p4/40", "deliver a/p4/40", "deliver a/p4/40 [again]"]),
        ("invented", "integrity", ["deliver a/p4/5000 [a/p4/5000: nobody sent it]"]),
    ],
)
def test_a_witness_shows_what_matters_and_no_more(
    spark: SparkSession, audits: Audits, in_one_task: Report, run: str, judged: str, seen: list[str]
) -> None:
    violation = next(each for each in in_one_task.violations if (each.run, each.property) == (run, judged))
    rows, captions, shown = witness(audits.table.rows(spark), violation)
    back, texts = read_back(rows, captions)
    assert shown == violation
    assert sorted(texts) == sorted(seen)
    assert {repr(each) for each in back} <= {repr(each) for each in audits.runs[run]}


def test_violations_are_counted_as_the_audit_lists_them() -> None:
    one, two, three = (Violation(run, "fifo", "a/p", "a/p/1", None, run) for run in "rss")
    report = Report(2, 9, [], [one, two, three])
    assert nth_violation(report, 2, None) is two
    assert nth_violation(report, 2, "s") is three
    for number, run, words in ((4, None, "describes 3 violations"), (1, "t", "finds no violation in run 't'")):
        with pytest.raises(TraceError, match=words):
            nth_violation(report, number, run)


# Reading them again ---------------------------------------------------------------------------------------------------


def test_the_verdict_on_an_exported_run_is_that_on_the_run(
    audits: Audits,
    in_one_task: Report,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    # The search for chains of causes is dear, and has its own tests.
    dear = {each.run for each in in_one_task.verdicts if each.property == "causal" and each.verdict == "violated"}
    chosen = sorted(audits.runs.keys() - dear)[:RUNS]
    for name in chosen:
        write_log(logs / f"{name}.shiviz", audits.runs[name])
    code, printed = isthmus(capsys, monkeypatch, "audit", logs, "--map", "shiviz")
    assert code == 1
    report = msgspec.json.decode(printed, type=Report)
    found, wanted = (
        [each for each in judged.verdicts if each.run in chosen and PROPERTIES[each.property].by_default]
        for judged in (report, in_one_task)
    )
    assert found == wanted
    assert {each.verdict for each in wanted} == {"holds", "violated", "unknown"}


@pytest.mark.usefixtures("spark")
def test_the_command_exports_the_witness_of_a_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ("a/p1", 1), ("a/p1", 2)
    rows = [
        *(row("a/p1", "start"), row("a/p1", "send", first, index=1), row("a/p1", "send", second, index=2)),
        *(row("a/p2", "start"), row("a/p2", "deliver", second, index=1), row("a/p2", "deliver", first, index=2)),
    ]
    trace = write_jsonl(tmp_path / "rows.jsonl", rows)
    log = tmp_path / "witness.shiviz"
    code, printed = isthmus(capsys, monkeypatch, "shiviz", trace, "--violation", 1, "--to", log)
    result = msgspec.json.decode(printed)
    assert code == 0
    assert (result["file"], result["run"], result["rows"], result["hosts"]) == (str(log), "r", 4, 2)
    assert (result["parser"], result["violation"]["property"]) == (PARSER, "causal")
    assert 'a/p2 {"a/p1":2,"a/p2":1}\ndeliver a/p1/2 [too early]\n' in log.read_text()
