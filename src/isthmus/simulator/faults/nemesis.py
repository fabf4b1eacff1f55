"""The nemesis carries a fault plan out as it was drawn: it spares nobody, and asks nobody whether a fault may be.

Whatever a plan names is taken: the last gateway, the sequencer, one process more than a quorum can be without, a second
one while the first is being replaced. A fault falls away only where there is nothing left to hurt: a process that is
dead already, a place that nobody has left. What a protocol cannot survive makes its runs fail
(docs/design/simulator.md, "What a run is judged by").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.join.member import GatewayMember
from isthmus.ordering.group.member import GroupMember
from isthmus.simulator.faults.plan import Crash, Cut, FaultPlan, Leave, Partition, Rejoin, Slow
from isthmus.simulator.world import Host, World

AT_THE_LATEST: Nanos = 50 * MILLISECOND
"""How long a process that is to crash waits for a step in which a share of its sends is under way already."""


class Nemesis:
    """Faults of one system. `revive` starts a new process in a slot; None where nobody comes back."""

    def __init__(
        self, world: World, slots: Iterable[int], plan: FaultPlan, revive: Callable[[int], None] | None
    ) -> None:
        self.world = world
        self.slots = tuple(slots)
        self.plan = plan
        self.revive = revive
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
            host = self.world.hosts.get(slot)
            if host is not None:
                host.pause = 0
                host.dies_after = None

    # Faults

    def _crash(self, crash: Crash) -> None:
        self._doom(crash.slot, crash.progress)

    def _doom(self, slot: int, progress: float) -> None:
        """Let a process die in its next step that is worth dying in; if none comes soon, between two steps."""
        host = self.world.hosts.get(slot)
        if host is not None and host.alive and host.dies_after is None:
            host.dies_after = progress
            self.world.at(self.world.now + AT_THE_LATEST, self._unless_over, self._die, host)

    def _die(self, host: Host) -> None:
        if host.alive:
            self.world.sometimes.reach("crash")
            self.world.crash(host, "by plan")

    def _partition(self, partition: Partition) -> None:
        self.world.sometimes.reach("partition")
        side = set(partition.side)
        lines = [
            (source, destination)
            for source in self.slots
            for destination in self.slots
            if (source in side) != (destination in side)
        ]
        self._cut_lines(lines, partition.until)

    def _cut(self, cut: Cut) -> None:
        self.world.sometimes.reach("cut")
        self._cut_lines([(cut.source, cut.destination)], cut.until)

    def _cut_lines(self, lines: list[tuple[int, int]], until: Nanos) -> None:
        for source, destination in lines:
            self.world.network.cut(source, destination)
        self.world.at(until, self._mend_lines, lines)

    def _mend_lines(self, lines: list[tuple[int, int]]) -> None:
        for source, destination in lines:
            if self.world.network.is_cut(source, destination):
                self.world.network.mend(source, destination)

    def _slow(self, slow: Slow) -> None:
        host = self.world.hosts.get(slow.slot)
        if host is not None and host.alive:
            self.world.sometimes.reach("slow")
            host.pause = slow.pause
            self.world.at(slow.until, self._quicken, host)

    def _quicken(self, host: Host) -> None:
        host.pause = 0

    def _rejoin(self, rejoin: Rejoin) -> None:
        if self.revive is None:
            return
        start = self.slots.index(rejoin.slot)
        for slot in self.slots[start:] + self.slots[:start]:
            if not self.world.hosts[slot].alive:
                self.world.sometimes.reach("join")
                self.revive(slot)
                return

    def _leave(self, leave: Leave) -> None:
        host = self.world.hosts.get(leave.slot)
        if host is not None and host.alive and host.dies_after is None:
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
