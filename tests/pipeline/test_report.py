"""The whole way from trace files to a page, by the command that users call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import msgspec
import pytest
from random_executions import row
from trace_files import numbered, write_jsonl

from isthmus.cli.main import main
from isthmus.trace.schema import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B, C = "a/p", "a/<b>&q", "b/r"
LOGS = {
    A: [("send", (A, 1)), ("deliver", (A, 1)), ("deliver", (B, 1))],
    B: [("deliver", (A, 1)), ("send", (B, 1)), ("deliver", (B, 1))],
    C: [("deliver", (B, 1)), ("deliver", (A, 1))],
}
"""The answer overtakes the question on its way to the other system."""


def trace(directory: Path) -> Path:
    rows: list[Event] = []
    for number, (name, log) in enumerate(LOGS.items()):
        made = [
            row(name, event, message, time_ns=1_000_000 * (number + place), payload_bytes=100, control_bytes=7)
            for place, (event, message) in enumerate(log)
        ]
        rows += numbered("r", [row(name, "start"), *made, row(name, "end", time_ns=9_000_000)])
    write_jsonl(directory / "trace.jsonl", rows)
    with (directory / "trace.jsonl").open("a") as file:
        file.write("no json\n")
    return directory


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert err == ""
    assert isinstance(ended.value.code, int)
    return ended.value.code, out


def test_a_report_of_a_violated_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    (tmp_path / "trace").mkdir()
    code, out = called(monkeypatch, capsys, "report", trace(tmp_path / "trace"), "--to", target, "-o", "json")
    assert code == 1
    printed = msgspec.json.decode(out)
    assert {each["property"]: each["verdict"] for each in printed["verdicts"]}["causal"] == "violated"
    text = target.read_text()
    words = " ".join(ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n")).itertext())
    assert "Violated: causal. 1 violation." in words
    assert f"{B}/1 was delivered at index 1 before its cause {A}/1 at index 2" in words
    for expected in ("too early, #1", "too late, #2", "a → b", "Rows that do not count: 1."):
        assert expected in words
    assert "<b>" not in text
    assert list(tmp_path.iterdir()).count(target) == 1
    assert not list(tmp_path.glob(".*"))


def test_figures_on_the_terminal(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = called(monkeypatch, capsys, "measure", trace(tmp_path))
    assert code == 0
    for expected in ("hold-back", "messages handled", "<b>&q", "7 B"):
        assert expected in out
