"""What a kind of system brings to the simulator; the table of kinds is in `table.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from isthmus.core.ids import ProcessId
from isthmus.ordering.group.quorum import is_quorum
from isthmus.simulator.checks.holders import Enough
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.read.simulation import Simulation
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event, Role

OpenLog: TypeAlias = Callable[[ProcessId, Role], Recorder]


class Simulated(Protocol):
    """One simulated system, started when it is made."""

    slots: list[int]
    stopped: str
    """Why its joins have stopped and wait for a person; empty where they go on. Only those of logs ever stop."""
    nemesis: Any
    """Carries its `plan` of faults out: `schedule` at the start, `heal` at the end of all faults."""

    def ended(self, host: Host) -> None:
        """One of its processes is gone: count what that was, and what it means for the others."""

    def viewed(self, host: Host) -> None:
        """One of its processes is in a new view."""

    def revive(self) -> None:
        """What an operator does in the end: whoever is gone is started anew, where that can be."""

    def note_causes(self) -> None:
        """At the end: tell the world what the system is in that it cannot get out of."""

    def unfinished(self) -> str:
        """What a living process is not done with, in words; empty when the system is at rest."""


class Make(Protocol):
    def __call__(
        self, topology: Topology, system: System, world: World, seed: int, open_log: OpenLog, *, tight: bool
    ) -> Simulated:
        """Start all processes of a system; if `tight`, with windows so small that they get full in short runs."""


class Traits(Struct, frozen=True, kw_only=True):
    """Which rare cases (`checks/sometimes.py`) a campaign should reach, given the faults.

    It has `views`, with room for a second failure while one is being replaced (`roomy`), in which streams carry
    messages (`carries`); batches wait for a quorum (`quorums`), for a sequencer (`sequenced`), for a cause (`holds`);
    a receiver may see a gap in a stream (`gaps`). `own` are the cases that no other kind has.
    """

    views: bool = True
    roomy: bool = True
    carries: bool = True
    quorums: bool = True
    sequenced: bool = False
    holds: bool = False
    gaps: bool = True
    own: frozenset[str] = frozenset()


def _nothing_else(events: Sequence[Event]) -> str:
    return ""


def _a_quorum_if_uniform(system: System) -> Enough | None:
    return is_quorum if system.delivery == "uniform" else None


class SimulatedKind(Struct, frozen=True, kw_only=True):
    """How systems of one kind are made, what to expect of them, and what their rows must show beside the properties.

    `survives_crashes`: whether anything is promised to arrive, once a process of the system has crashed. `enough` gives
    the rule of a system by which some members of a view are enough to hold what one of them delivers; None if it has no
    such rule.
    """

    make: Make
    survives_crashes: bool = True
    enough: Callable[[System], Enough | None] = _a_quorum_if_uniform
    traits: Callable[[System, Simulation], Traits]
    check: Callable[[Sequence[Event]], str] = _nothing_else
