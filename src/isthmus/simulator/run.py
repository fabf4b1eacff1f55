"""One simulated run of a topology: build it, hurt it, let it recover, judge its trace.

Everything is drawn from the seed. Separate generators for faults, network and workload keep a change in one from
shaking the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct, structs

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.wire.join import LinkPdu
from isthmus.join.share import WINDOW
from isthmus.ordering.orders.order import ORDERS
from isthmus.simulator.checks.holders import Enough, Unpromised, crashed_in, what_is_missing
from isthmus.simulator.checks.links import EpochWatch, LinkWatch, TooManyEpochs
from isthmus.simulator.checks.sometimes import FAULTS, Sometimes
from isthmus.simulator.checks.stability import too_early
from isthmus.simulator.faults.plan import LinkCut, NetworkFaults, draw_link_cuts
from isthmus.simulator.links import SimulatedLink
from isthmus.simulator.network import Network
from isthmus.simulator.systems.group import JOIN_WINDOW
from isthmus.simulator.systems.kind import OpenLog, Simulated
from isthmus.simulator.systems.table import KINDS
from isthmus.simulator.world import Host, WentRound, World
from isthmus.topology.model import System, Topology
from isthmus.topology.wiring import all_links
from isthmus.trace.oracles import judge
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event, Report, Role
from isthmus.trace.writer import MemorySink, ProcessLog, Sink, open_log

RECOVERY: Nanos = 8 * SECOND
"""How long a run may take, after the last fault, to deliver everything and fall silent."""

SHOWN_REASONS = 5

SILENCE: Nanos = 4 * SECOND
"""A run that has not finished, and in which no process has left a row for this long, will not finish. Where it takes
long to suspect somebody, four times that."""


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
    """What a topology, or one part of it, is judged by. Only groups that broadcast have one view for everybody."""
    systems = [system for system in topology.systems if part is None or system.name in part]
    views = any(system.broadcasts and not system.acts_alone for system in systems)
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


class RunOutcome(Struct, frozen=True):
    """What one run came to. `stuck` says in words what never finished, `broken` what was seen to go wrong on the way,
    `early` what was called stable too early.

    `report` is what the oracles read from its rows. `unpromised` counts what is missing that nobody can promise, and
    `excused` are the violated properties of which that is all. `causes` says what happened to the run that protocols
    do not survive yet, by the names of `checks/causes.py`: it tells failures apart and excuses none. `inputs` are a
    sample of its steps, by what they were about.
    """

    seed: int
    report: Report
    stuck: str
    broken: str
    early: str
    causes: dict[str, str]
    unpromised: Unpromised
    excused: tuple[str, ...]
    sometimes: dict[str, int]
    deliveries: int
    steps: int
    inputs: dict[str, int]
    virtual_time: Nanos

    @property
    def failed(self) -> tuple[str, ...]:
        """What is wrong with it, by name: properties, then `stuck`, `stable` and `broken`."""
        return (*self.properties, *self.beside)

    @property
    def properties(self) -> list[str]:
        """What the rows violate."""
        violated = dict.fromkeys(each.property for each in self.report.violated)
        return [name for name in violated if name not in self.excused]

    @property
    def beside(self) -> list[str]:
        """What is wrong that the rows of any run could not tell."""
        words = {"stuck": self.stuck, "stable": self.early, "broken": self.broken}
        return [name for name, said in words.items() if said]

    @property
    def missing(self) -> dict[str, int]:
        """How many messages a living process has not got that nobody could promise it, by reason."""
        return self.unpromised.counts()

    @property
    def reasons(self) -> list[str]:
        """The same in words: the first few witnesses, then what is not in the rows."""
        witnesses = [each.why for each in self.report.violations if each.property not in self.excused]
        others = (self.broken, self.early, self.stuck and f"stuck: {self.stuck}")
        return witnesses[:SHOWN_REASONS] + [reason for reason in others if reason]

    @property
    def violated(self) -> bool:
        return bool(self.failed)

    @property
    def faults(self) -> dict[str, int]:
        """How many faults of each kind took place."""
        return {kind: self.sometimes[kind] for kind in FAULTS if self.sometimes.get(kind)}


class Run:
    """All systems of a topology and the links between them, in one world.

    `tight` makes the windows of joined systems so small that they are full at times in a short run. `record` gives
    every process its recorder where there are to be no rows; then there is nothing to `play` and to judge, but only
    to `begin`.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int,
        *,
        check: bool = True,
        trace: Path | None = None,
        tight: bool = True,
        record: OpenLog | None = None,
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
        network_line = Network(Random(f"network {seed}"), network.delay, network.bandwidth, faults, self.sometimes)
        self.world = World(self.names, network_line, self.sometimes, check=check)
        self.links: list[SimulatedLink] = []
        self.world.send_on_link = self._send_on_link
        self.systems: list[Simulated] = [
            KINDS[system.kind].make(topology, system, self.world, seed, record or self._log, tight=tight)
            for system in topology.systems
        ]
        if self.simulation.faults.swarm:
            network_line.faults = self.systems[0].nemesis.plan.network
        slots = {name: slot for slot, name in enumerate(self.names.slots)}
        wires = all_links(topology)
        joins = [link.join for link in wires]
        watch = LinkWatch(joins, JOIN_WINDOW if tight else WINDOW, self.sometimes)
        self._epochs = EpochWatch(joins, self.world.causes)
        for number, link in enumerate(wires):
            ends = (slots[link.near], slots[link.far])
            rng = Random(f"link {seed} {number}")
            line = self.simulation.line(link.near, link.far)
            self.links.append(SimulatedLink(self.world, number, ends, line, rng, watch, self._epochs))
        self.link_cuts: tuple[LinkCut, ...] = draw_link_cuts(
            Random(f"link faults {seed}"),
            self.simulation.faults,
            range(len(self.links)),
            self._links_by_site(),
            self.simulation.duration,
        )
        self._by_slot = {slot: system for system in self.systems for slot in system.slots}
        self.world.on_end = self._ended
        self.world.on_view = self._viewed

    def begin(self) -> None:
        """Connect the links, and see to it that the faults come."""
        for link in self.links:
            link.connect_at_once()
        for system in self.systems:
            system.nemesis.schedule()
        for cut in self.link_cuts:
            self.world.at(cut.at, self._cut_links, cut)

    def play(self) -> RunOutcome:
        """The whole run."""
        self.begin()
        broken = ""
        try:
            self.world.run_until(self.simulation.duration)
            for system in self.systems:
                system.nemesis.heal()
            for link in self.links:
                link.mend_for_good()
            self._epochs.settle(self.world.now)
            unfinished = self._recover()
        except AssertionError as error:
            unfinished, broken = {}, f"invariant broken at {self.world.now} ns: {error}"
        except (TooManyEpochs, WentRound) as error:
            unfinished = {"": f"went round at {self.world.now} ns: {error}"}
        for simulated in self.systems:
            simulated.note_causes()
        for host in self.world.living() if not broken else ():
            assert host.recorder is not None
            host.recorder.ended("end", "", self.world.now)
        for log in self._logs:
            log.close()
        events = self.sink.events
        crashed = crashed_in(events, self._frail)
        stopped = self._stopped
        held = "; ".join(words for system, words in unfinished.items() if system in crashed | stopped)
        stuck = next((words for system, words in unfinished.items() if system not in crashed | stopped), "")
        for kind in dict.fromkeys(system.kind for system in self.topology.systems):
            broken = broken or KINDS[kind].check(events)
        deliveries = sum(event.event == "deliver" and event.role == "app" for event in events)
        if not deliveries and self.simulation.workload.rate and not stopped:
            stuck = stuck or "nothing was delivered, so the run shows nothing: raise its rate or its duration"
        report = judge_parts(self.topology, events)
        excused: tuple[str, ...] = ()
        unpromised = Unpromised(held=held)
        if report.verdict("agreement") == "violated":
            unpromised, otherwise = what_is_missing(
                events,
                journals=self._journals,
                promises=self._promises(),
                crashed=crashed,
                enough=self._enough,
                stopped=stopped,
            )
            unpromised = structs.replace(unpromised, held=held)
            excused = () if otherwise else ("agreement",)
        return RunOutcome(
            seed=self.seed,
            report=report,
            stuck=stuck,
            broken=broken,
            early="" if broken else too_early(events),
            causes=dict(self.world.causes),
            unpromised=unpromised,
            excused=excused,
            sometimes=dict(self.sometimes),
            deliveries=deliveries,
            steps=self.world.steps,
            inputs=dict(self.world.inputs),
            virtual_time=self.world.now,
        )

    def _named(self) -> Iterable[tuple[System, Simulated]]:
        return zip(self.topology.systems, self.systems, strict=True)

    @property
    def _stopped(self) -> set[str]:
        """The systems of all parts in which joins have stopped and wait for a person."""
        stopped = {system.name for system, each in self._named() if each.stopped}
        return {name for part in self.topology.parts() if not stopped.isdisjoint(part) for name in part}

    # Links

    def _links_by_site(self) -> list[tuple[LinkId, ...]]:
        sites = [set(system.slots) for system in self.systems]
        return [tuple(link.id for link in self.links if site & set(link.slots)) for site in sites]

    def _send_on_link(self, link: LinkId, source: ProcessId, pdu: LinkPdu) -> None:
        self.links[link].send(source, pdu)

    def _cut_links(self, cut: LinkCut) -> None:
        if self.world.now >= self.simulation.duration:
            return
        self.sometimes.reach("site cut" if cut.of_a_site else "link cut")
        for link in cut.links:
            self.links[link].cut()
        self.world.at(cut.until, self._mend_links, cut)

    def _mend_links(self, cut: LinkCut) -> None:
        for link in cut.links:
            self.links[link].mend()

    def _ended(self, host: Host) -> None:
        self._by_slot[slot_of(host.id)].ended(host)
        self._epochs.disturb(self.world.now)
        self._check_links(host)

    def _viewed(self, host: Host) -> None:
        self._by_slot[slot_of(host.id)].viewed(host)
        self._epochs.disturb(self.world.now)
        self._check_links(host)

    def _check_links(self, host: Host) -> None:
        """A process has ended, or is in a new view: links that end at it may be affected."""
        slot = slot_of(host.id)
        for link in self.links:
            if slot in link.slots:
                link.check()

    # Logs and the end

    def _run_of(self, system: str) -> str:
        return self.topology.run_of(f"seed-{self.seed}", system)

    def _promises(self) -> dict[str, str]:
        """The order that each part of the topology is meant to keep, by the run that it records under."""
        return {self._run_of(part[0]): self.topology.promise(part) for part in self.topology.parts()}

    def _log(self, process: ProcessId, role: Role) -> Recorder:
        name = self.names.name(process)
        run = self._run_of(name.system)
        if self._trace is not None:
            log = open_log(self._trace, "jsonl", run, name.system, name.process, role, self.names)
            log.sink = Tee(self.sink, log.sink)
        else:
            log = ProcessLog(self.sink, run, name.system, name.process, role, self.names)
        self._logs.append(log)
        return Recorder(process, log)

    @property
    def _frail(self) -> set[str]:
        """The systems that promise nothing to arrive once a process has crashed."""
        return {system.name for system in self.topology.systems if not KINDS[system.kind].survives_crashes}

    @property
    def _enough(self) -> dict[str, Enough]:
        """By system, who has to hold what is delivered there; not of those that promise nothing about it."""
        rules = {system.name: KINDS[system.kind].enough(system) for system in self.topology.systems}
        return {name: rule for name, rule in rules.items() if rule is not None}

    @property
    def _journals(self) -> set[str]:
        return {system.name for system in self.topology.systems if system.journal is not None}

    def _recover(self) -> dict[str, str]:
        """Run until nothing is left to do. Returns what is, by system, if it takes too long or nothing moves."""
        deadline = self.world.now + RECOVERY
        silence = max(SILENCE, *(4 * system.suspect_after for system in self.topology.systems))
        rows, moved_at = 0, self.world.now
        while True:
            for system in self.systems:
                # Again and again: a group may find only now that it has gone on without somebody.
                system.revive()
            unfinished = self._unfinished()
            if (written := sum(log.next_index for log in self._logs)) != rows:
                rows, moved_at = written, self.world.now
            if not unfinished or self.world.now >= min(deadline, moved_at + silence):
                return unfinished
            self.world.run_until(self.world.now + 50 * MILLISECOND)

    def _unfinished(self) -> dict[str, str]:
        return {system.name: words for system, simulated in self._named() if (words := simulated.unfinished())}


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


def simulate(topology: Topology, seed: int, *, check: bool = True, trace: Path | None = None) -> RunOutcome:
    """One run. Equal arguments give equal outcomes, and byte-identical files under `trace`."""
    return Run(topology, seed, check=check, trace=trace).play()
