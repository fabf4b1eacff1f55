"""`isthmus counts`: the same table for people and for programs, and an exit code that says whether it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import pytest
from cli_support import Finished, call

from isthmus.lab.counts import sections
from isthmus.lab.counts.table import Section, row

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


def test_counts_prints_formula_and_count_side_by_side(isthmus: Isthmus) -> None:
    counted = isthmus("counts", "hops", "-o", "json")
    assert (counted.code, counted.err, counted.json["holds"]) == (0, "", True)
    (section,) = counted.json["counts"]
    assert (section["name"], section["paper"]) == ("hops", "parallel, Sect. 8.2")
    assert [(each["formula"], each["counted"]) for each in section["rows"]] == [(3, 3), (4, 4), (3, 3)]
    assert all(each["also_sent"]["acknowledgement"] > 0 for each in section["rows"])


def test_counts_tells_people_the_same(isthmus: Isthmus) -> None:
    counted = isthmus("counts", "hops")
    assert counted.code == 0
    assert "3 in the best case, 4 in the worst   (parallel, Sect. 8.2; hops)" in counted.out
    assert {"setting", "formula", "counted", "also sent", "heartbeats"} <= {
        cell.strip() for cell in counted.out.split("┃")
    }
    assert "all 3 counts are as the formulas say" in counted.out


def test_every_count_has_a_name_that_can_be_asked_for(isthmus: Isthmus) -> None:
    names = [section.name for section in sections.SECTIONS]
    assert {"messages", "star", "parallel", "hops", "latency"} <= set(names)
    assert isthmus("counts", "none").is_refusal("none", *names)


@pytest.mark.parametrize("output", ["human", "json"])
def test_a_count_that_differs_is_a_violation(isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """Of what was counted several times the wrong one is shown."""
    section = Section(
        name="made-up",
        what="legs",
        paper="none",
        formula="4",
        count=lambda: [row("cat", "hops", 4, [4]), row("dog", "hops", 4, [4, 3, 4])],
    )
    monkeypatch.setattr(sections, "SECTIONS", (section,))
    counted = isthmus("counts", "-o", output)
    assert counted.code == 1
    if output == "json":
        assert counted.json["holds"] is False
        assert [(each["counted"], each["holds"]) for each in counted.json["counts"][0]["rows"]] == [
            (4, True),
            (3, False),
        ]
    else:
        assert "differs" in counted.out
        assert "1 of 2 counts differ from their formula" in counted.out


def test_loads_stand_beside_what_the_paper_prints(isthmus: Isthmus) -> None:
    counted = isthmus("counts", "cluster-loads", "-o", "json")
    assert counted.code == 0
    rows = {row["setting"]: row for row in counted.json["counts"][0]["rows"]}
    top = rows["n = 16, b = 2, layer 4 of 4, from below"]
    assert (top["printed"], top["formula"], top["counted"]) == (5.25, 8, 8)
    result = isthmus("counts", "cluster-loads")
    assert {"printed", "exact", "counted"} <= {cell.strip() for cell in result.out.split("┃")}


def test_figure_7_is_drawn_as_it_was_counted(isthmus: Isthmus, tmp_path: Path) -> None:
    file = tmp_path / "fig-7.svg"
    assert isthmus("counts", "rst-header", "--plot", str(file)).code == 0
    drawn = ElementTree.parse(file).getroot()
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"layer 2: L(n)", "layer 1: R(n, 1) + S(n, 1)", "λ"} <= set(texts)
    assert sum(element.tag.endswith("circle") for element in drawn.iter()) == 12
    assert isthmus("counts", "rst-header", "--plot", str(tmp_path / "no" / "x.svg")).is_refusal("--plot", "x.svg")
