"""A servers' group of a daisy: causal multicast among seats, which servers come and go in (docs/design/daisy.md).

A seat stands for a part of the daisy, and lives as long as the group behind it does; its holder is the server of that
group, known with the number of the view that made it the server, the *epoch*. So nobody here has to suspect anybody,
and no quorum is needed: there is one holder per seat and epoch, and a later epoch ends all earlier ones.

When a seat gets a new holder the group goes through a **flush**: each holder tells all others what is not settled at
its seat. When all have told, the group is *heard*, and has a server: who takes its seat in the group above, if it does
not have it yet, and then tells what is not settled there. From the same lists all work out the same order
(`daisy_flush`), deliver what they have not had of it, and begin a new view with empty streams. That is the state update
of daisy, Sect. 3.1.2.

The way of a message through this file: `send` → a batch with a vector as long as the group → `_on_batch` → `news`; then
`report` (everybody below has it) → `confirmed` → settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Segment
from isthmus.core.wire.daisy import SeatReport, SeatState
from isthmus.core.wire.group import Ack
from isthmus.hierarchy.daisy.flush import FlushResult, Holder, agree
from isthmus.hierarchy.daisy.local import Arrival, NewView
from isthmus.hierarchy.daisy.pieces import Told, cut, fill_frame, makes_sense
from isthmus.hierarchy.daisy.record import pack, unpack
from isthmus.hierarchy.daisy.stage import Stage
from isthmus.hierarchy.daisy.tree import NONE, DaisyGroup, DaisyTree
from isthmus.ordering.group.channel import Incoming, Outgoing
from isthmus.ordering.group.patience import Patience
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder

SeatPdu = Batch | Ack | SeatReport | SeatState
Sends = list[tuple[tuple[ProcessId, ...], SeatPdu]]
Streams = list[deque[tuple[int, list[MessageId]]]]

_ALWAYS = 1 << 60


class ServersGroup(Stage):
    """One seat, as long as this process holds it. `installed` is False from the first word of a flush to its end.

    It can tell nothing while it is `closing` (docs/design/daisy-on-receipt.md) or `unvouched` (`vouch.py`).

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
        entries: Sequence[Clocked],
        settings: GroupSettings,
        now: Nanos,
    ) -> None:
        super().__init__(owner, tree, group)
        self.group = group
        self.seat = seat
        self.settings = settings
        self.size = len(group.parts)
        self.holders = [Holder(1, min(tree.groups[part].everybody)) for part in group.parts]
        self.superseded = False
        self.installed = False
        self.began = False
        self.closing = False
        self.unvouched = False
        self.vouched_in = 0
        self.order = self._make_order()
        self.sends: Sends = []
        self.holds: list[Hold] = []
        self.pending: deque[Clocked] = deque()
        self.states: dict[int, Sequence[Clocked]] = {}
        self._told: list[Told] = []
        self._patience: list[Patience] = []
        self.above: Sequence[Clocked] | None = None
        self.reports: list[list[int]] = []
        self.outgoing: Outgoing[Batch] = Outgoing((), settings.retry_after, now)
        self.incoming: dict[int, Incoming[Batch]] = {}
        self._news: list[Arrival | NewView] = []
        self._unreported: Streams = []
        self._unconfirmed: Streams = []
        self._under_way: set[MessageId] = set()
        self._reports_moved = False
        self._own_state = list(entries)
        below = (run for run in entries if tree.is_below(group.number, run.origin))
        for run in below:
            self._offered[run.origin] = max(run.last, self._offered.get(run.origin, 0))
        self._heard_at = [now] * self.size
        self._unacknowledged: set[int] = set()
        # Founders know each other from the file, and that nobody has anything to tell.
        if epoch == 1:
            self.states = dict.fromkeys(range(self.size), ())
            self.above = ()
            self._install(now)
        else:
            self.holders[seat] = Holder(epoch, owner)
            self._begin_flush(now)

    # What the levels above and below ask

    @property
    def view_number(self) -> int:
        return 1 + sum(holder.epoch - 1 for holder in self.holders)

    @property
    def heard(self) -> bool:
        """Whether the lists of all seats are here, all of them made for the same holders of seats."""
        return len(self.states) == self.size

    @property
    def server(self) -> ProcessId | None:
        """Who holds this group's seat in the group above: the lowest id. None while it is not known."""
        return self._lowest().process if self.heard else None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits to be sent here, and no flush is under way."""
        return self.installed and not self.pending

    @property
    def wants_above(self) -> bool:
        """Whether the flush waits for us, the server, to tell what the group above has."""
        return not self.installed and self.above is None and self.server == self.id

    def everybody_has(self, run: MessageId) -> bool:
        """Whether a message is stable in this group: everybody below every seat has it."""
        return self.installed and self.record.has(run) and run not in self._under_way

    def unsettled(self) -> list[MessageId]:
        """Messages that the server is to be asked about: everybody in this group has them."""
        kept = self.record.kept.items()
        return [each for each, run in kept if each not in self._under_way and self.goes_beyond(run)]

    def settle(self, runs: Sequence[MessageId]) -> list[MessageId]:
        self._under_way.difference_update(runs)
        return self.record.settle(runs)

    def tell_up(self) -> list[Clocked]:
        """What a server of this group brings along to the group above."""
        if self.installed:
            return self.record.tell(self.goes_beyond)
        # What came from above is told even if it is settled: whether it is, is for the group above to say.
        foreign = {
            run.id: run
            for entries in self.states.values()
            for run in entries
            if not self.tree.is_below(self.number, run.origin)
        }
        return [each for each in self._agree(list(foreign.values())).agreed if self.goes_beyond(each)]

    def tell_down(self, part: int) -> list[Clocked]:
        """What the server of a part tells in there: all from outside that somebody below may not have."""
        return self.record.tell(
            lambda run: not self.tree.is_below(part, run.origin) and self.tree.goes_in(part, run.destinations)
        )

    def confirmed(self) -> list[MessageId]:
        """What has become stable within the group since the last time: everybody below every seat has it."""
        news: list[MessageId] = []
        if self._reports_moved and self.installed:
            self._reports_moved = False
            for stream, waiting in enumerate(self._unconfirmed):
                least = min(report[stream] for report in self.reports)
                while waiting and waiting[0][0] <= least:
                    news += waiting.popleft()[1]
            self._under_way.difference_update(news)
        return news

    def settle_own(self) -> list[MessageId]:
        """Messages that concern nobody beyond this group are settled when everybody has them."""
        kept = self.record.kept
        return self.settle([each for each in self.confirmed() if each in kept and not self.goes_beyond(kept[each])])

    def relay(self, arrivals: Sequence[Arrival], above: Mapping[ProcessId, int], now: Nanos) -> None:
        """Multicast what the group above has delivered; `above` are the latest of each origin there."""
        self.send([arrival.run for arrival in arrivals], now)

    def send(self, runs: Sequence[Clocked], now: Nanos) -> None:
        """Multicast what has not been offered before. Causes have been in this group, or were given to it before."""
        for run in runs:
            if run.last > self._offered.get(run.origin, 0):
                self._offered[run.origin] = run.last
                self.pending.append(run)
        self._send_pending(now)

    def news(self) -> Iterator[Arrival | NewView]:
        news, self._news = self._news, []
        return iter(news)

    def report(self, everybody_below_has: Callable[[Clocked], bool]) -> None:
        """Count what everybody below this seat has, per stream, up to the first that somebody lacks."""
        if not self.installed:
            return
        kept, own = self.record.kept, self.reports[self.seat]
        for stream, waiting in enumerate(self._unreported):
            while waiting:
                number, runs = waiting[0]
                if not all(everybody_below_has(kept[each]) if each in kept else self.is_settled(each) for each in runs):
                    break
                own[stream] = number
                self._reports_moved = True
                waiting.popleft()

    # Network and time

    def receive(self, source: ProcessId, pdu: SeatPdu, now: Nanos) -> None:
        if self.superseded:
            return
        if isinstance(pdu, SeatState):
            self._on_state(source, pdu, now)
            return
        seat = next((each for each, holder in enumerate(self.holders) if holder.process == source), None)
        if seat is None or seat == self.seat or not self.installed or pdu.view != self.view_number:
            return
        self._heard_at[seat] = now
        if isinstance(pdu, Batch):
            self._on_batch(seat, pdu)
        elif isinstance(pdu, Ack):
            for batch in self.outgoing.acknowledge(source, pdu.received, pdu.seen, now):
                self.sends.append(((source,), batch))
        elif len(pdu.reported) == self.size + 1:
            self.reports[seat] = list(map(max, self.reports[seat], pdu.reported))
            self._reports_moved = True

    def end_step(self) -> None:
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
            self._ask_again(now)
            return
        self._send_pending(now)
        others = self.others()
        if not others:
            return
        for receiver, batches in self.outgoing.overdue(now):
            self.sends.extend(((receiver,), batch) for batch in batches)
        self.outgoing.log.drop_through(min(peer.acked for peer in self.outgoing.peers.values()))
        self.sends.append((others, SeatReport(self.view_number, list(self.reports[self.seat]))))
        self._look_for_the_silent(now)

    def _look_for_the_silent(self, now: Nanos) -> None:
        """Say who holds which seat to everybody below a seat that is silent.

        A new holder has told everybody below every seat; but of two that come at once each may have been answered by
        the last holder of the other's seat, just before that one died. Then both have a view, and wait for the dead.
        """
        for seat, part in enumerate(self.group.parts):
            if seat != self.seat and now - self._heard_at[seat] >= self.settings.suspect_after:
                self._heard_at[seat] = now
                self.sends.append((self.tree.groups[part].everybody, self._announcement(asks=True)))

    # Streams

    def _make_order(self) -> CausalOrder:
        return CausalOrder()

    def others(self) -> tuple[ProcessId, ...]:
        return tuple(holder.process for seat, holder in enumerate(self.holders) if seat != self.seat)

    def _send_pending(self, now: Nanos) -> None:
        while self.installed and self.pending:
            runs = fill_frame(self._not_seen())
            if not runs:
                return
            self._multicast(Segment.pack([*map(pack, runs)]), self.order.stamp(self.outgoing.sent + 1), now)

    def _not_seen(self) -> Iterator[Clocked]:
        """Take pending messages one by one, without those that have come by another way meanwhile."""
        while self.pending:
            run = self.pending.popleft()
            if not self.record.has(run.id):
                yield run

    def _multicast(self, segment: Segment, stamp: list[int], now: Nanos) -> None:
        batch = Batch(self.view_number, self.seat, self.outgoing.sent + 1, stamp, 0, segment)
        self.outgoing.append(batch, now)
        others = self.others()
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
        self._expect(batch.sender, batch.number, self._add(batch))

    def _add(self, batch: Batch) -> list[MessageId]:
        """Record delivered messages. Returns those that were not here before."""
        first_time: list[MessageId] = []
        for run in self._sound(batch):
            if self.record.add(run):
                first_time.append(run.id)
                self._news.append(Arrival(run, batch))
        return first_time

    def _sound(self, batch: Batch) -> Iterator[Clocked]:
        """The messages of a batch that make sense."""
        for run in unpack(batch.segment):
            if self.tree.knows((run.origin, *run.destinations)):
                yield run

    def _expect(self, stream: int, number: int, runs: list[MessageId]) -> None:
        """Note messages that we, and the holders of all other seats, have to report."""
        self._unreported[stream].append((number, runs))
        self._unconfirmed[stream].append((number, runs))
        self._under_way.update(runs)

    # The flush

    def _lowest(self) -> Holder:
        return min(self.holders, key=lambda holder: holder.process)

    def _begin_flush(self, now: Nanos) -> None:
        if self.installed:
            self._own_state = [*self.record.kept.values(), *self.pending]
            self.installed = False
        self.states, self.above = {}, None
        self._told = [Told() for _ in self.holders]
        self._patience = [Patience(self.settings.retry_after) for _ in self.holders]
        self.unvouched, self.vouched_in = True, 0
        self._unacknowledged.clear()
        self._ask_again(now)
        self._go_on(now)

    def vouched(self, now: Nanos) -> None:
        """The group behind our seat says that we speak for it."""
        self.unvouched = False
        self._tell(self._own_state, now)

    def _tell(self, entries: Sequence[Clocked], now: Nanos) -> None:
        """Tell the others what we have, as we could not when the flush began."""
        self._own_state = list(entries)
        if self.closing or self.unvouched:
            return
        self.states[self.seat] = self._own_state
        self._begin_to_tell(self._pieces_of_ours()[0])
        self._go_on(now)

    def complete(self, above: Sequence[Clocked], now: Nanos) -> None:
        """As the server: take what is not settled in the group above, so that the flush can end."""
        self.above = above
        pieces = self._pieces_of_ours()
        self._begin_to_tell(pieces[pieces[0].pieces])
        self._go_on(now)

    def _begin_to_tell(self, piece: SeatState) -> None:
        """Tell all others the first piece of something. They ask for the rest, if there is more."""
        others = self.others()
        if others:
            self.sends.append((others, piece))

    def _lacks(self, seat: int) -> bool:
        """Whether the list of a seat's holder is still missing."""
        is_server = self.holders[seat] == self._lowest() and seat != self.seat
        return seat not in self.states or (is_server and self.above is None and self.group.parent != NONE)

    def _ask_again(self, now: Nanos) -> None:
        """Ask whoever has not told us its list; and, as its holder may be new, say who we are to everybody below."""
        for seat, part in enumerate(self.group.parts):
            if not self._lacks(seat) or not self._patience[seat].is_over(now):
                continue
            self._patience[seat].asked(now)
            holder = self.holders[seat].process
            self.sends.append(((holder,), self._announcement(asks=True, wants=self._told[seat].pieces)))
            rest = tuple(each for each in self.tree.groups[part].everybody if each != holder)
            if rest:
                self.sends.append((rest, self._announcement(asks=True)))

    def _announcement(self, *, asks: bool, wants: int = 0) -> SeatState:
        """Who holds which seat."""
        holders = [(each.epoch, each.process) for each in self.holders]
        return SeatState(holders, False, [], None, asks, wants=wants)

    def _pieces_of_ours(self) -> list[SeatState]:
        """What we tell, cut into pieces: nothing before we may."""
        if self.closing or self.unvouched:
            return []
        above = self.above if self._lowest().process == self.id else None
        holders = [(each.epoch, each.process) for each in self.holders]
        return cut(SeatState(holders, True, self._own_state, None if above is None else list(above), False))

    def _on_state(self, source: ProcessId, state: SeatState, now: Nanos) -> None:
        theirs = [Holder(*each) for each in state.holders]
        seat = next((each for each, holder in enumerate(theirs) if holder.process == source), None)
        if len(theirs) != self.size or seat is None or seat == self.seat or not makes_sense(state, self.tree):
            return
        latest = [max(pair) for pair in zip(self.holders, theirs, strict=True)]
        if latest[self.seat].process != self.id:
            # The group behind our seat has gone on without us.
            self.superseded = True
            return
        if latest != self.holders:
            self.holders = latest
            self._begin_flush(now)
        if theirs != self.holders:
            # It does not know of some holder: it begins anew, as we have.
            first = self._pieces_of_ours()[:1] or [self._announcement(asks=self._lacks(seat))]
            self.sends.append(((source,), first[0]))
            return
        if state.complete and not self.installed:
            self._hear(seat, state, now)
        if state.asks:
            self.sends.extend(((source,), piece) for piece in self._pieces_of_ours() if piece.piece == state.wants)

    def _hear(self, seat: int, piece: SeatState, now: Nanos) -> None:
        """Take a piece of what a seat tells, and ask for the next one."""
        told, patience = self._told[seat], self._patience[seat]
        if not self._lacks(seat) or piece.piece != told.pieces:
            patience.answered_twice()
            return
        told.add(piece)
        patience.answered(now)
        if told.has_entries:
            self.states.setdefault(seat, told.entries)
        if told.has_above and self.holders[seat] == self._lowest():
            self.above = told.above
        if told.pieces < piece.pieces:
            patience.asked(now)
            self.sends.append(((self.holders[seat].process,), self._announcement(asks=True, wants=told.pieces)))
        elif seat in self.states:
            self._go_on(now)

    def _go_on(self, now: Nanos) -> None:
        """Begin a view if all lists are here; if only that of the group above is missing, the server can ask for it."""
        if self.installed or not self.heard:
            return
        if self.above is None and self.group.parent != NONE:
            self._news.append(NewView(self.view_number))
            return
        self._install(now)

    def _install(self, now: Nanos) -> None:
        """The lists of all seats are here: begin a view with what they hold."""
        agreed, settled = self._agree(self.above or ())
        self.states = dict.fromkeys(range(self.size), ())
        self.installed = self.began = True
        everyone = range(self.size)
        self.order.install(everyone, self.seat, [0] * self.size)
        for seat in everyone:
            self.order.safe(seat, _ALWAYS, [])
        self.outgoing = Outgoing(self.others(), self.settings.retry_after, now)
        self.incoming = {seat: Incoming() for seat in everyone if seat != self.seat}
        self.reports = [[0] * (self.size + 1) for _ in everyone]
        self._heard_at = [now] * self.size
        self._unreported = [deque() for _ in range(self.size + 1)]
        self._unconfirmed = [deque() for _ in range(self.size + 1)]
        self._under_way.clear()
        self._news.append(NewView(self.view_number))
        self._news += [Arrival(run, None) for run in self.record.begin(agreed, settled)]
        for number, run in enumerate(agreed, 1):
            self._expect(self.size, number, [run.id])
        self._send_pending(now)

    def _agree(self, above: Sequence[Clocked]) -> FlushResult:
        lists = [self.states[seat] for seat in range(self.size)]
        return agree(lists, above, lambda origin: self.tree.seat_of(self.number, origin))

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        return map(self.named, self.order.waiting() if self.installed else iter(()))

    def named(self, hold: Hold) -> Hold:
        """The hold with the process that holds the seat which is waited for, in place of the seat."""
        return hold._replace(awaited=self.holders[hold.awaited].process)

    def invariants(self) -> None:
        self.record.invariants()
        assert self.superseded or self.holders[self.seat].process == self.id, "somebody else holds our seat"
        for seat, report in enumerate(self.reports):
            for stream in range(self.size):
                assert report[stream] <= self.outgoing.sent if stream == self.seat else True, f"{seat}: unsent batch"
