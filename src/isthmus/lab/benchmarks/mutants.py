"""How soon does the simulator catch each mutant?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from isthmus.lab.holes import Holes
from isthmus.lab.mutants.catalogue import CATALOGUE
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.lab.standard import standard
from isthmus.simulator.campaign import run_seeds
from isthmus.simulator.systems.table import never_happened
from isthmus.topology.file import parse

SEED_LIMIT = 2000
"""The most seeds that a mutant is run with: one that survives them all has got away."""


class Catch(Struct, frozen=True):
    """`seeds` is how many runs it took, 0 if the mutant got away; `by` is what caught it."""

    mutant: str
    order: str
    mistake: str
    seeds: int
    by: str


def hunt(mutant: Mutant, holes: Holes, limit: int = SEED_LIMIT, first: int = 1) -> Catch:
    """Run seeds `first`, `first` + 1, … of its scenario with this mistake until one fails as no known hole makes it."""
    seeds = range(first, first + limit)
    outcomes = run_seeds(standard(mutant.scenario, mutant.order), seeds, mistake=partial(alive, mutant), jobs=1)
    topology, happened = parse(*standard(mutant.scenario, mutant.order)), Counter[str]()
    for count, outcome in enumerate(outcomes, 1):
        happened.update(outcome.sometimes)
        if spared := never_happened(happened, count, topology):
            by = f"faults that never happened: {', '.join(spared)}"
            return Catch(mutant.name, mutant.order, mutant.mistake, count, by)
        if outcome.violated and not holes.explain(outcome.failed, outcome.causes):
            broken = outcome.broken if outcome.broken.startswith("raised") else outcome.broken and "an invariant"
            by = ", ".join(outcome.properties) or broken or "lack of progress"
            return Catch(mutant.name, mutant.order, mutant.mistake, count, by)
    return Catch(mutant.name, mutant.order, mutant.mistake, 0, "nothing")


def hunt_all(holes: Holes, limit: int = SEED_LIMIT) -> Iterator[Catch]:
    for mutant in CATALOGUE:
        yield hunt(mutant, holes, limit)
