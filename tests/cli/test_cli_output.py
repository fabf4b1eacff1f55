"""What commands print: `-o json` is one JSON value and nothing else, and people get the same in words."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import GROUP, Finished, call, spawn, write
from example_files import EXAMPLES, example_file

import isthmus as package
from isthmus.core.codec import encode
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Safe
from isthmus.lab.benchmarks import mutants
from isthmus.lab.mutants.catalogue import find

Isthmus: TypeAlias = Callable[..., Finished]

SECRET = b"a payload that nobody should see"
CAPTURE = encode(Batch(1, 4, 7, [1, 2], 6, Segment.of(4, 9, [SECRET, b""]))) + encode(Safe(1, 7))


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    (tmp_path / "capture").write_bytes(CAPTURE)
    return tmp_path / "capture"


def test_the_version_is_that_of_the_package(isthmus: Isthmus) -> None:
    assert isthmus("--version") == Finished(0, f"isthmus {package.__version__}\n", "")


def test_the_module_is_the_command() -> None:
    assert spawn("--version") == Finished(0, f"isthmus {package.__version__}\n", "")


# check


@pytest.mark.parametrize(
    "file",
    [path for path in sorted(EXAMPLES.rglob("*.toml")) if "unsafe" not in tomllib.loads(path.read_text())],
    ids=lambda file: file.stem,
)
def test_every_example_is_good(isthmus: Isthmus, file: Path) -> None:
    checked = isthmus("check", file, "-o", "json")
    assert (checked.code, checked.err) == (0, "")
    assert checked.json["valid"] is True
    assert checked.json["promise"] in {"fifo", "causal", "total"}
    assert [system["name"] for system in checked.json["systems"]] == list(tomllib.loads(file.read_text())["systems"])


def test_check_tells_people_what_they_will_get(isthmus: Isthmus) -> None:
    checked = isthmus("check", example_file("two-sites"))
    assert checked.code == 0
    assert "good; the whole keeps causal order" in checked.out
    assert {"madrid", "valencia"} <= set(checked.out.replace("│", " ").split())


def test_a_doubt_is_a_note_and_no_refusal(isthmus: Isthmus, tmp_path: Path) -> None:
    apart = write(tmp_path / "apart.toml", GROUP + GROUP.replace("systems.site", "systems.other"))
    assert len(isthmus("check", apart, "-o", "json").json["warnings"]) == 1
    assert "note: " in isthmus("check", apart).out


# simulate


def test_simulate_prints_its_figures(isthmus: Isthmus) -> None:
    simulated = isthmus("simulate", example_file("total-group"), "--runs", 2, "--jobs", 1, "-o", "json")
    assert (simulated.code, simulated.err) == (0, "")
    assert (simulated.json["runs"], simulated.json["violated"], simulated.json["failures"]) == (2, 0, [])
    assert simulated.json["deliveries"] > 100
    assert simulated.json["verdicts"] == {
        name: {"holds": 2} for name in ("integrity", "agreement", "fifo", "causal", "total", "same-view")
    }
    assert "held for its place" in simulated.json["sometimes"]


def test_simulate_tells_people_the_verdict(isthmus: Isthmus) -> None:
    simulated = isthmus("simulate", example_file("fifo-group"), "--jobs", 1)
    assert simulated.code == 0
    assert "no violation in 1 runs" in simulated.out


# story


def test_story_tells_one_message(isthmus: Isthmus, tmp_path: Path) -> None:
    assert isthmus("simulate", example_file("causal-group"), "--jobs", 1, "--trace", tmp_path).code == 0
    result = isthmus("story", tmp_path, "site/p1/1", "-o", "json")
    assert (result.code, result.err, result.json["message"]) == (0, "", "site/p1/1")
    steps = [step["event"] for step in result.json["chapters"][0]["steps"]]
    assert steps[0] == "send"
    assert {"deliver", "stable"} <= set(steps)
    in_words = isthmus("story", tmp_path / "seed-1", "site/p1/1")
    assert in_words.code == 0
    assert in_words.out.startswith("site/p1/1 in run seed-1: ")


# frames


def test_frames_lists_pdus_without_payloads(isthmus: Isthmus, capture: Path) -> None:
    listed = isthmus("frames", capture, "-o", "json")
    assert (listed.code, listed.err) == (0, "")
    assert listed.json == [
        {
            "pdu": "Batch",
            "view": 1,
            "sender": 4,
            "number": 7,
            "stamp": [1, 2],
            "safe": 6,
            "messages": ["4:9 (32 B)", "4:10 (0 B)"],
        },
        {"pdu": "Safe", "view": 1, "safe": 7},
    ]
    in_words = isthmus("frames", capture)
    assert in_words.code == 0
    assert in_words.out.splitlines()[1] == "pdu=Safe view=1 safe=7"
    assert SECRET.decode() not in listed.out + in_words.out


def test_an_empty_capture_holds_nothing(isthmus: Isthmus, tmp_path: Path) -> None:
    (tmp_path / "capture").touch()
    assert isthmus("frames", tmp_path / "capture", "-o", "json") == Finished(0, "[]\n", "")


# run


def test_run_prints_what_became_of_everybody(tmp_path: Path) -> None:
    file = write(tmp_path / "group.toml", GROUP)
    ran = spawn("run", file, "--site", "site", "--rate", 50, "--duration", "1s", "-o", "json")
    assert ran.code == 0
    assert (ran.json["site"], ran.json["clean"]) == ("site", True)
    assert set(ran.json["accepted"]) == set(ran.json["ended"]) == {"p1", "p2", "p3"}
    assert ran.json["delivered"] == 3 * sum(ran.json["accepted"].values()) > 0


# bench


def test_bench_mutants_prints_who_was_caught_by_what(isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed is enough for the first of these, and not for the second: that is what the exit code says."""
    monkeypatch.setattr(mutants, "CATALOGUE", (find("causes-ignored"), find("place-not-safe")))
    hunted = isthmus("bench", "mutants", "--seeds", 1, "-o", "json")
    caught, got_away = hunted.json["mutants"]
    assert hunted.code == 1
    assert (caught["mutant"], caught["seeds"], caught["by"]) == ("causes-ignored", 1, "causal")
    assert (got_away["mutant"], got_away["seeds"], got_away["by"]) == ("place-not-safe", 0, "nothing")
