"""A member of one broadcast system: streams, failure detection, views, stability and an order, as one Endpoint.

Theory of operation: docs/design/group.md. The way of one batch through this file, from top to bottom: `broadcast` →
`_send_pending` at its sender; `receive` → `_on_batch` → the order → `_deliver` at everybody; `_on_ack` at the sender
again (safe); `_on_status` (stable).

A step ends in `_end_step`, which answers everything that came in the step at once: one acknowledgement per sender, one
batch of what was waiting, one word on what became safe.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from typing import Self

from isthmus.core.endpoint import Hold, Outbox, View
from isthmus.core.freeze import freeze
from isthmus.core.ids import Nanos, ProcessId, life_of, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.segment import Segment, segments_of
from isthmus.core.wire.group import (
    Ack,
    Ask,
    AskPast,
    Crossed,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    LeaveRequest,
    PastPart,
    Present,
    Safe,
    Stable,
    Status,
)
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.group.channel import Incoming, Outgoing, StreamLog
from isthmus.ordering.group.collector import Collector
from isthmus.ordering.group.detector import FailureDetector
from isthmus.ordering.group.farewell import Farewell
from isthmus.ordering.group.membership import EXCLUDED, LEFT, Membership, MembershipPdu
from isthmus.ordering.group.past import Past
from isthmus.ordering.group.patience import Answers
from isthmus.ordering.group.quorum import can_be_quorum, is_quorum, quorum_level
from isthmus.ordering.group.ring import Ring
from isthmus.ordering.group.stability import COLLECTOR, Stability
from isthmus.ordering.group.window import EARLY_REPORT, GroupSettings, SendWindow
from isthmus.ordering.orders.order import Order


class GroupMember:
    """One process of a group. Founding members start with `members`; one that comes later says `joining`."""

    def __init__(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        make_order: Callable[[], Order],
        settings: GroupSettings | None = None,
        now: Nanos = 0,
        *,
        joining: bool = False,
    ) -> None:
        self.id = owner
        self.settings = settings or GroupSettings()
        self.order = make_order()
        self.detector = FailureDetector(owner, self.settings.suspect_after)
        self.stability = Stability()
        self.collector = Collector()
        self.stopped = ""
        self._contacts = tuple(member for member in members if member != owner)
        self._last_seq = 0
        self.window = SendWindow(self.settings)
        self.departed: dict[ProcessId, StreamLog[Batch]] = {}
        self._farewell: Farewell | None = None
        self._next_tick = now
        self._own_safe = 0
        self._announced_safe = 0
        self._others_wait_for_safe = True
        self._safe_on_arrival: list[bool] = []
        self._unacknowledged: set[ProcessId] = set()
        self._unreported = self._unreported_bytes = 0
        self._owes_report = False
        """Whether so much was finished with that senders may soon wait for word of it."""
        self._handed_over: list[int] = []
        self._ranks: dict[ProcessId, int] = {}
        self._own_rank = 0
        self._keeps = slot_of(owner) in self.settings.keepers
        self._keepers: tuple[ProcessId, ...] = ()
        self._withheld: list[Batch | View] = []
        """What ended views, and began them, while nobody was there to keep it: delivered when somebody is."""
        self._keeps_nothing_yet = False
        later = bool(life_of(owner) and self.settings.keepers)
        self.past = Past(self.settings.seats, complete=not joining, later=later) if self.settings.seats else None
        self._peers: tuple[ProcessId, ...] = ()
        self._rounds_heard: dict[ProcessId, int] = {}
        self._answers = Answers(self.settings.retry_after)
        self._not_arrived: set[ProcessId] = set()
        self._ring = Ring(owner, (owner,), self.settings)
        self._spoke_up = False
        self._sent_before = 0
        self._was_open = False
        self.outgoing: Outgoing[Batch] = Outgoing((), self.settings.retry_after, now)
        self.incoming: dict[ProcessId, Incoming[Batch]] = {}
        self.view = View(0, ())
        self.membership = Membership(owner, None, self, self.detector, self.settings.retry_after, self.settings.keepers)
        self._joining = joining
        # Of each sender, what was delivered here before this process came. Until it knows the past, also of those that
        # have gone since then.
        self.base: dict[ProcessId, int] = {}
        self.cut: dict[ProcessId, int] = {}
        if not joining:
            view = View(1, tuple(members))
            self.membership.view = view
            self._enter(view, dict.fromkeys(members, 0), now)
            self.detector.await_founders(members, self.settings.start_within, now)

    # Application side

    def broadcast(self, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        first = self._last_seq + 1
        self._last_seq += len(payloads)
        self.relay(segments_of(self.id, first, payloads), now, out)
        return first

    def relay(self, segments: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        if self.stopped:
            return
        self.window.accept(segments)
        self._end_step(now, out)

    def credit(self) -> int:
        return 0 if self.stopped or self.membership.leaving else self.window.credit()

    def confirm(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        before = self.stability.mine.get(sender, 0)
        self.stability.confirm(sender, number)
        log = self._log_of(sender)
        if number > before and log is not None:
            for batch in log.span(before + 1, number):
                self._count_unreported(batch)
        self._end_step(now, out)

    def leave(self, now: Nanos, out: Outbox) -> None:
        self.membership.leaving = True
        self._next_tick = now
        if self.view.number == 0:
            self.stop("left before it was let in", out)

    # Network side

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        if self.stopped:
            return
        self.detector.heard(source, now)
        if self._farewell is not None:
            self._farewell.heard(source, pdus)
            pdus = [pdu for pdu in pdus if isinstance(pdu, Fetch)]
        if source not in self.incoming:
            pdus = [pdu for pdu in pdus if self.membership.may_say(source, pdu)]
        for pdu in pdus:
            if isinstance(pdu, Batch):
                self._on_batch(source, pdu, now, out)
            elif isinstance(pdu, Ack):
                self._on_ack(source, pdu, now, out)
            elif isinstance(pdu, Safe) and pdu.view == self.view.number and not self.membership.blocked:
                self._learn_safe(source, pdu.safe, out)
            elif isinstance(pdu, Status):
                self._on_status(source, pdu, now, out)
            elif isinstance(pdu, Fetch):
                self._on_fetch(source, pdu, now, out)
            elif isinstance(pdu, MembershipPdu):
                self.membership.handle(source, pdu, now, out)
            elif isinstance(pdu, Stable):
                self._on_stable(pdu, now, out)
            elif isinstance(pdu, Ask):
                self._on_ask(source, pdu, now, out)
            elif isinstance(pdu, Present):
                self._on_present(source, pdu, now, out)
            elif isinstance(pdu, Crossed):
                if self.past is not None:
                    self.past.learn_crossed(pdu)
            elif isinstance(pdu, AskPast):
                self._on_ask_past(source, pdu, now, out)
            elif isinstance(pdu, PastPart):
                self._on_past(source, pdu, out)
            else:
                self._on_other(source, pdu, now, out)
            if out.stopped:
                return
        self._end_step(now, out)

    def _on_other(self, source: ProcessId, pdu: Pdu, now: Nanos, out: Outbox) -> None:
        """Take a PDU that only other kinds of members know: nothing happens here, subclasses override this."""

    def wake(self, now: Nanos, out: Outbox) -> None:
        if self.stopped or now < self._next_tick:
            return
        self._next_tick = now + self.settings.heartbeat
        if self.view.number == 0:
            out.sends.append((self._contacts, JoinRequest(self.id)))
            return
        if self._farewell is not None:
            self._linger(now, out)
            return
        if not self.membership.blocked and (self._ring.is_whole or self.outgoing.log):
            for receiver, batches in self.outgoing.overdue(now):
                out.sends.extend(((receiver,), batch) for batch in batches)
        if self._peers:
            self.window.arrived(self._held_everywhere())
        if self._ring.is_whole:
            self._cut_logs(out)
        else:
            self._say_who_is_there(now, out)
            self._ask(now, out)
        self._say_status(now, out)
        if self.past is not None:
            self._keep_the_past(self.past, out)
        if self.membership.leaving and self._nothing_left_to_do():
            self.membership.leavers.add(self.id)
            out.sends.append((self._peers, LeaveRequest(self.view.number)))
        self.membership.tick(now, out)
        self._end_step(now, out)

    def deadline(self) -> Nanos | None:
        return None if self.stopped else self._next_tick

    # Batches

    def _send_pending(self, now: Nanos, out: Outbox) -> bool:
        """Send what waits and fits the window, in batches. Says whether anything was sent."""
        if self._is_too_early:
            return False
        sent = False
        while self.window.pending or self.order.has_news():
            segment = self.window.take()
            if not segment and not self.order.has_news():
                break
            self._send_batch(segment, now, out)
            sent = True
        return sent

    def _send_batch(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        number = self.outgoing.sent + 1
        batch = Batch(self.view.number, self.id, number, self.order.stamp(number), self._own_safe, segment)
        self.outgoing.append(batch, now)
        if self._keeps:
            out.stored.append(batch)
        if self._peers:
            self.window.sent(batch)
            out.sends.append((self._peers, batch))
        self._hand_over(self._own_rank, batch, out)
        self._update_own_safe(out)

    def _held_everywhere(self) -> int:
        """How many of our batches everybody is known to hold."""
        return min([peer.acked for peer in self.outgoing.peers.values()])

    def _on_batch(self, source: ProcessId, batch: Batch, now: Nanos, out: Outbox) -> None:
        if batch.view != self.view.number:
            return
        stream = self.incoming.get(batch.sender)
        blocked = self.membership.blocked
        # Only a view change makes a process hand on what another one sent.
        if stream is None or (source != batch.sender and not blocked):
            return
        rank = self._ranks[batch.sender]
        if not self.order.well_formed(rank, batch):
            return
        in_order = stream.accept(batch)
        if self._keeps and not self._keeps_nothing_yet:
            out.stored.extend(in_order)
        if blocked:
            self.membership.stored(now, out)
            return
        self._unacknowledged.add(batch.sender)
        for each in in_order:
            self._hand_over(rank, each, out)
        self._learn_safe(batch.sender, batch.safe, out)

    def _hand_over(self, rank: int, batch: Batch, out: Outbox) -> None:
        """Give the next batch of a stream to the order, and deliver what the order releases."""
        ready: list[Batch] = []
        if self._safe_on_arrival[rank]:
            self.order.safe(rank, batch.number, ready)
        self.order.arrived(rank, batch, ready, out.holds)
        if ready:
            self._deliver(ready, out)

    def _deliver(self, ready: list[Batch], out: Outbox) -> None:
        # These are safe: the keepers hold them, and so all that lies before them.
        self._release(out)
        if self.past is not None:
            self.past.delivered(ready)
        self._hand_out(ready, out)

    def _hand_out(self, ready: list[Batch], out: Outbox) -> None:
        out.deliveries.extend(ready)
        if self.settings.auto_confirm:
            mine = self.stability.mine
            for batch in ready:
                mine[batch.sender] = batch.number
                self._count_unreported(batch)

    def _count_unreported(self, batch: Batch) -> None:
        self._unreported += batch.segment.messages
        self._unreported_bytes += batch.segment.payload_bytes
        settings = self.settings
        if (
            self._unreported * EARLY_REPORT >= settings.window_messages
            or self._unreported_bytes * EARLY_REPORT >= settings.window_bytes
        ):
            self._owes_report = True

    def _reported(self) -> None:
        self._unreported = self._unreported_bytes = 0
        self._owes_report = False

    # Safe: a quorum holds it, and every keeper

    def _on_ack(self, source: ProcessId, ack: Ack, now: Nanos, out: Outbox) -> None:
        if ack.view != self.view.number or self.membership.blocked:
            return
        for batch in self.outgoing.acknowledge(source, ack.received, ack.seen, now, ack.answers):
            out.sends.append(((source,), batch))
        # Of n acknowledgements one makes a batch safe: not to look at everybody's counts with each is worth 10 µs at
        # n = 100.
        if ack.received > self._own_safe and can_be_quorum(self.outgoing.holders + 1, len(self.view.members)):
            self._update_own_safe(out)

    @property
    def _nobody_keeps(self) -> bool:
        """Whether there ought to be keepers, and the view has none: nothing is safe then."""
        return bool(self.settings.keepers) and not self._keepers

    def _release(self, out: Outbox) -> None:
        """A keeper holds everything that lies before the present view: deliver what was kept back for that."""
        withheld, self._withheld = self._withheld, []
        for item in withheld:
            if isinstance(item, View):
                out.deliveries.append(item)
            else:
                self._hand_out([item], out)

    def _update_own_safe(self, out: Outbox) -> None:
        if self._nobody_keeps:
            return
        peers, sent = self.outgoing.peers, self.outgoing.sent
        held = [peers[member].acked if member in peers else sent for member in self.view.members]
        level = quorum_level(held)
        if self._keepers:
            level = min(level, *(held[self._ranks[keeper]] for keeper in self._keepers))
        if level > self._own_safe:
            self._own_safe = level
            self.outgoing.raise_mark(level)
            self._learn_safe(self.id, level, out)

    def _learn_safe(self, sender: ProcessId, count: int, out: Outbox) -> None:
        rank = self._ranks.get(sender)
        if rank is None:
            return
        ready: list[Batch] = []
        self.order.safe(rank, count, ready)
        if ready:
            self._deliver(ready, out)

    # Stable: everybody has finished with it

    def _on_status(self, source: ProcessId, status: Status, now: Nanos, out: Outbox) -> None:
        if source in self.incoming:
            self._rounds_heard[source] = status.rounds
        if status.view != self.view.number:
            self.membership.behind(source, status, out)
            if status.view > self.view.number and (source not in self.incoming or not self._ring.is_whole):
                # We do not speak to it unasked: it is to know that we missed the decision.
                out.sends.append(((source,), self._status(now, counts=False)))
            return
        self._not_arrived.discard(source)
        if self.detector.report(source, status.suspects, now) and self._is_first(now):
            # Nobody suspects these sooner than those who told us, and it falls to us to act on it: at once.
            self._next_tick = now
        self.membership.heard_of(status.ballot)
        if status.confirmed:
            if len(status.confirmed) != len(self.view.members):
                return
            if source in self._keepers:
                # It says so much only when it knows the past, and keeps it.
                self._release(out)
            self._learn_confirmed(source, status, now, out)
        if self.membership.blocked:
            return
        self._learn_safe(source, status.safe, out)
        stream = self.incoming.get(source)
        if stream is not None and status.sent > stream.received and not self._keeps_nothing_yet:
            seen = max(stream.seen, status.sent + 1)
            out.sends.append(((source,), Ack(self.view.number, stream.received, seen, status.rounds)))

    def _learn_confirmed(self, source: ProcessId, status: Status, now: Nanos, out: Outbox) -> None:
        if not self._ring.is_whole:
            self.collector.report(source, status)
            if self.collector.has_heard_all:
                self._tell_stable(now, out)
            elif self.collector.said is not None and self.collector.has_missed_it(status):
                out.sends.append(((source,), self.collector.said))
            return
        self.stability.learn(source, zip(self.view.members, status.confirmed, strict=True))
        if self.departed:
            # Who has nothing of a departed sender to speak of knows all of it to be stable.
            departed = dict(status.departed)
            self.stability.learn(source, [(each, departed.get(each, log.last)) for each, log in self.departed.items()])
        self._free_own(out)

    def _say_status(self, now: Nanos, out: Outbox) -> None:
        self._reported()
        if not self._peers:
            self._free_own(out)
        elif self._ring.is_whole:
            out.sends.append((self._peers, self._status(now, counts=self._knows_the_past)))
        else:
            self._say_status_in_ring(now, out)

    def _say_status_in_ring(self, now: Nanos, out: Outbox) -> None:
        """To the watchers, or to everybody if it concerns everybody; and to the collector, if something is open."""
        status = self._status(now, counts=False)
        audience = self._ring.watchers
        # A batch repairs the loss of an earlier one, and of word that it is safe. Without one this has to.
        quiet = self.outgoing.sent == self._sent_before
        if status.suspects or self._spoke_up or (quiet and self.outgoing.log):
            audience = self._peers
        self._spoke_up, self._sent_before = bool(status.suspects), self.outgoing.sent
        if self._is_open():
            first = self._report_to_first(now, out)
            audience = tuple(member for member in audience if member != first)
        elif status.ballot:
            # A change that has begun must end, and it falls to the first to end it.
            audience = tuple(sorted({*audience, self.detector.first_trusted(self.view.members, now)} - {self.id}))
        out.sends.append((audience, status))

    def _report_early(self, now: Nanos, out: Outbox) -> None:
        """Some sender's window may be full of what is finished with here: do not wait for the heartbeat to say so."""
        if self._ring.is_whole:
            self._say_status(now, out)
            self._free_own(out)
        else:
            self._reported()
            self._report_to_first(now, out)

    def _report_to_first(self, now: Nanos, out: Outbox) -> ProcessId:
        """Tell the collector what we have confirmed; as the collector, everybody what is stable. Returns who it is."""
        first = self.detector.first_trusted(self.view.members, now)
        if first != self.id:
            out.sends.append(((first,), self._status(now, counts=self._knows_the_past)))
        elif self._knows_the_past:
            self._tell_stable(now, out)
        return first

    def _status(self, now: Nanos, *, counts: bool) -> Status:
        mine = self.stability.mine
        return Status(
            view=self.view.number,
            sent=self.outgoing.sent,
            safe=self._own_safe,
            confirmed=self.stability.confirmed(self.view.members) if counts else [],
            departed=[(sender, mine.get(sender, 0)) for sender in self.departed] if counts else [],
            suspects=sorted(self.detector.silent(now)),
            ballot=self.membership.highest_ballot,
            rounds=self.outgoing.rounds,
        )

    # The past of a joined system (docs/design/group.md, "Gateways that come and go")

    @property
    def _knows_the_past(self) -> bool:
        """Whether this process can say what it has confirmed: a gateway has to know first what there is to confirm."""
        if self._keeps_nothing_yet:
            return False
        return self.past is None or self.past.complete or self.settings.auto_confirm

    @property
    def _is_too_early(self) -> bool:
        """Whether former lives may have left something that not everybody has delivered: nothing may come before it."""
        return self.past is not None and self.past.awaits_former and not self._keeps

    def _keep_the_past(self, past: Past, out: Outbox) -> None:
        if not past.whole and self._peers:
            # What former lives were done with those know who keep a journal, and whom they have told.
            tellers = [each for each in self._keepers if each != self.id] if past.complete else self._peers
            teller, ask = past.ask(self.view.number, tellers or self._peers, self._rounds_heard)
            out.sends.append(((teller,), ask))
        mine, stable = self.stability.mine, self.stability.stable
        # Of a sender that is gone and forgotten everything is stable.
        past.forget(lambda batch: batch.sender not in mine or batch.number <= stable(batch.sender))

    @property
    def newcomers(self) -> Self:
        """What is done here for gateways that come: `past`, `cut`, `all_have_arrived`, `tell_crossed`."""
        return self

    def tell_crossed(self, join: int, confirmed: SlotMarks, out: Outbox) -> None:
        """At the gateway that leads a join: say what has crossed, once per heartbeat if there is anything new."""
        if self.past is not None and self.view.number and not self.stopped:
            word = self.past.news_of_crossing(self.view.number, join, confirmed)
            if word is not None and self._peers:
                out.sends.append((self._peers, word))

    def _on_ask_past(self, source: ProcessId, ask: AskPast, now: Nanos, out: Outbox) -> None:
        past = self.past
        if past is not None and past.complete and past.whole >= ask.whole and ask.view == self.view.number:
            if self._may_answer((source, ask.place, ask.whole), ask.answers, now):
                out.sends.append(((source,), past.tell(ask, self.cut)))

    def _on_past(self, source: ProcessId, part: PastPart, out: Outbox) -> None:
        past = self.past
        knew = past is not None and past.complete
        if past is None or part.view != self.view.number or not past.hear(source, part, self.base) or knew:
            return
        if past.complete:
            self._answer_for(past.inherited)
            if self._keeps_nothing_yet:
                self._begin_to_keep(past.inherited, out)
        else:
            out.sends.append(((source,), past.ask_on(self.view.number, self._rounds_heard)))

    def _begin_to_keep(self, inherited: Sequence[Batch], out: Outbox) -> None:
        """Nobody kept what was sent before we came. Since then nothing was delivered, for want of our word."""
        self._keeps_nothing_yet = False
        out.stored.extend(inherited)
        for sender, stream in self.incoming.items():
            out.stored.extend(stream.log.span(self.base.get(sender, 0) + 1, stream.received))

    def _answer_for(self, inherited: Sequence[Batch]) -> None:
        """Keep batches of senders that are gone until everybody has confirmed them, as all others do."""
        for batch in inherited:
            if batch.sender not in self._ranks:
                log = self.departed.setdefault(batch.sender, StreamLog(batch.number - 1))
                log.append(batch)
                for row in self.stability.rows.values():
                    row.setdefault(batch.sender, 0)
                if self.settings.auto_confirm:
                    self.stability.confirm(batch.sender, batch.number)

    # In a large group: who is asked, and who tells what is stable (docs/design/group.md, "Heartbeats")

    def _is_first(self, now: Nanos) -> bool:
        return self.detector.first_trusted(self.view.members, now) == self.id

    def _is_open(self) -> bool:
        """Whether there is anything that this process has to hear from a collector."""
        return bool(self._not_arrived or self.departed) or self.stability.is_open(self.view.members)

    def _say_who_is_there(self, now: Nanos, out: Outbox) -> None:
        another = self.detector.to_tell_of_founders(now)
        if another is not None:
            told = tuple(sorted({*self._ring.watchers, another}))
            out.sends.append((told, Present(self.view.number, self.detector.present)))

    def _on_present(self, source: ProcessId, present: Present, now: Nanos, out: Outbox) -> None:
        if present.view != self.view.number:
            return
        self.detector.are_there(present.founders, now)
        if not set(self.detector.present).issubset(present.founders):
            out.sends.append(((source,), Present(self.view.number, self.detector.present)))

    def _ask(self, now: Nanos, out: Outbox) -> None:
        """Ask those to speak whose silence would otherwise say nothing, and matters."""
        if self.detector.is_waiting(now):
            return
        number, members = self.view.number, self.view.members
        collector, detector = self.collector, self.detector
        suspects = detector.suspects(now)
        first = next(member for member in members if member not in suspects) if self._is_open() else None
        lagging: list[ProcessId] = []
        if collector.fresh or first == self.id:
            lagging = collector.lagging(self.stability.confirmed(members))
            if lagging:
                out.sends.append((tuple(lagging), Ask(number, counts=True)))
        else:
            collector.rest()
        others: set[ProcessId] = set()
        if detector.doubts_all(now):
            others.update(self._peers)
        if suspects and not is_quorum(set(members) - suspects, members):
            # Nothing can be decided here. Those that we miss may have done so, without us.
            others.update(suspects)
        if self._was_open and first is not None and first != self.id and detector.doubts(first, now):
            others.add(first)
        self._was_open = first is not None
        if self.outgoing.log:
            others.update(self.outgoing.unanswering())
        if self.membership.attempt is not None:
            others.update(self.membership.attempt.owing())
        asked = detector.ask([*lagging, *others], now).difference(lagging)
        if asked:
            out.sends.append((tuple(sorted(asked)), Ask(number, counts=False)))

    def _on_ask(self, source: ProcessId, ask: Ask, now: Nanos, out: Outbox) -> None:
        if ask.view < self.view.number:
            self.membership.behind(source, ask, out)
        else:
            out.sends.append(((source,), self._status(now, counts=ask.counts and self._knows_the_past)))

    def _tell_stable(self, now: Nanos, out: Outbox) -> None:
        """As a collector: tell everybody what has become stable."""
        mine = self.stability.mine
        departed = {sender: mine.get(sender, 0) for sender in self.departed}
        word = self.collector.word(self.view.number, self.stability.confirmed(self.view.members), departed)
        if word is not None:
            out.sends.append((self._peers, word))
            self._on_stable(word, now, out)

    def _on_stable(self, word: Stable, now: Nanos, out: Outbox) -> None:
        if word.view != self.view.number or len(word.confirmed) != len(self.view.members) or self._ring.is_whole:
            return
        # Whoever collects has heard everybody in this view before it says anything.
        self._not_arrived.clear()
        if self._keepers:
            self._release(out)
        self.detector.all_were_heard(now)
        counts = list(zip(self.view.members, word.confirmed, strict=True))
        counts += [(sender, number) for sender, number in word.departed if sender in self.departed]
        for sender in self.stability.learn(COLLECTOR, counts):
            stream = self.incoming.get(sender)
            if sender == self.id:
                self._free_own(out)
            elif stream is not None:
                self._cut_log(sender, stream.log, out)
        self._cut_departed(out)

    def _free_own(self, out: Outbox) -> None:
        """Forget own batches that became stable, and so let the application send more."""
        log = self.outgoing.log
        stable = self.stability.stable(self.id)
        if stable < log.first:
            return
        out.settled.append((self.id, stable))
        for batch in log.drop_through(stable):
            out.stable.append(batch)
            self.window.free(batch)

    def _cut_logs(self, out: Outbox) -> None:
        """Forget what is stable of everybody. O(n²), so it is done once per heartbeat and not per gossip."""
        self._free_own(out)
        for sender, stream in self.incoming.items():
            self._cut_log(sender, stream.log, out)
        self._cut_departed(out)

    def _cut_departed(self, out: Outbox) -> None:
        for sender, log in list(self.departed.items()):
            self._cut_log(sender, log, out)
            if not log:
                del self.departed[sender]
                self.stability.forget(sender)

    def _cut_log(self, sender: ProcessId, log: StreamLog[Batch], out: Outbox) -> None:
        stable = self.stability.stable(sender)
        if log.drop_through(stable):
            out.settled.append((sender, stable))

    # The end of a step

    def _end_step(self, now: Nanos, out: Outbox) -> None:
        acknowledges = self._unacknowledged and not self._keeps_nothing_yet
        is_over = not (acknowledges or self.window.pending or self._owes_report or self.order.has_news())
        if is_over and self._own_safe == self._announced_safe:
            return
        if self.membership.blocked or self._farewell is not None or self.view.number == 0 or self.stopped:
            return
        announced = self._announced_safe
        if (self.window.pending or self.order.has_news()) and self._send_pending(now, out):
            announced = self._own_safe
        if self._unacknowledged and not self._keeps_nothing_yet:
            number = self.view.number
            for sender in sorted(self._unacknowledged):
                stream = self.incoming[sender]
                out.sends.append(((sender,), Ack(number, stream.received, stream.seen)))
            self._unacknowledged.clear()
        if self._own_safe > announced and self._others_wait_for_safe:
            out.sends.append((self._peers, Safe(self.view.number, self._own_safe)))
        self._announced_safe = self._own_safe
        if self._owes_report:
            self._report_early(now, out)

    # Views

    def received(self) -> list[int]:
        return [
            self.outgoing.sent if member == self.id else self.incoming[member].received for member in self.view.members
        ]

    def may_accept(self) -> bool:
        """Whether a view may end as far as we are concerned: who is to keep what it owed has to do so first."""
        return not self._keeps_nothing_yet

    def block(self) -> None:
        if not self.membership.blocked:
            self._handed_over = self.received()

    def _on_fetch(self, source: ProcessId, fetch: Fetch, now: Nanos, out: Outbox) -> None:
        log = self._log_of(fetch.sender)
        if log is None:
            return
        question = (source, fetch.view, fetch.sender, fetch.first, fetch.last)
        if fetch.answers is None or self._may_answer(question, fetch.answers, now):
            out.sends.extend(((source,), batch) for batch in log.span(fetch.first, fetch.last))

    def _may_answer(self, question: Hashable, heard: int, now: Nanos) -> bool:
        """Whether to answer a question: not if the last answer to it may still be on its way."""
        if not self._answers.is_due(question, heard, now):
            return False
        self.outgoing.rounds += 1
        self._answers.give(question, self.outgoing.rounds, now)
        return True

    def round_heard(self, member: ProcessId) -> int:
        return self._rounds_heard.get(member, 0)

    def _log_of(self, sender: ProcessId) -> StreamLog[Batch] | None:
        stream = self.incoming.get(sender)
        if stream is not None:
            return stream.log
        return self.outgoing.log if sender == self.id else self.departed.get(sender)

    def install(self, decision: Install, now: Nanos, out: Outbox) -> None:
        if self._farewell is not None:
            return
        proposal, membership = decision.proposal, self.membership
        cut = dict(zip(proposal.senders, proposal.cut, strict=True))
        kept = not self.settings.keepers or any(
            slot_of(member) in self.settings.keepers and member in proposal.senders for member in proposal.members
        )
        ready = self._finish_view(cut) if self.id in proposal.members or membership.may_go else []
        if self.past is not None:
            self.past.delivered(ready)
        if self.id not in proposal.members or (kept and not self._withheld):
            self._hand_out(ready, out)
        else:
            self._withheld += ready
        if self.id not in proposal.members:
            reason = LEFT if membership.may_go else EXCLUDED
            self._farewell = Farewell(decision, reason, now + 2 * self.settings.suspect_after)
            self._linger(now, out)
            return
        view = View(decision.view + 1, tuple(proposal.members))
        membership.enter(view, decision)
        gone = tuple(member for member in self.view.members if member not in proposal.members)
        comes = self.view.number == 0
        self._enter(view, cut, now)
        if comes or (kept and not self._withheld):
            self._keeps_nothing_yet = comes and self._keeps and not kept and self.past is not None
            out.deliveries.append(view)
        else:
            self._withheld.append(view)
        if gone:
            # Who left waits to hear that we have moved on; who was excluded had better know.
            out.sends.append((gone, Excluded(view.number)))
        self._next_tick = now
        self._end_step(now, out)

    def _finish_view(self, cut: dict[ProcessId, int]) -> list[Batch]:
        """What is left to deliver of this view, exactly up to the cut. Who comes from outside has nothing to finish."""
        ready: list[Batch] = []
        for rank, (sender, handed_over) in enumerate(zip(self.view.members, self._handed_over, strict=True)):
            if sender == self.id:
                continue
            stream = self.incoming[sender]
            for batch in stream.log.span(handed_over + 1, cut[sender]):
                self.order.arrived(rank, batch, ready, [])
            stream.end_at(cut[sender])
        self.order.finish(ready)
        for hold in self.order.waiting():
            # With fast delivery an effect can outlive its cause. Nobody delivers it, so nobody will ever confirm it.
            self.incoming[hold.batch.sender].log.drop_after(hold.batch.number - 1)
        return ready

    def _enter(self, view: View, counts: dict[ProcessId, int], now: Nanos) -> None:
        """Begin a view in which everything up to `counts` is behind everybody."""
        if self.view.number == 0:
            self.base = dict(counts)
        elif self.past is None or self.past.complete:
            self.base = {member: count for member, count in self.base.items() if member in view.members}
        for member in view.members:
            self.base.setdefault(member, 0)
        if self.past is not None:
            self.past.enter_view()
        self.cut = dict(counts)
        self.view = view
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._own_rank = self._ranks[self.id]
        self._keepers = tuple(member for member in view.members if slot_of(member) in self.settings.keepers)
        self._peers = tuple(member for member in view.members if member != self.id)
        self._not_arrived = set(self._peers)
        self._ring = Ring(self.id, view.members, self.settings)
        self.collector = Collector(self._peers)
        for sender in list(self.incoming):
            if sender not in self._ranks:
                log = self.incoming.pop(sender).log
                if log:
                    self.departed[sender] = log
        for member in self._peers:
            if member not in self.incoming:
                self.incoming[member] = Incoming(counts.get(member, 0))
        own = self.outgoing
        self.outgoing = Outgoing(self._peers, self.settings.retry_after, now, own.sent)
        self.outgoing.log = own.log
        self.outgoing.rounds = own.rounds
        self._rounds_heard = {member: count for member, count in self._rounds_heard.items() if member in self._ranks}
        self._answers.forget()
        self._own_safe = self._announced_safe = own.sent
        self._unacknowledged.clear()
        self._reported()
        fast = not self.settings.uniform
        pairs = [
            is_quorum({member, self.id}, view.members)
            and {member, self.id}.issuperset(self._keepers)
            and not self._nobody_keeps
            for member in view.members
        ]
        self._safe_on_arrival = [fast or pair for pair in pairs]
        self._others_wait_for_safe = not fast and not all(pair for at, pair in enumerate(pairs) if at != self._own_rank)
        self.order.install(view.members, self._own_rank, [counts.get(member, 0) for member in view.members])
        caught_up = self.settings.auto_confirm or not self._joining
        collected = not self._ring.is_whole
        present = set(map(slot_of, view.members))
        attended = all(not seat.gateways.isdisjoint(present) for seat in self.settings.seats)
        self.stability.install(
            self.id,
            view.members,
            counts,
            self.departed,
            caught_up=caught_up,
            collected=collected,
            attended=attended,
            joined=bool(self.settings.seats),
        )
        self.detector.watch(self._peers, now, self._ring)

    def _nothing_left_to_do(self) -> bool:
        return not self.unfinished() and not self.membership.blocked

    def _linger(self, now: Nanos, out: Outbox) -> None:
        assert self._farewell is not None
        if self._farewell.is_over(now):
            self.stop(self._farewell.reason, out)
        else:
            self._farewell.say(out)

    def stop(self, reason: str, out: Outbox) -> None:
        self.stopped = out.stopped = reason

    # The cold path

    def unfinished(self) -> int:
        """Messages accepted here that are not stable yet."""
        return self.window.unfinished()

    @property
    def all_have_arrived(self) -> bool:
        """Whether everybody is known to be in this view, and so to have delivered all that lies before it."""
        return self.view.number > 0 and not self._not_arrived

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        return self.order.waiting()

    def invariants(self) -> None:
        if self.view.number == 0 or self.stopped:
            return
        assert self.id in self.view.members, f"view {self.view} is not this process's"
        assert len(set(map(slot_of, self.view.members))) == len(self.view.members), f"somebody is in {self.view} twice"
        self.window.invariants()
        assert self._own_safe <= self.outgoing.sent, "safe beyond what was sent"
        for sender, stream in self.incoming.items():
            confirmed = self.stability.mine.get(sender, 0)
            stable = self.stability.stable(sender)
            assert stable <= confirmed <= stream.received, f"{sender}: {stable} <= {confirmed} <= {stream.received}"
            assert stream.log.last == stream.received, f"{sender}: log ends at {stream.log.last}"
            kept_from = max(stable, self.base.get(sender, 0)) + 1
            assert stream.log.first <= kept_from, f"{sender}: freed {stream.log.first - 1} of {kept_from - 1} stable"
            assert not stream.early or min(stream.early) > stream.received, f"{sender}: early batch is late"
        for hold in self.order.waiting():
            assert hold.batch.number > self.stability.mine.get(hold.batch.sender, 0), f"held after delivery: {hold}"

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze(self)
