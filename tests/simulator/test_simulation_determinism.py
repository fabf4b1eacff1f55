"""One seed, one run: whatever else is done, the same seed gives the same events."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from simulation_support import example

from isthmus.simulator.run import Run, simulate
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event


def topology(name: str = "causal-group") -> Topology:
    return parse(*example(name))


def events(seed: int, *, check: bool = True, trace: Path | None = None) -> list[Event]:
    run = Run(topology(), seed, check=check, trace=trace)
    run.play()
    return run.sink.events


@pytest.mark.parametrize("name", ["fifo-group", "causal-group", "total-group"])
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_the_same_seed_gives_the_same_run(name: str, seed: int) -> None:
    first, second = (Run(topology(name), seed) for _ in range(2))
    assert first.play() == second.play()
    assert first.sink.events == second.sink.events


def test_different_seeds_give_different_runs() -> None:
    runs = [[structs.replace(event, run="") for event in events(seed)] for seed in (1, 2, 3)]
    assert runs[0] != runs[1] != runs[2] != runs[0]


def test_a_run_does_not_depend_on_the_runs_before_it() -> None:
    alone = simulate(topology(), 4)
    for seed in (1, 2, 3):
        simulate(topology(), seed)
    assert simulate(topology(), 4) == alone


def test_checking_and_tracing_change_nothing(tmp_path: Path) -> None:
    plain = events(2, check=False)
    assert events(2, check=True) == plain
    assert events(2, check=False, trace=tmp_path) == plain


def test_the_files_hold_what_was_judged(tmp_path: Path) -> None:
    judged = events(3, trace=tmp_path)
    read = read_trace([tmp_path])
    assert not read.quarantined

    def place(event: Event) -> tuple[str, int]:
        return event.process, event.index

    assert sorted(read.events(), key=place) == sorted(judged, key=place)


def test_a_change_of_the_workload_does_not_shake_the_faults() -> None:
    quiet = topology()
    simulation = structs.replace(quiet.simulation, workload=structs.replace(quiet.simulation.workload, rate=50.0))
    busy = structs.replace(quiet, simulation=simulation)
    assert [system.nemesis.plan for system in Run(quiet, 5).systems] == [
        system.nemesis.plan for system in Run(busy, 5).systems
    ]


def test_every_log_of_a_run_that_held_is_complete() -> None:
    ended = {}
    for event in events(6):
        ended[event.process] = event.event
    assert ended
    assert set(ended.values()) <= {"end", "crash", "leave"}
