"""A simulated daisy whose messages are for everybody: a broadcast system like a group, perhaps with gateways.

Its application, its gateways and its logs are those of any system; what may go wrong with it is what a daisy survives
(docs/design/daisy-joins.md, "Model").
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import View
from isthmus.core.ids import ProcessId
from isthmus.interconnect.daisy_member import DaisyMember, daisy_member
from isthmus.interconnect.daisy_table import DaisyTable
from isthmus.interconnect.daisy_tree import tree_of
from isthmus.interconnect.gateway_member import GatewayMember
from isthmus.interconnect.topology import System, Topology
from isthmus.ordering.window import GroupSettings
from isthmus.simulator.daisy import not_settled, not_with_the_others
from isthmus.simulator.daisy_nemesis import DaisyNemesis, daisy_of
from isthmus.simulator.faults import FaultPlan
from isthmus.simulator.system import LogFactory, SimulatedSystem, not_confirmed
from isthmus.simulator.world import Host, World


class SimulatedBroadcastDaisy(SimulatedSystem):
    """Starts the processes of one daisy. Nobody comes back to it."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        daisy: DaisyTable,
        world: World,
        seed: int,
        open_log: LogFactory,
        names: list[str],
        *,
        tight: bool,
    ) -> None:
        by_name = dict(zip(system.members, topology.slots(system.name), strict=True))
        self.tree = tree_of(daisy, by_name.__getitem__)
        super().__init__(topology, system, world, seed, open_log, names, tight=tight)

    def _make_nemesis(self, plan: FaultPlan) -> DaisyNemesis:
        return DaisyNemesis(self.world, self.slots, plan, self._spare)

    def _member(self, process: ProcessId, settings: GroupSettings, joining: bool) -> DaisyMember:
        return daisy_member(process, self.tree, self.gateways, settings, self.world.now)

    def _first_view(self, host: Host) -> View:
        return member_of(host).view

    def revive_gateways(self) -> None:
        """Who is gone stays away: the others have to do."""

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        process, member = daisy_of(host), member_of(host)
        if reason := not_with_the_others(process, list(map(daisy_of, living)), self._name):
            return reason
        for hold in process.waiting():
            return f"holds batch {hold.batch.number} of {self._name(hold.batch.sender)}: {hold.reason}"
        if member.unfinished():
            return f"has {member.unfinished()} messages that are not stable"
        return not_settled(process) or not_confirmed(host)

    def _name(self, process: ProcessId) -> str:
        return str(self.world.names.name(process))


def member_of(host: Host) -> DaisyMember:
    endpoint = host.endpoint
    member = endpoint.group if isinstance(endpoint, GatewayMember) else endpoint
    assert isinstance(member, DaisyMember)
    return member
