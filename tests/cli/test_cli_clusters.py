"""The commands on systems of clusters: what they show, what they run, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call
from example_files import example_file

from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

TWO_LAYERS, CRASH = (str(example_file(f"clusters-{name}")) for name in ("two-layers", "crash"))

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


def test_check_shows_the_tree(isthmus: Isthmus) -> None:
    checked = isthmus("check", TWO_LAYERS, "-o", "json")
    assert checked.code == 0
    (system,) = checked.json["systems"]
    assert [(each["name"], each["delivery"], each["members"], each["agent"]) for each in system["clusters"]] == [
        ("", "rst", 3, None),
        ("a", "rst", 3, "a1"),
        ("b", "rst", 3, "b1"),
        ("c", "rst", 3, "c1"),
    ]
    result = isthmus("check", TWO_LAYERS)
    assert "shop: messages from one process to one other" in result.out
    assert "topmost" in result.out


def test_simulate_says_what_is_missing_and_held_and_why_when_a_process_crashed(isthmus: Isthmus) -> None:
    played = isthmus("simulate", CRASH, "--seed", "24", "--runs", "6", "--jobs", "1", "-o", "json")
    assert played.code == 0
    assert (played.json["left_out"], played.json["violated"]) == (0, 0)
    assert played.json["faults"]["crash"] > 0
    assert played.json["unpromised"]["after a crash"] > 0
    assert any(" holds " in each["held"] for each in played.json["held_after_a_crash"])
    result = isthmus("simulate", CRASH, "--seed", "24", "--runs", "6", "--jobs", "1")
    assert "of clusters in which a process crashed" in result.out
    assert "verdicts left out: 0" in result.out
    assert "which waits until message" in result.out


def test_a_mutant_is_caught_and_the_replay_command_told(isthmus: Isthmus) -> None:
    played = isthmus("simulate", TWO_LAYERS, "--mutant", "rst-no-wait", "--runs", "3", "--jobs", "1", "-o", "json")
    assert played.code == 1
    failure = played.json["failures"][0]
    assert "causal" in failure["properties"]
    assert failure["replay"].startswith(f"isthmus simulate {TWO_LAYERS} --seed {failure['seed']} --runs 1")


def test_run_sees_everything_through(isthmus: Isthmus, tmp_path: Path) -> None:
    arguments = ["--rate", "100", "--size", "20", "--duration", "500ms", "--trace", str(tmp_path), "-o", "json"]
    done = isthmus("run", TWO_LAYERS, "--site", "shop", *arguments)
    assert done.code == 0, done.err
    assert done.json["clean"]
    assert sum(done.json["accepted"].values()) == done.json["delivered"] > 0
    events = list(read_trace(tmp_path).events())
    assert not judge(events, ("integrity", "agreement", "fifo", "causal")).violated


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", TWO_LAYERS, "--site", "shop", "--lines"], ["--lines", "made of clusters"]),
        (["run", TWO_LAYERS, "--site", "shop", "--joining", "--process", "a1"], ["--joining", "made of clusters"]),
        (["plan", TWO_LAYERS], ["systems.shop", "plan is about joins"]),
        (["explore", TWO_LAYERS, "--crashes", "1"], ["clusters promise nothing after a crash"]),
    ],
)
def test_what_clusters_cannot_do_is_refused_in_one_line(
    isthmus: Isthmus, arguments: list[str], words: list[str]
) -> None:
    assert isthmus(*arguments).is_refusal(*words)
