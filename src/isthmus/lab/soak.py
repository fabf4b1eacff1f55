"""The long campaign: every example that runs whole, many seeds of each, for as long as there is time.

Topologies take turns, a few seeds each, so that a campaign that is stopped early has still seen all of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct, field

from isthmus.lab.holes import NO_HOLES, Holes
from isthmus.simulator.campaign import Source, run_seed
from isthmus.simulator.run import RunOutcome
from isthmus.simulator.systems.table import expected, never_happened
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

GROUPS = ("fifo-group", "causal-group", "total-group")
JOINED = (
    "chain",
    "chain-sets",
    "chain-fifo",
    "star-parallel",
    "star-fifo",
    "tree",
    "two-sites",
    "two-logs",
    "message-passing-fig-2",
    "parallel-fig-3",
    "parallel-fig-4",
    "parallel-fig-5",
    "restarts",
)
"""Both orders, all ways to share messages among links, all orders of systems, and paths.

Not `star`: it is there for its latency, and delivers on receipt, so that a process may crash with what nobody else has.
"""

CLUSTERS = ("clusters-two-layers", "clusters-fig-2", "clusters-mixed", "clusters-crash")
"""Both deliveries, two and three layers; and relays that crash, after which nothing is promised to arrive."""

ACKNOWLEDGED = ("to-hall", "po-hall", "to-joined")
"""Both protocols on their media, with losses of up to 30 % at every entity; and both joined with a group."""

DAISIES = (
    "daisy-two-levels",
    "daisy-three-levels",
    "daisy-changing",
    "daisy-star",
    "daisy-recipients",
    "daisy-on-receipt",
    "daisy-joined",
)
"""Servers and hyper-servers that crash: in an even tree, in an uneven one, in one that changes, as centres of stars,
in groups where only k + 1 members hold a message, and where they forward what they cannot deliver yet; and gateways of
two daisies that broadcast and are joined."""

BROKERS = ("redis-redis", "redis-embedded", "nats-daisy", "chain-of-brokers", "star-of-brokers")
"""Logs with each other, with a group and with a daisy; in a row and in a star; in both orders; one with two streams."""

CHUNK = 8
"""How many seeds a worker runs in one go."""


class SoakTally(Struct):
    """What came of one topology. `known` counts failing runs that the list of holes explains, by cause; `failures` are
    those that it does not. `judged` counts runs with a verdict, that is, all of them.
    """

    name: str
    file: str
    topology: Topology
    holes: Holes
    runs: int = 0
    judged: int = 0
    deliveries: int = 0
    sometimes: Counter[str] = field(default_factory=Counter)
    unpromised: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    failures: list[RunOutcome] = field(default_factory=list)

    def add(self, outcome: RunOutcome) -> None:
        self.runs += 1
        self.judged += bool(outcome.report.verdicts or outcome.violated)
        self.deliveries += outcome.deliveries
        self.sometimes.update(outcome.sometimes)
        self.unpromised.update(outcome.missing)
        if cause := self.holes.explain(outcome.failed, outcome.causes):
            self.known[cause] += 1
        elif outcome.violated:
            self.failures.append(outcome)

    @property
    def expected(self) -> list[str]:
        return expected(self.topology)

    def never(self) -> list[str]:
        """The rare cases that should have been reached and were not."""
        return [case for case in self.expected if not self.sometimes[case]]

    def never_happened(self) -> list[str]:
        """The faults that the file asks for, that should have happened often by now, and that never did."""
        return never_happened(self.sometimes, self.runs, self.topology)

    @property
    def failed(self) -> bool:
        return bool(self.failures or self.never_happened() or self.runs != self.judged)


def sources(examples: Path) -> list[Source]:
    """The files of the campaign."""
    paths = {path.stem: path for path in examples.rglob("*.toml")}
    names = (*GROUPS, *JOINED, *CLUSTERS, *ACKNOWLEDGED, *DAISIES, *BROKERS)
    return [(paths[name].read_text(), str(paths[name])) for name in names]


def soak(
    files: Sequence[Source],
    first_seed: int,
    runs: int,
    jobs: int,
    holes: Holes = NO_HOLES,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[SoakTally]]:
    """Run about `runs` seeds in all, evenly. Gives the tallies, the same ones each time, after every few runs.

    After `seconds` nothing new is begun, and what is under way is finished.
    """
    tallies = [SoakTally(Path(file).stem, file, parse(text, file), holes) for text, file in files]
    end = None if seconds is None else clock() + seconds
    work = _turns(first_seed, runs, len(files))
    if jobs == 1:
        for index, seeds in work:
            if end is not None and clock() >= end:
                return
            for outcome in run_chunk(files[index], seeds):
                tallies[index].add(outcome)
            yield tallies
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending: dict[Future[list[RunOutcome]], int] = {}
        while True:
            while len(pending) < 2 * jobs and (end is None or clock() < end):
                index, seeds = next(work, (0, range(0)))
                if not seeds:
                    break
                pending[pool.submit(run_chunk, files[index], seeds)] = index
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                tally = tallies[pending.pop(future)]
                for outcome in future.result():
                    tally.add(outcome)
                yield tallies


def run_chunk(source: Source, seeds: range) -> list[RunOutcome]:
    return [run_seed(source, seed) for seed in seeds]


def _turns(first_seed: int, runs: int, files: int) -> Iterator[tuple[int, range]]:
    """Who runs which seeds next. The first files take what does not divide evenly."""
    shares = [runs // files + (index < runs % files) for index in range(files)]
    for start in range(0, max(shares), CHUNK):
        for index, share in enumerate(shares):
            seeds = range(first_seed + start, first_seed + min(start + CHUNK, share))
            if seeds:
                yield index, seeds
