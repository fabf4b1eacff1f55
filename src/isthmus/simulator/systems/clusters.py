"""A simulated system of clusters: its processes, their application, and what goes wrong with them.

Processes write to single processes and answer in chains. The network loses, duplicates, reorders and is cut for a
while, and everything arrives. A crash leaves a causal gap: nothing out of order is delivered, but what waits for a
message that is gone waits for ever, and the run says what that is, and why (docs/design/clusters.md, "A crash").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from isthmus.core.ids import ProcessId
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import ClusterProcess, ClusterSettings
from isthmus.hierarchy.clusters.tree import hierarchy_of
from isthmus.simulator.faults.nemesis import Nemesis
from isthmus.simulator.faults.plan import Crash, FaultPlan
from isthmus.simulator.systems.addressed import (
    Accept,
    AddressedApplication,
    AddressedSystem,
    Writer,
    no_batches,
)
from isthmus.simulator.systems.kind import OpenLog, SimulatedKind, Traits
from isthmus.simulator.workload import window_for
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.read.simulation import Simulation
from isthmus.trace.recorder import Recorder

WINDOW = 12
"""Frames without acknowledgement: small, so that back-pressure is met in short runs."""


class ClusterApplication(AddressedApplication):
    """Every message is for one process."""

    def _accept(self, endpoint: Writer, everybody: tuple[ProcessId, ...]) -> Accept:
        assert isinstance(endpoint, ClusterProcess)
        return partial(endpoint.send, everybody[0])

    def _recipients(self, endpoint: Writer, target: ProcessId) -> tuple[ProcessId, ...]:
        return (target,)


class ClusterNemesis(Nemesis):
    """Faults of a system without views. A crash always leaves a gap, so it is made to hurt: it hits relays."""

    def __init__(self, world: World, slots: list[int], plan: FaultPlan, relays: list[int]) -> None:
        super().__init__(world, slots, plan, revive=None)
        self._relays = relays

    def _crash(self, crash: Crash) -> None:
        candidates = self._relays or list(self.slots)
        self._doom(candidates[crash.slot % len(candidates)], crash.progress)


class SimulatedClusters(AddressedSystem):
    """Starts the processes of one system of clusters."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        world: World,
        seed: int,
        open_log: OpenLog,
        *,
        tight: bool,
    ) -> None:
        super().__init__(topology, system, world)
        self.tree = hierarchy_of(system.own(ClusterTable), self.by_name.__getitem__)
        self.application = self._applied(ClusterApplication, seed)
        relays = [slot for slot in self.slots if self.tree.is_relay(slot)]
        self.nemesis = ClusterNemesis(world, self.slots, self._plan(seed), relays)
        window = window_for(self.simulation.workload, WINDOW if tight else ClusterSettings().window)
        self._settings = ClusterSettings(2 * system.heartbeat, window)
        self._start(self._make, open_log)

    def _make(self, slot: ProcessId, recorder: Recorder) -> Host:
        endpoint = ClusterProcess(slot, self.tree, self._settings)
        return Host(endpoint, recorder, no_batches, self.application.on_addressed)

    def ended(self, host: Host) -> None:
        """Nobody takes its place."""

    def viewed(self, host: Host) -> None:
        """There are no views."""

    def note_causes(self) -> None:
        """A crash is all that can happen to clusters, and rows tell of it."""

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        assert isinstance(host.endpoint, ClusterProcess)
        for peer, frames in host.endpoint.channels.unacknowledged().items():
            return f"has frames that {self._name(peer)} has not acknowledged: {frames}"
        return ""


def _traits(system: System, simulation: Simulation) -> Traits:
    tree = system.own(ClusterTable)
    # A coordinator never holds anything back, nor do two members.
    holds = any(each.delivery == "rst" and len(each.members) > 2 for each in tree.all_clusters())
    own = frozenset({"relay"} if tree.parts else ())
    return Traits(views=False, carries=False, quorums=False, holds=holds, own=own)


CLUSTERS = SimulatedKind(make=SimulatedClusters, traits=_traits, survives_crashes=False, enough=lambda system: None)
