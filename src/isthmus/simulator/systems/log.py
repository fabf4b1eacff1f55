"""A simulated log: a broker in memory, the clients that write to it, and the gateway process that holds its claim.

To the trace the log is the application, a process named after its stream: its sends are what clients append, and its
deliveries are all entries in the order of the log, its own among them. So what was brought in before an entry is a
cause of it: its author may have read it there. Rows are written when the run is over, because before that a broker may
still lose what is not durable; what it has lost was never there, unless somebody saw it (`_history`).

One process holds the claim; at first there is one more, on standby, which takes over when the lease is over. Whoever
was paused meanwhile goes on without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any, Self

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId, incarnation_of, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.pdu import Pdu
from isthmus.join.log_holder import Append, Ask, LogHolder, Read, Sync, Unavailable
from isthmus.join.memory_log import LogEntry, MemoryLog, Recreated, Superseded, Trimmed
from isthmus.simulator.faults.log import LEASE, LogNemesis, draw_log_plan
from isthmus.simulator.faults.plan import draw_plan
from isthmus.simulator.systems.group import tighten
from isthmus.simulator.systems.kind import OpenLog, SimulatedKind, Traits
from isthmus.simulator.workload import THINKING
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.plans import plans
from isthmus.topology.read.simulation import Simulation
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event

SYNC_EVERY: Nanos = 40 * MILLISECOND
"""How long, on the average, a change waits until it is durable."""

POLL: Nanos = 50 * MILLISECOND
"""How long a read waits for an entry."""

LOOK_EVERY: Nanos = LEASE // 4
NOTE_EVERY: Nanos = 30 * MILLISECOND

WINDOW = 24
MOST = 6
"""Small, so that short runs read and append in many steps, and reading has to wait at times."""

COPIED = 0.05
"""Of what clients write, so much has headers that they have copied from another entry."""


class Clients:
    """The clients of a stream, as an endpoint: whatever they do is done elsewhere."""

    def __init__(self, slot: ProcessId) -> None:
        self.id = slot

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None: ...

    def wake(self, now: Nanos, out: Outbox) -> None: ...

    def deadline(self) -> Nanos | None:
        return None

    def invariants(self) -> None: ...

    def fork(self) -> Self:
        return self

    def snapshot(self) -> Hashable:
        return self.id


class SimulatedHolder(LogHolder):
    """One whose asks go to the broker as soon as its step is over."""

    put: Callable[[Ask], None]

    def _pump(self, out: Outbox) -> None:
        super()._pump(out)
        asks, self.asks = self.asks, []
        for ask in asks:
            self.put(ask)


class SimulatedLog:
    """`gateway` is the process that holds the claim, or the last one that did; `standbys` are those that wait for it.

    `stopped` says why the joins of this log do not go on, and wait for a person. `_history` is what has been in it, in
    order, trimmed entries too, each with its time; `_deleted_at` is how long that was when somebody deleted the log.
    `_generation` rises whenever the broker dies: what it was about to answer is not answered.
    """

    def __init__(
        self,
        topology: Topology,
        system: System,
        world: World,
        seed: int,
        open_log: OpenLog,
        *,
        tight: bool,
    ) -> None:
        self.topology = topology
        self.system = system
        self.world = world
        self.slots = list(topology.slots(system.name))
        self.origins = tuple(topology.process_slots(system.name))
        self.joins = plans(topology, system.name) if topology.joins else ()
        self.log = MemoryLog()
        self.standbys = 1
        self.stopped = ""
        self._tight = tight
        self._open_log = open_log
        self._rng = Random(f"broker {seed} {system.name}")
        self._clients = Random(f"workload {seed} {system.name}")
        simulation = topology.simulation
        self._workload, self._end = simulation.workload, simulation.duration
        self._history: list[tuple[Nanos, LogEntry]] = []
        self._deleted_at: int | None = None
        self._native: set[int] = set()
        self._written = 0
        self._generation = 0
        self._is_up = True
        self._parted_until = self._mute_until = self._slow_until = 0
        self._pause: Nanos = 0
        self._lease_until: Nanos = LEASE
        self._zombies: list[Host] = []
        self._syncing: list[tuple[Host, Sync]] = []
        self._polling: list[tuple[Host, Read]] = []
        plan = draw_plan(
            Random(f"faults {seed} {system.name}"),
            simulation.faults,
            simulation.network,
            self.slots,
            simulation.duration,
            system.suspect_after,
        )
        own = draw_log_plan(Random(f"log faults {seed} {system.name}"), simulation.faults, simulation.duration)
        self.nemesis = LogNemesis(world, self, plan, own)
        senders = simulation.workload.senders
        for slot in self.origins:
            recorder = open_log(slot, "app")
            recorder.began("start", None, world.now)
            host = Host(Clients(slot), recorder, _nothing)
            world.start(host)
            if self._workload.rate and (senders is None or world.names.slots[slot] in senders):
                world.at(world.now + self._interval(), self._burst, slot)
        if self.joins:
            self._take_claim()
            world.at(LOOK_EVERY, self._look_after_claim)
            world.at(NOTE_EVERY, self._note)
        world.at(self._until_sync(), self._sync)

    # Clients

    def _interval(self) -> Nanos:
        bursts_per_second = self._workload.rate * 2 / (self._workload.burst + 1)
        return 1 + round(min(self._clients.expovariate(bursts_per_second) * SECOND, self._end))

    def _burst(self, slot: int) -> None:
        if self.world.now >= self._end:
            return
        for _ in range(self._clients.randint(1, self._workload.burst)):
            self._write(slot, self._workload.reply_depth)
        self.world.at(self.world.now + self._interval(), self._burst, slot)

    def _write(self, slot: int, depth: int) -> None:
        """Append, if the broker is there. Sizes differ, so that what has the number of something else shows."""
        if not self._is_up or self.stopped:
            return
        self._written += 1
        low, high = self._workload.minimum_size, self._workload.maximum_size
        size = self._clients.randint(low, high) + 1 + self._written % 251
        origin = seq = 0
        if self._clients.random() < COPIED and (brought := [each for each in self.log.entries if each.seq]):
            copied = self._clients.choice(brought)
            origin, seq = copied.origin, copied.seq
            self.world.sometimes.reach("headers copied")
        entry = self.log.write(slot - self.origins[0], bytes((min(depth, 255),)) + bytes(size - 1), origin, seq)
        self._native.add(entry.born)
        self._appended([entry])

    def _appended(self, entries: Sequence[LogEntry]) -> None:
        """Entries are in the log: whoever reads it sees them, gateways and clients."""
        for entry in entries:
            self._history.append((self.world.now, entry))
            depth = entry.payload[0] if entry.payload else 0
            if depth and self._workload.reply and self.world.now < self._end:
                if self._clients.random() < self._workload.reply:
                    thought = self.world.now + self._delay() + self._clients.randrange(THINKING)
                    self.world.at(thought, self._write, self._clients.choice(self.origins), depth - 1)
        self._read_on()

    def _read_on(self) -> None:
        """There may be something for those who wait for an entry."""
        polling, self._polling = self._polling, []
        for host, read in polling:
            self._execute(host, read)

    # The broker

    def _delay(self) -> Nanos:
        slow = self._pause if self.world.now < self._slow_until else 0
        return self.world.network.draw() + slow

    def _until_sync(self) -> Nanos:
        return self.world.now + 1 + round(self._rng.expovariate(1) * SYNC_EVERY)

    def _sync(self) -> None:
        if self._is_up:
            self.log.sync()
            syncing, self._syncing = self._syncing, []
            for host, ask in syncing:
                self._answer(host, ask, ask.put(self.log))
            self._read_on()
        self.world.at(self._until_sync(), self._sync)

    def _put(self, host: Host, ask: Ask) -> None:
        """A process asks the broker for something: it gets there, unless nothing does."""
        if not self._is_up or self.world.now < self._parted_until:
            self._answer(host, ask, Unavailable())
        else:
            self.world.at(self.world.now + self._delay(), self._arrive, host, ask)

    def _arrive(self, host: Host, ask: Ask) -> None:
        if not self._is_up:
            self._answer(host, ask, Unavailable())
        else:
            self._execute(host, ask)

    def _execute(self, host: Host, ask: Ask) -> None:
        if isinstance(ask, Sync) and not self.log.is_durable:
            self._syncing.append((host, ask))
            return
        try:
            answer = ask.put(self.log)
        except (Superseded, Trimmed, Recreated) as refusal:
            if isinstance(refusal, Superseded) and isinstance(ask, Append) and ask.token < self.log.kept.token:
                self.world.sometimes.reach("old gateway refused")
            self._answer(host, ask, refusal)
            return
        if isinstance(ask, Read) and not answer:
            self._polling.append((host, ask))
            self.world.at(self.world.now + POLL, self._stop_polling, host, ask)
            return
        self._answer(host, ask, answer)
        if isinstance(ask, Append):
            assert isinstance(answer, list)
            self._appended(answer)

    def _stop_polling(self, host: Host, ask: Read) -> None:
        if (host, ask) in self._polling:
            self._polling.remove((host, ask))
            self._answer(host, ask, [])

    def _answer(self, host: Host, ask: Ask, answer: object) -> None:
        self.world.at(self.world.now + self._delay(), self._tell, host, ask, answer, self._generation)

    def _tell(self, host: Host, ask: Ask, answer: object, generation: int) -> None:
        """The answer gets there; if the broker died meanwhile, or nothing gets through, the process gives up on it."""
        if generation != self._generation or self.world.now < max(self._mute_until, self._parted_until):
            if isinstance(ask, Append) and not isinstance(answer, Unavailable):
                self.world.sometimes.reach("append with unknown outcome")
            answer = Unavailable()
        holder = host.endpoint
        assert isinstance(holder, LogHolder)
        self.world.step(host, holder.answered, ask, answer)

    # The claim

    def _take_claim(self) -> None:
        kept = self.log.claim()
        process = incarnation_of(self.slots[-1], kept.token)
        before = self.world.hosts.get(self.slots[-1])
        if before is not None:
            self.world.sometimes.reach("gateway came back")
            if before.alive:
                self._zombies.append(before)
        holder = SimulatedHolder(process, self.origins, self.joins)
        recorder = self._open_log(process, "gateway")
        recorder.began("start" if before is None else "join", None, self.world.now)
        host = Host(holder, recorder, _nothing)
        holder.put = _Putter(self._put, host)
        if self._tight:
            holder.window, holder.most = WINDOW, MOST
            tighten(holder.gateway.exports.values())
        self._lease_until = self.world.now + LEASE
        host.view = View(kept.token, (process,))
        self.world.start(host)
        self.world.step(host, holder.begin, kept)
        self.world.on_view(host)

    def _look_after_claim(self) -> None:
        """Time to renew the claim, or to see that nobody does."""
        for zombie in self._zombies:
            if zombie.alive and zombie.held_up is None and self._reaches():
                assert isinstance(zombie.endpoint, LogHolder)
                self.world.step(zombie, zombie.endpoint.lost_claim)
        host, now = self.gateway, self.world.now
        if host.alive and host.held_up is None and self._reaches():
            self._lease_until = now + LEASE
        elif now >= self._lease_until and self._is_up and self.standbys and not self.stopped:
            if host.alive:
                self.world.sometimes.reach("claim taken over")
            self.standbys -= 1
            self._take_claim()
        self.world.at(now + LOOK_EVERY, self._look_after_claim)

    def _reaches(self) -> bool:
        return self._is_up and self.world.now >= max(self._parted_until, self._mute_until)

    def _note(self) -> None:
        host = self.gateway
        if host.alive:
            holder = self._holder
            if holder.is_full:
                self.world.sometimes.reach("back-pressure")
            self.world.step(host, holder.note)
        self.world.at(self.world.now + NOTE_EVERY, self._note)

    @property
    def gateway(self) -> Host:
        return self.world.hosts[self.slots[-1]]

    @property
    def _holder(self) -> LogHolder:
        endpoint = self.gateway.endpoint
        assert isinstance(endpoint, LogHolder)
        return endpoint

    # Faults

    def pause(self, until: Nanos) -> None:
        host = self.gateway
        if host.alive and host.held_up is None:
            self.world.sometimes.reach("gateway paused")
            host.held_up, view, host.view = [], host.view, None
            self.world.on_view(host)
            self.world.at(until, self._go_on, host, view)

    def _go_on(self, host: Host, view: View | None) -> None:
        if not host.alive or host.held_up is None:
            return
        host.view = view
        waiting, host.held_up = host.held_up, None
        for action, arguments in waiting:
            self.world.step(host, action, *arguments)
        if host is self.gateway:
            self.world.on_view(host)

    def part(self, until: Nanos, *, answers_only: bool) -> None:
        if answers_only:
            self._mute_until = max(until, self._mute_until)
        else:
            self._parted_until = max(until, self._parted_until)

    def slow_down(self, until: Nanos, pause: Nanos) -> None:
        self.world.sometimes.reach("slow")
        self._slow_until, self._pause = until, pause

    def kill_broker(self, until: Nanos, share: float) -> None:
        if not self._is_up:
            return
        self.world.sometimes.reach("broker died")
        self._is_up = False
        self._generation += 1
        changes = self.log.changes
        gone = self.log.die(round(changes * share))
        if gone:
            self.world.sometimes.reach("broker lost its tail")
            del self._history[len(self._history) - len(gone) :]
        waiting: list[tuple[Host, Ask]] = [*self._syncing, *self._polling]
        for host, ask in waiting:
            self._answer(host, ask, Unavailable())
        self._syncing, self._polling = [], []
        self.world.at(until, self._start_broker)

    def _start_broker(self) -> None:
        self._is_up = True

    def trim(self, share: float) -> None:
        if self.log.entries and self._is_up:
            self.world.sometimes.reach("log trimmed")
            self.log.trim(round(len(self.log.entries) * share))

    def recreate(self) -> None:
        if self._is_up:
            self.world.sometimes.reach("log recreated")
            self._deleted_at = min(len(self._history), self._deleted_at or len(self._history))
            self.log.recreate()

    def come(self) -> None:
        if not self.gateway.alive and not self.standbys:
            self.world.sometimes.reach("join")
            self.standbys += 1

    def leave(self) -> None:
        host = self.gateway
        if host.alive and host.held_up is None and host.dies_after is None:
            self._lease_until = self.world.now
            self.world.step(host, self._holder.leave)

    def heal(self) -> None:
        self._parted_until = self._mute_until = self._slow_until = 0
        self._is_up = True
        for host in (*self._zombies, self.gateway):
            if host.held_up is not None and host.alive:
                self._go_on(host, View(0, (host.id,)))

    # What has happened to it

    def ended(self, host: Host) -> None:
        holder = host.endpoint
        if not isinstance(holder, LogHolder):
            return
        reach = self.world.sometimes.reach
        if holder.trouble and not self.stopped:
            self.stopped = holder.trouble
            reach("join stopped")
        elif host.ended == "exclusion":
            self.standbys += 1
        elif host.ended == "leave":
            reach("gateway left")
        elif host.ended == "crash":
            reach("gateway crashed")
            if any(export.leads for export in holder.gateway.exports.values()):
                reach("sequencer crashed")
        if host is self.gateway and host.ended != "exclusion":
            reach("last gateway gone")

    def viewed(self, host: Host) -> None:
        """Nobody is in a view here but whoever holds the claim."""

    def revive(self) -> None:
        if self.joins and not self.gateway.alive and not self.stopped:
            self.standbys = max(1, self.standbys)

    def note_causes(self) -> None:
        """The run is over, and what is in the log now is what has happened to it."""
        recorders = [self.world.hosts[slot].recorder for slot in self.origins]
        marks = dict.fromkeys(self.origins, 0)
        for number, (time, entry) in enumerate(self._history[: self._deleted_at], 1):
            origin, seq = entry.origin, entry.seq
            if entry.born in self._native:
                origin = self.origins[entry.part]
                seq = marks[origin] = marks[origin] + 1
                self._recorder(origin).sent(seq, [entry.payload], None, time)
            out = Outbox()
            out.deliveries.append(Batch(1, origin, number, [], 0, Segment.of(origin, seq, [entry.payload])))
            for recorder in recorders:
                assert recorder is not None
                recorder.step(out, time)
        if self.stopped:
            for slot in self.origins:
                self.world.crash(self.world.hosts[slot], f"its joins have stopped: {self.stopped}")

    def _recorder(self, origin: ProcessId) -> Recorder:
        recorder = self.world.hosts[slot_of(origin)].recorder
        assert recorder is not None
        return recorder

    def unfinished(self) -> str:
        if self.stopped or not self.joins:
            return ""
        name = self.world.names.name(self.slots[-1])
        if not self.gateway.alive:
            return f"{name} is gone"
        holder = self._holder
        if holder.gateway.unfinished():
            return f"{name} has {holder.gateway.unfinished()} messages that the far side has not confirmed"
        if holder.unfinished():
            return f"{name} has messages to append"
        if not holder.has_read_to(self.log.end):
            return f"{name} has not read everything"
        if not self.log.is_durable:
            return f"what is in {self.system.name} is not durable"
        if not holder.is_noted:
            return f"{name} has not noted how far it is"
        return ""


class _Putter:
    """Puts what one process asks for to the broker."""

    def __init__(self, put: Callable[[Host, Ask], None], host: Host) -> None:
        self._put = put
        self._host = host

    def __call__(self, ask: Ask) -> None:
        self._put(self._host, ask)


def _nothing(host: Host, batch: object) -> None:
    """Nobody is told of deliveries: the clients of a log read it by themselves."""


def _traits(system: System, simulation: Simulation) -> Traits:
    faults = simulation.faults
    own = {
        "gateway paused": faults.pauses,
        "claim taken over": faults.pauses or faults.partitions,
        "broker died": faults.broker_kills,
        "broker lost its tail": faults.broker_kills,
        "append with unknown outcome": faults.cuts or faults.broker_kills,
        "log trimmed": faults.trims,
        "log recreated": faults.recreations,
        "headers copied": True,
    }
    return Traits(
        views=False,
        roomy=False,
        carries=False,
        quorums=False,
        gaps=False,
        own=frozenset(case for case, wanted in own.items() if wanted),
    )


def other_contents(events: Sequence[Event]) -> str:
    """Which message was delivered as something else than what was sent under its number, in words; empty if none.

    It is told by its size: clients of simulated logs write entries of different sizes.
    """
    sent: dict[tuple[Any, ...], int | None] = {}
    for row in events:
        if row.event == "send":
            sent[row.run, row.origin_system, row.origin_process, row.origin_seq] = row.payload_bytes
    for row in events:
        if row.event == "deliver" and row.role == "app":
            key = (row.run, row.origin_system, row.origin_process, row.origin_seq)
            if sent.get(key, row.payload_bytes) != row.payload_bytes:
                what = "/".join(map(str, key[1:]))
                return f"{row.system}/{row.process} delivered something else under {what} than what was sent under it"
    return ""


LOG = SimulatedKind(make=SimulatedLog, enough=lambda system: None, traits=_traits, check=other_contents)
