"""A servers' group of a daisy: causal multicast among seats, which servers come and go in (docs/design/daisy.md).

A seat stands for a part of the daisy, and lives as long as the group behind it does; its holder is the server of that
group, known with the number of the view that made it the server, the *epoch*. So nobody here has to suspect anybody,
and no quorum is needed: there is one holder per seat and epoch, and a later epoch ends all earlier ones.

When a seat gets a new holder the group goes through a **flush**: each holder tells all others what is not settled at
its seat; from the same lists all work out the same order (`daisy_flush`), deliver what they have not had of it, and
begin a new view with empty streams. That is the state update of daisy, Sect. 3.1.2.

The way of a message through this file: `send` → a batch with a vector as long as the group → `_on_batch` → `news`; then
`report` (everybody below has it) → `everybody_has` → settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from isthmus.core.endpoint import Hold
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Addressed, Batch
from isthmus.core.pdu import Ack, SeatReport, SeatState
from isthmus.interconnect.daisy_flush import Agreement, State, agree
from isthmus.interconnect.daisy_local import Arrival, NewView
from isthmus.interconnect.daisy_record import Causes, Record, Told, id_of, pack, unpack
from isthmus.interconnect.daisy_tree import DaisyGroup, DaisyTree
from isthmus.ordering.causal import CausalOrder
from isthmus.ordering.channel import Incoming, Outgoing
from isthmus.ordering.window import GroupSettings

SeatPdu = Batch | Ack | SeatReport | SeatState
Sends = list[tuple[tuple[ProcessId, ...], SeatPdu]]

MAX_MESSAGES = 1024
"""Of one batch."""

_ALWAYS = 1 << 60


class Holder(NamedTuple):
    """Who holds a seat, and the view of the group behind it that decided so."""

    epoch: int
    process: ProcessId


class ServersGroup:
    """One seat, as long as this process holds it. `installed` is False from the first word of a flush to its end.

    `reports[s]` is what the holder of seat s says that everybody below it has: so many batches of each seat's stream
    and, in the last place, so many messages of the flush that the view began with.
    """

    def __init__(
        self,
        owner: ProcessId,
        tree: DaisyTree,
        group: DaisyGroup,
        seat: int,
        epoch: int,
        entries: Sequence[Told],
        settings: GroupSettings,
        now: Nanos,
    ) -> None:
        self.id = owner
        self.tree = tree
        self.group = group
        self.number = group.number
        self.seat = seat
        self.settings = settings
        self.size = len(group.parts)
        self.holders = [Holder(1, min(tree.groups[part].everybody)) for part in group.parts]
        self.superseded = False
        self.installed = False
        self.record = Record()
        self.order = CausalOrder()
        self.sends: Sends = []
        self.holds: list[Hold] = []
        self.pending: deque[Addressed] = deque()
        self.pending_down: deque[Told] = deque()
        self.states: dict[int, State] = {}
        self.reports: list[list[int]] = []
        self.outgoing: Outgoing[Batch] = Outgoing((), settings.retry_after, now)
        self.incoming: dict[int, Incoming[Batch]] = {}
        self._news: list[Arrival | NewView] = []
        self._place: dict[MessageId, tuple[int, int]] = {}
        self._unreported: list[deque[tuple[int, list[MessageId]]]] = []
        self._own_state = State(list(entries), 0)
        self.adrift: dict[MessageId, Told] = {}
        self._exact: dict[MessageId, Causes] = {}
        self._streams: list[deque[tuple[int, MessageId]]] = []
        below = (message for message, _ in entries if tree.is_below(group.number, message.origin))
        self._offered = {message.origin: message.seq for message in below}
        self.put_off: list[Told] = []
        self._gone: set[MessageId] = set()
        self.waiting_below: list[Told] = []
        self._retry_at = now
        self._unacknowledged: set[int] = set()
        # Founders know each other from the file, and that nobody has anything to tell.
        if epoch == 1:
            self.states = {each: State((), 0) for each in range(self.size)}
            self._install(now)
        else:
            self.holders[seat] = Holder(epoch, owner)
            self._begin_flush(now)

    # What the levels above and below ask

    @property
    def view_number(self) -> int:
        return 1 + sum(holder.epoch - 1 for holder in self.holders)

    @property
    def server(self) -> ProcessId | None:
        """Who holds this group's seat in the group above: the lowest id. None while it is not known."""
        return min(holder.process for holder in self.holders) if self.installed else None

    def goes_beyond(self, message: Addressed) -> bool:
        inside = self.tree.is_below(self.number, message.origin)
        return not inside or self.tree.goes_out(self.number, message.destinations)

    def has(self, message: MessageId) -> bool:
        return self.record.has(message) or message.seq <= self._offered.get(message.origin, 0)

    def everybody_has(self, message: MessageId) -> bool:
        """Stable in this group: everybody below every seat has it."""
        if not self.record.has(message) or not self.installed:
            return False
        place = self._place.get(message)
        return place is None or all(report[place[0]] >= place[1] for report in self.reports)

    def is_settled(self, message: MessageId) -> bool:
        """Whether nobody will ever need it again."""
        return self.record.is_settled(message) or message in self._gone

    def unsettled(self) -> list[MessageId]:
        """What the server is to be asked about: all of this group have these."""
        record = self.record
        asked = [
            each
            for each, message in record.kept.items()
            if each not in record.settled and self.goes_beyond(message) and self.everybody_has(each)
        ]
        return asked + list(self.adrift)

    def settle(self, messages: Sequence[MessageId]) -> list[MessageId]:
        self._gone.update(each for each in messages if self.adrift.pop(each, None) is not None)
        news = self.record.settle(each for each in messages if self.everybody_has(each))
        for each in [each for each in self._place if each not in self.record.kept]:
            del self._place[each]
        return news

    def tell_up(self) -> list[Told]:
        """What a server of this group brings along to the group above."""
        missing = [each for each in self.put_off if not self.record.has(id_of(each.message))]
        told = [*self.record.tell(self.goes_beyond), *missing]
        return [each for each in told if self.goes_beyond(each.message)]

    def settle_own(self) -> None:
        """Messages that concern nobody beyond this group are settled when everybody has them."""
        kept = self.record.kept
        self.settle([each for each, message in kept.items() if not self.goes_beyond(message)])

    def send(self, messages: Sequence[Addressed], now: Nanos, causes: Causes | None = None) -> None:
        """Multicast what has not been offered before. `causes` are as the group knows where it comes from."""
        for message in messages:
            if message.seq > self._offered.get(message.origin, 0):
                self._offered[message.origin] = message.seq
                if self.tree.is_below(self.number, message.origin):
                    self.pending.append(message)
                    self._exact[id_of(message)] = causes or {}
                else:
                    self.pending_down.append(Told(message, causes or {}))
        self._send_pending(now)

    def news(self) -> Iterator[Arrival | NewView]:
        news, self._news = self._news, []
        return iter(news)

    def report(self, everybody_below_has: Callable[[Addressed], bool]) -> None:
        """Count what everybody below this seat has, per stream, up to the first that somebody lacks."""
        if not self.installed:
            return
        kept, own = self.record.kept, self.reports[self.seat]
        for stream, waiting in enumerate(self._unreported):
            while waiting:
                number, messages = waiting[0]
                if not all(each not in kept or everybody_below_has(kept[each]) for each in messages):
                    break
                own[stream] = number
                waiting.popleft()

    # Network and time

    def receive(self, link: ProcessId, pdu: SeatPdu, now: Nanos) -> None:
        if self.superseded:
            return
        if isinstance(pdu, SeatState):
            self._on_state(link, pdu, now)
            return
        seat = next((each for each, holder in enumerate(self.holders) if holder.process == link), None)
        if seat is None or seat == self.seat or not self.installed or pdu.view != self.view_number:
            return
        if isinstance(pdu, Batch):
            self._on_batch(seat, pdu)
        elif isinstance(pdu, Ack):
            for batch in self.outgoing.acknowledge(link, pdu.received, pdu.seen, now):
                self.sends.append(((link,), batch))
        elif len(pdu.reported) == self.size + 1:
            self.reports[seat] = list(map(max, self.reports[seat], pdu.reported))

    def settle_step(self) -> None:
        """The end of a step: one acknowledgement per stream that something came of."""
        for seat in sorted(self._unacknowledged):
            stream = self.incoming[seat]
            ack = Ack(self.view_number, stream.received, stream.seen)
            self.sends.append(((self.holders[seat].process,), ack))
        self._unacknowledged.clear()

    def wake(self, now: Nanos) -> None:
        """A heartbeat."""
        if self.superseded:
            return
        if not self.installed:
            if now >= self._retry_at:
                self._ask_again(now)
            return
        self._send_pending(now)
        others = self._others()
        if not others:
            return
        for receiver, batches in self.outgoing.overdue(now):
            self.sends.extend(((receiver,), batch) for batch in batches)
        self.outgoing.log.drop_through(min(peer.acked for peer in self.outgoing.peers.values()))
        self.sends.append((others, SeatReport(self.view_number, list(self.reports[self.seat]))))

    # Streams

    def _others(self) -> tuple[ProcessId, ...]:
        return tuple(holder.process for seat, holder in enumerate(self.holders) if seat != self.seat)

    def _send_pending(self, now: Nanos) -> None:
        while self.installed:
            messages: list[Addressed] = []
            while self.pending_down and len(messages) < MAX_MESSAGES and not self._is_early(self.pending_down[0]):
                message = self.pending_down.popleft().message
                if not self.record.has(id_of(message)):
                    messages.append(message)
            while self.pending and len(messages) < MAX_MESSAGES and not self._must_wait(self.pending[0]):
                message = self.pending.popleft()
                if not self.record.has(id_of(message)):
                    messages.append(message)
            if not messages:
                return
            number = self.outgoing.sent + 1
            batch = Batch(self.view_number, self.seat, number, self.order.stamp(number), 0, pack(messages))
            self.outgoing.append(batch, now)
            others = self._others()
            if others:
                self.sends.append((others, batch))
            self._hand_over(self.seat, batch)

    def _on_batch(self, seat: int, batch: Batch) -> None:
        if batch.sender != seat or not self.order.well_formed(seat, batch):
            return
        stream = self.incoming[seat]
        for each in stream.accept(batch):
            self._hand_over(seat, each)
        stream.log.drop_through(stream.received)
        self._unacknowledged.add(seat)

    def _hand_over(self, seat: int, batch: Batch) -> None:
        ready: list[Batch] = []
        self.order.arrived(seat, batch, ready, self.holds)
        for each in ready:
            self._deliver(each)

    def _deliver(self, batch: Batch) -> None:
        first_time: list[MessageId] = []
        for packed in batch.messages:
            message = unpack(packed)
            if message is None or not self.tree.knows(message.destinations):
                continue
            each = id_of(message)
            causes = self._exact.pop(each, None)
            if causes is None:
                causes = self.record.closure(self._latest(batch))
            if self.record.add(message, causes):
                self._place[each] = (batch.sender, batch.number)
                self._streams[batch.sender].append((batch.number, each))
                first_time.append(each)
                self._news.append(Arrival(message, batch))
        self._unreported[batch.sender].append((batch.number, first_time))

    def _latest(self, batch: Batch) -> Iterator[MessageId]:
        """All that this view began with, and the latest of each seat that the sender had, by the batch's vector."""
        yield from (each for _, each in self._streams[self.size])
        for seat, stream in enumerate(self._streams[: self.size]):
            while stream and stream[0][1] not in self.record.kept:
                stream.popleft()
            most = batch.number if seat == batch.sender else batch.stamp[seat]
            for number, each in reversed(stream):
                if number <= most:
                    yield each
                    break

    # The flush

    def _begin_flush(self, now: Nanos) -> None:
        if self.installed:
            told = self.record.tell(lambda message: True)
            pending = [Told(each, self._exact[id_of(each)]) for each in self.pending if id_of(each) in self._exact]
            self._own_state = State([*told, *self.adrift.values(), *pending], len(told))
            self.installed = False
        self.states = {self.seat: self._own_state}
        self._unacknowledged.clear()
        self._ask_again(now)
        self._maybe_install(now)

    def _ask_again(self, now: Nanos) -> None:
        """Tell our state to whoever has not told us its own; and, as its holder may be new, to everybody below."""
        self._retry_at = now + self.settings.retry_after
        for seat, part in enumerate(self.group.parts):
            if seat in self.states:
                continue
            holder = self.holders[seat].process
            self.sends.append(((holder,), self._state(True, True)))
            rest = tuple(each for each in self.tree.groups[part].everybody if each != holder)
            if rest:
                self.sends.append((rest, self._state(False, True)))

    def _state(self, told: bool, asks: bool) -> SeatState:
        entries, delivered = self._own_state if told else State((), 0)
        holders = [(each.epoch, each.process) for each in self.holders]
        causes = [list(before.items()) for _, before in entries]
        return SeatState(holders, told, [message for message, _ in entries], causes, delivered, asks)

    def _on_state(self, link: ProcessId, state: SeatState, now: Nanos) -> None:
        theirs = [Holder(*each) for each in state.holders]
        seat = next((each for each, holder in enumerate(theirs) if holder.process == link), None)
        if len(theirs) != self.size or seat is None or seat == self.seat:
            return
        latest = [max(pair) for pair in zip(self.holders, theirs, strict=True)]
        if latest[self.seat].process != self.id:
            # The group behind our seat has gone on without us.
            self.superseded = True
            return
        if latest != self.holders:
            self.holders = latest
            self._begin_flush(now)
        if theirs == self.holders and state.told and not self.installed:
            told = told_of(state)
            if told is not None:
                self.states.setdefault(seat, State(told, state.delivered))
                self._maybe_install(now)
        if theirs != self.holders or state.asks:
            self.sends.append(((link,), self._state(True, seat not in self.states)))

    def _maybe_install(self, now: Nanos) -> None:
        if not self.installed and len(self.states) == self.size:
            self._install(now)

    def _install(self, now: Nanos) -> None:
        """All have told what they have. Begin a view with it."""
        agreed, waiting, settled = self._agree()
        self.installed = True
        everyone = range(self.size)
        self.order.install(everyone, self.seat, [0] * self.size)
        for seat in everyone:
            self.order.safe(seat, _ALWAYS, [])
        self.outgoing = Outgoing(self._others(), self.settings.retry_after, now)
        self.incoming = {seat: Incoming() for seat in everyone if seat != self.seat}
        self.reports = [[0] * (self.size + 1) for _ in everyone]
        self._unreported = [deque() for _ in range(self.size + 1)]
        self._news.append(NewView(self.view_number))
        self._news += [Arrival(message, None) for message in self.record.begin(agreed, settled)]
        ids = [id_of(message) for message, _ in agreed]
        self._place = {each: (self.size, number) for number, each in enumerate(ids, 1) if each in self.record.kept}
        self._unreported[self.size].extend((number, [each]) for number, each in enumerate(ids, 1))
        self._streams = [deque() for _ in everyone]
        self._streams.append(deque(enumerate(ids, 1)))
        self._put_off(waiting)
        self._send_pending(now)

    def _put_off(self, waiting: Sequence[Told]) -> None:
        """What was left out of the flush: ours from below go out when those from above that they follow are back."""
        ours = {id_of(message) for message, _ in self._own_state.told}
        again: list[Addressed] = []
        self.adrift = {}
        self.put_off = list(waiting)
        self.waiting_below = [each for each in waiting if self.tree.is_below(self.number, each.message.origin)]
        for message, causes in waiting:
            each = id_of(message)
            if not self.tree.is_below(self.number, message.origin):
                if each in ours:
                    self.adrift[each] = Told(message, causes)
            elif each in ours:
                self._exact[each] = causes
                again.append(message)
        known = {id_of(message) for message in self.pending}
        self.pending.extendleft(message for message in reversed(again) if id_of(message) not in known)

    def _is_early(self, told: Told) -> bool:
        """Whether a message from above follows from one that has been above and was put off here."""
        self.waiting_below = [each for each in self.waiting_below if not self.record.has(id_of(each.message))]
        return any(each.message.seq <= told.causes.get(each.message.origin, 0) for each in self.waiting_below)

    def _must_wait(self, message: Addressed) -> bool:
        """Whether a message from below follows from one from above that is to come again."""
        causes = self._exact.get(id_of(message))
        if causes is None or not self.adrift:
            return False
        for each in [each for each in self.adrift if self.record.has(each)]:
            del self.adrift[each]
        return any(each.seq <= causes.get(each.origin, 0) for each in self.adrift)

    def _agree(self) -> Agreement:
        lists = [self.states[seat] for seat in range(self.size)]
        return agree(lists, lambda origin: self.tree.seat_of(self.number, origin))

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        return self.order.waiting() if self.installed else iter(())

    def invariants(self) -> None:
        self.record.invariants()
        assert self.superseded or self.holders[self.seat].process == self.id, "somebody else holds our seat"
        for seat, report in enumerate(self.reports):
            for stream in range(self.size):
                assert report[stream] <= self.outgoing.sent if stream == self.seat else True, f"{seat}: unsent batch"


def told_of(state: SeatState) -> list[Told] | None:
    """What a state tells; None where it makes no sense."""
    ids = {id_of(message) for message in state.entries}
    if len(state.causes) != len(state.entries) or len(ids) != len(state.entries):
        return None
    return list(map(Told, state.entries, map(dict, state.causes)))
