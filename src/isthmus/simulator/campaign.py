"""Many runs, on all cores of one machine.

Workers are fresh interpreters (spawned, not forked), so a run in a worker is the same run as by itself. Outcomes come
in the order of the seeds, whoever finishes first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from traceback import extract_tb
from typing import TypeAlias

from msgspec import Struct

from isthmus.simulator.checks.holders import Unpromised
from isthmus.simulator.run import Run, RunOutcome
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.trace.schema import Event, Report, TraceError

Source: TypeAlias = tuple[str, str]
"""The text of a topology file, and its name."""

Mistake: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Puts a mistake into the protocol code for the length of a `with` block. It must be possible to pickle it."""

_topologies: dict[Source, Topology] = {}


class SimulatedRun(Struct, frozen=True):
    """A run, and the rows that it left."""

    outcome: RunOutcome
    events: list[Event]


class SimulationPlayer(Struct, frozen=True):
    """Plays seeds of one topology. It is small and can be pickled, so it can be carried to where they are played."""

    source: Source
    mistake: Mistake = nullcontext

    def __call__(self, seed: int) -> SimulatedRun:
        return play_seed(self.source, seed, self.mistake)


def play_seed(
    source: Source, seed: int, mistake: Mistake = nullcontext, trace: Path | None = None, check: bool = True
) -> SimulatedRun:
    """One run with its rows. A protocol that raises has failed like any other: the outcome says so.

    With `check` the invariants of every process are looked at after each of its steps.
    """
    topology = _topologies.get(source)
    if topology is None:
        topology = _topologies[source] = parse(*source, allow_unsafe=True)
    directory = trace / f"seed-{seed}" if trace is not None else None
    with mistake():
        try:
            run = Run(topology, seed, check=check, trace=directory)
            return SimulatedRun(run.play(), run.sink.events)
        except (OSError, TraceError):  # the trace cannot be written, which is no fault of the run
            raise
        except Exception as error:
            return SimulatedRun(_raised(seed, error), [])


def _raised(seed: int, error: Exception) -> RunOutcome:
    place = extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    return RunOutcome(
        seed=seed,
        report=Report(runs=1, events=0, verdicts=[], violations=[]),
        stuck="",
        broken=f"raised {what}, in {place.name}, line {place.lineno} of {Path(place.filename).name}",
        early="",
        causes={},
        unpromised=Unpromised(),
        excused=(),
        sometimes={},
        deliveries=0,
        steps=0,
        inputs={},
        virtual_time=0,
    )


def run_seed(
    source: Source, seed: int, mistake: Mistake = nullcontext, trace: Path | None = None, check: bool = True
) -> RunOutcome:
    """One run, by a function that another interpreter can be asked to call."""
    return play_seed(source, seed, mistake, trace, check).outcome


def run_seeds(
    source: Source,
    seeds: Sequence[int],
    *,
    mistake: Mistake = nullcontext,
    trace: Path | None = None,
    check: bool = True,
    jobs: int = 0,
) -> Iterator[RunOutcome]:
    """Outcomes of all seeds. `jobs` 0: one per core. Closing the iterator stops the campaign."""
    jobs = min(jobs or os.cpu_count() or 1, len(seeds))
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(source, seed, mistake, trace, check)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        count = len(seeds)
        yield from pool.map(
            run_seed,
            [source] * count,
            seeds,
            [mistake] * count,
            [trace] * count,
            [check] * count,
            chunksize=max(1, min(8, count // (4 * jobs))),
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
