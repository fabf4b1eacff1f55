"""One simulated run of a topology: build it, hurt it, let it recover, judge its trace.

Everything is drawn from the seed. Separate generators for faults, network and workload keep a change in one from
shaking the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from isthmus.core.endpoint import View
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, incarnation_of
from isthmus.interconnect.topology import System, Topology
from isthmus.ordering.group import GroupMember, GroupSettings
from isthmus.ordering.orders import ORDERS, OrderName
from isthmus.simulator.faults import FaultPlan, draw_plan
from isthmus.simulator.nemesis import Nemesis
from isthmus.simulator.network import Network
from isthmus.simulator.oracles import judge
from isthmus.simulator.sometimes import Sometimes
from isthmus.simulator.workload import Application
from isthmus.simulator.world import Host, World
from isthmus.trace.schema import Event, Property, Report
from isthmus.trace.writer import MemorySink, ProcessLog, Sink, open_log

PROMISED: dict[OrderName, tuple[Property, ...]] = {
    "fifo": ("integrity", "agreement", "fifo", "same_view"),
    "causal": ("integrity", "agreement", "fifo", "causal", "same_view"),
    "total": ("integrity", "agreement", "fifo", "causal", "total", "same_view"),
}
RECOVERY: Nanos = 20 * SECOND
"""How long a run may take, after the last fault, to deliver everything and fall silent."""


class Outcome(Struct, frozen=True):
    """What one run came to. `stuck` says in words what never finished; empty if everything did."""

    seed: int
    report: Report
    stuck: str
    broken: str
    sometimes: dict[str, int]
    deliveries: int
    steps: int
    virtual_time: Nanos

    @property
    def violated(self) -> bool:
        return bool(self.report.violated or self.stuck or self.broken)


class GroupRun:
    """A run of a topology that is one embedded system."""

    def __init__(self, topology: Topology, seed: int, *, check: bool = True, trace: Path | None = None) -> None:
        (system,) = topology.systems
        self.system: System = system
        self.seed = seed
        self.simulation = topology.simulation
        self.names = topology.directory()
        self.sometimes = Sometimes()
        self.sink = MemorySink()
        self._trace = trace
        self._logs: list[ProcessLog] = []
        self._incarnations: dict[int, int] = {}
        slots = list(topology.slots(system.name))
        self.plan: FaultPlan = draw_plan(
            Random(f"faults {seed}"),
            self.simulation.faults,
            self.simulation.network,
            slots,
            self.simulation.duration,
            system.suspect_after,
        )
        network = Network(
            Random(f"network {seed}"),
            self.simulation.network.delay,
            self.simulation.network.bandwidth,
            self.plan.network,
            self.sometimes,
        )
        self.world = World(self.names, network, self.sometimes, check=check)
        self.application = Application(
            self.world, Random(f"workload {seed}"), self.simulation.workload, self.simulation.duration
        )
        self.settings = GroupSettings(
            heartbeat=system.heartbeat,
            suspect_after=system.suspect_after,
            retry_after=2 * system.heartbeat,
            uniform=system.delivery == "uniform",
            window_messages=512,
        )
        self.nemesis = Nemesis(self.world, slots, self.plan, self._revive)
        senders = self.simulation.workload.senders
        self._founders = slots
        self._senders = slots if senders is None else [self.names.id(*sender) for sender in senders]
        for slot in slots:
            self._start(slot, joining=False)

    def play(self) -> Outcome:
        """The whole run."""
        self.nemesis.schedule()
        broken = ""
        try:
            self.world.run_until(self.simulation.duration)
            self.nemesis.heal()
            stuck = self._recover()
        except AssertionError as error:
            stuck, broken = "", f"invariant broken at {self.world.now} ns: {error}"
        for host in self.world.living() if not broken else ():
            assert host.log is not None
            host.log.event("end", self.world.now)
        for log in self._logs:
            log.close()
        events = self.sink.events
        return Outcome(
            seed=self.seed,
            report=judge(events, PROMISED[self.system.order]),
            stuck=stuck,
            broken=broken,
            sometimes=dict(self.sometimes),
            deliveries=sum(event.event == "deliver" for event in events),
            steps=self.world.steps,
            virtual_time=self.world.now,
        )

    def _start(self, slot: int, *, joining: bool) -> None:
        process = incarnation_of(slot, self._incarnations.get(slot, 0))
        endpoint = GroupMember(
            process, self._founders, ORDERS[self.system.order], self.settings, self.world.now, joining=joining
        )
        log = self._log(process)
        host = Host(endpoint, log, self.application.on_batch)
        log.event("join" if joining else "start", self.world.now)
        if not joining:
            host.view = View(1, tuple(self._founders))
            members = tuple(str(self.names.name(member)) for member in self._founders)
            log.event("view", self.world.now, peer="1", destinations=members)
        self.world.start(host)
        if slot in self._senders:
            self.application.begin(host)

    def _revive(self, slot: int) -> None:
        self._incarnations[slot] = self._incarnations.get(slot, 0) + 1
        self._start(slot, joining=True)

    def _log(self, process: int) -> ProcessLog:
        run = f"seed-{self.seed}"
        name = self.names.name(process)
        if self._trace is not None:
            log = open_log(self._trace, "jsonl", run, name.system, name.process, "app", self.names)
            log.sink = Tee(self.sink, log.sink)
        else:
            log = ProcessLog(self.sink, run, name.system, name.process, "app", self.names)
        self._logs.append(log)
        return log

    def _recover(self) -> str:
        """Run until nothing is left to do. Returns what is, if it takes too long."""
        deadline = self.world.now + RECOVERY
        while self._unfinished():
            if self.world.now >= deadline:
                return self._unfinished()
            self.world.run_until(self.world.now + 50 * MILLISECOND)
        return ""

    def _unfinished(self) -> str:
        living = self.world.living()
        ids = {host.id for host in living}
        for host in living:
            name = self.names.name(host.id)
            if host.doomed is not None:
                return f"{name} is about to crash"
            if host.view is None:
                return f"{name} is not let in"
            if set(host.view.members) != ids:
                members = ", ".join(self.names.name(member).process for member in host.view.members)
                return f"{name} is in view {host.view.number} of {members}, which are not all that live"
            endpoint = host.endpoint
            assert isinstance(endpoint, GroupMember)
            for hold in endpoint.waiting():
                return f"{name} holds batch {hold.batch.number} of {self.names.name(hold.batch.sender)}: {hold.reason}"
            if endpoint.unfinished():
                return f"{name} has {endpoint.unfinished()} messages that are not stable"
        return ""


class Tee:
    """Rows to memory for the oracles and to a file for people."""

    def __init__(self, memory: MemorySink, file: Sink) -> None:
        self._memory = memory
        self._file = file

    def write(self, events: Sequence[Event]) -> None:
        self._memory.write(events)
        self._file.write(events)

    def close(self) -> None:
        self._file.close()


def simulate(topology: Topology, seed: int, *, check: bool = True, trace: Path | None = None) -> Outcome:
    """One run. Equal arguments give equal outcomes, and byte-identical files under `trace`."""
    return GroupRun(topology, seed, check=check, trace=trace).play()
