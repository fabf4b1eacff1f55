"""ShiViz logs in the pipeline: read like any other trace, judged like the trace that they came from, and written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from random_executions import row
from trace_files import write_jsonl

from isthmus.cli.main import main
from isthmus.pipeline.ingest import TraceTable, ingest, open_table
from isthmus.pipeline.shiviz import nth_violation, witness
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event, Report, TraceError, Violation
from isthmus.trace.shiviz.exporter import PARSER, export_rows, write_log
from isthmus.trace.shiviz.importer import import_log
from isthmus.trace.shiviz.log import Expressions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Audits

RUNS = 20
ONE_LINE = r'(?<host>\w+) "(?<event>.*)" (?<clock>\{.*\})'
FOREIGN = """client "asks" {"client":1}
server "hears" {"server":1, "client":1}
what is this?
server "answers" {"server":2, "client":1}
server "breaks" {"server":}
client "is told" {"client":2, "server":2}
client "jumps" {"client":4, "server":2}
"""


def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, Any]:
    """Exit code and what the command printed, with the Spark that is there."""
    monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments), "-o", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().out


# Witnesses ------------------------------------------------------------------------------------------------------------


def read_back(rows: list[Event], captions: dict[tuple[str, int], str]) -> tuple[list[Event], list[str]]:
    """What somebody sees who opens the log, and the rows that are in it."""
    bad: list[tuple[int, str]] = []
    text = "".join(export_rows(rows, captions))
    back = [event for _, event in import_log(text.encode(), "x", Expressions(), bad)]
    assert not bad
    return back, text.split("\n")[3::3]


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


# Ingest ---------------------------------------------------------------------------------------------------------------


class Audited(NamedTuple):
    """A directory of logs: some of ours, a foreign one, a damaged one."""

    code: int
    report: Report
    table: TraceTable
    runs: set[str]


@pytest.fixture
def audited(
    audits: Audits,
    in_one_task: Report,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Audited:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "service.log").write_text(FOREIGN)
    (logs / "damaged.shiviz").write_text("(?<host>(?<clock>(?<event>\n\n")
    # The search for chains of causes is dear, and has its own tests.
    dear = {each.run for each in in_one_task.verdicts if each.property == "causal" and each.verdict == "violated"}
    chosen = sorted(audits.runs.keys() - dear)[:RUNS]
    for name in chosen:
        write_log(logs / f"{name}.shiviz", audits.runs[name])
    code, printed = isthmus(capsys, monkeypatch, "audit", logs, "--shiviz", ONE_LINE, "--keep", tmp_path / "table")
    return Audited(code, msgspec.json.decode(printed, type=Report), open_table(tmp_path / "table"), set(chosen))


def test_logs_of_any_kind_are_read_and_judged(spark: SparkSession, audited: Audited, in_one_task: Report) -> None:
    # Ours: the verdict on an exported run is that on the run.
    found, wanted = (
        [each for each in report.verdicts if each.run in audited.runs and PROPERTIES[each.property].by_default]
        for report in (audited.report, in_one_task)
    )
    assert found == wanted
    assert {each.verdict for each in wanted} == {"holds", "violated", "unknown"}
    assert audited.code == 1
    # Anybody's: messages out of clocks.
    rows = audited.table.rows(spark).where("run = 'service'").collect()
    assert sorted((row.process, row["index"], row.event, row.origin_seq) for row in rows) == [
        ("client", 0, "start", None),
        ("client", 1, "send", 1),
        ("client", 2, "deliver", 2),
        ("server", 0, "start", None),
        ("server", 1, "deliver", 1),
        ("server", 2, "send", 2),
    ]
    # And what is wrong, with its place.
    worst = {(Path(each.file).name, each.line): each.reason for each in audited.table.worst(spark, 1000)}
    reasons = {place: reason for place, reason in worst.items() if place[0] in ("service.log", "damaged.shiviz")}
    assert list(reasons) == [("damaged.shiviz", 1), ("service.log", 3), ("service.log", 5), ("service.log", 7)]
    assert reasons["service.log", 3] == "a line in which the parser expression finds no entry"
    assert "not a JSON object of whole numbers" in reasons["service.log", 5]
    assert reasons["service.log", 7] == "event 3 of host 'client' is missing before this entry"
    assert audited.report.quarantined == len(worst)


def test_logs_in_a_directory_are_nobodys_until_somebody_says_how_to_read_them(tmp_path: Path) -> None:
    (tmp_path / "service.log").write_text(FOREIGN)
    with pytest.raises(TraceError, match="no trace files in this directory"):
        ingest(None, [tmp_path], tmp_path / "table")  # type: ignore[arg-type]


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
