"""What `isthmus report` and `isthmus measure` refuse, before Spark is started for nothing."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pytest
from cli_support import call

from isthmus.cli.measure import show
from isthmus.pipeline.measure.rows import Figures, LinkRow, PairRow, ProcessRow, WaitRow


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test that would start it."""

    def started(*_: Any, **__: Any) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("isthmus.pipeline.session.spark_session", started)


@pytest.mark.parametrize("command", ["report", "measure"])
def test_a_trace_that_is_not_there_is_refused_in_one_line(
    command: str, no_spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ("--to", tmp_path / "new")
    assert call(capsys, monkeypatch, command, tmp_path / "none", *target).is_refusal("no such file or directory")
    assert call(capsys, monkeypatch, command, tmp_path, *target).is_refusal("no trace files")
    assert call(capsys, monkeypatch, command, tmp_path, "--link-rate", "fast").is_refusal("--link-rate")
    assert call(capsys, monkeypatch, command, tmp_path, "--link-rate", "0bit").is_refusal("--link-rate")


def test_a_page_that_cannot_be_written_is_refused(
    no_spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.touch()
    assert call(capsys, monkeypatch, "report", trace, "--to", tmp_path).is_refusal("is a directory", "report.html")
    nowhere = tmp_path / "none" / "report.html"
    assert call(capsys, monkeypatch, "report", trace, "--to", nowhere).is_refusal("directory does not exist")
    assert call(capsys, monkeypatch, "report", trace, "--expect", "order").is_refusal("unknown property")
    assert call(capsys, monkeypatch, "measure", trace, "--to", tmp_path).is_refusal("there already")


@pytest.mark.parametrize("command", ["report", "measure"])
def test_without_spark_the_user_learns_how_to_get_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = util.find_spec
    monkeypatch.setattr("isthmus.pipeline.session.find_spec", lambda name: None if name == "pyspark" else real(name))
    (tmp_path / "t.jsonl").touch()
    refused = call(capsys, monkeypatch, command, tmp_path, "--to", tmp_path / "new.html")
    assert refused.is_refusal("pyspark is not installed", "pip install 'isthmus[spark]'")


def test_names_do_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    spread = (1000, 2000, 3000, 4000, 5000, 2500.0)
    evil = "\x1b[31m[bold]x"
    show(
        Figures(
            runs=[],
            pairs=[PairRow("r", evil, "b", 1, 2, 2, 0, *spread, 1, *spread, 10, 20, 1.0, 1.0, 2.0)],
            latencies=[],
            throughput=[],
            waits=[WaitRow("r", "a", "app", None, "", 1, 0, 10, *spread)],
            links=[LinkRow("r", "link 0", "a", None, 1, 0, 10, 0, 1.0, 5.0, 5.0, 1.0, None)],
            processes=[ProcessRow("r", "a", f"p{number}", "app", *[1] * 10) for number in range(50)],
        )
    )
    shown = capsys.readouterr()
    assert "\\x1b[31m[bold]x" in shown.out
    assert "\x1b[31m" not in shown.out
    assert "link 0" in shown.out
    assert "10 more" in shown.err
