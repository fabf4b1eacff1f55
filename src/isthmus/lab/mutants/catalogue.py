"""Mutants: the protocols with one thing wrong, each of which the simulator must catch.

A checker that has never caught anything proves nothing. Every entry replaces one or two functions of the protocol
code for the length of a `with` block; `isthmus bench mutants` prints after how many seeds each was caught, and a
test holds that all are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from isthmus.lab.mutants.acknowledged import ACKNOWLEDGED_MUTANTS
from isthmus.lab.mutants.clusters import CLUSTER_MUTANTS
from isthmus.lab.mutants.daisy import DAISY_MUTANTS
from isthmus.lab.mutants.daisy_changes import DAISY_CHANGE_MUTANTS
from isthmus.lab.mutants.daisy_joins import DAISY_JOIN_MUTANTS
from isthmus.lab.mutants.daisy_on_receipt import DAISY_EARLY_MUTANTS
from isthmus.lab.mutants.daisy_recipients import DAISY_POINT_MUTANTS
from isthmus.lab.mutants.group import GROUP_MUTANTS
from isthmus.lab.mutants.joins import JOIN_MUTANTS
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.lab.mutants.restarts import RESTART_MUTANTS

CATALOGUE: tuple[Mutant, ...] = (
    *GROUP_MUTANTS,
    *JOIN_MUTANTS,
    *RESTART_MUTANTS,
    *CLUSTER_MUTANTS,
    *ACKNOWLEDGED_MUTANTS,
    *DAISY_MUTANTS,
    *DAISY_CHANGE_MUTANTS,
    *DAISY_EARLY_MUTANTS,
    *DAISY_POINT_MUTANTS,
    *DAISY_JOIN_MUTANTS,
)


def find(name: str) -> Mutant:
    """The mutant of this name; `KeyError` where there is none."""
    for mutant in CATALOGUE:
        if mutant.name == name:
            return mutant
    raise KeyError(name)


def committed(name: str) -> AbstractContextManager[None]:
    """The protocols with this mistake in them, for the length of a `with` block."""
    return alive(find(name))
