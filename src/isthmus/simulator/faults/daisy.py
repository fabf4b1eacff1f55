"""What goes wrong with a daisy, as far as its model allows (docs/design/daisy.md and daisy-changes.md, "Model").

Every local group keeps its quorum. Which group a process is in may change, so the nemesis looks when a fault is due.
While the tree changes, who crashes is lost to the group that it was in and to the one that it is to be in, which is not
known yet; one loss in the whole daisy is within the model then, where groups are of three or more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from msgspec import structs

from isthmus.core.endpoint import View
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.hierarchy.daisy.member import DaisyMember
from isthmus.hierarchy.daisy.point import PointGroup
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.hierarchy.daisy.tree import DaisyTree
from isthmus.ordering.group.quorum import is_quorum
from isthmus.simulator.faults.nemesis import Nemesis, group_of, member_of
from isthmus.simulator.faults.plan import Crash, Cut, FaultPlan, Leave, Partition, Slow
from isthmus.simulator.systems.addressed import nobody_comes_back
from isthmus.simulator.world import Host, World

SAFE_SIZE = 3
"""Members of a group that can lose any one of them."""

LocalFault = Crash | Partition | Cut | Slow | Leave
Spare: TypeAlias = Callable[[Collection[int]], bool]
"""Whether the rest of the world can do without the processes of some slots."""


class LocalNemesis(Nemesis):
    """Faults of one local group. Every other crash is meant for the server, whoever that is by then.

    Where messages go to recipients only, no more members go than its `resilience` until what they held is told: from a
    moment when all members were in one view, in force, to the next such moment that a fault finds.
    """

    def __init__(self, world: World, slots: Iterable[int], plan: FaultPlan, resilience: int, spare: Spare) -> None:
        super().__init__(world, slots, plan, nobody_comes_back, lambda gone: spare(gone) and self._is_resilient(gone))
        self._resilience = resilience
        self._whole: set[int] = set(self.slots)

    def _is_resilient(self, slots: Collection[int]) -> bool:
        """Whether those of these slots may go, beside all who are gone or about to go."""
        if not self._resilience:
            return True
        view, hosts = self._latest_view(), self.world.hosts
        sound = {slot for slot in map(slot_of, view.members) if self._is_sound(hosts[slot], hosts[slot].id, view)}
        decided = max((group_of(hosts[slot]).view for slot in sound), default=None)
        if decided is not None:
            sound.intersection_update(map(slot_of, decided.members))
        in_force = all(daisy_of(hosts[slot]).local.view == decided for slot in sound)
        if in_force and len(sound) == len(view.members):
            self._whole = sound
        suspected = {
            slot_of(member) for slot in sound for member in group_of(hosts[slot]).detector.suspects(self.world.now)
        }
        return len((self._whole - sound) | suspected | set(slots)) <= self._resilience

    def _coming(self) -> list[Sequence[ProcessId]]:
        """Where views come into force later, the next quorum is counted in the one that is decided."""
        if not self._resilience:
            return super()._coming()
        living = [host for slot in self.slots if (host := self.world.hosts[slot]).alive]
        return [*super()._coming(), *(group_of(host).view.members for host in living)]

    def carry_out(self, fault: LocalFault) -> None:
        if isinstance(fault, Crash):
            self._crash(fault)
        elif isinstance(fault, Partition):
            self._partition(fault)
        elif isinstance(fault, Cut):
            self._cut(fault)
        elif isinstance(fault, Slow):
            self._slow(fault)
        else:
            self._leave(fault)

    def _crash(self, crash: Crash) -> None:
        slot = crash.slot
        if crash.at % 2:
            slot = min((each for each in self.slots if self.world.hosts[each].alive), default=slot)
        host = self.world.hosts[slot]
        before = host.dies_after
        super()._crash(Crash(crash.at, slot, crash.progress))
        if host.dies_after is None or before is not None:
            return
        servers = daisy_of(host).levels[1:]
        if servers:
            self.world.sometimes.reach("server crashed")
        if any(isinstance(each, ServersGroup) and not each.installed for each in servers):
            self.world.sometimes.reach("crash in a flush of servers")


class DaisyNemesis:
    """One plan for the whole daisy, carried out group by group; lines between groups are cut without further ado.

    `groups` are those that faults have met, by their slots. `_lost` are slots taken away during the change under way.
    """

    def __init__(self, world: World, slots: list[int], plan: FaultPlan, spare: Spare = lambda slots: True) -> None:
        self.world = world
        self.slots = slots
        self.plan = plan
        self.spare = spare
        self.groups: dict[tuple[int, ...], LocalNemesis] = {}
        self._lost: set[int] = set()
        self._over = False

    def schedule(self) -> None:
        plan = self.plan
        faults: list[LocalFault] = [*plan.crashes, *plan.partitions, *plan.cuts, *plan.slow, *plan.leaves]
        for fault in faults:
            self.world.at(fault.at, self._due, fault)

    def heal(self) -> None:
        self._over = True
        self.world.network.mend_all()
        for host in self.living():
            host.pause = 0
            host.dies_after = None

    def living(self) -> list[Host]:
        present = (self.world.hosts.get(slot) for slot in self.slots)
        return [host for host in present if host is not None and host.alive]

    def without_quorum(self) -> str:
        """The name of a group that cannot go on: too many of its latest view have crashed. Empty if there is none."""
        latest: dict[tuple[int, int], View] = {}
        trees: dict[int, DaisyTree] = {}
        needed = set()
        for slot in self.slots:
            host = self.world.hosts.get(slot)
            if host is None:
                continue
            # A process that crashed as soon as it was in a view was in it: the others cannot go back.
            tree, view = daisy_of(host).tree, group_of(host).view
            group = (tree.generation, tree.home[slot])
            trees[tree.generation] = tree
            latest[group] = max(latest.get(group, view), view)
            if host.alive:
                needed.add(group)
        for generation, number in sorted(needed):
            view = latest[generation, number]
            if not is_quorum([each for each in view.members if each not in self.world.crashed], view.members):
                return f"group {trees[generation].groups[number].name or 'of all'}"
        return ""

    def without_holders(self) -> str:
        """The name of a group from which more have gone at a time than its resilience. Empty if there is none."""
        for host in self.living():
            local = daisy_of(host).local
            if isinstance(local, PointGroup) and local.most_gone > local.tree.options.resilience:
                return f"group {local.tree.groups[local.number].name or 'of all'}"
        return ""

    def is_changing(self) -> bool:
        inside = [process for host in self.living() if not (process := daisy_of(host)).is_outside]
        return len({each.tree.generation for each in inside}) > 1 or any(each.is_changing for each in inside)

    # Faults

    def _due(self, fault: LocalFault) -> None:
        if self._over:
            return
        if self.is_changing():
            if isinstance(fault, Crash):
                self._crash_in_a_change(fault)
            return
        self._lost.clear()
        if isinstance(fault, Partition):
            self._partition(fault)
        elif isinstance(fault, Cut):
            self._cut(fault)
        elif (group := self._group(fault.slot)) is not None:
            group.carry_out(fault)

    def _crash_in_a_change(self, crash: Crash) -> None:
        living = self.living()
        troubled = any(host.pause or host.dies_after is not None for host in living) or self.world.network.has_cuts
        troubled = troubled or any(map(self._is_with_the_dead, living))
        small = len(living) <= SAFE_SIZE or any(len(daisy_of(host).local.view.members) < SAFE_SIZE for host in living)
        group = self._group(crash.slot)
        if group is None or self._lost or troubled or small:
            return
        group.carry_out(crash)
        self._lost = {slot_of(host.id) for host in living if host.dies_after is not None}
        if self._lost:
            self.world.sometimes.reach("crash in a change of groups")

    def _is_with_the_dead(self, host: Host) -> bool:
        """Whether a group that a process is in, or was in just before, has not yet gone on without one that is dead.

        A crash just before a change counts against the quorum of that group, and so would the next one.
        """
        process = daisy_of(host)
        generations = [each for each in (process.current, process.former) if each is not None]
        return any(member in self.world.crashed for each in generations for member in each.local.member.view.members)

    def _partition(self, partition: Partition) -> None:
        side = set(partition.side)
        groups = {group.slots: group for slot in self.slots if (group := self._group(slot)) is not None}
        for slots, group in groups.items():
            inside = tuple(slot for slot in slots if slot in side)
            if 0 < len(inside) < len(slots):
                group.carry_out(structs.replace(partition, side=inside))
        home = {slot: slots for slots in groups for slot in slots}
        self._cut_lines(
            [(a, b) for a in home for b in home if (a in side) != (b in side) and home[a] != home[b]], partition.until
        )

    def _cut(self, cut: Cut) -> None:
        group = self._group(cut.source)
        if group is not None and cut.destination in group.slots:
            group.carry_out(cut)
        elif group is not None:
            self._cut_lines([(cut.source, cut.destination)], cut.until)

    def _cut_lines(self, lines: list[tuple[int, int]], until: Nanos) -> None:
        if not lines:
            return
        self.world.sometimes.reach("cut")
        for line in lines:
            self.world.network.cut(*line)
        self.world.at(until, self._mend, lines)

    def _mend(self, lines: list[tuple[int, int]]) -> None:
        for line in lines:
            if self.world.network.is_cut(*line):
                self.world.network.mend(*line)

    # Groups as they are now

    def _group(self, slot: int) -> LocalNemesis | None:
        """The nemesis of the group that a process is in; None where it is outside, or has never been there."""
        host = self.world.hosts.get(slot)
        if host is None or daisy_of(host).is_outside:
            return None
        tree = daisy_of(host).tree
        slots = tuple(map(slot_of, tree.groups[tree.home[slot]].everybody))
        if slots not in self.groups:
            self.groups[slots] = LocalNemesis(self.world, slots, self.plan, tree.options.resilience, self.spare)
        return self.groups[slots]


def daisy_of(host: Host) -> DaisyProcess:
    """The process in its tree, whatever is on top of it."""
    member = member_of(host)
    process = member.process if isinstance(member, DaisyMember) else member
    assert isinstance(process, DaisyProcess)
    return process
