"""`isthmus shiviz` without Spark: refusals first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from cli_support import Finished, call, spawn, write

from isthmus.pipeline import session
from isthmus.trace.shiviz.exporter import PARSER

Isthmus: TypeAlias = Callable[..., Finished]

ROW = '{"run":"%s","system":"a","process":"p1","role":"app","index":0,"event":"start","time_ns":0}\n'


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Isthmus:
    """The command, in a directory with traces of one and of two runs, and without any Spark."""
    write(tmp_path / "one.jsonl", ROW % "r")
    write(tmp_path / "two.jsonl", ROW % "r" + ROW % "s")
    write(tmp_path / "service.log", "nothing that anybody could read\n")
    (tmp_path / "directory").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "spark_session", None)
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.jsonl"], ["Missing option", "--to"]),
        (["one.jsonl", "--to", "directory"], ["is a directory", "such as run.shiviz"]),
        (["one.jsonl", "--to", "nowhere/x.shiviz"], ["its directory does not exist"]),
        (["nowhere", "--to", "x.shiviz"], ["no such file or directory"]),
        (["two.jsonl", "--to", "x.shiviz"], ["holds 2 runs", "choose one with --run: r, s"]),
        (["two.jsonl", "--run", "t", "--to", "x.shiviz"], ["no run 't' in the trace", "known are r, s"]),
        (["two.jsonl", "--violation", "0", "--to", "x.shiviz"], ["--violation"]),
        (["service.log", "--to", "x.shiviz"], ["not a trace file"]),
    ],
    ids=" ".join,
)
def test_what_cannot_be_exported_is_refused(isthmus: Isthmus, arguments: list[str], words: list[str]) -> None:
    refused = isthmus("shiviz", *arguments)
    assert refused.is_refusal(*words), refused
    assert not Path("x.shiviz").exists()


def test_a_run_is_exported_without_spark_and_says_what_to_paste(isthmus: Isthmus) -> None:
    ended = isthmus("shiviz", "two.jsonl", "--run", "s", "--to", "x.shiviz")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "x.shiviz: 1 rows of 1 processes, run s"
    assert ended.out.splitlines()[-1] == PARSER
    parser, delimiter, *log = Path("x.shiviz").read_text().splitlines()
    assert (parser, delimiter) == (PARSER, "")
    assert log[:2] == ['a/p1 {"a/p1":1}', "start"]
    assert msgspec.json.decode(isthmus("shiviz", "one.jsonl", "--to", "y.shiviz", "-o", "json").out) == {
        "file": "y.shiviz",
        "run": "r",
        "rows": 1,
        "hosts": 1,
        "parser": PARSER,
        "violation": None,
    }


def test_exporting_a_run_needs_no_java(isthmus: Isthmus, tmp_path: Path) -> None:
    ended = spawn(
        "shiviz", tmp_path / "one.jsonl", "--to", tmp_path / "x.shiviz", JAVA_HOME="/nowhere", PATH="/nowhere"
    )
    assert (ended.code, ended.err) == (0, "")
