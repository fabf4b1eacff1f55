"""`isthmus campaign`: what it prints, replays that fail in the same way, and one clear line for everything wrong."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_support import call, write
from example_files import example_file

from isthmus.pipeline import session

CAUSAL = example_file("causal-group")


@pytest.mark.usefixtures("spark")
def test_every_failing_seed_replays_with_the_same_properties(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ("campaign", CAUSAL, "--seeds", "3..7", "--mutant", "causes-ignored", "-o", "json")
    ended = call(capsys, monkeypatch, *arguments)
    assert ended.code == 1
    found = ended.json
    assert (found["runs"], found["seeds"], found["violated"]) == (5, "3..7", len(found["failures"]))
    assert found["verdicts"]["causal"]["violated"] == found["violated"] > 0
    assert found["seeds_per_second"] > 0
    for failure in found["failures"]:
        assert failure["seed"] in range(3, 8)
        assert failure["reasons"]
        command = [str(tmp_path) if word == "DIR" else word for word in shlex.split(failure["replay"])]
        again = call(capsys, monkeypatch, *command[1:], "-o", "json")
        assert again.code == 1
        [replayed] = again.json["failures"]
        assert (replayed["properties"], replayed["replay"]) == (failure["properties"], failure["replay"])


@pytest.mark.usefixtures("spark")
def test_people_are_told_the_same_as_by_simulate_and_how_fast_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = call(capsys, monkeypatch, "campaign", CAUSAL, "--seeds", "1..3")
    assert (ended.code, ended.err) == (0, "")
    said = call(capsys, monkeypatch, "simulate", CAUSAL, "--runs", 3, "--jobs", 1).out
    assert ended.out.startswith(said)
    assert "seeds/s" in ended.out.removeprefix(said)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([CAUSAL], ["--seeds"]),
        ([CAUSAL, "--seeds", "5000"], ["--seeds 5000: not a range", "as in 1..5000"]),
        ([CAUSAL, "--seeds", "1-10"], ["not a range"]),
        ([CAUSAL, "--seeds", "1..x"], ["not a range"]),
        ([CAUSAL, "--seeds=-4..5"], ["not a range"]),
        ([CAUSAL, "--seeds", "9..3"], ["the first seed comes after the last", "perhaps 3..9"]),
        ([CAUSAL, "--seeds", "1..999999999"], ["more than 100,000,000 seeds"]),
        ([CAUSAL, "--seeds", "99999999999999999999..99999999999999999999"], ["too large"]),
        ([CAUSAL, "--seeds", "1..2", "--mutant", "nobody"], ["there is no 'nobody'", "causes-ignored"]),
        (["nowhere.toml", "--seeds", "1..2"], ["nowhere.toml"]),
        ([CAUSAL, "--seeds", "1..2", "--trace", "full"], ["full: is there already and not empty"]),
    ],
)
def test_bad_arguments_are_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[object],
    words: list[str],
) -> None:
    (tmp_path / "full").mkdir()
    write(tmp_path / "full" / "old.jsonl", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "spark_session", None)
    assert call(capsys, monkeypatch, "campaign", *arguments).is_refusal(*words)


def test_without_spark_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    ended = call(capsys, monkeypatch, "campaign", CAUSAL, "--seeds", "1..2")
    assert ended.is_refusal("the package pyspark is not installed", "pip install 'isthmus[spark]'")
