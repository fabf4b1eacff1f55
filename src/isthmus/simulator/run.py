"""One simulated run of a topology: build it, hurt it, let it recover, judge its trace.

Everything is drawn from the seed. Separate generators for faults, network and workload keep a change in one from
shaking the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.wire.join import LinkPdu
from isthmus.join.share import WINDOW
from isthmus.ordering.orders.order import ORDERS
from isthmus.simulator.checks.links import LinkWatch
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.checks.stability import too_early
from isthmus.simulator.faults.plan import LinkCut, NetworkFaults, draw_link_cuts
from isthmus.simulator.links import Link
from isthmus.simulator.network import Network
from isthmus.simulator.systems.group import JOIN_WINDOW
from isthmus.simulator.systems.table import KINDS
from isthmus.simulator.world import Host, World
from isthmus.topology.model import Topology
from isthmus.topology.wiring import all_links
from isthmus.trace.oracles import judge
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event, Report, Role
from isthmus.trace.writer import MemorySink, ProcessLog, Sink, open_log

RECOVERY: Nanos = 8 * SECOND
"""How long a run may take, after the last fault, to deliver everything and fall silent."""


def promised_by(order: OrderName, *, views: bool = True) -> tuple[str, ...]:
    """The properties that processes keep which deliver in this order, and may tell each other their views."""
    strength = list[str](ORDERS)
    stronger = strength[strength.index(order) + 1 :]
    return tuple(
        name
        for name, each in PROPERTIES.items()
        if each.weakest_order not in stronger and (views or not each.about_views)
    )


def promised(topology: Topology, part: Collection[str] | None = None) -> tuple[str, ...]:
    """What a topology, or one part of it, is judged by. Only systems that broadcast have one view for everybody."""
    views = any(system.broadcasts for system in topology.systems if part is None or system.name in part)
    return promised_by(topology.promise(part), views=views)


def judge_parts(topology: Topology, events: Sequence[Event]) -> Report:
    """Judge the rows of one run, every connected part of the topology by what that part promises."""
    whole = Report(runs=0, events=0, verdicts=[], violations=[])
    for part in topology.parts():
        report = judge([row for row in events if row.system in part], promised(topology, part))
        whole = Report(
            runs=whole.runs + report.runs,
            events=whole.events + report.events,
            verdicts=whole.verdicts + report.verdicts,
            violations=whole.violations + report.violations,
        )
    return whole


class Outcome(Struct, frozen=True):
    """What one run came to. `stuck` says in words what never finished, `broken` what was seen to go wrong on the way.

    `outside` says how the run left the model in which something is promised; then nothing in it counts as violated.
    """

    seed: int
    report: Report
    stuck: str
    broken: str
    outside: str
    sometimes: dict[str, int]
    deliveries: int
    steps: int
    virtual_time: Nanos

    @property
    def violated(self) -> bool:
        return not self.outside and bool(self.report.violated or self.stuck or self.broken)


class Run:
    """All systems of a topology and the links between them, in one world.

    `tight` makes the windows of joined systems so small that they are full at times in a short run.
    """

    def __init__(
        self, topology: Topology, seed: int, *, check: bool = True, trace: Path | None = None, tight: bool = True
    ) -> None:
        self.topology = topology
        self.seed = seed
        self.simulation = topology.simulation
        self.names = topology.directory()
        self.sometimes = Sometimes()
        self.sink = MemorySink()
        self._trace = trace
        self._logs: list[ProcessLog] = []
        network = self.simulation.network
        faults = NetworkFaults(network.loss, network.duplication, network.reordering)
        line = Network(Random(f"network {seed}"), network.delay, network.bandwidth, faults, self.sometimes)
        self.world = World(self.names, line, self.sometimes, check=check)
        self.links: list[Link] = []
        self.world.send_on_link = self._send_on_link
        self.systems = [
            KINDS[system.kind].make(topology, system, self.world, seed, self._log, tight=tight)
            for system in topology.systems
        ]
        if self.simulation.faults.swarm:
            line.faults = self.systems[0].nemesis.plan.network
        slots = {name: slot for slot, name in enumerate(self.names.slots)}
        wires = all_links(topology)
        watch = LinkWatch([link.join for link in wires], JOIN_WINDOW if tight else WINDOW, self.sometimes)
        for number, link in enumerate(wires):
            ends = (slots[link.near], slots[link.far])
            rng = Random(f"link {seed} {number}")
            self.links.append(Link(self.world, number, ends, self.simulation.line(link.near, link.far), rng, watch))
        self.link_cuts: tuple[LinkCut, ...] = draw_link_cuts(
            Random(f"link faults {seed}"),
            self.simulation.faults,
            range(len(self.links)),
            self._links_by_site(),
            self.simulation.duration,
        )
        self.world.on_end = self._ended
        if self.links:
            self.world.on_view = self._check_links
        self._outside = ""

    def play(self) -> Outcome:
        """The whole run."""
        for link in self.links:
            link.connect_at_once()
        for system in self.systems:
            system.nemesis.schedule()
        for cut in self.link_cuts:
            self.world.at(cut.at, self._cut_links, cut)
        broken = ""
        try:
            self.world.run_until(self.simulation.duration)
            for system in self.systems:
                system.nemesis.heal()
            for link in self.links:
                link.mend_for_good()
            stuck = self._recover()
        except AssertionError as error:
            stuck, broken = "", f"invariant broken at {self.world.now} ns: {error}"
        for host in self.world.living() if not broken else ():
            assert host.recorder is not None
            host.recorder.ended("end", "", self.world.now)
        for log in self._logs:
            log.close()
        events = self.sink.events
        broken = broken or too_early(events)
        for kind in dict.fromkeys(system.kind for system in self.topology.systems):
            broken = broken or KINDS[kind].check(events)
        deliveries = sum(event.event == "deliver" and event.role == "app" for event in events)
        if not deliveries and self.simulation.workload.rate:
            stuck = stuck or "nothing was delivered, so the run shows nothing: raise its rate or its duration"
        return Outcome(
            seed=self.seed,
            report=judge_parts(self.topology, events),
            stuck=stuck,
            broken=broken,
            outside=self._outside,
            sometimes=dict(self.sometimes),
            deliveries=deliveries,
            steps=self.world.steps,
            virtual_time=self.world.now,
        )

    # Links

    def _links_by_site(self) -> list[tuple[LinkId, ...]]:
        sites = [set(system.slots) for system in self.systems]
        return [tuple(link.id for link in self.links if site & set(link.slots)) for site in sites]

    def _send_on_link(self, link: LinkId, source: ProcessId, pdu: LinkPdu) -> None:
        self.links[link].send(source, pdu)

    def _cut_links(self, cut: LinkCut) -> None:
        if self.world.now >= self.simulation.duration:
            return
        self.sometimes.reach("link cut")
        for link in cut.links:
            self.links[link].cut()
        self.world.at(cut.until, self._mend_links, cut)

    def _mend_links(self, cut: LinkCut) -> None:
        for link in cut.links:
            self.links[link].mend()

    def _ended(self, host: Host) -> None:
        self._check_links(host)
        self._outside = self._outside or next(filter(None, (system.beyond_the_model() for system in self.systems)), "")

    def _check_links(self, host: Host) -> None:
        """A process has ended, or is in a new view: links that end at it may be affected."""
        slot = slot_of(host.id)
        for link in self.links:
            if slot in link.slots:
                link.check()

    # Logs and the end

    def _log(self, process: ProcessId, role: Role) -> Recorder:
        name = self.names.name(process)
        run = self.topology.run_of(f"seed-{self.seed}", name.system)
        if self._trace is not None:
            log = open_log(self._trace, "jsonl", run, name.system, name.process, role, self.names)
            log.sink = Tee(self.sink, log.sink)
        else:
            log = ProcessLog(self.sink, run, name.system, name.process, role, self.names)
        self._logs.append(log)
        return Recorder(process, log)

    def _recover(self) -> str:
        """Run until nothing is left to do. Returns what is, if it takes too long."""
        deadline = self.world.now + RECOVERY
        while True:
            for system in self.systems:
                # Again and again: a group may find only now that it has gone on without a gateway.
                system.revive_gateways()
            unfinished = self._unfinished()
            if not unfinished or self.world.now >= deadline:
                return unfinished
            self.world.run_until(self.world.now + 50 * MILLISECOND)

    def _unfinished(self) -> str:
        return next(filter(None, (system.unfinished() for system in self.systems)), "")


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
    return Run(topology, seed, check=check, trace=trace).play()
