"""Simulated systems whose messages are for some of their processes: what clusters and daisies have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from isthmus.core.endpoint import AddressedDelivery, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.hierarchy.clusters.process import ClusterProcess
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.simulator.faults.plan import FaultPlan, draw_plan
from isthmus.simulator.systems.kind import OpenLog
from isthmus.simulator.workload import THINKING, Application
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.read.simulation import Workload
from isthmus.trace.recorder import Recorder

Writer: TypeAlias = ClusterProcess | DaisyProcess
Accept: TypeAlias = Callable[[Sequence[bytes], Nanos, Outbox], int]

_SHOWN_HOLDS = 3


class AddressedApplication(Application, ABC):
    """Bursts of messages, each to a process of its own, and chains of answers.

    The second and third byte of a payload name the process that its sender wrote to just before. An answer goes there,
    or back, or to somebody else with that name still in it: so two messages race to one process, one straight and one
    by way of others, and that is what causal order is about.
    """

    def __init__(self, world: World, rng: Random, workload: Workload, end: Nanos, processes: list[ProcessId]) -> None:
        super().__init__(world, rng, workload, end)
        self._processes = processes
        self._latest: dict[ProcessId, ProcessId] = {}

    def on_addressed(self, host: Host, delivered: AddressedDelivery) -> None:
        """Answer some of what is delivered, after a moment of thought."""
        for origin, _, payload in delivered.run.segment:
            depth = payload[0]
            if depth and self.world.now < self.end and self.rng.random() < self.workload.reply:
                named = int.from_bytes(payload[1:3], "big")
                target = self.rng.choice((named, origin, self.rng.choice(self._processes)))
                thought = self.world.now + self.rng.randrange(THINKING)
                self.world.at(thought, self._write, host, [target], depth - 1, None if target == named else named)

    def _send(self, host: Host, count: int, depth: int) -> None:
        self._write(host, self.rng.choices(self._processes, k=count), depth)

    def _write(self, host: Host, targets: list[ProcessId], depth: int, named: ProcessId | None = None) -> None:
        """A message to each of these, or some together. Whoever has no credit lets it be."""
        if not host.alive:
            return
        endpoint = host.endpoint
        assert isinstance(endpoint, Writer)
        together = self.workload.together
        if endpoint.credit() < len(targets) * together:
            self.world.sometimes.reach("back-pressure")
            return
        for target in targets:
            before = self._latest.get(host.id, target) if named is None else named
            self._latest[host.id] = target
            everybody = self._recipients(endpoint, target)
            if not everybody:
                continue
            count = 1 if together == 1 else self.rng.randint(1, together)
            head = bytes((min(depth, 255),)) + before.to_bytes(2, "big")
            sizes = [self.rng.randint(self.workload.minimum_size, self.workload.maximum_size) for _ in range(count)]
            payloads = [head + bytes(max(0, size - 3)) for size in sizes]
            self.world.send(host, self._accept(endpoint, everybody), payloads, everybody)

    @abstractmethod
    def _accept(self, endpoint: Writer, everybody: tuple[ProcessId, ...]) -> Accept:
        """How the endpoint takes messages for these processes."""

    @abstractmethod
    def _recipients(self, endpoint: Writer, target: ProcessId) -> tuple[ProcessId, ...]:
        """Whom a message for this process is for; nobody, if its sender knows none of them."""


class AddressedSystem(ABC):
    """One system. Subclasses make its endpoints, and know what goes wrong with them."""

    application: AddressedApplication
    stopped = ""

    def __init__(self, topology: Topology, system: System, world: World) -> None:
        self.system = system
        self.world = world
        self.simulation = topology.simulation
        self.slots = list(topology.slots(system.name))
        self.by_name = dict(zip(system.members, self.slots, strict=True))

    def _applied(self, kind: type[AddressedApplication], seed: int) -> AddressedApplication:
        rng = Random(f"workload {seed} {self.system.name}")
        return kind(self.world, rng, self.simulation.workload, self.simulation.duration, self.slots)

    def _plan(self, seed: int) -> FaultPlan:
        rng, simulation = Random(f"faults {seed} {self.system.name}"), self.simulation
        suspect_after = self.system.suspect_after
        return draw_plan(rng, simulation.faults, simulation.network, self.slots, simulation.duration, suspect_after)

    def _start(
        self,
        make: Callable[[ProcessId, Recorder], Host],
        open_log: OpenLog,
        late: Mapping[str, Nanos] = MappingProxyType({}),
    ) -> None:
        """Start everybody, those who come late when their time has come."""
        senders = self.simulation.workload.senders
        sending = None if senders is None else {sender.process for sender in senders}

        def begin(name: str, slot: ProcessId) -> None:
            recorder = open_log(slot, "app")
            recorder.began("start", None, self.world.now)
            host = make(slot, recorder)
            self.world.start(host)
            if sending is None or name in sending:
                self.application.begin(host)

        for name, slot in self.by_name.items():
            if name in late:
                self.world.at(late[name], begin, name, slot)
            else:
                begin(name, slot)

    def revive(self) -> None:  # noqa: B027 - there is nothing to override
        """Nobody comes back."""

    def unfinished(self) -> str:
        """What is held, and why; failing that, what else is not done; empty when everything is."""
        hosts = (self.world.hosts.get(slot) for slot in self.slots)
        living = [host for host in hosts if host is not None and host.alive]
        holds = [each for host in living for each in self._holds(host)]
        if holds:
            more = f"; and {len(holds) - _SHOWN_HOLDS} more" if len(holds) > _SHOWN_HOLDS else ""
            return "; ".join(holds[:_SHOWN_HOLDS]) + more
        for host in living:
            reason = self._unfinished_at(host, living)
            if reason:
                return f"{self._name(host.id)} {reason}"
        return ""

    def _holds(self, host: Host) -> Iterator[str]:
        endpoint = host.endpoint
        assert isinstance(endpoint, Writer)
        for hold in endpoint.waiting():
            origin, seq = next(hold.batch.segment.ids())
            what = f"{self._name(host.id)} holds {self._name(origin)}/{seq}"
            awaited = self._name(hold.awaited)
            yield f"{what}, which waits until {hold.unit} {hold.number} of {awaited} is {hold.reason}"

    @abstractmethod
    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        """What a process that holds nothing is not done with; empty when it is done."""

    def _name(self, process: ProcessId) -> str:
        return str(self.world.names.name(process))


def no_batches(host: Host, batch: Batch) -> None:
    raise TypeError(f"{host.id} delivers messages, not batches")
