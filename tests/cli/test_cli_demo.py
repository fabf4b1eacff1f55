"""`isthmus demo`, shortened: two sites over an emulated WAN, more links, more throughput; a gateway dies, all holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import call, spawn

from isthmus.cli.demo import audited, print_figures, print_throughput, print_verdicts, print_where
from isthmus.lab.benchmarks.failover import FailoverFigures
from isthmus.lab.demonstration import Throughput
from isthmus.trace.schema import Report, Verdict

PROMISED = {"integrity", "agreement", "fifo", "causal", "same-view"}
MEMBERS = [f"{site}.{member}" for site in ("madrid", "valencia") for member in ("g1", "g2", "p1", "p2")]


@pytest.mark.real
def test_demo_survives_the_death_of_a_gateway_and_says_so(tmp_path: Path) -> None:
    short = ("--seconds", 1, "--rate", 100, "--links", 1, "--links", 2)
    trace = tmp_path / "trace"
    shown = spawn("demo", *short, "--trace", trace, "--no-spark", "-o", "json")
    assert (shown.code, shown.err) == (0, "")
    assert shown.json["violations"] == []
    assert {verdict["property"]: verdict["verdict"] for verdict in shown.json["verdicts"]} == dict.fromkeys(
        PROMISED, "holds"
    )
    assert shown.json["report"] is None
    one, two = shown.json["throughput"]
    assert (one["links"], one["speed_up"], two["links"]) == (1, 1.0, 2)
    assert all(0 < each["share"] < 1.05 for each in (one, two))
    figures = shown.json["figures"]
    assert figures["deliveries"] == 4 * figures["messages"] > 1000
    assert figures["next_view_after_kill_ms"] > 0
    assert figures["flowed_again_after_ms"] > 0
    assert figures["latency_ms"]["p50"] >= 25
    assert sorted(path.name for path in trace.iterdir()) == [f"demo.{member}.jsonl" for member in MEMBERS]


def test_a_demo_without_spark_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isthmus.pipeline.session.find_spec", lambda name: None)
    assert audited(tmp_path, tmp_path / "page.html") is None
    assert "judged without Spark" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, monkeypatch, "demo", "--report", tmp_path).is_refusal("is a directory")


def test_demo_prints_speed_up_figures_and_verdicts_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    figures = FailoverFigures(1000, 4000, 500, {"p50": 26.0, "p90": 27.5, "p99": 31.0}, 1012, 1234)
    verdicts = [Verdict(run="demo", property="causal", verdict="holds", checked=4000, violations=0)]
    print_throughput([Throughput(1, 2400.0, 0.98, 1.0), Throughput(4, 9600.0, 0.98, 4.0)])
    print_figures(figures)
    print_verdicts(Report(runs=1, events=9, verdicts=verdicts, violations=[], quarantined=0), PROMISED, broken=False)
    print_where(Path("page.html"), Path("traces"))
    printed = capsys.readouterr().out
    for words in ("speed-up", "9,600", "4.00 ×", "26 ms / 27.5 ms / 31 ms", "flowed again after", "1234 ms", "causal"):
        assert words in printed
    assert "nothing lost, nothing twice" in printed
    assert "The report is in page.html" in printed
    assert "isthmus story traces madrid/p1/100" in printed
