"""Counting what the papers count: the real protocol code, on a network that charges as the papers' models do.

Neither faults nor a load of its own: what is counted is one message, or a flood of them, into the silence. Processes
are those of every other simulated run; only the lines between them are the papers' own (`PaperNetwork`): a message
takes a fixed delay and, where a rate is given, the time that its bits keep a line busy. A `SystemRig` has the processes
of one system, and who counts there says what of all that passes.

A `Rig` has a whole topology. Charged there are **messages**: a broadcast as one message to each destination, the
message that tells a gateway a number, and one message on a link. Acknowledgements, heartbeats and whatever else makes
our channels reliable is counted beside (`Tally.also`) and travels free, because the papers have no such thing.

Inside a system the rate is that of the receiver's inlet, shared by everybody who sends to it: expression (1) of
parallel says that a system carries no more than ibw in all, whoever sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias, cast

from msgspec import Struct

from isthmus.core.endpoint import AddressedDelivery, Endpoint
from isthmus.core.ids import MILLISECOND, SECOND, Directory, LinkId, Nanos, ProcessId, ProcessName, slot_of
from isthmus.core.message import Batch
from isthmus.core.wire.group import Ack, Ask, Safe, Stable, Status
from isthmus.core.wire.join import Block, Confirm, FellowAck, FellowAssign, FellowFrame, LinkPdu, Progress
from isthmus.core.wire.pdu import Pdu
from isthmus.join.member import GatewayMember, Group
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.run import Run
from isthmus.simulator.world import Host, World
from isthmus.topology.check.rules import check
from isthmus.topology.model import Topology
from isthmus.topology.read.simulation import Fixed
from isthmus.topology.wiring import all_links

LEAD_TIME: Nanos = 50 * MILLISECOND
"""Before anything is counted: links come up, and gateways tell each other so."""

PATIENCE: Nanos = 600 * SECOND
"""Virtual time after which what is not done never will be."""

SYSTEM = "s"
Note: TypeAlias = Callable[[ProcessId, ProcessId, Pdu], None]
"""Sees every PDU on its way from one process to another."""

_ALSO: dict[type, str] = {
    Ack: "acknowledgement",
    Safe: "safe",
    Status: "heartbeat",
    Ask: "heartbeat",
    Stable: "heartbeat",
    Batch: "place in a total order",
    FellowAck: "acknowledgement between gateways",
    FellowFrame: "word between gateways",
    Progress: "progress over a link",
    Confirm: "confirmation over a link",
}


class Charges(Struct, frozen=True):
    """How many bits a message takes, and how many a numbering message. Everything else takes none."""

    message: int = 0
    numbering: int = 0

    def bits(self, pdu: Pdu) -> int:
        if isinstance(pdu, Batch | Block):
            return self.message * pdu.segment.messages
        return self.numbering if is_numbering(pdu) else 0


def is_numbering(pdu: Pdu) -> bool:
    """Whether this is the message by which the sequencer tells a fellow its numbers (parallel Fig. 5, Sequence_out)."""
    return isinstance(pdu, FellowFrame) and any(isinstance(word, FellowAssign) for word in pdu.pdus)


class Tally:
    """What has been sent: `data` and `numbering` inside systems, `between` over links, and what nobody counts."""

    def __init__(self) -> None:
        self.data = 0
        self.numbering = 0
        self.between = 0
        self.also: Counter[str] = Counter()

    @property
    def inside(self) -> int:
        """Intra-system messages, in the words of parallel, Sect. 8.2."""
        return self.data + self.numbering

    @property
    def messages(self) -> int:
        """All that the papers count."""
        return self.inside + self.between

    def note(self, pdu: Pdu) -> None:
        """One PDU to one destination."""
        if isinstance(pdu, Batch) and pdu.segment:
            self.data += 1
        elif isinstance(pdu, Block):
            self.between += 1
        elif is_numbering(pdu):
            self.numbering += 1
        else:
            self.also[_ALSO.get(type(pdu), type(pdu).__name__)] += 1


class PaperNetwork(Network):
    """Lines without chance: an inlet per process, then a fixed delay. FIFO, and ties stay ties."""

    def __init__(
        self, note: Note, delay: Nanos = MILLISECOND, rate: int | None = None, charges: Charges | None = None
    ) -> None:
        super().__init__(Random(0), Fixed(delay), rate, NetworkFaults(), Sometimes())
        self._note = note
        self._fixed = delay
        self._rate = rate
        self._charges = charges or Charges()
        self._inlet_busy_until: dict[int, Nanos] = {}
        self._latest: dict[tuple[int, int], Nanos] = {}

    def together(self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu, now: Nanos) -> None:
        """Every line is asked for by itself: each arrival is counted."""

    def arrivals(self, source: ProcessId, destination: ProcessId, pdu: Pdu, now: Nanos) -> Iterable[Nanos]:
        self._note(source, destination, pdu)
        inlet = slot_of(destination)
        leaves = now
        bits = self._charges.bits(pdu)
        if bits and self._rate is not None:
            leaves = max(now, self._inlet_busy_until.get(inlet, 0)) + bits * SECOND // self._rate
            self._inlet_busy_until[inlet] = leaves
        line = (slot_of(source), inlet)
        arrival = max(leaves + self._fixed, self._latest.get(line, 0))
        self._latest[line] = arrival
        return (arrival,)


def run_while(world: World, unfinished: Callable[[], bool], what: str, every: Nanos = MILLISECOND) -> None:
    """Let time pass until something is finished, and say `what` if it never is."""
    deadline = world.now + PATIENCE
    while unfinished():
        assert world.now < deadline, what
        world.run_until(world.now + every)


class SystemRig:
    """The processes of one system, on lines where every hop takes a millisecond. Subclasses count."""

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[ProcessId], Endpoint],
        network: type[PaperNetwork] = PaperNetwork,
    ) -> None:
        self.network = network(self.note)
        directory = Directory([ProcessName(SYSTEM, name) for name in names])
        self.world = World(directory, self.network, self.network.sometimes, check=False)
        for slot in range(len(names)):
            self.world.start(Host(make(slot), None, self.on_batch, self.on_message))

    def note(self, source: ProcessId, destination: ProcessId, pdu: Pdu) -> None:
        """One PDU to one destination."""

    def on_batch(self, host: Host, batch: Batch) -> None:
        """What a process of a group delivers."""

    def on_message(self, host: Host, delivered: AddressedDelivery) -> None:
        """What a process delivers that was sent to it."""


class PaperLink:
    """A link that never fails: each direction is a line with a rate and a fixed delay."""

    def __init__(
        self,
        world: World,
        link: LinkId,
        slots: tuple[int, int],
        delay: Nanos,
        rate: int | None,
        charges: Charges,
        note: Note,
    ) -> None:
        self._note = note
        self._world = world
        self._id = link
        self._slots = slots
        self._delay = delay
        self._rate = rate
        self._charges = charges
        self._busy_until: list[Nanos] = [0, 0]

    def connect(self) -> None:
        for end in (0, 1):
            self._step(end, "link_up", self._id, self._slots[1 - end])
            self._step(end, "link_ready", self._id)

    def send(self, source: ProcessId, pdu: LinkPdu) -> None:
        end = self._slots.index(slot_of(source))
        self._note(source, self._slots[1 - end], pdu)
        leaves = max(self._world.now, self._busy_until[end])
        if self._rate is not None:
            leaves += self._charges.bits(pdu) * SECOND // self._rate
        self._busy_until[end] = leaves
        self._world.at(leaves, self._left, end)
        self._world.at(leaves + self._delay, self._step, 1 - end, "from_link", self._id, [pdu])

    def _left(self, end: int) -> None:
        if self._world.now >= self._busy_until[end]:
            self._step(end, "link_ready", self._id)

    def _step(self, end: int, action: str, *arguments: object) -> None:
        host = self._world.hosts[self._slots[end]]
        assert isinstance(host.endpoint, GatewayMember)
        self._world.step(host, getattr(host.endpoint, action), *arguments)


class Broadcast(Struct, frozen=True):
    """One message, from `send` until it was stable: what it cost, and how long it took to each process."""

    tally: Tally
    latency: dict[ProcessName, Nanos]

    def worst(self, system: str | None = None) -> Nanos:
        """The time until every process has it, of one system or of all."""
        return max(time for name, time in self.latency.items() if system in (None, name.system))


class Flood(Struct, frozen=True):
    """Many messages at once: what they cost, and when one far process delivered each of them."""

    tally: Tally
    times: list[Nanos]

    def delivered_within(self, duration: Nanos) -> int:
        """How many deliveries come within a stretch of this length, a third of the way into them."""
        begin = self.times[len(self.times) // 3]
        assert begin + duration <= self.times[-1], "the stretch is longer than the load"
        return sum(begin <= time < begin + duration for time in self.times)


class Rig:
    """One topology to count on. Delays have to be fixed: `[simulation]` gives them, and the rates."""

    def __init__(self, topology: Topology, charges: Charges | None = None, *, checked: bool = True) -> None:
        problems = [problem for problem in check(topology) if problem.kind != "warning"]
        assert not problems, problems
        charges = charges or Charges()
        network, line = topology.simulation.network, topology.simulation.links
        assert isinstance(network.delay, Fixed)
        assert isinstance(line.delay, Fixed)
        self.topology = topology
        self._charges = charges
        self.deliveries: dict[ProcessName, list[tuple[Nanos, int]]] = {}
        self._slots = {name: slot for slot, name in enumerate(topology.directory().slots)}
        self._names = {slot: name for name, slot in self._slots.items()}
        self._tally = Tally()
        self.world = Run(topology, seed=0, check=checked, tight=False).world
        self.world.network = PaperNetwork(self._note, network.delay.delay, network.bandwidth, charges)
        self._links = [
            PaperLink(
                self.world,
                number,
                (self._slots[link.near], self._slots[link.far]),
                line.delay.delay,
                line.bandwidth,
                charges,
                self._note,
            )
            for number, link in enumerate(all_links(topology))
        ]
        self.world.send_on_link = lambda link, source, pdu: self._links[link].send(source, pdu)
        for system in topology.systems:
            for slot in topology.process_slots(system.name):
                self.deliveries[self._names[slot]] = []
                self.world.hosts[slot].on_batch = self._on_batch
        for host in self.world.hosts.values():
            host.recorder = None
        for each in self._links:
            each.connect()
        self.world.run_until(LEAD_TIME)

    def broadcast(self, sender: ProcessName) -> Broadcast:
        """Send one message into the silence, and wait until it is stable everywhere."""
        self._take_tally()
        for times in self.deliveries.values():
            times.clear()
        sent_at = self.world.now
        self._send(sender)
        self._rest([sender])
        latency: dict[ProcessName, Nanos] = {}
        for name, seen in self.deliveries.items():
            assert len(seen) == 1, f"{name} has {len(seen)} deliveries of one message"
            latency[name] = seen[0][0] - sent_at
        return Broadcast(self._take_tally(), latency)

    def flood(self, senders: Sequence[ProcessName], each: int, at: ProcessName) -> Flood:
        """Everybody sends so many at once, taking turns; what that costs, and when `at` delivers each of them."""
        self._take_tally()
        for _ in range(each):
            for sender in senders:
                self._send(sender)
        self._rest(senders)
        times = [time for time, count in self.deliveries[at] for _ in range(count)]
        assert len(times) == each * len(senders), f"{at} has {len(times)} of {each * len(senders)} messages"
        return Flood(self._take_tally(), times)

    def _send(self, sender: ProcessName) -> None:
        host = self.world.hosts[self._slots[sender]]
        assert host.member.credit(), f"the window of {sender} is full"
        self.world.step(host, host.member.broadcast, [bytes(self._charges.message // 8)])

    def _on_batch(self, host: Host, batch: Batch) -> None:
        if batch.segment:
            self.deliveries[self._names[slot_of(host.id)]].append((self.world.now, batch.segment.messages))

    def _rest(self, senders: Iterable[ProcessName]) -> None:
        members = [cast(Group, self.world.hosts[self._slots[sender]].endpoint) for sender in senders]
        run_while(self.world, lambda: any(member.unfinished() for member in members), "a message never became stable")

    def _note(self, source: ProcessId, destination: ProcessId, pdu: Pdu) -> None:
        self._tally.note(pdu)

    def _take_tally(self) -> Tally:
        taken, self._tally = self._tally, Tally()
        return taken
