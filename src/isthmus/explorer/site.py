"""One system with its gateways: all that it can do next, whatever the rest of the world does.

A site's own steps depend on nothing outside it, so they are worked out once for every state of the site; so is its
reaction to each PDU that comes off a link. Gateways are forked, called and pictured once per gateway state and input.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from isthmus.core.endpoint import Outbox, View
from isthmus.core.gateway import Gateway
from isthmus.core.ids import LinkId, Nanos, ProcessId, incarnation_of, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Opened, Segment
from isthmus.core.wire.join import Block, FellowPass, FellowPdu, LinkPdu
from isthmus.explorer.broadcast import OrderedBroadcast, SystemState
from isthmus.explorer.idle import is_idle, is_void
from isthmus.explorer.intern import Interner
from isthmus.explorer.scenario import Ledger, Scenario
from isthmus.explorer.step import END, Direction, Moves, PduNumber, Step, StepEvent, token_of
from isthmus.explorer.work import Work
from isthmus.topology.model import Topology

CRASHED = -1


class Wire(NamedTuple):
    """A link as its gateway here (a rank) sees it. Not `patient`: nothing waits for it, so it is ready at once."""

    link: LinkId
    join: int
    gateway: int
    peer: ProcessId
    out: Direction
    into: Direction
    patient: bool


class SiteState(NamedTuple):
    """`gateways` are numbers of gateway states, `queues` what is under way between two of them, words and blocks apart
    (True: blocks), `ready` the links whose readiness is still to be told. `confirmed` and `settled` count batches by
    gateway and sender: finished with, settled.
    """

    system: SystemState
    gateways: tuple[int, ...]
    queues: tuple[tuple[tuple[int, int, bool], tuple[PduNumber, ...]], ...]
    ready: tuple[LinkId, ...]
    confirmed: tuple[tuple[int, ...], ...]
    settled: tuple[tuple[int, ...], ...]
    now: Nanos


class GatewayReaction(NamedTuple):
    """What a gateway does with one input. `failure` is not empty when its code or its invariants gave way."""

    gateway: int
    relays: tuple[Opened, ...]
    confirms: tuple[tuple[ProcessId, int], ...]
    to_fellows: tuple[tuple[ProcessId, PduNumber], ...]
    links: tuple[tuple[LinkId, PduNumber], ...]
    failure: str


class Pdus(Interner[LinkPdu | FellowPdu]):
    """PDUs by number; equal ones have equal encodings."""

    def of(self, pdu: LinkPdu | FellowPdu) -> PduNumber:
        return self.number(msgspec.msgpack.encode(pdu), pdu)

    def is_block(self, number: PduNumber) -> bool:
        return isinstance(self[number], Block | FellowPass)


class ExploredSite:
    """`reduced`: processes deliver when it matters, see docs/design/explorer.md."""

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
        directory = topology.directory()
        self.index = index
        self.name = system.name
        self.ids = tuple(topology.slots(system.name))
        self.names = tuple(str(directory.name(member)) for member in self.ids)
        self.ranks = {member: rank for rank, member in enumerate(self.ids)}
        absent = [rank for rank, name in enumerate(system.members) if name in system.standby]
        self.rules = OrderedBroadcast(system.order, len(system.processes), len(system.gateways), ledger, absent)
        self.wires = tuple(wires)
        self.wire_of = {wire.link: wire for wire in wires}
        self.wire_into = {wire.into: wire for wire in wires}
        self.ledger = ledger
        self.stability = scenario.stability
        self.reduced = scenario.reduced and ledger.promise != "total"
        self._drops_idle = scenario.reduced
        self.pdus = pdus
        # What gateways say of their own state, they say of topologies that keep the rules.
        self._keeps_the_rules = not topology.unsafe
        self.states: Interner[SiteState] = Interner()
        self.gateways: Interner[Gateway] = Interner()
        self._moves: dict[int, Moves] = {}
        self._late: dict[int, tuple[Step, ...]] = {}
        self._crashes: dict[int, tuple[Step, ...]] = {}
        self._taken: dict[tuple[int, Direction, PduNumber], Step] = {}
        self._ignored: dict[tuple[int, Direction, PduNumber], bool] = {}
        self.reactions: dict[Hashable, GatewayReaction] = {}
        """Every time that a gateway was really run."""

    def start(self, gateways: Mapping[ProcessId, Gateway]) -> Step:
        """All founders in the first view, all links between them up and ready. Links to anybody on standby are down."""
        system = self.rules.start()
        founders = self.rules.founders
        none = ((0,) * self.rules.width,) * len(self.rules.gateways)
        numbers = tuple(
            self._keep(gateways[self.ids[rank]]) if rank in founders else CRASHED for rank in self.rules.gateways
        )
        state = SiteState(system, numbers, (), (), none, none, 0)
        work = Work(self, state)
        for rank in self._live(state):
            work.input(rank, "view", (), View(1, tuple(self.ids[each] for each in founders)))
            for wire in self.wires:
                if wire.gateway == rank and wire.peer in gateways:
                    work.input(rank, "link_up", (), wire.link, wire.peer)
                    work.input(rank, "link_ready", (), wire.link)
                elif wire.gateway == rank:
                    work.input(rank, "link_down", (), wire.link)
        return work.step()

    # What the site does by itself

    def moves(self, number: int) -> Moves:
        known = self._moves.get(number)
        if known is None:
            state = self.states[number]
            usual = tuple(self._usual_steps(state))
            if self.stability == "any":
                usual += tuple(self._settlements(state))
            deliveries = () if self.reduced else tuple(self._process_deliveries(state))
            known = self._moves[number] = Moves(usual, deliveries)
        return known

    def late(self, number: int) -> tuple[Step, ...]:
        """A settlement that waits until nothing can happen anywhere but deliveries.

        Then their order is of no interest, so the first will do.
        """
        known = self._late.get(number)
        if known is None:
            found = () if self.stability == "any" else tuple(islice(self._settlements(self.states[number]), 1))
            known = self._late[number] = found
        return known

    def crashes(self, number: int) -> tuple[Step, ...]:
        known = self._crashes.get(number)
        if known is None:
            known = self._crashes[number] = tuple(self._all_crashes(self.states[number]))
        return known

    def _usual_steps(self, state: SiteState) -> Iterator[Step]:
        yield from self._sends(state)
        yield from self._gateway_deliveries(state)
        for way, queue in state.queues:
            yield self._hear(state, way, queue[0])
        for link in state.ready:
            work = Work(self, state)
            work.ready.discard(link)
            work.input(self.wire_of[link].gateway, "link_ready", ("ready", link), link)
            yield work.step()
        yield from self._views(state)

    def _sends(self, state: SiteState) -> Iterator[Step]:
        for process in self.rules.processes:
            if len(state.system.streams[process]) < self.ledger.quota.get(self.ids[process], 0):
                for senders in self._ways_before_a_send(state.system, process):
                    work = Work(self, state)
                    for sender in senders:
                        work.deliver(process, sender)
                    work.send(process)
                    yield work.step()

    def _ways_before_a_send(self, system: SystemState, process: int) -> Iterator[tuple[int, ...]]:
        """The shortest way to every situation that a process can bring about by delivering."""
        yield ()
        if not self.reduced or (self.ledger.promise == "fifo" and self.rules.order == "fifo"):
            # Where only senders' own orders count, nobody can tell what a process had delivered when it sent.
            return
        met = {system}
        waiting: list[tuple[SystemState, tuple[int, ...]]] = [(system, ())]
        for situation, way in waiting:
            for sender in self.rules.deliverable(situation, process):
                following = self.rules.deliver(situation, process, sender)
                if following not in met:
                    met.add(following)
                    waiting.append((following, (*way, sender)))
                    yield (*way, sender)

    def _process_deliveries(self, state: SiteState) -> Iterator[Step]:
        for process in self.rules.processes:
            for sender in self.rules.deliverable(state.system, process):
                work = Work(self, state)
                work.deliver(process, sender)
                yield work.step()

    def _gateway_deliveries(self, state: SiteState) -> Iterator[Step]:
        for rank in self._live(state):
            for sender in self.rules.deliverable(state.system, rank):
                work = Work(self, state)
                work.gateway_delivers(rank, sender)
                yield work.step()

    def _hear(self, state: SiteState, way: tuple[int, int, bool], pdu: PduNumber) -> Step:
        work = Work(self, state)
        source, target, _ = way
        rest = work.queues.pop(way)[1:]
        if rest:
            work.queues[way] = rest
        subject = ("hear", self.ids[source], pdu)
        work.input(target, "from_fellow", subject, self.ids[source], (self.pdus[pdu],), key=(source, pdu))
        return work.step()

    def _views(self, state: SiteState) -> Iterator[Step]:
        for agreed, lost in self.rules.agreements(state.system):
            work = Work(self, state)
            work.agree(agreed, lost)
            yield work.step()
        for rank in self._live(state):
            if self.rules.can_enter(state.system, rank):
                work = Work(self, state)
                work.enter_view(rank)
                yield work.step()

    def _settlements(self, state: SiteState) -> Iterator[Step]:
        """A gateway hears what every member has finished with; any part of it, as processes may have been slow."""
        members = self.rules.members(state.system)
        first = self.rules.gateways.start
        counts = [state.confirmed[rank - first] for rank in self.rules.gateways if rank in members]
        if not self.reduced:
            counts += [state.system.delivered[process] for process in self.rules.processes]
        if not counts:
            return
        finished = tuple(map(min, zip(*counts, strict=True)))
        for rank in self._live(state):
            for sender, most in enumerate(finished):
                numbers = range(state.settled[rank - first][sender] + 1, most + 1)
                for number in numbers if self.reduced else numbers[-1:]:
                    work = Work(self, state)
                    work.settle(rank, sender, number)
                    yield work.step()

    def _all_crashes(self, state: SiteState) -> Iterator[Step]:
        for rank in self._live(state):
            work = Work(self, state)
            work.crash(rank)
            yield work.step(crash=True)

    def _live(self, state: SiteState) -> Iterator[int]:
        for rank, gateway in zip(self.rules.gateways, state.gateways, strict=True):
            if gateway != CRASHED:
                yield rank

    # What links and time do to it

    def take(self, number: int, direction: Direction, pdu: PduNumber) -> Step:
        """A PDU comes off a link; `END` is the word that nothing more will."""
        key = (number, direction, pdu)
        known = self._taken.get(key)
        if known is None:
            wire = self.wire_into[direction]
            work = Work(self, self.states[number])
            if pdu == END:
                work.input(wire.gateway, "link_down", ("down", wire.link), wire.link)
            elif pdu < 0:
                work.link_up(wire, incarnation_of(slot_of(wire.peer), token_of(pdu)))
            else:
                subject = ("take", wire.link, pdu)
                work.input(wire.gateway, "from_link", subject, wire.link, (self.pdus[pdu],), key=(wire.link, pdu))
            known = self._taken[key] = work.step()
        return known

    def ignores(self, number: int, direction: Direction, pdu: PduNumber) -> bool:
        """Whether the gateway that a PDU comes to does nothing about it, now or ever.

        The rule says so of gateways that are right, so this one is asked too: whatever it does is looked at.
        """
        key = (number, direction, pdu)
        known = self._ignored.get(key)
        if known is None:
            wire = self.wire_into[direction]
            state = self.states[number]
            gateway = state.gateways[wire.gateway - self.rules.gateways.start]
            known = pdu >= 0 and is_void(self.gateways[gateway], wire.join, self.pdus[pdu])
            if known:
                arguments = (wire.link, (self.pdus[pdu],))
                reaction = self.react(gateway, state.now, "from_link", arguments, (wire.link, pdu))
                known = reaction == GatewayReaction(gateway, (), (), (), (), "")
            self._ignored[key] = known
        return known

    def deadline(self, number: int) -> Nanos | None:
        gateways = self.states[number].gateways
        due = (self.gateways[gateway].deadline() for gateway in gateways if gateway != CRASHED)
        return min((each for each in due if each is not None), default=None)

    def rest(self, number: int) -> tuple[StepEvent, ...]:
        """What processes have still to deliver when nothing else happens any more."""
        work = Work(self, self.states[number])
        for process in self.rules.processes:
            while (sender := next(self.rules.deliverable(work.system, process), None)) is not None:
                work.deliver(process, sender)
        return tuple(work.events)

    def awaken(self, number: int, now: Nanos) -> Step:
        """Time has passed, and whoever asked to be woken by now is."""
        state = self.states[number]
        work = Work(self, state._replace(now=now))
        for rank in self._live(state):
            due = self.gateways[state.gateways[rank - self.rules.gateways.start]].deadline()
            if due is not None and due <= now:
                work.input(rank, "wake", ("wake",))
        return work.step()

    # Gateways

    def _keep(self, gateway: Gateway) -> int:
        return self.gateways.number((gateway.id, gateway.snapshot()), gateway)

    def react(
        self, gateway: int, now: Nanos, method: str, arguments: tuple[object, ...], key: Hashable
    ) -> GatewayReaction:
        """Run a fork of a gateway, unless the same gateway has met the same input before."""
        full_key = (gateway, now, method, key)
        known = self.reactions.get(full_key)
        if known is None:
            known = self.reactions[full_key] = self._run(gateway, now, method, arguments)
        return known

    def _run(self, gateway: int, now: Nanos, method: str, arguments: tuple[object, ...]) -> GatewayReaction:
        fork = self.gateways[gateway].fork()
        out = Outbox()
        call: Callable[..., None] = getattr(fork, method)
        try:
            call(*arguments, now, out)
            to_fellows = tuple((target, self.pdus.of(pdu)) for targets, pdu in out.to_fellows for target in targets)
            links = tuple((link, self.pdus.of(pdu)) for link, pdu in out.links)
            relays, confirms = tuple(chain.from_iterable(out.relays)), tuple(out.confirms)
            # Emptied before the picture is taken: a gateway may have kept it, and what was in it is not state.
            out.clear()
            if self._keeps_the_rules:
                fork.invariants()
            return GatewayReaction(self._keep(fork), relays, confirms, to_fellows, links, "")
        except Exception as error:  # whatever goes wrong in a gateway is a finding about the gateway
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return GatewayReaction(gateway, (), (), (), (), text)

    def batch(self, system: SystemState, sender: int, place: int) -> Batch:
        sent = system.streams[sender][place]
        return Batch(sent.view + 1, self.ids[sender], place + 1, [], 0, Segment.pack(sent.messages))

    def drops(self, pdu: PduNumber) -> bool:
        return self._drops_idle and is_idle(self.pdus[pdu])
