"""Thousands of simulated processes: what a run takes, what it shows, and what the planner said before.

Three scenarios at 100 messages a second in all, over lines of 1 ms without faults: a tree of causal groups joined by
causal joins, a daisy, and clusters. Each runs in an OS process of its own, which tells its peak of memory.

A trace would have a hundred million rows. In its place a `Witness` per process keeps the order of its deliveries, four
bytes for each, and `judge` reads from these, for every process and every message, what the oracles read from rows.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from math import isqrt
from multiprocessing import get_context

from msgspec import Struct

from isthmus.core.codec import body_of
from isthmus.core.endpoint import Destinations, Outbox, View
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.clusters import HopFrame
from isthmus.core.wire.daisy import DaisyFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.tree import hierarchy_of, route
from isthmus.planner.expressions import broadcast_messages
from isthmus.planner.forecast import forecast, load_of, local_latency, mean_delay
from isthmus.simulator.network import FRAME_OVERHEAD, Network
from isthmus.simulator.run import Run
from isthmus.simulator.systems.daisy import DaisyApplication, SimulatedDaisy
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.trace.recorder import Beginning, Ending, Recorder

RATE = 100
"""Messages a second, of all processes together."""
SIZE = 100
BRANCHES = 10
"""Systems that are joined to one nearer to the root of the tree."""
SETTLE = 10 * SECOND
"""How long after the last message everything has to be delivered."""
BYTES_OF = 16
"""One PDU in so many is encoded to see how long it is: all of them took a tenth of the time of a run."""
SHOWN = 3

FEW = (0, 0, 1, 2)
"""How many others, drawn from these, a message in a daisy is for beside the one that is meant."""

CHECKED = (
    "checked, for every message at every process: delivered exactly once where it is for the process and nowhere else; "
    "after all that its origin had sent or delivered before, directly or by way of others, so also first in first out"
)
LEFT_OUT = (
    "not checked: that all members agree on views, that nothing is called stable too early, invariants after each step"
)


class Scenario(Struct, frozen=True):
    """`parts` are joined systems, or groups of one system, of equal size. Processes send 1 to `burst` at a time."""

    name: str
    processes: int
    parts: int
    seconds: float = 30.0
    burst: int = 1
    seed: int = 1

    @property
    def size(self) -> int:
        return self.processes // self.parts


class Value(Struct, frozen=True):
    """One figure as simulated, beside what was forecast; None where nobody can say."""

    what: str
    simulated: float
    forecast: float | None = None


class Figure(Struct, frozen=True):
    """What came of one scenario. `violations` are empty if every promise that was checked was kept."""

    scenario: Scenario
    messages: int
    deliveries: int
    steps: int
    values: list[Value]
    checked: str
    violations: list[str]
    build_cpu_seconds: float
    cpu_seconds: float
    judge_cpu_seconds: float
    wall_seconds: float
    resident_mib: float
    load: float


def scenarios(processes: int | None, systems: int | None, seconds: float, burst: int = 1) -> list[Scenario]:
    """Those that are wanted; others, if it is said how many processes, or how many systems they are in.

    What is left when they are dealt out evenly is left out.
    """
    hierarchy = processes or 4096
    parts = {"clusters": isqrt(hierarchy), "daisy": isqrt(hierarchy), "joined": systems or 100}
    totals = {"clusters": hierarchy, "daisy": hierarchy, "joined": processes or 10_000}
    return [Scenario(name, totals[name] // each * each, each, seconds, burst) for name, each in parts.items()]


def measure(scenario: Scenario) -> Figure:
    """In an OS process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(simulate, scenario).result()


# Topologies


def text_of(scenario: Scenario) -> str:
    """The topology file of a scenario."""
    system = {"joined": _tree, "daisy": _daisy, "clusters": _clusters}[scenario.name]
    rate = RATE / scenario.processes
    return f"""{system(scenario)}
[simulation]
duration = "{scenario.seconds:g}s"
[simulation.workload]
rate = {rate:.9f}
size = {SIZE}
burst = {scenario.burst}
[simulation.network]
delay = "1ms"
[simulation.links]
delay = "10ms"
bandwidth = "1Gbit"
"""


_KEYS = 'kind = "embedded"\norder = "causal"\nheartbeat = "500ms"\n'
_PATIENCE = 'suspect-after = "3s"\n'


def _tree(scenario: Scenario) -> str:
    """Every system has one gateway, and all but the first are joined to one nearer to that."""
    processes = [f"p{number + 1}" for number in range(scenario.size)]
    text = [
        f"[systems.s{index}]\n{_KEYS}{_PATIENCE}processes = {processes}\ngateways = {int(scenario.parts > 1)}\n"
        for index in range(scenario.parts)
    ]
    text += [
        f'[[joins]]\nbetween = ["s{(index - 1) // BRANCHES}", "s{index}"]\norder = "causal"\nlinks = 1\n'
        for index in range(1, scenario.parts)
    ]
    return "\n".join(text)


def _parts_of(scenario: Scenario) -> list[list[str]]:
    return [[f"g{part}-{number}" for number in range(scenario.size)] for part in range(scenario.parts)]


def _daisy(scenario: Scenario) -> str:
    return _hierarchy(scenario, "daisy", _PATIENCE, "")


def _clusters(scenario: Scenario) -> str:
    return _hierarchy(scenario, "clusters", "", 'delivery = "rst"\n')


def _hierarchy(scenario: Scenario, kind: str, keys: str, each: str) -> str:
    """Two levels: as many groups, or clusters, as each has members."""
    parts = _parts_of(scenario)
    everybody = [name for part in parts for name in part]
    text = [f"[systems.shop]\n{_KEYS}{keys}processes = {everybody}\n\n[systems.shop.{kind}]\n{each}"]
    text += [f"[systems.shop.{kind}.parts.g{part}]\nprocesses = {names}\n{each}" for part, names in enumerate(parts)]
    return "\n".join(text)


# What is seen of a run


class Book:
    """All messages of a run, by the order in which they were sent, and what became of them.

    Of each message: its `origins` and `sent_at`, whom it was for (`audiences`, None for everybody), and after how many
    deliveries its origin sent it (`after`). `delays` counts deliveries by tenths of a millisecond, `relays` how often
    messages were passed on from one group to the next.
    """

    def __init__(self) -> None:
        self.now: Nanos = 0
        self.indices: dict[tuple[ProcessId, int], int] = {}
        self.origins: list[ProcessId] = []
        self.sent_at: list[Nanos] = []
        self.audiences: list[Destinations | None] = []
        self.after: list[int] = []
        self.witnesses: dict[ProcessId, Witness] = {}
        self.delays: Counter[int] = Counter()
        self.relays = 0
        self.deliveries = 0
        self._segment: Segment | None = None
        self._found: list[int] = []

    def sent(self, origin: ProcessId, seq: int, audience: Destinations | None, after: int, now: Nanos) -> None:
        self.indices[origin, seq] = len(self.origins)
        self.origins.append(origin)
        self.sent_at.append(now)
        self.audiences.append(audience)
        self.after.append(after)

    def found(self, segment: Segment) -> list[int]:
        """Which messages these are. All members of a group get one segment, one after the other."""
        if segment is not self._segment:
            self._segment, self._found = segment, list(map(self.indices.__getitem__, segment.ids()))
        return self._found

    def expected(self) -> int:
        """How many deliveries there are to be."""
        everywhere = sum(witness.is_app for witness in self.witnesses.values())
        return sum(everywhere if audience is None else len(audience) for audience in self.audiences)


class Witness(Recorder):
    """Sees what one process sends and delivers, in the place of its log."""

    __slots__ = ("book", "delivered", "is_app")

    def __init__(self, process: ProcessId, book: Book, *, is_app: bool) -> None:
        self._process = process
        self.book = book
        self.is_app = is_app
        self.delivered = array("I")

    def began(self, how: Beginning, view: View | None, now: Nanos) -> None:
        self.book.witnesses[self._process] = self

    def ended(self, how: Ending, why: str, now: Nanos) -> None:
        raise AssertionError(f"{self._process} has ended: {why}")

    def sent(self, first: int, payloads: Sequence[bytes], destinations: Destinations | None, now: Nanos) -> None:
        for seq in range(first, first + len(payloads)):
            self.book.sent(self._process, seq, destinations, len(self.delivered), now)

    def step(self, out: Outbox, now: Nanos) -> None:
        book = self.book
        if self.is_app:
            for item in out.deliveries:
                if type(item) is Batch:
                    self._note(book.found(item.segment), now)
            for run, _ in out.addressed:
                self._note(book.found(run.segment), now)
        for carried in out.carried:
            if carried.event == "transfer":
                book.relays += carried.segment.messages

    def _note(self, found: list[int], now: Nanos) -> None:
        book = self.book
        self.delivered.extend(found)
        book.deliveries += len(found)
        for index in found:
            book.delays[(now - book.sent_at[index]) // TENTH] += 1


TENTH = MILLISECOND // 10


class CountingNetwork(Network):
    """Counts what is sent, to each destination, and how long a part of it is."""

    def __init__(self, network: Network) -> None:
        self.__dict__.update(network.__dict__)
        self.copies = 0
        self.header_numbers = 0
        # By kind: how many were sent, to each destination and to all at once, and how long those are that were encoded.
        self._copies: defaultdict[type, int] = defaultdict(int)
        self._seen: defaultdict[type, int] = defaultdict(int)
        self._sampled: defaultdict[type, int] = defaultdict(int)
        self._bytes: defaultdict[type, int] = defaultdict(int)

    def together(self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu, now: Nanos) -> Nanos | None:
        self.note(pdu, len(destinations))
        return super().together(source, destinations, pdu, now)

    def note(self, pdu: Pdu, copies: int) -> None:
        word = pdu.pdu if isinstance(pdu, DaisyFrame) else pdu
        kind = type(word)
        self._copies[kind] += copies
        if isinstance(word, Batch):
            self.copies += copies * word.segment.messages
        elif isinstance(word, HopFrame):
            self.copies += len(word.hops)
            self.header_numbers += sum([len(row) for hop in word.hops for row in hop.rows])
        seen = self._seen[kind]
        self._seen[kind] = seen + 1
        if not seen % BYTES_OF:
            self._sampled[kind] += 1
            self._bytes[kind] += len(body_of(pdu)) + FRAME_OVERHEAD

    def bytes_sent(self) -> float:
        return sum(copies * self._bytes[kind] / self._sampled[kind] for kind, copies in self._copies.items())


def simulate(scenario: Scenario) -> Figure:
    """Play one scenario in this OS process, and judge it."""
    began, wall = time.process_time(), time.monotonic()
    topology = parse(text_of(scenario), f"bench scale, {scenario.name}")
    book = Book()
    run = Run(
        topology,
        scenario.seed,
        check=False,
        tight=False,
        record=lambda process, role: Witness(process, book, is_app=role == "app"),
    )
    world = run.world
    network = world.network = CountingNetwork(world.network)
    for system in run.systems:
        if isinstance(system, SimulatedDaisy) and isinstance(system.application, DaisyApplication):
            system.application.beside = FEW
    # What lives as long as the run need not be looked at again and again.
    gc.freeze()
    built = time.process_time()
    run.begin()
    end = topology.simulation.duration
    world.run_until(end)
    while book.deliveries < book.expected() and world.now < end + SETTLE:
        world.run_until(world.now + 10 * MILLISECOND)
    ran = time.process_time()
    gc.unfreeze()
    violations = list(islice(judge(book), SHOWN))
    return Figure(
        scenario=scenario,
        messages=len(book.origins),
        deliveries=book.deliveries,
        steps=world.steps,
        values=values_of(topology, run, book, network),
        checked=f"{CHECKED}; {LEFT_OUT}",
        violations=violations,
        build_cpu_seconds=built - began,
        cpu_seconds=ran - built,
        judge_cpu_seconds=time.process_time() - ran,
        wall_seconds=time.monotonic() - wall,
        resident_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        load=os.getloadavg()[0],
    )


# Promises


def judge(book: Book) -> Iterator[str]:
    """What is wrong with the deliveries, in words.

    `past` of a message is a set of bits, one per message: what its origin had sent or delivered before it, and the past
    of all that. A process may deliver it when all of its past that is for that process has been delivered there.
    """
    count = len(book.origins)
    past = _pasts(book)
    everybody = (1 << count) - 1
    audiences = [frozenset(audience or ()) for audience in book.audiences]
    addressed = None not in book.audiences
    for process, witness in book.witnesses.items():
        if not witness.is_app:
            continue
        mine = everybody
        if addressed:
            mine = sum(1 << index for index, audience in enumerate(audiences) if process in audience)
        seen = 0
        for index in witness.delivered:
            bit = 1 << index
            if seen & bit or not mine & bit:
                yield f"{process} delivers {index} of {book.origins[index]} twice, or though it is not for it"
            if missing := past[index] & mine & ~seen:
                cause = missing.bit_length() - 1
                yield f"{process} delivers {index} of {book.origins[index]} before its cause {cause}"
            seen |= bit
        if missing := mine & ~seen:
            yield f"{process} has not delivered {missing.bit_count()} messages"


def _pasts(book: Book) -> list[int]:
    """Messages are in the order in which they were sent, so the pasts of all causes are there before."""
    past: list[int] = []
    known: dict[ProcessId, tuple[int, int]] = {}
    for index, (origin, after) in enumerate(zip(book.origins, book.after, strict=True)):
        knows, read = known.get(origin, (0, 0))
        for cause in book.witnesses[origin].delivered[read:after]:
            knows |= past[cause] | 1 << cause
        past.append(knows)
        known[origin] = (knows | 1 << index, after)
    return past


# Figures


def values_of(topology: Topology, run: Run, book: Book, network: CountingNetwork) -> list[Value]:
    """What was simulated, beside what the planner says of this topology without running it."""
    messages, deliveries = max(1, len(book.origins)), max(1, book.deliveries)
    copies = network.copies + (book.relays if run.links else 0)
    sent = run.world.pdus_sent + sum(sum(link.frames_sent) for link in run.links)
    carried = network.bytes_sent() + sum(sum(link.bytes_sent) for link in run.links)
    control = carried - SIZE * copies
    expected = expected_of(topology, book)
    found = {
        "deliveries per message": deliveries / messages,
        "copies of a message": copies / messages,
        "PDUs per message": sent / messages,
        "PDUs per delivery": sent / deliveries,
        "control bytes per message": control / messages,
        "control bytes per delivery": control / deliveries,
        "numbers in headers per message": network.header_numbers / messages,
        "relays per message": book.relays / messages,
        "delay p50, ms": percentile(book.delays, 0.5) / 10,
        "delay p99, ms": percentile(book.delays, 0.99) / 10,
        "delay, longest, ms": max(book.delays, default=0) / 10,
    }
    return [Value(what, value, expected.get(what)) for what, value in found.items() if value or what in expected]


def expected_of(topology: Topology, book: Book) -> dict[str, float]:
    """What can be said before anything runs: by the planner, or by the ways that messages take."""
    system = topology.systems[0]
    audiences = [0 if audience is None else len(audience) for audience in book.audiences]
    model = load_of(topology).model
    if system.kind == "clusters":
        return _expected_of_clusters(topology, book)
    if system.kind == "daisy":
        longest = local_latency(system, model) / MILLISECOND
        return {"deliveries per message": mean(audiences), "delay, longest, ms": float(longest)}
    processes = sum(len(each.processes) for each in topology.systems)
    local, link = local_latency(system, model), model.link_hop
    delays: Counter[int] = Counter()
    for links, pairs in _distances(topology).items():
        delays[round(((links + 1) * local + links * link) / TENTH)] += pairs
    return {
        "deliveries per message": processes,
        "copies of a message": broadcast_messages(processes, len(topology.systems)),
        "relays per message": len(topology.systems) - 1,
        "delay p50, ms": percentile(delays, 0.5) / 10,
        "delay p99, ms": percentile(delays, 0.99) / 10,
        "delay, longest, ms": float(forecast(topology, load_of(topology)).worst.latency / MILLISECOND),
    }


def _distances(topology: Topology) -> Counter[int]:
    """How many pairs of systems are so many links apart."""
    neighbours: dict[str, list[str]] = {system.name: [] for system in topology.systems}
    for join in topology.joins:
        near, far = join.between
        neighbours[near].append(far)
        neighbours[far].append(near)
    found: Counter[int] = Counter()
    for start in neighbours:
        distances = {start: 0}
        for name in (reached := [start]):
            for other in neighbours[name]:
                if other not in distances:
                    distances[other] = distances[name] + 1
                    reached.append(other)
        found.update(distances.values())
    return found


def _expected_of_clusters(topology: Topology, book: Book) -> dict[str, float]:
    """By the ways that the messages of this run take (cluster, Fig. 3), each hop with a header of n² numbers."""
    (system,) = topology.systems
    slots = dict(zip(system.members, topology.slots(system.name), strict=True))
    tree = hierarchy_of(system.own(ClusterTable), slots.__getitem__)
    hops: list[int] = []
    numbers = 0
    for origin, audience in zip(book.origins, book.audiences, strict=True):
        assert audience is not None, "a message in clusters is for one process"
        way = [] if origin == audience[0] else list(route(tree, origin, audience[0]))
        hops.append(len(way))
        for here, there in way:
            both = next(each for each in tree.clusters_of(here) if tree.rank(each.number, there) is not None)
            numbers += len(both.members) ** 2
    delay = mean_delay(topology.simulation.network.delay)
    delays = Counter(count * delay // TENTH for count in hops)
    return {
        "deliveries per message": 1,
        "copies of a message": mean(hops),
        "numbers in headers per message": numbers / max(1, len(hops)),
        "relays per message": mean([max(0, count - 1) for count in hops]),
        "delay p50, ms": percentile(delays, 0.5) / 10,
        "delay p99, ms": percentile(delays, 0.99) / 10,
        "delay, longest, ms": max(delays, default=0) / 10,
    }


def mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


def percentile(counts: Counter[int], share: float) -> int:
    """The smallest value that so large a share of all does not exceed."""
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0
