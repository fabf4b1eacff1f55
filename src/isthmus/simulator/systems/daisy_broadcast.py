"""A simulated daisy whose messages are for everybody: a broadcast system like a group, perhaps with gateways.

Its application, its gateways and its logs are those of any system; what may go wrong with it is what a daisy survives
(docs/design/daisy-joins.md, "Model").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from isthmus.core.endpoint import View
from isthmus.core.ids import ProcessId
from isthmus.hierarchy.daisy.member import DaisyMember, daisy_member
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.tree import DaisyTree, tree_of
from isthmus.ordering.group.quorum import is_quorum
from isthmus.ordering.group.window import GroupSettings
from isthmus.simulator.checks.holders import Enough
from isthmus.simulator.faults.daisy import DaisyNemesis, DaisyWatch, daisy_of
from isthmus.simulator.faults.nemesis import member_of
from isthmus.simulator.faults.plan import FaultPlan
from isthmus.simulator.systems.daisy import SimulatedDaisy, not_settled, not_with_the_others
from isthmus.simulator.systems.group import SimulatedSystem, not_confirmed
from isthmus.simulator.systems.kind import OpenLog, SimulatedKind, Traits
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.read.simulation import Simulation


class SimulatedBroadcastDaisy(SimulatedSystem):
    """Starts the processes of one daisy. Nobody comes back to it."""

    @cached_property
    def tree(self) -> DaisyTree:
        slots = self.topology.slots(self.system.name)
        return tree_of(self.system.own(DaisyTable), dict(zip(self.system.members, slots, strict=True)).__getitem__)

    def _make_nemesis(self, plan: FaultPlan) -> DaisyNemesis:
        return DaisyNemesis(self.world, self.slots, plan)

    def _member(self, process: ProcessId, settings: GroupSettings, joining: bool) -> DaisyMember:
        return daisy_member(process, self.tree, self.gateways, settings, self.world.now)

    def _first_view(self, host: Host) -> View:
        return _member_of(host).view

    def revive(self) -> None:
        """Who is gone stays away: the others have to do."""

    @cached_property
    def watch(self) -> DaisyWatch:
        return DaisyWatch(self.world, self.slots)

    def ended(self, host: Host) -> None:
        super().ended(host)
        if host.ended == "crash":
            self.watch.crashed(host)

    def viewed(self, host: Host) -> None:
        """Views are of local groups, and nobody is in all of them."""

    def _count_lost_quorum(self) -> None:
        self.watch.count_lost_quorum()

    def without_quorum(self) -> str:
        return self.watch.without_quorum()

    def _serves(self, slot: int) -> bool:
        return self._is_there(slot)

    def note_causes(self) -> None:
        super().note_causes()
        for plan in self.joins:
            if not any(self._is_there(end.near) and self._far_is_there(end.far) for end in plan.links):
                self.world.causes.note("last-link", f"join {plan.join} of {self.system.name} has lost every link")

    def _far_is_there(self, slot: int) -> bool:
        """Whether the gateway at the far end of a link is there, or another will take its place in the end."""
        return self.topology.system(self.world.names.slots[slot].system).revives or self.world.hosts[slot].alive

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        process, member = daisy_of(host), _member_of(host)
        if reason := not_with_the_others(process, list(map(daisy_of, living)), self._name):
            return reason
        for hold in process.waiting():
            return f"holds batch {hold.batch.number} of {self._name(hold.batch.sender)}: {hold.reason}"
        if member.unfinished():
            return f"has {member.unfinished()} messages that are not stable"
        return not_settled(process) or not_confirmed(host)

    def _name(self, process: ProcessId) -> str:
        return str(self.world.names.name(process))


def _member_of(host: Host) -> DaisyMember:
    member = member_of(host)
    assert isinstance(member, DaisyMember)
    return member


def _make(
    topology: Topology, system: System, world: World, seed: int, open_log: OpenLog, *, tight: bool
) -> SimulatedBroadcastDaisy | SimulatedDaisy:
    made = SimulatedBroadcastDaisy if system.broadcasts else SimulatedDaisy
    return made(topology, system, world, seed, open_log, tight=tight)


def _traits(system: System, simulation: Simulation) -> Traits:
    daisy, crashes = system.own(DaisyTable), simulation.faults.crashes
    own = {
        "relay": daisy.parts,
        "server crashed": crashes,
        "crash in a flush of servers": crashes,
        "groups changed": daisy.options.changes,
        "crash in a change of groups": crashes and daisy.options.changes,
        "let in": system.standby,
    }
    return Traits(
        roomy=any(len(group.processes) >= 5 for group in daisy.all_groups()),
        # Where messages go to recipients only, groups carry none themselves.
        carries=daisy.options.inside != "recipients",
        holds=True,
        own=frozenset(case for case, wanted in own.items() if wanted),
    )


def _enough(system: System) -> Enough:
    """A quorum of the local group; where messages go to recipients only, one more than may go at a time."""
    options = system.own(DaisyTable).options
    if options.inside != "recipients":
        return is_quorum
    return lambda holders, members: len(holders) > min(options.resilience, len(members) - 1)


DAISY = SimulatedKind(make=_make, traits=_traits, enough=_enough)
