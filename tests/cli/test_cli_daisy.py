"""The commands on daisies: what they run, what they draw, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call
from example_files import example_file

from isthmus.drawing.line_chart import COLOURS
from isthmus.lab.counts import daisies as counts_of_daisies
from isthmus.lab.counts.daisies import curves
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

TWO_LEVELS, EXPLORED, RECIPIENTS, JOINED = (
    str(example_file(f"daisy-{name}")) for name in ("two-levels", "explored", "recipients", "joined")
)

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.mark.parametrize("example", [TWO_LEVELS, RECIPIENTS], ids=["everybody", "recipients"])
def test_run_sees_everything_through(isthmus: Isthmus, tmp_path: Path, example: str) -> None:
    # The example suspects within 60 ms of virtual time; a real machine with other things to do needs more.
    file = tmp_path / "daisy.toml"
    file.write_text(Path(example).read_text().replace('"60ms"', '"2s"'))
    trace = tmp_path / "trace"
    arguments = ["--rate", "20", "--size", "20", "--duration", "500ms", "--trace", str(trace), "-o", "json"]
    done = isthmus("run", str(file), "--site", "shop", *arguments)
    assert done.code == 0, done.err
    assert done.json["clean"]
    events = list(read_trace(trace).events())
    sends = [event for event in events if event.event == "send"]
    assert len(sends) == sum(done.json["accepted"].values()) > 0
    assert sum(len(event.destinations or ()) for event in sends) == done.json["delivered"]
    assert not judge(events, ("integrity", "agreement", "fifo", "causal")).violated


def test_check_says_how_often_a_message_is_held(isthmus: Isthmus) -> None:
    done = isthmus("check", RECIPIENTS)
    assert done.code == 0
    assert "in a group to recipients only, 2 members hold each" in " ".join(done.out.split())


def test_explore_says_to_whom_each_message_goes(isthmus: Isthmus) -> None:
    done = isthmus("explore", EXPLORED, "--messages", "2", "-o", "json")
    assert (done.code, done.json["verdict"]) == (0, "holds")
    assert done.json["sends"] == ["shop/a1 to shop/a2", "shop/a2 to shop/b1"]
    result = isthmus("explore", EXPLORED)
    assert "shop/a2 to shop/b1 and shop/b2" in result.out
    assert "no violation in any schedule" in result.out


def test_the_headers_of_all_kinds_of_systems_are_drawn(
    isthmus: Isthmus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = curves((8, 16, 64))
    assert len(few) <= len(COLOURS)
    monkeypatch.setattr(counts_of_daisies, "curves", lambda: few)
    file = tmp_path / "headers.svg"
    assert isthmus("counts", "daisy-header", "--plot-headers", str(file)).code == 0
    drawn = file.read_text()
    assert drawn.count("<polyline") == len(few)
    assert all(f">{kind}<" in drawn for kind in few)
    assert drawn.count("<circle") == sum(map(len, few.values()))
    refused = isthmus("counts", "daisy-header", "--plot-headers", str(tmp_path / "no" / "x.svg"))
    assert refused.is_refusal("--plot-headers", "x.svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", TWO_LEVELS, "--site", "shop", "--lines"], ["--lines", "is a daisy"]),
        (["run", TWO_LEVELS, "--site", "shop", "--process", "a1"], ["systems.shop", "has no address"]),
        (["explore", EXPLORED, "--crashes", "1"], ["a daisy is explored without crashes"]),
        (["explore", JOINED], ["systems.west.daisy.audience: ", "use isthmus simulate"]),
        (["run", JOINED, "--site", "west", "--joining", "--process", "a1+1"], ["--joining and --life", "for groups"]),
        (["plan", TWO_LEVELS], ["systems.shop", "cannot be joined"]),
    ],
)
def test_what_a_daisy_cannot_do_is_refused_in_one_line(
    isthmus: Isthmus, arguments: list[str], words: list[str]
) -> None:
    assert isthmus(*arguments).is_refusal(*words)


def test_check_shows_the_groups_and_whether_they_change(isthmus: Isthmus) -> None:
    done = isthmus("check", str(example_file("daisy-changing")))
    assert done.code == 0
    assert "groups of 3 to 5, which split and merge" in done.out
    (system,) = isthmus("check", TWO_LEVELS, "-o", "json").json["systems"]
    assert [group["name"] for group in system["daisy"]] == ["", "a", "b", "c"]
    assert [group["server"] for group in system["daisy"]] == ["a1", "a1", "b1", "c1"]


def test_a_daisy_that_broadcasts_is_run_like_a_group(isthmus: Isthmus, tmp_path: Path) -> None:
    """Two local groups, messages without destinations, everything stable at the end."""
    file, trace = tmp_path / "hall.toml", tmp_path / "trace"
    file.write_text(
        '[systems.hall]\nkind = "embedded"\norder = "causal"\nsuspect-after = "2s"\n'
        'processes = ["a1", "a2", "b1", "b2"]\n[systems.hall.daisy]\naudience = "everybody"\n'
        '[systems.hall.daisy.parts.a]\nprocesses = ["a1", "a2"]\n'
        '[systems.hall.daisy.parts.b]\nprocesses = ["b1", "b2"]\n'
    )
    arguments = ["--rate", "20", "--size", "20", "--duration", "300ms", "--trace", str(trace), "-o", "json"]
    done = isthmus("run", str(file), "--site", "hall", *arguments)
    assert (done.code, done.json["clean"]) == (0, True), done.err
    assert done.json["delivered"] == 4 * sum(done.json["accepted"].values()) > 0
    events = list(read_trace(trace).events())
    assert {event.destinations for event in events if event.event in ("send", "deliver")} == {None}
    assert not judge(events, ("integrity", "agreement", "fifo", "causal", "same-view")).violated


def test_check_shows_that_a_daisy_is_for_everybody(isthmus: Isthmus) -> None:
    done = isthmus("check", JOINED)
    assert done.code == 0
    assert "west: messages to everybody" in done.out
    west, _, _ = isthmus("check", JOINED, "-o", "json").json["systems"]
    assert [group["members"] for group in west["daisy"]][-1] == "g1 g2 g3"
