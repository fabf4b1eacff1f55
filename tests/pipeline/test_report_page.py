"""The page: self-contained, well-formed, and whatever names a trace has, they stay names."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from isthmus.pipeline.measure.rows import (
    Figures,
    LatencyRow,
    LinkRow,
    PairRow,
    ProcessRow,
    RunRow,
    ThroughputRow,
    WaitRow,
)
from isthmus.pipeline.report.page import Content, Shown, page
from isthmus.pipeline.report.witness import Seen, picture_of
from isthmus.trace.reader import Quarantined
from isthmus.trace.schema import Answer, Report, Verdict, Violation

EXPECTED = ["integrity", "agreement", "fifo", "causal"]
EVIL = "<script>alert(1)</script>&\"'\x1b"


def figures(run: str, system: str, other: str) -> Figures:
    spread = (1000, 2000, 3000, 4000, 5000, 2500.0)
    pairs = [
        PairRow(run, here, there, 10, 20, 19, 1, *spread, 5, *spread, 2000, 100, 2.0, 5.0, 10.0)
        for here in (system, other)
        for there in (system, other)
    ]
    return Figures(
        runs=[RunRow(run, 2, 4, 100, 20, 80, 0, 2_000_000_000, 1_000_000_000, 3)],
        pairs=pairs,
        latencies=[LatencyRow(run, each.origin_system, each.system, 170, 19) for each in pairs],
        throughput=[ThroughputRow(run, each.origin_system, each.system, 1, 20, 100) for each in pairs],
        waits=[WaitRow(run, system, "app", f"{other}/g", "waits", 5, 1, 9000, *spread)],
        links=[LinkRow(run, "link 0", system, other, 10, 9, 1000, 10, 1.0, 500.0, 900.0, 0.5, None)],
        processes=[ProcessRow(run, system, "p", "app", 10, 20, 5, 10, 0, 0, 0, 2000, 0, 1)],
    )


def content(name: str = "madrid", *, causal: Answer = "holds", runs: int = 1) -> Content:
    verdicts = [
        Verdict(
            f"run {number}",
            judged,
            causal if judged == "causal" else "holds",
            80,
            2 * (causal == "violated" and judged == "causal"),
        )  # type: ignore[arg-type]
        for number in range(runs)
        for judged in (*EXPECTED, "total")
    ]
    first, second = f"{name}/p/1", f"{name}/q/1"
    violation = Violation(
        "run 0", "causal", f"{name}/r", first, second, f"{second} was delivered before its cause {first}"
    )
    rows = [Seen("run 0", f"{name}/r", 4, "deliver", second, None), Seen("run 0", f"{name}/p", 4, "send", first, None)]
    bad = causal == "violated"
    return Content(
        traces=[f"traces/{name}"],
        report=Report(runs, 400, verdicts, [violation] if bad else [], 3),
        expected=EXPECTED,
        figures=figures("run 0", name, "valencia"),
        shown=[Shown(violation, picture_of(violation, rows))] if bad else [],
        quarantined=[Quarantined(f"{name}.jsonl", 7, "not JSON")],
        torn=[f"{name}.jsonl"],
    )


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def words_of(element: ElementTree.Element) -> str:
    body = element.find("body")
    assert body is not None
    return " ".join(body.itertext())


def test_a_good_run_says_so_and_shows_all_its_figures() -> None:
    words = words_of(parsed(page(content())))
    assert "Everything holds: integrity, agreement, fifo, causal." in words
    for heading in ("Verdicts", "Latency", "Throughput", "Hold-back", "Links", "Control overhead", "Processes"):
        assert heading in words
    for figure in ("madrid → valencia", "within madrid", "1 µs", "clocks disagree", "link 0", "valencia/g"):
        assert figure in words
    assert "Witnesses" not in words


def test_a_violated_run_names_what_is_violated_and_draws_it() -> None:
    element = parsed(page(content(causal="violated")))
    words = words_of(element)
    assert "Violated: causal. 2 violations." in words
    assert "was delivered before its cause" in words
    assert "1 of 2 violations" in words
    names = [each.get("aria-labelledby") for each in element.iter("{http://www.w3.org/2000/svg}svg")]
    assert "witness-0-title witness-0-desc" in names
    assert "incomplete" in words_of(parsed(page(content(causal="unknown"))))


def test_the_page_needs_nothing_from_anywhere() -> None:
    text = page(content(causal="violated"))
    outside = re.findall(r"https?://[^\"' )]*", text)
    assert set(outside) == {"http://www.w3.org/2000/svg"}, "a name space is no resource; there must be nothing else"
    assert not re.search(r"@import|<link|<img|<iframe|\bsrc=|\bhref=|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_ids_are_unique() -> None:
    found = [each.get("id") for each in parsed(page(content(causal="violated"))).iter() if each.get("id")]
    assert len(found) == len(set(found)) > 10


@pytest.mark.parametrize("causal", ["holds", "violated"])
def test_names_never_become_markup(causal: Answer) -> None:
    text = page(content(EVIL, causal=causal))
    element = parsed(text)
    assert "<script" not in text
    assert {each.tag.rpartition("}")[2] for each in element.iter()} == {
        each.tag.rpartition("}")[2] for each in parsed(page(content(causal=causal))).iter()
    }
    assert "<script>alert(1)</script>&\"'\\x1b" in words_of(element)


def test_every_drawing_has_a_title_and_a_description() -> None:
    space = "{http://www.w3.org/2000/svg}"
    for svg in parsed(page(content(causal="violated"))).iter(f"{space}svg"):
        assert [each.tag for each in svg][:2] == [f"{space}title", f"{space}desc"]
        assert all(each.text for each in list(svg)[:2])


def test_runs_beyond_the_page_are_counted() -> None:
    words = words_of(parsed(page(content(causal="violated", runs=30))))
    assert "60 violations in 30 of 30 runs" in words
    assert "Figures of 29 more runs are not on this page" in words
    assert "violated in 30" in words


SYSTEMS = [f"a-system-with-a-name-{number}" for number in range(64)]


def test_a_page_of_large_runs_stays_below_two_megabytes() -> None:
    """Six runs of 64 systems, each with every other: what it leaves out is counted."""
    whole: dict[str, list[Any]] = {name: [] for name in Figures.__struct_fields__}
    for run in (f"run {number}" for number in range(6)):
        for here in SYSTEMS:
            for there in SYSTEMS:
                some = figures(run, here, there)
                for name in ("latencies", "throughput", "pairs", "waits", "links", "processes"):
                    whole[name] += getattr(some, name)[1:2] or getattr(some, name)
            spread = [LatencyRow(run, here, SYSTEMS[0], each, 1 + each) for each in range(100, 250)]
            whole["latencies"] += spread
        whole["runs"] += some.runs
    text = page(msgspec.structs.replace(content(causal="violated", runs=6), figures=Figures(**whole)))
    words = words_of(parsed(text))
    assert len(text.encode()) < 2_000_000
    assert "The 12 largest of 4,096 pairs are drawn. The 100 largest of 4,096 pairs are listed." in words
    assert "The 100 largest of 4,096 links are listed." in words
