"""A simulated system of clusters: its processes, their application, and what goes wrong with them.

Processes write to single processes and answer in chains. The network loses, duplicates, reorders and is cut for a
while; all that is within the model. A crash is not: it leaves a causal gap, and then the run says what is held, and
why (docs/design/clusters.md, "A crash").
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from isthmus.core.endpoint import Delivered, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Addressed, Batch
from isthmus.interconnect.cluster import ClusterProcess, ClusterSettings
from isthmus.interconnect.cluster_table import ClusterTable
from isthmus.interconnect.hierarchy import hierarchy_of
from isthmus.interconnect.simulation_table import Workload
from isthmus.interconnect.topology import System, Topology
from isthmus.simulator.faults import Crash, FaultPlan, draw_plan
from isthmus.simulator.nemesis import Nemesis
from isthmus.simulator.workload import THINKING, Application
from isthmus.simulator.world import Host, World
from isthmus.trace.schema import Role
from isthmus.trace.writer import ProcessLog

WINDOW = 12
"""Frames without acknowledgement: small, so that back-pressure is met in short runs."""

SHOWN_HOLDS = 3


class ClusterApplication(Application):
    """Bursts of messages, each to a process of its own, and chains of answers.

    The second and third byte of a payload name the process that its sender wrote to just before. An answer goes there,
    or back, or to somebody else with that name still in it: so two messages race to one process, one straight and one
    by way of others, and that is what causal order is about.
    """

    def __init__(self, world: World, rng: Random, workload: Workload, end: Nanos, processes: list[ProcessId]) -> None:
        super().__init__(world, rng, workload, end)
        self._processes = processes
        self._latest: dict[ProcessId, ProcessId] = {}

    def on_addressed(self, host: Host, delivered: Delivered) -> None:
        """Answer some of what is delivered, after a moment of thought."""
        message = delivered.message
        depth = message.payload[0]
        if depth and self.world.now < self.end and self.rng.random() < self.workload.reply:
            named = int.from_bytes(message.payload[1:3], "big")
            target = self.rng.choice((named, message.origin, self.rng.choice(self._processes)))
            thought = self.world.now + self.rng.randrange(THINKING)
            self.world.at(thought, self._write, host, [target], depth - 1, None if target == named else named)

    def _send(self, host: Host, count: int, depth: int) -> None:
        self._write(host, self.rng.choices(self._processes, k=count), depth)

    def _write(self, host: Host, targets: list[ProcessId], depth: int, named: ProcessId | None = None) -> None:
        """One message to each of these. Whoever has no credit lets it be."""
        if not host.alive:
            return
        endpoint = host.endpoint
        assert isinstance(endpoint, ClusterProcess)
        if endpoint.credit() < len(targets):
            self.world.sometimes.reach("back-pressure")
            return
        for target in targets:
            before = self._latest.get(host.id, target) if named is None else named
            self._latest[host.id] = target
            size = self.rng.randint(self.workload.minimum_size, self.workload.maximum_size)
            payload = bytes((min(depth, 255),)) + before.to_bytes(2, "big") + bytes(max(0, size - 3))
            self.world.step(host, self._put, host, endpoint, target, payload)

    def _put(
        self, host: Host, endpoint: ClusterProcess, target: ProcessId, payload: bytes, now: Nanos, out: Outbox
    ) -> None:
        seq = endpoint.send(target, [payload], now, out)
        if host.log is not None:
            # The outbox is carried out after this, so the send stands before everything that it causes.
            message = Addressed(endpoint.id, seq, payload, (target,))
            host.log.messages("send", now, [message], 0, destinations=(str(self.world.names.name(target)),))


class ClusterNemesis(Nemesis):
    """Faults of a system without views. A crash always leaves the model, so it is made to hurt: it hits relays."""

    def __init__(self, world: World, slots: list[int], plan: FaultPlan, relays: list[int]) -> None:
        super().__init__(world, slots, plan, revive=_nobody_comes_back)
        self._relays = relays

    def _has_majority(self, slots: set[int]) -> bool:
        """Nobody is ever left out: what was not acknowledged is sent again when the partition is over."""
        return True

    def _crash(self, crash: Crash) -> None:
        candidates = self._relays or list(self.slots)
        host = self.world.hosts[candidates[crash.slot % len(candidates)]]
        if host.alive and host.doomed is None:
            host.doomed = crash.progress


class SimulatedClusters:
    """Starts the processes of one system of clusters."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        clusters: ClusterTable,
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
        self.tree = hierarchy_of(clusters, by_name.__getitem__)
        simulation = topology.simulation
        self.application = ClusterApplication(
            world, Random(f"workload {seed} {system.name}"), simulation.workload, simulation.duration, self.slots
        )
        rng = Random(f"faults {seed} {system.name}")
        plan = draw_plan(
            rng, simulation.faults, simulation.network, self.slots, simulation.duration, system.suspect_after
        )
        self.nemesis = ClusterNemesis(
            world, self.slots, plan, [slot for slot in self.slots if self.tree.is_relay(slot)]
        )
        settings = ClusterSettings(2 * system.heartbeat, WINDOW if tight else ClusterSettings().window)
        senders = simulation.workload.senders
        sending = None if senders is None else {sender.process for sender in senders}
        for name, slot in by_name.items():
            log = open_log(slot, "app")
            log.event("start", world.now)
            endpoint = ClusterProcess(slot, self.tree, settings)
            host = Host(endpoint, log, _no_batches, self.application.on_addressed)
            world.start(host)
            if sending is None or name in sending:
                self.application.begin(host)

    def revive_gateways(self) -> None:
        """There are none."""

    def beyond_the_model(self) -> str:
        """Who has crashed: only the processes on its way have a message, so nothing is promised any more."""
        for slot in self.slots:
            if not self.world.hosts[slot].alive:
                return f"{self._name(slot)} has crashed, and clusters promise nothing then (the causal gap)"
        return ""

    def unfinished(self) -> str:
        """What is held, and why; failing that, what is not acknowledged; empty when everything is done."""
        living = [host for slot in self.slots if (host := self.world.hosts[slot]).alive]
        holds = []
        for host in living:
            endpoint = host.endpoint
            assert isinstance(endpoint, ClusterProcess)
            for hold in endpoint.waiting():
                message = hold.batch.messages[0]
                what = f"{self._name(host.id)} holds {self._name(message.origin)}/{message.seq}"
                holds.append(f"{what}, which waits for {hold.unit} {hold.number} of {self._name(hold.awaited)}")
        if holds:
            more = f"; and {len(holds) - SHOWN_HOLDS} more" if len(holds) > SHOWN_HOLDS else ""
            return "; ".join(holds[:SHOWN_HOLDS]) + more
        for host in living:
            assert isinstance(host.endpoint, ClusterProcess)
            for peer, frames in host.endpoint.channels.unacknowledged().items():
                return f"{self._name(host.id)} has frames that {self._name(peer)} has not acknowledged: {frames}"
        return ""

    def _name(self, process: ProcessId) -> str:
        return str(self.world.names.name(process))


def _no_batches(host: Host, batch: Batch) -> None:
    raise TypeError(f"{host.id} is no member of a group")


def _nobody_comes_back(slot: int) -> None:
    raise TypeError(f"nobody comes back in slot {slot}: clusters have no views")
