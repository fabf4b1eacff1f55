"""`isthmus audit`: exit codes, the object that it prints, and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli_support import call, spawn, write
from patience import seconds

from isthmus.lab.benchmarks.audit import chosen_cases
from isthmus.pipeline import session
from isthmus.pipeline.problems import SparkProblem

ROW = '{"run":"r","system":"a","process":"%s","role":"app","index":%d,"event":"%s","time_ns":0%s}'


def row(process: str, index: int, event: str, message: tuple[str, int] | None = None) -> str:
    about = ""
    if message is not None:
        about = f',"origin_system":"a","origin_process":"{message[0]}","origin_seq":{message[1]}'
    return ROW % (process, index, event, about)


def trace(directory: Path, *, swapped: bool) -> Path:
    """One process sends two messages, another delivers them, in order or not."""
    directory.mkdir()
    first, second = (2, 1) if swapped else (1, 2)
    rows = [
        row("p1", 0, "start"),
        row("p1", 1, "send", ("p1", 1)),
        row("p1", 2, "send", ("p1", 2)),
        row("p1", 3, "deliver", ("p1", 1)),
        row("p1", 4, "deliver", ("p1", 2)),
        row("p1", 5, "end"),
        row("p2", 0, "start"),
        row("p2", 1, "deliver", ("p1", first)),
        row("p2", 2, "deliver", ("p1", second)),
        row("p2", 3, "end"),
    ]
    write(directory / "rows.jsonl", "\n".join([*rows, "nonsense", ""]))
    return directory


@pytest.mark.usefixtures("spark")
def test_late_traces_are_added_to_a_table_that_was_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def audited(*arguments: object) -> tuple[int, int]:
        ended = call(capsys, monkeypatch, "audit", *arguments, "-o", "json")
        return ended.code, ended.json["events"]

    late = trace(tmp_path / "late", swapped=True)
    early = write(tmp_path / "early.jsonl", row("p3", 0, "start"))
    kept = ("--keep", tmp_path / "table")
    assert audited(early, *kept) == (0, 1)
    assert call(capsys, monkeypatch, "audit", late, *kept).is_refusal("is there already and not empty", "--append")
    assert audited(late, *kept, "--append") == (1, 11)
    assert audited(tmp_path / "table") == (1, 11)
    assert call(capsys, monkeypatch, "audit", late, "--append").is_refusal("give --keep DIR")


@pytest.mark.usefixtures("spark")
def test_it_prints_the_object_of_the_contract(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = call(capsys, monkeypatch, "audit", trace(tmp_path / "t", swapped=True), "-o", "json")
    assert ended.code == 1
    report = ended.json
    assert list(report) == ["runs", "events", "verdicts", "violations", "quarantined"]
    assert (report["runs"], report["events"], report["quarantined"]) == (1, 10, 1)
    verdicts = {each["property"]: each["verdict"] for each in report["verdicts"]}
    broken = {"fifo": "violated", "causal": "violated", "total": "violated"}
    assert verdicts == {"integrity": "holds", "agreement": "holds"} | broken
    assert {
        "run": "r",
        "property": "causal",
        "process": "a/p2",
        "first": "a/p1/1",
        "second": "a/p1/2",
        "why": "a/p1/2 was delivered at index 1 before its cause a/p1/1 at index 2",
        "chain": ["a/p1/1", "a/p1/2"],
    } in report["violations"]


@pytest.mark.usefixtures("spark")
def test_only_what_is_expected_counts_for_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    assert call(capsys, monkeypatch, "audit", trace(tmp_path / "bad", swapped=True), "--keep", table).code == 1
    assert call(capsys, monkeypatch, "audit", table, "--expect", "integrity,agreement").code == 0
    ended = call(capsys, monkeypatch, "audit", trace(tmp_path / "good", swapped=False), "--expect", "total,causal")
    assert ended.code == 0
    assert "10 events, 1 quarantined" in ended.out


@pytest.mark.usefixtures("spark")
def test_following_prints_each_violation_as_one_object_and_goes_on_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    traces, checkpoint = trace(tmp_path / "t", swapped=True), tmp_path / "checkpoint"
    command = ("audit", "--follow", traces, "--once", "--checkpoint", checkpoint)
    ended = call(capsys, monkeypatch, *command, "-o", "json")
    assert ended.code == 1
    *found, summary = map(msgspec.json.decode, ended.out.splitlines())
    kinds = [each["kind"] for each in found]
    assert kinds == ["quarantined", "violation", "violation", "violation", "finished"]
    assert {
        "kind": "violation",
        "run": "r",
        "property": "causal",
        "process": "a/p2",
        "first": "a/p1/1",
        "second": "a/p1/2",
        "why": "a/p1/2 was delivered at index 1 before its cause a/p1/1 at index 2",
        "chain": ["a/p1/1", "a/p1/2"],
    } in found
    assert (summary["kind"], summary["runs"], summary["events"], summary["quarantined"]) == ("summary", 1, 10, 1)

    again = call(capsys, monkeypatch, *command, "--expect", "integrity,agreement")
    assert again.code == 0
    assert again.out == "1 runs, 10 rows, 1 quarantined, 3 violations, 0 messages held\n"


@pytest.mark.timeout(seconds(400))  # starts Spark
def test_no_line_of_java_reaches_the_terminal(tmp_path: Path) -> None:
    directory = trace(tmp_path / "t", swapped=False)
    (directory / "cut.parquet").write_bytes(b"PAR1 and no more")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it ends before a better compiler would pay
    arguments = ("audit", directory, "-o", "json", "--master", "local[1]", "--memory", "1g")
    ended = spawn(*arguments, patience=seconds(300), JDK_JAVA_OPTIONS=quick)
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["quarantined"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["no such file or directory"]),
        (["empty"], ["no trace files in this directory"]),
        (["text.txt"], ["not a trace file"]),
        (["rows.jsonl", "--expect", "fifo,fair"], ["unknown property 'fair'", "known are integrity"]),
        (["rows.jsonl", "--expect", ","], ["names no property"]),
        (["nowhere", "--follow"], ["no such file or directory", "a directory that traces are written to"]),
        (["text.txt", "--follow"], ["not a trace file"]),
        (["empty", "--follow", "--expect", "fair"], ["unknown property 'fair'"]),
        (["empty", "--follow", "--trigger", "-1"], ["--trigger", "seconds"]),
        (["empty", "--follow", "--max-held", "0"], ["--max-held", "leaves no room"]),
        (["empty", "--follow", "--keep", "table"], ["--keep is for an audit of traces that are finished"]),
        (["rows.jsonl", "--once"], ["--once is for an audit with --follow"]),
    ],
)
def test_bad_arguments_are_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "text.txt", "hello")
    write(tmp_path / "rows.jsonl", row("p1", 0, "start"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "spark_session", None)
    assert call(capsys, monkeypatch, "audit", *arguments).is_refusal(*words)


def test_without_spark_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    ended = call(capsys, monkeypatch, "audit", tmp_path)
    assert ended.is_refusal("the package pyspark is not installed", "pip install 'isthmus[spark]'")


def test_without_java_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkProblem, match="no Java 17 or newer, which only Spark needs; on Debian or Ubuntu"):
        session.require_java()


def test_a_case_of_the_benchmark_is_chosen_by_its_name_or_by_words_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [case.name for case in chosen_cases(10_000, "one run")] == ["one run"]
    assert [case.name for case in chosen_cases(10_000, "long log")] == ["one run, one long log"]
    monkeypatch.setattr(session, "spark_session", None)
    refused = call(capsys, monkeypatch, "bench", "audit", "--case", "two runs")
    assert refused.is_refusal("--case two runs: there is no such case", "'20 runs'")
