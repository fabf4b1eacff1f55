"""Mistakes in `isthmus check`: it says nothing where something is to be said.

They are caught by files of which it is known what has to be said (tests/lab/test_check_mutants.py).
"""

from __future__ import annotations

from functools import partial

from isthmus.lab.mutants.mutant import Mutant, mutant
from isthmus.topology.check import caution, rules
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems

CHECK_MUTANTS: dict[str, Mutant] = {}
_wrong_check = partial(mutant, among=CHECK_MUTANTS)


@_wrong_check("check-says-nothing", of=caution.check_caution, where=rules)
def _says_nothing(report: Problems, topology: Topology) -> None:
    """Nobody is warned of anything."""


@_wrong_check("systems-not-looked-at", of=caution._check_system)
def _spares_systems(report: Problems, system: System, *, joined: bool) -> None:
    """Single gateways, small groups and fast delivery pass without a word."""


@_wrong_check("joins-not-seen", of=Topology.is_joined)
def _never_joined(self: Topology, name: str) -> bool:
    """Every system is taken for one that nothing joins."""
    return False


@_wrong_check("journals-not-compared", of=caution._check_journals)
def _spares_journals(report: Problems, topology: Topology) -> None:
    """Two systems may write one journal."""


@_wrong_check("any-loss-is-fine", of=caution._check_loss)
def _spares_loss(report: Problems, topology: Topology) -> None:
    """Any loss passes without a word."""


@_wrong_check("faults-in-vain", of=caution._check_faults)
def _spares_faults(report: Problems, topology: Topology) -> None:
    """A file may ask for faults that can never happen."""
