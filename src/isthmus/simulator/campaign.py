"""Many runs, on all cores of one machine.

Workers are fresh interpreters (spawned, not forked), so a run in a worker is the same run as by itself. Outcomes come
in the order of the seeds, whoever finishes first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

from isthmus.interconnect.topology import Topology
from isthmus.interconnect.topology_file import parse
from isthmus.simulator.mutants import alive, find
from isthmus.simulator.run import Outcome, simulate
from isthmus.simulator.standard import Source

__all__ = ["Source", "run_seed", "run_seeds"]

_topologies: dict[Source, Topology] = {}


def run_seed(source: Source, seed: int, mutant: str | None = None, trace: Path | None = None) -> Outcome:
    """One run, by a function that another interpreter can be asked to call."""
    topology = _topologies.get(source)
    if topology is None:
        topology = _topologies[source] = parse(*source, allow_unsafe=True)
    directory = trace / f"seed-{seed}" if trace is not None else None
    with alive(find(mutant)) if mutant is not None else nullcontext():
        return simulate(topology, seed, trace=directory)


def run_seeds(
    source: Source, seeds: Sequence[int], *, mutant: str | None = None, trace: Path | None = None, jobs: int = 0
) -> Iterator[Outcome]:
    """Outcomes of all seeds. `jobs` 0: one per core. Closing the iterator stops the campaign."""
    jobs = min(jobs or os.cpu_count() or 1, len(seeds))
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(source, seed, mutant, trace)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        count = len(seeds)
        yield from pool.map(
            run_seed,
            [source] * count,
            seeds,
            [mutant] * count,
            [trace] * count,
            chunksize=max(1, min(8, count // (4 * jobs))),
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
