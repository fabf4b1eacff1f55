"""A log with its gateway process: all that it can do next, whatever the rest of the world does.

The gateway is the real one, with what reads and appends for it (`join/log_holder.py`); the broker is a log in memory
that keeps its assumptions and nothing else (`join/memory_log.py`). To the explorer the log is one process: what stands
in it has been delivered there, in its order. docs/design/explorer.md, "Logs".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from isthmus.core.endpoint import Outbox
from isthmus.core.freeze import freeze
from isthmus.core.gateway import Gateway
from isthmus.core.ids import LinkId, Nanos, ProcessId, incarnation_of, slot_of
from isthmus.core.segment import Opened
from isthmus.explorer.idle import is_void
from isthmus.explorer.intern import Interner
from isthmus.explorer.scenario import Ledger, Scenario, first_of
from isthmus.explorer.site import CRASHED, Pdus, Wire
from isthmus.explorer.step import (
    END,
    BrokenPromise,
    Direction,
    Effect,
    Moves,
    PduNumber,
    Step,
    StepEvent,
    new_end,
    token_of,
)
from isthmus.join.log_holder import Append, Look, Read, Sync, Unavailable
from isthmus.join.log_holder import LogHolder as Holder
from isthmus.join.memory_log import LogEntry, MemoryLog, Superseded
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans

MOST_READINESS = 16
"""As in `work.py`: who always has more to send is wrong."""


class LogRules:
    """What the world asks of every system: here one process, the log, and one gateway."""

    processes = (0,)
    gateways = range(1, 2)

    def everything(self, system: LogContents) -> int:
        return system.held

    def floor(self, system: LogContents) -> int:
        return system.held


class LogContents(NamedTuple):
    """`held` is the set of messages that are in the log, `given` those of them that were written by its clients."""

    held: int = 0
    given: tuple[int, ...] = (0,)
    histories: tuple[tuple[int, ...], ...] = ()


class LogState(NamedTuple):
    """`machine` is the number of a log with its gateway, `ready` are the links whose readiness is still to be told."""

    system: LogContents
    gateways: tuple[int]
    machine: int
    ready: tuple[LinkId, ...]
    now: Nanos


class LogMachine:
    """A log, who holds it, and what is under way between the two.

    `is_in` says that an append has been carried out of which its holder has not heard yet, `late` is one of a holder
    that is dead, which may still arrive. `confirmed` is how many entries of its own every join has confirmed.
    """

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.holder: Holder | None = None
        self.is_in = False
        self.late: Append | None = None
        self.written = 0
        self.confirmed = 0

    def fork(self) -> LogMachine:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze(self)


class Outcome(NamedTuple):
    """What came of one input to a machine: entries that were appended, and what goes onto links."""

    machine: int
    entries: tuple[LogEntry, ...]
    links: tuple[tuple[LinkId, PduNumber], ...]
    settled: tuple[int, int]
    failure: str


Action = Callable[[LogMachine, Nanos, Outbox], Sequence[LogEntry]]


class ExploredLog:
    """One log as a site of the explored world."""

    def __init__(
        self,
        index: int,
        topology: Topology,
        wires: Sequence[Wire],
        ledger: Ledger,
        scenario: Scenario,
        pdus: Pdus,
    ) -> None:
        system = topology.systems[index]
        self.index = index
        self.name = system.name
        self.ids = tuple(topology.slots(system.name))
        self.names = tuple(str(topology.directory().name(member)) for member in self.ids)
        self.rules = LogRules()
        self.wires = tuple(wires)
        self.wire_of = {wire.link: wire for wire in wires}
        self.wire_into = {wire.into: wire for wire in wires}
        self.ledger = ledger
        self.stability = scenario.stability
        self.pdus = pdus
        self.states: Interner[LogState] = Interner()
        self.machines: Interner[LogMachine] = Interner()
        self.reactions: dict[Hashable, Outcome] = {}
        self._plans = plans(topology, system.name)
        self._moves: dict[int, Moves] = {}
        self._late: dict[int, tuple[Step, ...]] = {}
        self._crashes: dict[int, tuple[Step, ...]] = {}
        self._taken: dict[tuple[int, Direction, PduNumber], Step] = {}
        self._ignored: dict[tuple[int, Direction, PduNumber], bool] = {}

    @property
    def origin(self) -> ProcessId:
        return self.ids[0]

    def _keep(self, machine: LogMachine) -> int:
        return self.machines.number(machine.snapshot(), machine)

    def start(self, gateways: Mapping[ProcessId, Gateway]) -> Step:
        """The first gateway holds the claim, and all its links to gateways that are there work."""
        machine = self._keep(LogMachine())
        work = _Work(self, LogState(LogContents(), (CRASHED,), machine, (), 0))
        work.claim(())
        for wire in self.wires:
            if wire.peer not in gateways:
                work.down(wire, ())
        return work.step()

    # What it does by itself

    def moves(self, number: int) -> Moves:
        known = self._moves.get(number)
        if known is None:
            state = self.states[number]
            usual = [*self._usual(state)]
            if self.stability == "any":
                usual += self._syncs(state)
            known = self._moves[number] = Moves(tuple(usual), ())
        return known

    def late(self, number: int) -> tuple[Step, ...]:
        """Word that something is durable, once nothing else can happen."""
        known = self._late.get(number)
        if known is None:
            known = self._late[number] = () if self.stability == "any" else tuple(self._syncs(self.states[number]))
        return known

    def crashes(self, number: int) -> tuple[Step, ...]:
        known = self._crashes.get(number)
        if known is None:
            known = self._crashes[number] = tuple(self._all_crashes(self.states[number]))
        return known

    def _usual(self, state: LogState) -> Iterator[Step]:
        machine = self.machines[state.machine]
        if machine.written < self.ledger.quota.get(self.origin, 0):
            yield _Work(self, state).write()
        if machine.late is not None:
            yield _Work(self, state).arrive_late()
        if machine.holder is None:
            yield _Work(self, state).take_over()
            return
        for ask in machine.holder.asks:
            if isinstance(ask, Append):
                yield _Work(self, state).hear() if machine.is_in else _Work(self, state).append()
            elif isinstance(ask, Read) and machine.log.end > ask.after.number:
                yield _Work(self, state).read()
        for link in state.ready:
            yield _Work(self, state).tell_ready(link)

    def _syncs(self, state: LogState) -> Iterator[Step]:
        holder = self.machines[state.machine].holder
        if holder is not None and any(isinstance(ask, Sync) for ask in holder.asks):
            yield _Work(self, state).sync()

    def _all_crashes(self, state: LogState) -> Iterator[Step]:
        """The gateway dies, having noted how far it is as late as possible, or never; or the broker loses its tail."""
        machine = self.machines[state.machine]
        if machine.holder is not None:
            yield _Work(self, state).crash(noted=False)
            if machine.holder.may_note:
                yield _Work(self, state).crash(noted=True)
        for lost in range(1, machine.log.changes + 1):
            yield _Work(self, state).lose(lost)

    # What links and time do to it

    def take(self, number: int, direction: Direction, pdu: PduNumber) -> Step:
        key = (number, direction, pdu)
        known = self._taken.get(key)
        if known is None:
            known = self._taken[key] = _Work(self, self.states[number]).take(self.wire_into[direction], pdu)
        return known

    def ignores(self, number: int, direction: Direction, pdu: PduNumber) -> bool:
        """As of every site: a word of an epoch that is over, of which nothing comes; the gateway is asked, too."""
        key = (number, direction, pdu)
        known = self._ignored.get(key)
        if known is None:
            state = self.states[number]
            holder = self.machines[state.machine].holder
            wire = self.wire_into[direction]
            known = pdu >= 0 and holder is not None and is_void(holder.gateway, wire.join, self.pdus[pdu])
            if known:
                step = self.take(number, direction, pdu)
                known = step.target == number and not step.frames and step.violation is None
            self._ignored[key] = known
        return known

    def deadline(self, number: int) -> Nanos | None:
        holder = self.machines[self.states[number].machine].holder
        return None if holder is None else holder.deadline()

    def rest(self, number: int) -> tuple[StepEvent, ...]:
        return ()

    def awaken(self, number: int, now: Nanos) -> Step:
        work = _Work(self, self.states[number]._replace(now=now))
        due = self.deadline(number)
        if due is not None and due <= now:
            work.wake()
        return work.step()

    # The machine

    def react(self, machine: int, now: Nanos, action: Action, key: Hashable) -> Outcome:
        """Have something happen to a copy of a machine, unless the same has happened to the same one before."""
        full_key = (machine, now, key)
        known = self.reactions.get(full_key)
        if known is None:
            known = self.reactions[full_key] = self._run(machine, now, action)
        return known

    def _run(self, number: int, now: Nanos, action: Action) -> Outcome:
        machine = self.machines[number].fork()
        out = Outbox()
        try:
            entries = [*action(machine, now, out)]
            while machine.holder is not None and (
                looks := [ask for ask in machine.holder.asks if isinstance(ask, Look)]
            ):
                machine.holder.asks.remove(looks[0])
                machine.holder.answered(looks[0], looks[0].put(machine.log), now, out)
            before = machine.confirmed
            if machine.holder is not None:
                machine.confirmed = max(before, machine.holder.gateway.confirmed.get(self.origin))
                machine.holder.invariants()
            links = tuple((link, self.pdus.of(pdu)) for link, pdu in out.links)
            out.clear()
            return Outcome(self._keep(machine), tuple(entries), links, (before, machine.confirmed), "")
        except Exception as error:  # whatever goes wrong in a gateway is a finding about the gateway
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return Outcome(number, (), (), (0, 0), text)

    def holder(self, token: int) -> Holder:
        """A new gateway process, with this token."""
        return Holder(incarnation_of(self.ids[1], token), (self.origin,), self._plans)


class _Work:
    """One step while it is being made, as in `work.py`."""

    def __init__(self, site: ExploredLog, state: LogState) -> None:
        self.site = site
        self.state = state
        self.machine = state.machine
        self.system = state.system
        self.ready = set(state.ready)
        self.events: list[StepEvent] = []
        self.frames: list[tuple[Direction, PduNumber]] = []
        self.closes: list[Direction] = []
        self.relayed = self.settles = 0
        self.violation: BrokenPromise | None = None
        self.crashed = False

    def step(self) -> Step:
        site = self.site
        alive = site.machines[self.machine].holder is not None
        state = LogState(
            self.system, (0 if alive else CRASHED,), self.machine, tuple(sorted(self.ready)), self.state.now
        )
        return Step(
            target=site.states.number(state, state),
            cost=max(1, len(self.events)),
            frames=tuple(self.frames),
            crash=self.crashed,
            closes=tuple(self.closes),
            relayed=self.relayed,
            settles=self.settles,
            violation=self.violation,
            events=tuple(self.events),
        )

    # Clients

    def write(self) -> Step:
        site, ledger = self.site, self.site.ledger
        number = site.machines[self.machine].written + 1
        message = ledger.stamp(site.origin, number, self.system.held, self.system.given[0])
        self._tell("send", 0, (message,))

        def write(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            machine.written = number
            return [machine.log.write(0, message[2])]

        self._do(write, ("write", message[2]), message)
        return self.step()

    # The gateway and its broker

    def read(self) -> Step:
        """It reads all that there is: a part of it is what it reads earlier. What it reads is durable by then."""

        def read(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            machine.log.sync()
            _answer(machine, _ask(machine, Read), now, out)
            return ()

        self._told("reads", read, ("read",))
        return self.step()

    def append(self) -> Step:
        """The log takes it, or not; its gateway hears of it later."""

        def append(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            ask = _ask(machine, Append, keep=True)
            try:
                entries: Sequence[LogEntry] = ask.put(machine.log)
            except Superseded as refusal:
                assert machine.holder is not None
                machine.holder.asks.remove(ask)
                machine.holder.answered(ask, refusal, now, out)
                return ()
            machine.is_in = True
            return entries

        self._told("appends", append, ("append",))
        return self.step()

    def hear(self) -> Step:
        def hear(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            machine.is_in = False
            ask = _ask(machine, Append)
            assert machine.holder is not None
            machine.holder.answered(ask, [], now, out)
            return ()

        self._told("hears", hear, ("hear",))
        return self.step()

    def sync(self) -> Step:
        def sync(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            _answer(machine, _ask(machine, Sync), now, out)
            return ()

        self._told("durable", sync, ("sync",))
        return self.step()

    def arrive_late(self) -> Step:
        """What a gateway that is dead has put to the broker arrives, perhaps when another one holds the claim."""

        def arrive(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            ask, machine.late = machine.late, None
            assert ask is not None
            try:
                return ask.put(machine.log)
            except Superseded:
                return ()

        self._told("arrives", arrive, ("late",))
        return self.step()

    # The claim

    def take_over(self) -> Step:
        self.claim(("claims",))
        return self.step()

    def claim(self, subject: tuple[str, ...]) -> None:
        """Somebody takes the claim, and its links work: whoever is at their other ends hears who it is."""
        site = self.site
        token = site.machines[self.machine].log.kept.token + 1
        for wire in site.wires:
            if subject:
                self.frames.append((wire.out, new_end(token)))

        def begin(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            kept = machine.log.claim()
            machine.holder = site.holder(token)
            machine.holder.begin(kept, now, out)
            for wire in site.wires:
                machine.holder.link_up(wire.link, wire.peer, now, out)
            return ()

        if subject:
            self._told("claims", begin, ("claim",), (token,))
        else:
            self._do(begin, ("claim",))
        for wire in site.wires:
            self._ready(wire.link)

    # Links and time

    def take(self, wire: Wire, pdu: PduNumber) -> Step:
        if pdu == END:
            self.down(wire, ("down", wire.link))
        elif pdu < 0:
            self._up(wire, pdu)
        else:
            pdus = (self.site.pdus[pdu],)
            self._input("from_link", ("take", wire.link, pdu), ("take", wire.link, pdu), wire.link, pdus)
        return self.step()

    def down(self, wire: Wire, subject: tuple[object, ...]) -> None:
        self.ready.discard(wire.link)
        self._input("link_down", subject, ("down", wire.link), wire.link)

    def _up(self, wire: Wire, pdu: PduNumber) -> None:
        peer = incarnation_of(slot_of(wire.peer), token_of(pdu))
        self.ready.discard(wire.link)
        self._input("link_up", ("up", wire.link), ("up", wire.link, peer), wire.link, peer)
        self._ready(wire.link)

    def tell_ready(self, link: LinkId) -> Step:
        self.ready.discard(link)
        self._input("link_ready", ("ready", link), ("ready", link), link)
        return self.step()

    def wake(self) -> None:
        self._input("wake", ("wake",), ("wake",))

    def _ready(self, link: LinkId) -> None:
        self._input("link_ready", (), ("ready", link), link)

    # What goes wrong

    def crash(self, *, noted: bool) -> Step:
        """The gateway dies; what it has under way to the broker may still arrive."""

        def die(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            holder = machine.holder
            assert holder is not None
            if noted:
                holder.note(now, out)
                holder.asks[-1].put(machine.log)
            machine.late = None if machine.is_in else next((a for a in holder.asks if isinstance(a, Append)), None)
            machine.is_in = False
            return ()

        self.crashed = True
        self._tell("crash", 1)
        self._do(die, ("crash", noted))
        self._end()
        return self.step()

    def lose(self, lost: int) -> Step:
        """The broker dies and is back, without so many of the changes that were not durable."""

        def lose(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            gone = machine.log.die(lost)
            machine.written -= sum(not entry.seq for entry in gone)
            if machine.holder is not None and any(isinstance(ask, Append) for ask in machine.holder.asks):
                ask = _ask(machine, Append)
                machine.is_in = False
                machine.holder.answered(ask, Unavailable(), now, out)
            return ()

        self.crashed = True
        self._told("loses", lose, ("lose", lost), (lost,))
        return self.step()

    def _end(self) -> None:
        """The gateway is gone, and its links with it."""
        machine = self.site.machines[self.machine].fork()
        machine.holder = None
        self.machine = self.site._keep(machine)
        self.ready.clear()
        for wire in self.site.wires:
            self.frames.append((wire.out, END))
            self.closes.append(wire.into)

    # Inside

    def _tell(self, kind: str, rank: int, subject: tuple[object, ...] = (), effects: Sequence[Effect] = ()) -> None:
        self.events.append(StepEvent(kind, self.site.index, self.site.ids[rank], subject, tuple(effects)))

    def _told(self, kind: str, action: Action, key: Hashable, subject: tuple[object, ...] = ()) -> None:
        place = len(self.events)
        effects = self._do(action, key)
        self.events.insert(place, StepEvent(kind, self.site.index, self.site.ids[1], subject, tuple(effects)))

    def _input(self, method: str, subject: tuple[object, ...], key: Hashable, *arguments: object) -> None:
        """Give the gateway an input. Without a subject it is not worth telling."""
        if self.site.machines[self.machine].holder is None:
            return

        def give(machine: LogMachine, now: Nanos, out: Outbox) -> Sequence[LogEntry]:
            getattr(machine.holder, method)(*arguments, now, out)
            return ()

        if subject:
            kind, *rest = subject
            self._told(str(kind), give, key, tuple(rest))
        else:
            self._do(give, key)

    def _do(self, action: Action, key: Hashable, message: Opened | None = None) -> list[Effect]:
        site = self.site
        effects: list[Effect] = []
        impatient: list[LinkId] = []
        for _ in range(MOST_READINESS):
            outcome = site.react(self.machine, self.state.now, action, key)
            self.machine = outcome.machine
            if outcome.failure:
                self._violated("invariant", 1, 0, 0, f"fails: {outcome.failure}")
            if outcome.entries:
                self._judge(outcome.entries, message, effects)
            for number in range(outcome.settled[0] + 1, outcome.settled[1] + 1):
                self.settles |= site.ledger.bit((site.origin, number, b""))
            for link, pdu in outcome.links:
                wire = site.wire_of[link]
                self.frames.append((wire.out, pdu))
                effects.append(Effect("puts", (link, pdu)))
                if site.pdus.is_block(pdu):
                    if wire.patient:
                        self.ready.add(link)
                    else:
                        impatient.append(link)
            self._hold()
            holder = site.machines[self.machine].holder
            if holder is not None and holder.stopped:
                self._end()
                return effects
            if not impatient:
                return effects
            link = impatient.pop()
            key = ("ready", link)

            def action(machine: LogMachine, now: Nanos, out: Outbox, link: LinkId = link) -> Sequence[LogEntry]:
                assert machine.holder is not None
                machine.holder.link_ready(link, now, out)
                return ()

        self._violated("invariant", 1, 0, 0, "has something to send without an end")
        return effects

    def _hold(self) -> None:
        """What is in the log now, which may be less than before."""
        ledger, held, given, number = self.site.ledger, 0, 0, 0
        for entry in self.site.machines[self.machine].log.entries:
            if entry.seq:
                held |= ledger.bit((entry.origin, entry.seq, b""))
            else:
                number += 1
                given |= ledger.bit((self.site.origin, number, b""))
        self.system = LogContents(held | given, (given,))

    def _judge(self, entries: Sequence[LogEntry], message: Opened | None, effects: list[Effect]) -> None:
        """These are in the log now, behind all that was there: their causes had better be there, and they not."""
        ledger, held = self.site.ledger, self.system.held
        appended = [message or (entry.origin, entry.seq, entry.payload) for entry in entries]
        for each in appended:
            bit = ledger.bit(each)
            missing = ledger.causes(each) & ~held
            if not bit:
                self._violated("integrity", 0, 0, 0, f"gets {ledger.name(each)}, which nobody sent")
            elif held & bit:
                self._violated("integrity", 0, bit, 0, f"gets {ledger.text(bit)} twice")
            elif missing:
                self._overtaken(bit, missing)
            held |= bit
        if message is None:
            effects.append(Effect("broadcasts", tuple(appended)))
            self.relayed |= ledger.mask(appended)

    def _overtaken(self, bit: int, missing: int) -> None:
        ledger = self.site.ledger
        own = [
            each for place in range(64) if (each := 1 << place) & missing and ledger.sender(each) == ledger.sender(bit)
        ]
        cause = own[0] if own else first_of(missing)
        relation = "the earlier" if own else "its cause"
        why = f"gets {ledger.text(bit)}, but {relation} {ledger.text(cause)} is not there"
        self._violated("fifo" if own else "causal", 0, cause, bit, why)

    def _violated(self, judged: str, rank: int, first: int, second: int, why: str) -> None:
        if self.violation is None:
            name, text = self.site.names[rank], self.site.ledger.text
            self.violation = BrokenPromise(
                judged, name, text(first) if first else "", text(second) if second else "", f"{name} {why}"
            )


def _ask(machine: LogMachine, kind: type, *, keep: bool = False):  # type: ignore[no-untyped-def]
    assert machine.holder is not None
    ask = next(each for each in machine.holder.asks if isinstance(each, kind))
    if not keep:
        machine.holder.asks.remove(ask)
    return ask


def _answer(machine: LogMachine, ask: Read | Sync, now: Nanos, out: Outbox) -> None:
    assert machine.holder is not None
    machine.holder.answered(ask, ask.put(machine.log), now, out)
