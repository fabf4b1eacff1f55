"""A simulated daisy: its processes, their application, and what goes wrong with them.

Processes write to sets of processes and answer in chains. Members and servers crash, the network loses, duplicates,
reorders and is cut. All that is within the model, as long as every local group keeps its quorum: the nemesis sees to
that, group by group (docs/design/daisy.md, "Model").
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from isthmus.core.endpoint import View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.interconnect.daisy import DaisyProcess
from isthmus.interconnect.daisy_servers import ServersGroup
from isthmus.interconnect.daisy_table import DaisyTable
from isthmus.interconnect.daisy_tree import tree_of
from isthmus.interconnect.topology import System, Topology
from isthmus.ordering.window import GroupSettings
from isthmus.simulator.addressed import (
    AddressedApplication,
    AddressedSystem,
    OpenLog,
    no_batches,
    nobody_comes_back,
)
from isthmus.simulator.faults import Crash, FaultPlan, Partition
from isthmus.simulator.nemesis import Nemesis
from isthmus.simulator.world import Host, World
from isthmus.trace.writer import ProcessLog

WINDOW = 12
"""Own messages that are not stable everywhere: small, so that back-pressure is met in short runs."""


class DaisyApplication(AddressedApplication):
    """Each message goes to several processes: the one that is meant, and now and then others."""

    def _recipients(self, target: ProcessId) -> tuple[ProcessId, ...]:
        others = self.rng.sample(self._processes, self.rng.choice((0, 0, 1, 2, len(self._processes))))
        return tuple(sorted({target, *others}))


class LocalNemesis(Nemesis):
    """Faults of one local group. Every other crash is meant for the server, whoever that is by then."""

    def _crash(self, crash: Crash) -> None:
        slot = crash.slot
        if crash.at % 2:
            slot = min((each for each in self.slots if self.world.hosts[each].alive), default=slot)
        host = self.world.hosts[slot]
        before = host.doomed
        super()._crash(Crash(crash.at, slot, crash.progress))
        if host.doomed is None or before is not None:
            return
        assert isinstance(host.endpoint, DaisyProcess)
        servers = host.endpoint.levels[1:]
        if servers:
            self.world.sometimes.reach("server crashed")
        if any(isinstance(each, ServersGroup) and not each.installed for each in servers):
            self.world.sometimes.reach("crash in a flush of servers")


class DaisyNemesis:
    """One plan for the whole daisy, carried out group by group; lines between groups are cut without further ado."""

    def __init__(self, world: World, slots: list[int], groups: list[tuple[int, ...]], plan: FaultPlan) -> None:
        self.world = world
        self.slots = slots
        self.plan = plan
        self.groups = [LocalNemesis(world, group, _of_group(plan, group), nobody_comes_back) for group in groups]
        self._home = {slot: place for place, group in enumerate(groups) for slot in group}
        self._over = False

    def schedule(self) -> None:
        for each in self.groups:
            each.schedule()
        for partition in self.plan.partitions:
            side = set(partition.side)
            lines = [(a, b) for a in self.slots for b in self.slots if (a in side) != (b in side) and self._apart(a, b)]
            self.world.at(partition.at, self._cut, lines, partition.until)
        for cut in self.plan.cuts:
            if self._apart(cut.source, cut.destination):
                self.world.at(cut.at, self._cut, [(cut.source, cut.destination)], cut.until)

    def heal(self) -> None:
        self._over = True
        for each in self.groups:
            each.heal()

    def has_quorum(self) -> bool:
        return all(each.has_quorum() for each in self.groups)

    def _apart(self, one: int, other: int) -> bool:
        return self._home[one] != self._home[other]

    def _cut(self, lines: list[tuple[int, int]], until: Nanos) -> None:
        if self._over or not lines:
            return
        self.world.sometimes.reach("cut")
        for line in lines:
            self.world.network.cut(*line)
        self.world.at(until, self._mend, lines)

    def _mend(self, lines: list[tuple[int, int]]) -> None:
        for line in lines:
            if self.world.network.is_cut(*line):
                self.world.network.mend(*line)


def _of_group(plan: FaultPlan, group: tuple[int, ...]) -> FaultPlan:
    """The part of a plan that is about the inside of one group."""
    sides = [(each, tuple(slot for slot in each.side if slot in group)) for each in plan.partitions]
    return structs.replace(
        plan,
        crashes=tuple(each for each in plan.crashes if each.slot in group),
        partitions=tuple(Partition(each.at, each.until, side) for each, side in sides if 0 < len(side) < len(group)),
        cuts=tuple(each for each in plan.cuts if each.source in group and each.destination in group),
        slow=tuple(each for each in plan.slow if each.slot in group),
        leaves=tuple(each for each in plan.leaves if each.slot in group),
    )


class SimulatedDaisy(AddressedSystem):
    """Starts the processes of one daisy."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        daisy: DaisyTable,
        world: World,
        seed: int,
        open_log: OpenLog,
        *,
        tight: bool,
    ) -> None:
        super().__init__(topology, system, world)
        self.tree = tree_of(daisy, self.by_name.__getitem__)
        self.application = self._applied(DaisyApplication, seed)
        groups = [group.everybody for group in self.tree.groups if group.is_local]
        self.nemesis = DaisyNemesis(world, self.slots, groups, self._plan(seed))
        self._settings = GroupSettings(
            heartbeat=system.heartbeat,
            suspect_after=system.suspect_after,
            retry_after=2 * system.heartbeat,
            window_messages=WINDOW if tight else GroupSettings().window_messages,
        )
        self._start(self._make, open_log)

    def _make(self, slot: ProcessId, log: ProcessLog) -> Host:
        endpoint = DaisyProcess(slot, self.tree, self._settings, self.world.now)
        host = Host(endpoint, log, no_batches, self.application.on_addressed)
        host.view = View(1, self.tree.path(slot)[0].everybody)
        return host

    def beyond_the_model(self) -> str:
        """Which group has lost its quorum; empty if none has."""
        for group, nemesis in zip(
            (each for each in self.tree.groups if each.is_local), self.nemesis.groups, strict=True
        ):
            if not nemesis.has_quorum():
                return f"group {group.name or 'of all'} of {self.system.name} has lost its quorum"
        return ""

    def _awaited(self, awaited: int) -> str:
        """In a servers' group it is a seat that is waited for, whoever holds it."""
        return str(awaited)

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        endpoint = host.endpoint
        assert isinstance(endpoint, DaisyProcess)
        ids = {each.id for each in living}
        gone = [member for member in endpoint.local.member.view.members if member not in ids]
        if gone:
            return f"is in a view with {self._name(gone[0])}, which is gone"
        if endpoint.unstable:
            return f"has {len(endpoint.unstable)} messages that are not stable"
        for level in endpoint.levels:
            if isinstance(level, ServersGroup) and not level.installed:
                told = len(level.states)
                return f"has heard {told} of {level.size} in a flush of group {level.group.name or 'at the top'}"
            if level.record.kept:
                return f"keeps {len(level.record.kept)} messages that are not settled in group {level.number}"
        return ""
