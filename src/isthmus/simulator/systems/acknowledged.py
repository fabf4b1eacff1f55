"""A simulated group over a broadcast medium, by TO or PO: one like any other, but for its members and its medium."""

from __future__ import annotations

from random import Random

from isthmus.core.ids import ProcessId
from isthmus.join.member import Group
from isthmus.ordering.acknowledged.member import make_member
from isthmus.ordering.group.window import GroupSettings
from isthmus.simulator.checks.acknowledged import out_of_turn
from isthmus.simulator.media import MediumName, SimulatedMedium
from isthmus.simulator.systems.group import SimulatedSystem
from isthmus.simulator.systems.kind import OpenLog, SimulatedKind, Traits
from isthmus.simulator.world import World
from isthmus.topology.kinds.acknowledged import AcknowledgedTable
from isthmus.topology.model import System, Topology
from isthmus.topology.read.simulation import Simulation


class SimulatedAcknowledged(SimulatedSystem):
    """Starts the members of one such group."""

    def __init__(
        self, topology: Topology, system: System, world: World, seed: int, open_log: OpenLog, *, tight: bool
    ) -> None:
        self.table = system.own(AcknowledgedTable)
        kind: MediumName = "1C" if self.table.protocol == "to" else "MC"
        rng = Random(f"medium {seed} {system.name}")
        medium = SimulatedMedium(kind, world.network, rng, topology.simulation.network.bandwidth, self.table.window)
        world.media.update(dict.fromkeys(topology.slots(system.name), medium))
        super().__init__(topology, system, world, seed, open_log, tight=tight)

    def _member(self, process: ProcessId, settings: GroupSettings, joining: bool) -> Group:
        members = self.lives.everybody() if joining else self.lives.founders()
        now, table = self.world.now, self.table
        return make_member(table.protocol, process, members, table.settings(), settings, now, joining=joining)


def _traits(system: System, simulation: Simulation) -> Traits:
    own = {"held for what its sender had"}
    if simulation.network.loss:
        own.add("asked for a PDU")
        if system.own(AcknowledgedTable).protocol == "to":
            own |= {"same members again", "told of places"}
    return Traits(quorums=False, gaps=False, own=frozenset(own))


ACKNOWLEDGED = SimulatedKind(make=SimulatedAcknowledged, traits=_traits, check=out_of_turn)
