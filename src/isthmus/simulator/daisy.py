"""A simulated daisy: its processes, their application, and what goes wrong with them.

Processes write to sets of processes and answer in chains. Members and servers crash, the network loses, duplicates,
reorders and is cut. All that is within the model, as long as every local group keeps its quorum: the nemesis sees to
that, group by group (docs/design/daisy.md, "Model").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from msgspec import structs

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Addressed, Batch
from isthmus.interconnect.daisy import DaisyProcess
from isthmus.interconnect.daisy_servers import ServersGroup
from isthmus.interconnect.daisy_table import DaisyTable
from isthmus.interconnect.daisy_tree import tree_of
from isthmus.interconnect.topology import System, Topology
from isthmus.ordering.window import GroupSettings
from isthmus.simulator.clusters import SHOWN_HOLDS, ClusterApplication
from isthmus.simulator.faults import Crash, FaultPlan, Partition, draw_plan
from isthmus.simulator.nemesis import Nemesis
from isthmus.simulator.world import Host, World
from isthmus.trace.schema import Role
from isthmus.trace.writer import ProcessLog

WINDOW = 12
"""Own messages that are not stable everywhere: small, so that back-pressure is met in short runs."""


class DaisyApplication(ClusterApplication):
    """As in clusters, but each message goes to several processes: the one that is meant, and now and then others."""

    def _write(self, host: Host, targets: list[ProcessId], depth: int, named: ProcessId | None = None) -> None:
        if not host.alive:
            return
        endpoint = host.endpoint
        assert isinstance(endpoint, DaisyProcess)
        if endpoint.credit() < len(targets):
            self.world.sometimes.reach("back-pressure")
            return
        for target in targets:
            before = self._latest.get(host.id, target) if named is None else named
            self._latest[host.id] = target
            others = self.rng.sample(self._processes, self.rng.choice((0, 0, 1, 2, len(self._processes))))
            size = self.rng.randint(self.workload.minimum_size, self.workload.maximum_size)
            payload = bytes((min(depth, 255),)) + before.to_bytes(2, "big") + bytes(max(0, size - 3))
            self.world.step(host, self._send_to, host, endpoint, tuple(sorted({target, *others})), payload)

    def _send_to(
        self,
        host: Host,
        endpoint: DaisyProcess,
        targets: tuple[ProcessId, ...],
        payload: bytes,
        now: Nanos,
        out: Outbox,
    ) -> None:
        seq = endpoint.send(targets, [payload], now, out)
        if host.log is not None:
            # The outbox is carried out after this, so the send stands before everything that it causes.
            names = tuple(str(self.world.names.name(each)) for each in targets)
            host.log.messages("send", now, [Addressed(host.id, seq, payload, targets)], 0, destinations=names)


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
        self.groups = [LocalNemesis(world, group, _of_group(plan, group), _nobody_comes_back) for group in groups]
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


class SimulatedDaisy:
    """Starts the processes of one daisy."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        daisy: DaisyTable,
        world: World,
        seed: int,
        open_log: Callable[[ProcessId, Role], ProcessLog],
        *,
        tight: bool,
    ) -> None:
        self.system = system
        self.world = world
        self.slots = list(topology.slots(system.name))
        by_name = dict(zip(system.members, self.slots, strict=True))
        self.tree = tree_of(daisy, by_name.__getitem__)
        simulation = topology.simulation
        self.application = DaisyApplication(
            world, Random(f"workload {seed} {system.name}"), simulation.workload, simulation.duration, self.slots
        )
        rng = Random(f"faults {seed} {system.name}")
        plan = draw_plan(
            rng, simulation.faults, simulation.network, self.slots, simulation.duration, system.suspect_after
        )
        groups = [group.everybody for group in self.tree.groups if group.is_local]
        self.nemesis = DaisyNemesis(world, self.slots, groups, plan)
        settings = GroupSettings(
            heartbeat=system.heartbeat,
            suspect_after=system.suspect_after,
            retry_after=2 * system.heartbeat,
            window_messages=WINDOW if tight else GroupSettings().window_messages,
        )
        senders = simulation.workload.senders
        sending = None if senders is None else {sender.process for sender in senders}
        for name, slot in by_name.items():
            log = open_log(slot, "app")
            log.event("start", world.now)
            host = Host(
                DaisyProcess(slot, self.tree, settings, world.now), log, _no_batches, self.application.on_addressed
            )
            host.view = View(1, self.tree.path(slot)[0].everybody)
            world.start(host)
            if sending is None or name in sending:
                self.application.begin(host)

    def revive_gateways(self) -> None:
        """There are none."""

    def beyond_the_model(self) -> str:
        """Which group has lost its quorum; empty if none has."""
        for group, nemesis in zip(
            (each for each in self.tree.groups if each.is_local), self.nemesis.groups, strict=True
        ):
            if not nemesis.has_quorum():
                return f"group {group.name or 'of all'} of {self.system.name} has lost its quorum"
        return ""

    def unfinished(self) -> str:
        """What is held, and why; failing that, what is not stable; empty when everything is done."""
        living = [host for slot in self.slots if (host := self.world.hosts[slot]).alive]
        ids = {host.id for host in living}
        holds = [each for host in living for each in self._holds(host)]
        if holds:
            more = f"; and {len(holds) - SHOWN_HOLDS} more" if len(holds) > SHOWN_HOLDS else ""
            return "; ".join(holds[:SHOWN_HOLDS]) + more
        for host in living:
            reason = self._unfinished_at(host, ids)
            if reason:
                return f"{self._name(host.id)} {reason}"
        return ""

    def _holds(self, host: Host) -> Iterator[str]:
        endpoint = host.endpoint
        assert isinstance(endpoint, DaisyProcess)
        for hold in endpoint.waiting():
            message = hold.batch.messages[0]
            what = f"{self._name(host.id)} holds {self._name(message.origin)}/{message.seq}"
            yield f"{what}, which waits until {hold.unit} {hold.number} of {hold.awaited} is {hold.reason}"

    def _unfinished_at(self, host: Host, living: set[ProcessId]) -> str:
        endpoint = host.endpoint
        assert isinstance(endpoint, DaisyProcess)
        view = endpoint.local.member.view
        gone = [member for member in view.members if member not in living]
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

    def _name(self, process: ProcessId) -> str:
        return str(self.world.names.name(process))


def _no_batches(host: Host, batch: Batch) -> None:
    raise TypeError(f"{host.id} delivers messages, not batches")


def _nobody_comes_back(slot: int) -> None:
    raise TypeError(f"nobody comes back in slot {slot} of a daisy")
