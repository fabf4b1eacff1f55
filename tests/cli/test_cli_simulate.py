"""`isthmus simulate` replays: the same seed gives the same bytes, and a failure prints the command that repeats it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_support import files_below, spawn
from example_files import EXAMPLES, example_file

from isthmus.cli.simulate import where_time_went
from isthmus.simulator.run import Run
from isthmus.simulator.world import SAMPLED
from isthmus.topology.file import load

CAUSAL = example_file("causal-group")
HOLES = EXAMPLES.parent / "tests" / "known-holes.toml"


def test_the_same_seed_gives_the_same_bytes_in_every_interpreter(tmp_path: Path) -> None:
    """Two interpreters that hash differently, one of them with workers of its own."""
    first = spawn("simulate", CAUSAL, "--seed", 3, "--runs", 2, "--trace", tmp_path / "1", PYTHONHASHSEED="1")
    second = spawn(
        "simulate", CAUSAL, "--seed", 3, "--runs", 2, "--jobs", 1, "--trace", tmp_path / "2", PYTHONHASHSEED="2"
    )
    assert first == second
    assert first.code == 0
    traces = files_below(tmp_path / "1")
    assert traces == files_below(tmp_path / "2")
    assert {Path(name).parts[0] for name in traces} == {"seed-3", "seed-4"}
    assert len(traces) >= 12
    assert all(traces.values())


def test_different_seeds_give_different_traces(tmp_path: Path) -> None:
    assert spawn("simulate", CAUSAL, "--seed", 1, "--runs", 2, "--jobs", 1, "--trace", tmp_path).code == 0
    one, two = files_below(tmp_path / "seed-1"), files_below(tmp_path / "seed-2")
    assert [data.replace(b"seed-1", b"seed-2") for data in one.values()] != list(two.values())


@pytest.mark.parametrize("output", ["human", "json"])
def test_a_failing_run_prints_a_command_that_fails_in_the_same_way(tmp_path: Path, output: str) -> None:
    failed = spawn("simulate", CAUSAL, "--runs", 2, "--jobs", 1, "--mutant", "causes-ignored", "-o", output)
    assert failed.code == 1
    if output == "json":
        replay = failed.json["failures"][0]["replay"]
    else:
        replay = next(line for line in failed.out.splitlines() if "replay: " in line).partition("replay: ")[2]
    command = [str(tmp_path) if word == "DIR" else word for word in shlex.split(replay)]
    assert command[:2] == ["isthmus", "simulate"]
    assert command[-2:] == ["--mutant", "causes-ignored"]

    again = spawn(*command[1:], "-o", "json")
    assert again.code == 1
    failure = again.json["failures"][0]
    assert failure["properties"] == ["causal"]
    assert failure["replay"] == replay
    assert files_below(tmp_path)
    if output == "json":
        assert failure == failed.json["failures"][0]
    else:
        assert failure["reasons"][0] in failed.out


def test_faults_are_counted_by_kind_and_known_failures_by_cause() -> None:
    """Seed 14 loses its quorum: a failure like any other, unless a list of holes has it."""
    arguments = ("simulate", CAUSAL, "--seed", 13, "--runs", 2, "--jobs", 1, "-o", "json")
    alone = spawn(*arguments)
    assert (alone.code, alone.json["news"], alone.json["known"], alone.json["left_out"]) == (1, 1, {}, 0)
    [failure] = alone.json["failures"]
    assert (failure["seed"], failure["causes"], failure["known"]) == (14, ["lost-quorum"], None)
    assert (failure["properties"], failure["beside"]) == (["agreement"], ["stuck"])
    assert alone.json["faults"]["crash"] >= 3
    assert alone.json["faults"]["quorum lost"] == 1

    listed = spawn(*arguments, "--known-holes", HOLES)
    assert (listed.code, listed.json["news"], listed.json["known"]) == (0, 0, {"lost-quorum": 1})
    result = spawn(*arguments[:-2], "--known-holes", HOLES)
    assert "quorum lost" in result.out
    assert "1 runs failed by a known hole: lost-quorum" in result.out
    assert "verdicts left out: 0" in result.out


def test_a_list_of_holes_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused = spawn("simulate", CAUSAL, "--known-holes", tmp_path / "none.toml")
    assert refused.is_refusal("--known-holes", "No such file", "give that of a clone")


def test_a_soak_counts_faults_and_failures_and_leaves_no_verdict_out() -> None:
    ended = spawn(
        *("bench", "soak", "--only", "causal-group", "--seed", 13, "--runs", 2, "--jobs", 1, "-o", "json"),
        *("--examples", EXAMPLES, "--known-holes", HOLES),
    )
    assert ended.code == 0
    figures = ended.json["soak"]
    assert (figures["runs"], figures["left_out"], figures["violations"]) == (2, 0, 0)
    assert figures["known"] == {"lost-quorum": 1}
    assert figures["faults"]["crash"] >= 3


def test_a_name_with_spaces_survives_the_replay(tmp_path: Path) -> None:
    file = tmp_path / "a group.toml"
    file.write_text(CAUSAL.read_text())
    failed = spawn("simulate", file, "--jobs", 1, "--mutant", "causes-ignored", "-o", "json")
    assert str(file) in shlex.split(failed.json["failures"][0]["replay"])


def test_a_slow_run_says_where_its_time_went() -> None:
    topology = load(CAUSAL)
    outcome = Run(topology, 3).play()
    said = where_time_went(outcome, topology.simulation.duration)
    assert f"seed 3 took the most: {outcome.steps:,} steps for" in said
    assert "of recovery" in said
    assert "% receive Batch" in said
    assert sum(outcome.inputs.values()) == outcome.steps // SAMPLED
