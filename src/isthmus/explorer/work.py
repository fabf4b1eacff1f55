"""One step of a site while it is being made: every part of the state that can change, and what comes of it.

What gateways want done is carried out in the order of their outbox. Here, too, order and integrity are judged: in full
when a process delivers; reduced, already when a gateway or process broadcasts, as some process could deliver it then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from isthmus.core.endpoint import View
from isthmus.core.segment import Opened
from isthmus.explorer.broadcast import SystemState, put
from isthmus.explorer.scenario import first_of
from isthmus.explorer.step import END, NOBODY, BrokenPromise, Direction, Effect, PduNumber, Step, StepEvent

if TYPE_CHECKING:
    from isthmus.core.ids import ProcessId
    from isthmus.explorer.site import ExploredSite, GatewayReaction, SiteState, Wire

CRASHED = -1
MOST_READINESS = 16
"""A gateway that has something to send however often a link is ready is wrong, and would never let a step end."""


class Work:
    """A copy of a site's state that can be changed; `step` makes a state of it again."""

    def __init__(self, site: ExploredSite, state: SiteState) -> None:
        self.site = site
        self.state = state
        self.system = state.system
        self.gateways = list(state.gateways)
        self.queues = dict(state.queues)
        self.ready = set(state.ready)
        self.confirmed = state.confirmed
        self.settled = state.settled
        self.events: list[StepEvent] = []
        self.frames: list[tuple[Direction, PduNumber]] = []
        self.closes: list[Direction] = []
        self.relayed = 0
        self.settles = 0
        self.violation: BrokenPromise | None = None

    def step(self, crash: bool = False) -> Step:
        site = self.site
        state = self.state._replace(
            system=self.system,
            gateways=tuple(self.gateways),
            queues=tuple(sorted(self.queues.items())),
            ready=tuple(sorted(self.ready)),
            confirmed=self.confirmed,
            settled=self.settled,
        )
        return Step(
            target=site.states.number(state, state),
            cost=max(1, len(self.events)),
            frames=tuple(self.frames),
            crash=crash,
            closes=tuple(self.closes),
            relayed=self.relayed,
            settles=self.settles,
            violation=self.violation,
            events=tuple(self.events),
        )

    def _tell(self, kind: str, rank: int, subject: tuple[Any, ...] = (), effects: Iterable[Effect] = ()) -> None:
        process = NOBODY if rank == NOBODY else self.site.ids[rank]
        self.events.append(StepEvent(kind, self.site.index, process, subject, tuple(effects)))

    # Processes

    def send(self, process: int) -> None:
        site, system = self.site, self.system
        number = len(system.streams[process]) + 1
        message = site.ledger.stamp(site.ids[process], number, system.seen[process], system.given[process])
        self._tell("send", process, (message,))
        self._broadcast(process, (message,))

    def deliver(self, process: int, sender: int) -> None:
        site, system = self.site, self.system
        messages = system.streams[sender][system.delivered[process][sender]].messages
        self._tell("deliver", process, messages)
        if not site.reduced:
            self._judge_delivery(process, messages)
        self.system = site.rules.deliver(system, process, sender)

    # Gateways

    def gateway_delivers(self, rank: int, sender: int) -> None:
        site, system = self.site, self.system
        place = system.delivered[rank][sender]
        sent = system.streams[sender][place]
        batch = site.batch(system, sender, place)
        self.system = site.rules.deliver(system, rank, sender)
        self.input(
            rank, "delivered_batch", ("deliver", *sent.messages), batch, key=(sender, place, sent.messages, sent.view)
        )

    def input(
        self, rank: int, method: str, subject: tuple[Any, ...], *arguments: object, key: Hashable | None = None
    ) -> None:
        """Give a gateway an input and do what it wants done. Without a subject it is not worth telling."""
        place = len(self.events)
        effects = self._react(rank, method, arguments, arguments if key is None else key)
        if subject:
            kind, *rest = subject
            self.events.insert(
                place, StepEvent(kind, self.site.index, self.site.ids[rank], tuple(rest), tuple(effects))
            )

    def link_up(self, wire: Wire, peer: ProcessId) -> None:
        """A new process is at the far end of a link, which was down, and the link is ready."""
        self.ready.discard(wire.link)
        self.input(wire.gateway, "link_up", ("up", wire.link), wire.link, peer)
        self.input(wire.gateway, "link_ready", (), wire.link)

    def _react(self, rank: int, method: str, arguments: tuple[object, ...], key: Hashable) -> list[Effect]:
        site = self.site
        place = rank - site.rules.gateways.start
        effects: list[Effect] = []
        impatient: list[int] = []
        for _ in range(MOST_READINESS):
            reaction = site.react(self.gateways[place], self.state.now, method, arguments, key)
            self.gateways[place] = reaction.gateway
            impatient += self._carry_out(rank, place, reaction, effects)
            if not impatient:
                return effects
            link = impatient.pop()
            method, arguments, key = "link_ready", (link,), (link,)
        self._violated("invariant", rank, 0, 0, f"has something to send over link {link} without an end")
        return effects

    def _carry_out(self, rank: int, place: int, reaction: GatewayReaction, effects: list[Effect]) -> set[int]:
        """Returns the links that took a block and are ready for the next at once."""
        site = self.site
        if reaction.failure:
            self._violated("invariant", rank, 0, 0, f"fails: {reaction.failure}")
        if reaction.relays:
            effects.append(Effect("broadcasts", reaction.relays))
            self.relayed |= site.ledger.mask(reaction.relays)
            self._broadcast(rank, reaction.relays)
        for sender, number in reaction.confirms:
            self._confirm(place, site.ranks[sender], number)
        for target, pdu in reaction.to_fellows:
            if site.drops(pdu):
                continue
            target_rank = site.ranks[target]
            if self.gateways[target_rank - site.rules.gateways.start] != CRASHED:
                way = (rank, target_rank, site.pdus.is_block(pdu))
                self.queues[way] = (*self.queues.get(way, ()), pdu)
            effects.append(Effect("tells", (target, pdu)))
        impatient: set[int] = set()
        for link, pdu in reaction.links:
            if site.drops(pdu):
                continue
            wire = site.wire_of[link]
            self.frames.append((wire.out, pdu))
            effects.append(Effect("puts", (link, pdu)))
            if site.pdus.is_block(pdu):
                if wire.patient:
                    self.ready.add(link)
                else:
                    impatient.add(link)
        return impatient

    def _confirm(self, place: int, sender: int, number: int) -> None:
        counts = self.confirmed[place]
        if number > counts[sender]:
            self.confirmed = put(self.confirmed, place, put(counts, sender, number))

    def settle(self, rank: int, sender: int, number: int) -> None:
        """Tell a gateway. If processes deliver when it matters, it matters now."""
        site, rules = self.site, self.site.rules
        place = rank - rules.gateways.start
        before = self.settled[place][sender]
        self.settled = put(self.settled, place, put(self.settled[place], sender, number))
        if sender in rules.processes:
            for sent in self.system.streams[sender][before:number]:
                self.settles |= site.ledger.mask(sent.messages)
        if site.reduced:
            for process in rules.processes:
                for each in rules.way_to(self.system, process, sender, number):
                    self.deliver(process, each)
        self.input(rank, "settled_batches", ("settled", site.ids[sender], number), site.ids[sender], number)

    # Membership

    def agree(self, agreed: SystemState, lost: int) -> None:
        site = self.site
        members = tuple(site.ids[rank] for rank in agreed.cuts[-1].members)
        self.system = agreed
        for rank in site.rules.gateways:
            if rank not in agreed.cuts[-1].members:
                # Nobody waits for it any more.
                self.confirmed = put(self.confirmed, rank - site.rules.gateways.start, (0,) * site.rules.width)
        self._tell("agree", NOBODY, (len(agreed.cuts) + 1, members, lost))

    def enter_view(self, rank: int) -> None:
        """The next view. What the site's network still had of members that it leaves out does not arrive any more."""
        site = self.site
        cut = self.system.cuts[self.system.views[rank]]
        self.system = site.rules.enter(self.system, rank)
        for way in list(self.queues):
            if way[1] == rank and way[0] not in cut.members:
                del self.queues[way]
        members = tuple(site.ids[member] for member in cut.members)
        view = View(self.system.views[rank] + 1, members)
        self.input(rank, "view", ("view", view.number, members), view)

    def crash(self, rank: int) -> None:
        site = self.site
        self.system = site.rules.crash(self.system, rank)
        place = rank - site.rules.gateways.start
        self.gateways[place] = CRASHED
        self.settled = put(self.settled, place, (0,) * site.rules.width)
        for way in list(self.queues):
            if way[1] == rank:
                del self.queues[way]
        for wire in site.wires:
            if wire.gateway == rank:
                self.ready.discard(wire.link)
                self.frames.append((wire.out, END))
                self.closes.append(wire.into)
        self._tell("crash", rank)

    # Judgement

    def _broadcast(self, rank: int, messages: tuple[Opened, ...]) -> None:
        site = self.site
        before, everything = site.rules.before(self.system, rank), site.rules.everything(self.system)
        self.system = site.rules.broadcast(self.system, rank, messages)
        for message in messages:
            bit = site.ledger.bit(message)
            if not bit:
                self._violated("integrity", rank, 0, 0, f"broadcasts {site.ledger.name(message)}, which nobody sent")
            elif site.reduced and not self.violation:
                if everything & bit:
                    self._delivered_twice(rank, bit)
                else:
                    self._judge_broadcast(rank, message, before)
            before |= bit
            everything |= bit

    def _judge_broadcast(self, rank: int, message: Opened, before: int) -> None:
        """Some process may deliver it now. It had better have its causes, or be bound to get them before."""
        site, system = self.site, self.system
        wrong: list[tuple[list[int], int, int]] = []
        for process in site.rules.processes:
            missing = site.ledger.causes(message) & ~(before | system.seen[process])
            if missing:
                way = site.rules.way_to(system, process, rank, len(system.streams[rank]))
                wrong.append((way, process, missing))
        if wrong:
            way, process, missing = min(wrong, key=lambda each: len(each[0]))
            for sender in way:
                self.deliver(process, sender)
            self._overtaken(process, site.ledger.bit(message), missing)

    def _delivered_twice(self, rank: int, bit: int) -> None:
        site = self.site
        ways: list[tuple[list[int], int]] = []
        for process in site.rules.processes:
            system = self.system
            way: list[int] = []
            for sender, number in [*self._places(bit), (rank, len(system.streams[rank]))]:
                more = site.rules.way_to(system, process, sender, number)
                for each in more:
                    system = site.rules.deliver(system, process, each)
                way += more
            ways.append((way, process))
        if ways:
            way, process = min(ways, key=lambda each: len(each[0]))
            for sender in way:
                self.deliver(process, sender)
            self._again(process, bit)

    def _places(self, bit: int) -> list[tuple[int, int]]:
        """Where a message was broadcast before, as sender and number."""
        ledger = self.site.ledger
        return [
            (sender, place + 1)
            for sender, stream in enumerate(self.system.streams)
            for place, sent in enumerate(stream)
            if ledger.mask(sent.messages) & bit
        ][:1]

    def _judge_delivery(self, process: int, messages: tuple[Opened, ...]) -> None:
        ledger = self.site.ledger
        seen = self.system.seen[process]
        for message in messages:
            bit, missing = ledger.bit(message), ledger.causes(message) & ~seen
            if seen & bit:
                self._again(process, bit)
            elif missing:
                self._overtaken(process, bit, missing)
            seen |= bit

    def _again(self, process: int, bit: int) -> None:
        self._violated("integrity", process, bit, 0, f"delivers {self.site.ledger.text(bit)} twice")

    def _overtaken(self, process: int, bit: int, missing: int) -> None:
        ledger = self.site.ledger
        own = [each for each in _bits(missing) if ledger.sender(each) == ledger.sender(bit)]
        cause = own[0] if own else first_of(missing)
        relation = "the earlier" if own else "its cause"
        why = f"delivers {ledger.text(bit)}, but {relation} {ledger.text(cause)} has not been delivered here"
        self._violated("fifo" if own else "causal", process, cause, bit, why)

    def _violated(self, judged: str, rank: int, first: int, second: int, why: str) -> None:
        if self.violation is None:
            name, text = self.site.names[rank], self.site.ledger.text
            self.violation = BrokenPromise(
                judged, name, text(first) if first else "", text(second) if second else "", f"{name} {why}"
            )


def _bits(mask: int) -> Iterable[int]:
    while mask:
        yield first_of(mask)
        mask &= mask - 1
