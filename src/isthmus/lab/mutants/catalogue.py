"""Mutants: the protocols, and what tries them, with one thing wrong, each of which the simulator must catch.

A checker that has never caught anything proves nothing. Every entry replaces one or two functions of the protocol
code for the length of a `with` block; `isthmus bench mutants` prints after how many seeds each was caught, and a
test holds that all are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

# Each of these files writes down its mutants when it is imported.
from isthmus.lab.mutants import acknowledged, clusters, group, joins, logs, nemesis, restarts  # noqa: F401
from isthmus.lab.mutants.daisy import changes, joined, on_receipt, recipients, servers  # noqa: F401
from isthmus.lab.mutants.mutant import REGISTERED, Mutant, alive

CATALOGUE: tuple[Mutant, ...] = tuple(REGISTERED.values())


def find(name: str) -> Mutant:
    """The mutant of this name; `KeyError` where there is none."""
    return REGISTERED[name]


def committed(name: str) -> AbstractContextManager[None]:
    """The protocols with this mistake in them, for the length of a `with` block."""
    return alive(find(name))
