"""The hunt: random topologies, a few seeds of each, for as long as there is time; what fails is made small.

Every run is judged. A failing run whose causes are on the list of known holes counts as known; any other is a finding,
and so is a topology that asks for faults of which none took place, or one that cannot be played at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from msgspec import Struct, field

from isthmus.lab.holes import Holes
from isthmus.lab.topologies.generate import Document, draw, source_of, write
from isthmus.lab.topologies.reduce import reduce
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.checks.sometimes import FAULTS
from isthmus.simulator.run import RunOutcome

SEEDS = 4
"""Runs of one topology."""

REDUCING_TRIES = 150
"""Runs that a finding may cost to be made small."""


class FailingTopology(Struct, frozen=True):
    """A topology that fails, made small: its file, the seed of the run, what is wrong and why, in words."""

    topology: int
    seed: int
    text: str
    failed: tuple[str, ...]
    causes: tuple[str, ...]
    reasons: list[str]


class Tried(Struct, frozen=True):
    """One topology, and what came of it."""

    shape: str
    outcomes: list[RunOutcome]
    findings: list[FailingTopology]


class Harvest(Struct):
    """What came of all topologies of one shape. `known` counts failing runs by the cause that explains them."""

    topologies: int = 0
    runs: int = 0
    judged: int = 0
    deliveries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    findings: list[FailingTopology] = field(default_factory=list)

    def add(self, tried: Tried, holes: Holes) -> None:
        self.topologies += 1
        self.findings += tried.findings
        for outcome in tried.outcomes:
            self.runs += 1
            self.judged += bool(outcome.report.verdicts or outcome.violated)
            self.deliveries += outcome.deliveries
            self.faults.update(outcome.faults)
            if cause := holes.explain(outcome.failed, outcome.causes):
                self.known[cause] += 1


def hunt(
    first: int, seconds: float, jobs: int, holes: Holes, clock: Callable[[], float] = time.monotonic
) -> Iterator[dict[str, Harvest]]:
    """Try topologies from this number on. Gives the harvest by shape, the same one each time, after every topology."""
    harvest: dict[str, Harvest] = {}
    end = clock() + seconds
    number = first
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending: set[Future[Tried]] = set()
        while True:
            while len(pending) < 2 * jobs and clock() < end:
                pending.add(pool.submit(try_topology, number, holes))
                number += 1
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                tried = future.result()
                harvest.setdefault(tried.shape, Harvest()).add(tried, holes)
                yield harvest


def try_topology(number: int, holes: Holes) -> Tried:
    """A few seeds of one topology; of its failures the first that no entry explains is made small."""
    shape, document = draw(number)
    outcomes = [_play(document, seed) for seed in range(1, SEEDS + 1)]
    news = [each for each in outcomes if each.violated and holes.explain(each.failed, each.causes) is None]
    findings = [_finding(number, document, news[0], holes)] if news else []
    asked = document["simulation"].get("faults")
    if asked and not any(outcome.faults.get(kind) for outcome in outcomes for kind in FAULTS):
        reason = f"the file asks for {', '.join(asked)}, and none of it took place in {SEEDS} runs"
        findings.append(FailingTopology(number, 1, write(document), ("faults",), (), [reason]))
    return Tried(shape, outcomes, findings)


def _play(document: Document, seed: int) -> RunOutcome:
    return run_seed(source_of(document, "drawn.toml"), seed)


def _finding(number: int, document: Document, outcome: RunOutcome, holes: Holes) -> FailingTopology:
    def fails(smaller: Document) -> bool:
        found = _play(smaller, outcome.seed)
        same = set(found.failed) & set(outcome.failed) and found.causes.keys() <= outcome.causes.keys()
        return bool(same) and holes.explain(found.failed, found.causes) is None

    small = reduce(document, fails, REDUCING_TRIES)
    found = _play(small, outcome.seed)
    return FailingTopology(number, outcome.seed, write(small), found.failed, tuple(found.causes), found.reasons)
