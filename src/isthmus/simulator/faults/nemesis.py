"""The nemesis carries a fault plan out, as far as the assumptions of the protocols allow.

A group promises progress only while a quorum of its view is alive and connected. So before a process is taken away
the nemesis looks, as nobody inside the system could, whether those left can go on without it *and* without everybody
who is in trouble already; if not, it lets the fault pass. Safety is never spared: partitions and cuts come as drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from isthmus.core.endpoint import View
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.join.member import GatewayMember
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.quorum import is_quorum
from isthmus.simulator.faults.plan import Crash, Cut, FaultPlan, Leave, Partition, Rejoin, Slow
from isthmus.simulator.world import Host, World


class Nemesis:
    """Faults of one system. `revive` starts a new process in a slot; `spare` says whether the rest of the
    world can do without the processes of some slots."""

    def __init__(
        self,
        world: World,
        slots: Iterable[int],
        plan: FaultPlan,
        revive: Callable[[int], None],
        spare: Callable[[Collection[int]], bool] = lambda slots: True,
    ) -> None:
        self.world = world
        self.slots = tuple(slots)
        self.plan = plan
        self.revive = revive
        self.spare = spare
        self._in_trouble: dict[int, int] = {}
        self._over = False

    def schedule(self) -> None:
        world, plan = self.world, self.plan
        for crash in plan.crashes:
            world.at(crash.at, self._unless_over, self._crash, crash)
        for partition in plan.partitions:
            world.at(partition.at, self._unless_over, self._partition, partition)
        for cut in plan.cuts:
            world.at(cut.at, self._unless_over, self._cut, cut)
        for slow in plan.slow:
            world.at(slow.at, self._unless_over, self._slow, slow)
        for rejoin in plan.rejoins:
            world.at(rejoin.at, self._unless_over, self._rejoin, rejoin)
        for leave in plan.leaves:
            world.at(leave.at, self._unless_over, self._leave, leave)

    def _unless_over(self, fault: Callable[[Any], None], what: object) -> None:
        if not self._over:
            fault(what)

    def heal(self) -> None:
        """The end of all faults, of those under way and of those still to come."""
        self._over = True
        self.world.network.mend_all()
        for slot in self.slots:
            host = self.world.hosts[slot]
            host.pause = 0
            host.dies_after = None

    # What may be taken away

    def _latest_view(self) -> View:
        views = [host.view for slot in self.slots if (host := self.world.hosts[slot]).view is not None]
        return max((view for view in views if view is not None), key=lambda view: view.number)

    def _can_spare(self, host: Host) -> bool:
        """Whether a quorum stays, of the view and of every other view that may be about to replace it."""
        view = self._latest_view()
        suspected: set[ProcessId] = set()
        for slot in self.slots:
            other = self.world.hosts[slot]
            if other.alive:
                suspected |= group_of(other).detector.suspects(self.world.now)
        sound = [
            member
            for member in view.members
            if self._is_sound(self.world.hosts[slot_of(member)], member, view) and member not in suspected
        ]
        left = [member for member in sound if member != host.id]
        enough = bool(left) and all(
            is_quorum([member for member in left if member in members], members)
            for members in (view.members, sound, *self._coming())
        )
        return enough and self.spare({slot_of(host.id), *self._troubled()})

    def _coming(self) -> list[Sequence[ProcessId]]:
        """The members of every view that somebody has asked for or agreed to, and that may come yet."""
        coming: list[Sequence[ProcessId]] = []
        for slot in self.slots:
            host = self.world.hosts[slot]
            membership = group_of(host).membership
            if host.alive and membership.attempt is not None:
                coming.append(membership.attempt.asked)
            if host.alive and membership.accepted is not None:
                coming.append(membership.accepted.members)
        return coming

    def without_quorum(self) -> str:
        """Whose members of the latest view have crashed so that the rest cannot go on; empty if it can."""
        members = self._latest_view().members
        left = [member for member in members if member not in self.world.crashed]
        return "" if is_quorum(left, members) else "the group"

    def _is_sound(self, host: Host, member: ProcessId, view: View) -> bool:
        current = host.id == member and host.alive and host.dies_after is None and host.view is not None
        leaving = group_of(host).membership.leaving
        return current and host.view == view and not leaving and not self._in_trouble.get(slot_of(member))

    def _trouble(self, slots: Iterable[int], change: int) -> None:
        for slot in slots:
            self._in_trouble[slot] = self._in_trouble.get(slot, 0) + change

    def _has_majority(self, slots: set[int]) -> bool:
        """Whether the view is sure to go on among these, so that nobody there can be left out."""
        members = self._latest_view().members
        return 2 * sum(slot_of(member) in slots for member in members) > len(members)

    def _troubled(self) -> set[int]:
        return {slot for slot, count in self._in_trouble.items() if count}

    # Faults

    def _crash(self, crash: Crash) -> None:
        host = self.world.hosts[crash.slot]
        if not host.alive or host.dies_after is not None or not self._can_spare(host):
            return
        if group_of(host).membership.blocked:
            self.world.sometimes.reach("crash in a view change")
        host.dies_after = crash.progress
        if isinstance(host.endpoint, GatewayMember):
            self.world.sometimes.reach("gateway crashed")
            if any(export.leads for export in host.endpoint.gateway.exports.values()):
                self.world.sometimes.reach("sequencer crashed")

    def _partition(self, partition: Partition) -> None:
        side = set(partition.side)
        losers = [each for each in (side, set(self.slots) - side) if not self._has_majority(each)]
        if not all(self.spare(loser | self._troubled()) for loser in losers):
            return
        self.world.sometimes.reach("partition")
        lines = [
            (source, destination)
            for source in self.slots
            for destination in self.slots
            if (source in side) != (destination in side)
        ]
        self._cut_lines(lines, set().union(*losers), partition.until)

    def _cut(self, cut: Cut) -> None:
        if not self.spare({cut.source, cut.destination, *self._troubled()}):
            return
        self.world.sometimes.reach("cut")
        self._cut_lines([(cut.source, cut.destination)], (cut.source, cut.destination), cut.until)

    def _cut_lines(self, lines: list[tuple[int, int]], troubled: Iterable[int], until: Nanos) -> None:
        for source, destination in lines:
            self.world.network.cut(source, destination)
        self._trouble(troubled, 1)
        self.world.at(until, self._mend_lines, lines, troubled)

    def _mend_lines(self, lines: list[tuple[int, int]], troubled: Iterable[int]) -> None:
        for source, destination in lines:
            if self.world.network.is_cut(source, destination):
                self.world.network.mend(source, destination)
        self._trouble(troubled, -1)

    def _slow(self, slow: Slow) -> None:
        host = self.world.hosts[slow.slot]
        if host.alive and self.spare({slow.slot, *self._troubled()}):
            self.world.sometimes.reach("slow")
            host.pause = slow.pause
            self._trouble((slow.slot,), 1)
            self.world.at(slow.until, self._quicken, host, slow.slot)

    def _quicken(self, host: Host, slot: int) -> None:
        host.pause = 0
        self._trouble((slot,), -1)

    def _rejoin(self, rejoin: Rejoin) -> None:
        start = self.slots.index(rejoin.slot)
        for slot in self.slots[start:] + self.slots[:start]:
            if not self.world.hosts[slot].alive:
                self.world.sometimes.reach("join")
                self.revive(slot)
                return

    def _leave(self, leave: Leave) -> None:
        host = self.world.hosts[leave.slot]
        endpoint = host.endpoint
        if host.alive and host.dies_after is None and self._can_spare(host):
            if isinstance(endpoint, GatewayMember):
                self.world.sometimes.reach("gateway left")
            self.world.step(host, host.member.leave)


def group_of(host: Host) -> GroupMember:
    """The group layer of a simulated process, whatever is on top of it."""
    layer = member_of(host)
    while not isinstance(layer, GroupMember):
        layer = layer.below
    return layer


def member_of(host: Host) -> Any:
    """What takes part in the system itself, below the joins of a gateway."""
    endpoint = host.endpoint
    return endpoint.group if isinstance(endpoint, GatewayMember) else endpoint
