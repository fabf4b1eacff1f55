"""Virtual time and the processes that live in it.

The world is a queue of things to happen, in integer nanoseconds; ties are broken by the order of scheduling. The queue
has one entry for all that happens at one time, and a multicast that arrives everywhere at one time is one thing to
happen. A `Host` is one process: it calls its endpoint exactly as a driver over sockets does, has the outbox recorded
and carries it out, in the order that the outbox states. A process crashes between any two sends of a step, if a fault
plan says so.

With `check` on, every endpoint's `invariants()` hold after each of its steps or the run stops there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, TypeAlias, cast

from isthmus.core.endpoint import AddressedDelivery, Destinations, Endpoint, Member, Outbox, View
from isthmus.core.ids import MILLISECOND, SLOT_MASK, Directory, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.clusters import HopAck
from isthmus.core.wire.daisy import DaisyFrame
from isthmus.core.wire.group import Ack, Busy, Fetch, JoinRequest, Places, Promise
from isthmus.core.wire.join import LinkPdu
from isthmus.core.wire.pdu import Pdu
from isthmus.simulator.checks.causes import Causes
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.media import SimulatedMedium
from isthmus.simulator.network import Network
from isthmus.trace.recorder import Recorder

_HOLD_CASES = {
    "delivered": "held for a cause",
    "safe": "held to be safe",
    "ordered": "held for its place",
    "received": "held for what its sender had",
}


_NOTICED = frozenset((DaisyFrame, HopAck, Fetch, Places, Busy, Promise))
"""PDUs that may show a rare case, by themselves or by what is in them; an `Ack` too, if it tells of a gap."""

STEPS_PER_MILLISECOND = 2_000
"""Steps of one process, on the average, in a virtual millisecond: a world that takes more goes round in circles. 16
members of a causal group that send 1,000 messages a second each over lines without delay took 27."""

SAMPLED = 16
"""Every so many steps one is counted by name; to name all of them cost a benchmark a tenth of its speed."""

_SHOWN_ROUNDS = 3
_LAST_ROUNDS = 1_000

End: TypeAlias = Literal["crash", "leave", "exclusion"]


class WentRound(Exception):
    """The world takes step after step and time does not pass: what went round, in words."""


class Host:
    """One simulated process. It is about to crash when `dies_after` is set: the share of its next sends that go out.

    `ended` is how it went, once it has. `held_up` are the inputs of one that is paused, which it gets when it goes on.
    """

    __slots__ = (
        "alive",
        "busy_until",
        "dies_after",
        "ended",
        "endpoint",
        "held_up",
        "id",
        "journal",
        "on_addressed",
        "on_batch",
        "pause",
        "recorder",
        "view",
        "wake_at",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        recorder: Recorder | None,
        on_batch: Callable[[Host, Batch], None],
        on_addressed: Callable[[Host, AddressedDelivery], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.id: ProcessId = endpoint.id
        self.recorder = recorder
        self.on_batch = on_batch
        self.on_addressed = on_addressed
        self.alive = True
        self.dies_after: float | None = None
        self.ended: End | None = None
        self.held_up: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self.journal: list[Segment] | None = None
        self.pause: Nanos = 0
        self.busy_until: Nanos = 0
        self.wake_at: Nanos | None = None
        self.view: View | None = None

    @property
    def member(self) -> Member:
        """The endpoint of a process of a broadcast system."""
        return cast(Member, self.endpoint)


class World:
    """Everything that is simulated together."""

    def __init__(self, names: Directory, network: Network, sometimes: Sometimes, *, check: bool) -> None:
        self.now: Nanos = 0
        self.names = names
        self.network = network
        self.sometimes = sometimes
        self.causes = Causes()
        self.steps = 0
        self.inputs: Counter[str] = Counter()
        """One step in `SAMPLED`, by what it was about, to tell where the work of a slow run went."""
        self.pdus_sent = 0
        self.hosts: dict[int, Host] = {}
        self._check = check
        self._window: Nanos = 0
        self._steps_before = 0
        self._rounds: Counter[str] = Counter()
        self._times: list[Nanos] = []
        self._due: dict[Nanos, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self._sent_in_order = 0
        self._most_steps = STEPS_PER_MILLISECOND
        self._enough_steps = STEPS_PER_MILLISECOND
        self._out = Outbox()
        self._latest_arrival: dict[tuple[int, int], int] = {}
        self.media: dict[int, SimulatedMedium] = {}
        """By slot, where a process speaks over a broadcast medium and not over lines of its own."""
        self.send_on_link: Callable[[LinkId, ProcessId, LinkPdu], None] = _no_links
        self.on_end: Callable[[Host], None] = _nobody_cares
        self.on_view: Callable[[Host], None] = _nobody_cares

    # Time

    def at(self, time: Nanos, action: Callable[..., None], *arguments: Any) -> None:
        due = self._due.get(time)
        if due is None:
            self._due[time] = [(action, arguments)]
            heappush(self._times, time)
        else:
            due.append((action, arguments))

    def run_until(self, end: Nanos) -> None:
        """Let everything happen that is due before or at `end`."""
        times = self._times
        while times and times[0] <= end:
            self.now = now = heappop(times)
            for action, arguments in self._due.pop(now):
                action(*arguments)
                if self.steps > self._enough_steps:
                    self._watch_rounds()
        self.now = end

    def _watch_rounds(self) -> None:
        """Many steps since the last look: does time pass? If not, see for a while who does what, and end the run."""
        if self.now >= self._window + MILLISECOND:
            self._window, self._steps_before = self.now, self.steps
            self._enough_steps = self.steps + self._most_steps
            self._rounds.clear()
        elif self.steps > self._enough_steps + _LAST_ROUNDS:
            often = ", ".join(f"{what} {times:,} times" for what, times in self._rounds.most_common(_SHOWN_ROUNDS))
            steps = self.steps - self._steps_before
            raise WentRound(f"{steps:,} steps within a virtual millisecond, at the end of them {often}")

    # Processes

    def start(self, host: Host) -> None:
        """Put a process into its slot. Whoever was there is gone."""
        self.hosts[slot_of(host.id)] = host
        self._most_steps = STEPS_PER_MILLISECOND * len(self.hosts)
        self._enough_steps = self._steps_before + self._most_steps
        deadline = host.endpoint.deadline()
        if deadline is not None:
            self._wake_by(host, deadline)

    def living(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.alive]

    def step(self, host: Host, action: Callable[..., object], *arguments: Any) -> None:
        """One input to one endpoint, and everything that follows from it."""
        if not host.alive:
            return
        if host.held_up is not None:
            host.held_up.append((action, arguments))
            return
        out = self._out
        action(*arguments, self.now, out)
        self.steps = steps = self.steps + 1
        if not steps % SAMPLED:
            self.inputs[_named(action, arguments)] += 1
        if steps > self._enough_steps:
            self._rounds[f"{self.names.name(host.id)} {_named(action, arguments)}"] += 1
        # Of n acknowledgements one has consequences.
        if (
            out.sends
            or out.holds
            or out.deliveries
            or out.addressed
            or out.stable
            or out.settled
            or out.carried
            or out.stored
            or out.stages
            or out.links
            or out.stopped
        ):
            self._carry_out(host, out)
            out.clear()
        if self._check and host.alive:
            host.endpoint.invariants()
        if host.alive:
            deadline = host.endpoint.deadline()
            if deadline is not None and (host.wake_at is None or deadline < host.wake_at):
                self._wake_by(host, deadline)

    def send(
        self,
        host: Host,
        accept: Callable[[Sequence[bytes], Nanos, Outbox], int],
        payloads: Sequence[bytes],
        destinations: Destinations | None = None,
    ) -> None:
        """One step in which an endpoint accepts messages of its application, by this method of it."""

        def send(now: Nanos, out: Outbox) -> None:
            first = accept(payloads, now, out)
            if host.recorder is not None:
                host.recorder.sent(first, payloads, destinations, now)

        self.step(host, send)

    def crash(self, host: Host, why: str) -> None:
        host.alive = False
        host.ended = "crash"
        self.on_end(host)
        if host.recorder is not None:
            host.recorder.ended("crash", why, self.now)

    # Inside

    def _arrive_at_all(self, source: ProcessId, destinations: tuple[ProcessId, ...], pdus: list[Pdu]) -> None:
        hosts, step = self.hosts, self.step
        for destination in destinations:
            host = hosts.get(destination & SLOT_MASK)
            if host is not None and host.id == destination and not host.pause and not host.busy_until:
                step(host, host.endpoint.receive, source, pdus)
            else:
                self._arrive(source, destination, pdus, 0)

    def _arrive(self, source: ProcessId, destination: ProcessId, pdus: list[Pdu], order: int) -> None:
        slot = slot_of(destination)
        host = self.hosts.get(slot)
        if host is None or not host.alive:
            return
        if host.id != destination and type(pdus[0]) is not JoinRequest:
            # Addressed to a former process of this slot. Only who asks to be let in knows no better address.
            return
        if order:
            line = (slot_of(source), slot)
            if order < self._latest_arrival.get(line, 0):
                self.sometimes.reach("reordering")
            else:
                self._latest_arrival[line] = order
        if host.pause:
            # A slow process works its queue off one by one.
            host.busy_until = max(host.busy_until, self.now) + host.pause
            self.at(host.busy_until, self._receive, host, source, pdus)
        elif host.busy_until > self.now and slot in self.media:
            # It is quick again, but a medium keeps its order: what came before is still in the queue.
            self.at(host.busy_until, self._receive, host, source, pdus)
        else:
            self._receive(host, source, pdus)

    def _receive(self, host: Host, source: ProcessId, pdus: list[Pdu]) -> None:
        self.step(host, host.endpoint.receive, source, pdus)

    def _wake(self, host: Host, due: Nanos) -> None:
        if due != host.wake_at:
            # An earlier one was asked for since, and has asked for the next. Else each would go on for itself.
            return
        host.wake_at = None
        if host.alive:
            self.step(host, host.endpoint.wake)

    def _wake_by(self, host: Host, deadline: Nanos) -> None:
        """Make sure that `wake` comes in time. A wake that comes too early does nothing."""
        host.wake_at = max(deadline, self.now + 1)
        self.at(host.wake_at, self._wake, host, host.wake_at)

    def _carry_out(self, host: Host, out: Outbox) -> None:
        # Most steps of a large group send one PDU and have nothing to tell.
        if out.deliveries or out.holds or out.addressed or out.stable or out.carried or out.stored or out.stages:
            self._tell(host, out)
        if host.dies_after is not None and self._dies_here(host, out):
            return
        for destinations, pdu in out.sends:
            self._multicast(host.id, destinations, pdu)
        for link, frame in out.links:
            self.send_on_link(link, host.id, frame)
        if out.stopped:
            left = out.stopped == "left"
            host.alive = False
            host.ended = "leave" if left else "exclusion"
            self.on_end(host)
            self.sometimes.reach("leave" if left else "exclusion")
            if host.recorder is not None:
                host.recorder.ended("leave" if left else "crash", out.stopped, self.now)

    def _tell(self, host: Host, out: Outbox) -> None:
        """Journal, trace and application, in this order."""
        if host.journal is not None:
            host.journal += [batch.segment for batch in out.stored if batch.segment]
        if host.recorder is not None:
            host.recorder.step(out, self.now)
        for delivery in out.deliveries:
            if type(delivery) is Batch:
                host.on_batch(host, delivery)
            else:
                assert isinstance(delivery, View)
                self._view(host, delivery)
        if host.on_addressed is not None:
            for delivered in out.addressed:
                host.on_addressed(host, delivered)
        if host.recorder is not None:
            # Nobody counts the rare cases of a run that leaves no rows, and each hold counted cost 14 % of a benchmark.
            self._notice_delays(out)

    def _dies_here(self, host: Host, out: Outbox) -> bool:
        """Crash in this step, with a share of its sends sent, if it is a step worth crashing in."""
        assert host.dies_after is not None
        effects: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self._multicast, (host.id, (destination,), pdu))
            for destinations, pdu in out.sends
            for destination in destinations
        ]
        effects += [(self.send_on_link, (link, host.id, frame)) for link, frame in out.links]
        sent = int(len(effects) * host.dies_after)
        if not sent and (host.dies_after > 0 or not (out.deliveries or out.addressed)):
            return False
        for effect, arguments in effects[:sent]:
            effect(*arguments)
        self.sometimes.reach("crash")
        if sent:
            self.sometimes.reach("crash inside a multicast")
        else:
            self.sometimes.reach("crash after delivery")
        self.crash(host, "by plan")
        return True

    def _multicast(self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu) -> None:
        """One list for all arrivals: a multicast is one effect."""
        if type(pdu) in _NOTICED or (isinstance(pdu, Ack) and pdu.seen > pdu.received):
            self._notice(pdu.pdu if isinstance(pdu, DaisyFrame) else pdu)
        pdus = [pdu]
        if self.media and (medium := self.media.get(slot_of(source))) is not None:
            self.pdus_sent += 1
            for destination, arrival in medium.carry(source, destinations, pdu, self.now):
                self.at(arrival, self._arrive, source, destination, pdus, 0)
            return
        network, now = self.network, self.now
        self.pdus_sent += len(destinations)
        arrival_at_all = network.together(source, destinations, pdu, now)
        if arrival_at_all is not None:
            self.at(arrival_at_all, self._arrive_at_all, source, destinations, pdus)
            return
        track = 0
        if network.faults.reordering:
            track = self._sent_in_order = self._sent_in_order + 1
        for destination in destinations:
            for arrival in network.arrivals(source, destination, pdu, now):
                self.at(arrival, self._arrive, source, destination, pdus, track)

    def _notice(self, pdu: object) -> None:
        if isinstance(pdu, (Ack, HopAck)):
            if pdu.seen > pdu.received:
                self.sometimes.reach("gap")
        elif isinstance(pdu, Fetch):
            self.sometimes.reach("flush fetched")
            if self.media:
                self.sometimes.reach("asked for a PDU")
        elif isinstance(pdu, Places):
            self.sometimes.reach("told of places")
        elif isinstance(pdu, Busy):
            self.sometimes.reach("coordinators competed")
        elif isinstance(pdu, Promise) and pdu.accepted is not None:
            self.sometimes.reach("proposal taken over")

    def _view(self, host: Host, view: View) -> None:
        self.sometimes.reach("view change")
        if host.view is not None and host.view.members == view.members:
            self.sometimes.reach("same members again")
        host.view = view
        self.on_view(host)

    def _notice_delays(self, out: Outbox) -> None:
        for hold in out.holds:
            self.sometimes.reach(_HOLD_CASES[hold.reason])
        for carried in out.carried:
            if carried.peer is not None:
                self.sometimes.reach("relay")


def _named(action: Callable[..., object], arguments: tuple[Any, ...]) -> str:
    """A step, in words: the input, and what kind of PDU it brought."""
    name = getattr(action, "__name__", "step")
    pdus = arguments[-1] if arguments else None
    return f"{name} {type(pdus[0]).__name__}" if isinstance(pdus, list) and pdus else name


def _no_links(link: LinkId, source: ProcessId, pdu: LinkPdu) -> None:
    raise LookupError(f"there is no link {link}")


def _nobody_cares(host: Host) -> None:
    """Where nothing hangs on a process but itself."""
