"""How soon does the simulator catch each mutant?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from isthmus.lab.mutants.catalogue import CATALOGUE
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.lab.standard import standard
from isthmus.simulator.campaign import run_seeds

SEED_LIMIT = 2000
"""The most seeds that a mutant is run with: one that survives them all has got away."""


class Catch(Struct, frozen=True):
    """`seeds` is how many runs it took, 0 if the mutant got away; `by` is what caught it."""

    mutant: str
    order: str
    mistake: str
    seeds: int
    by: str


def hunt(mutant: Mutant, limit: int = SEED_LIMIT, first: int = 1) -> Catch:
    """Run seeds `first`, `first` + 1, … of its scenario with this mistake until a run fails."""
    seeds = range(first, first + limit)
    outcomes = run_seeds(standard(mutant.scenario, mutant.order), seeds, mistake=partial(alive, mutant), jobs=1)
    for count, outcome in enumerate(outcomes, 1):
        if outcome.violated:
            violated = [verdict.property for verdict in outcome.report.violated]
            by = ", ".join(violated) or ("an invariant" if outcome.broken else "lack of progress")
            return Catch(mutant.name, mutant.order, mutant.mistake, count, by)
    return Catch(mutant.name, mutant.order, mutant.mistake, 0, "nothing")


def hunt_all(limit: int = SEED_LIMIT) -> Iterator[Catch]:
    for mutant in CATALOGUE:
        yield hunt(mutant, limit)
