"""Explorations that take longer than a test may: every schedule of an example, and how many states that is.

A count that differs means that gateways do something else than before. That may be right: look why, then pin it anew,
here and in the example.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct

from isthmus.explorer.scenario import scenario_of
from isthmus.explorer.search import explore
from isthmus.explorer.world import make_gateways
from isthmus.topology.file import load

PINNED = {
    "theorem-1-crash": 811_376,
    "theorem-3-crash": 1_852_848,
    "theorem-3-crash-answer": 290_233,
    "theorem-3-striped": 1_069_900,
    "theorem-3-striped-crash": 1_626_922,
    "theorem-3-striped-crash-answer": 1_137_714,
    "explored-logs": 109_337,
    "explored-log-and-group": 26_401,
}
"""Examples that hold in every schedule, and how many states they have."""


class Explored(Struct, frozen=True):
    """What came of one example. `wrong` is empty where it is as pinned."""

    name: str
    file: str
    states: int
    pinned: int
    seconds: float
    wrong: str


def explorations(
    files: Mapping[Path, int], jobs: int, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Explored]:
    """Explore each file, which has so many states. After `seconds` nothing new is begun.

    Each has a process of its own, so that its memory (some GB for a few million states) is given back.
    """
    end = None if seconds is None else clock() + seconds
    left = list(files.items())
    pending: set[Future[Explored]] = set()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        while True:
            while left and len(pending) < jobs and (end is None or clock() < end):
                pending.add(pool.submit(explored, *left.pop(0)))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def explored(file: Path, pinned: int) -> Explored:
    """Look at every schedule of a file."""
    topology = load(file)
    outcome = explore(topology, make_gateways(topology), scenario_of(topology))
    wrong = ""
    if outcome.counterexample is not None:
        violation = outcome.counterexample.violation
        wrong = f"violates {violation.property}: {violation.why}"
    elif not outcome.complete:
        wrong = f"incomplete after {outcome.states:,} states; raise exploration.max-states"
    elif not outcome.ends:
        wrong = "nothing is ever finished, so nothing is shown"
    elif outcome.states != pinned:
        wrong = f"{outcome.states:,} states instead of {pinned:,}; look why, then pin it anew"
    return Explored(file.stem, str(file), outcome.states, pinned, outcome.seconds, wrong)
