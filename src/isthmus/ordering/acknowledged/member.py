"""A member of a group whose messages go over a broadcast medium, acknowledged by TO or PO (docs/design/to-po.md).

Views, suspicion, stability and the sender's queue are those of every group (`group.py`). What is different: there are
no acknowledgements but those in stamps; nothing is sent again unless somebody asks; and a timer sends an empty PDU when
others wait for a word that no data has carried.

On 1C a sender gets its own PDUs back from the medium, and `receive` takes them with its own id as the link.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from isthmus.core.endpoint import Hold, Outbox, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import MAX_MEMBERS, Batch
from isthmus.core.segment import EMPTY, Segment
from isthmus.core.wire.group import Fetch, Install, Places, Seek, Status
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.acknowledged.po import PartialOrder
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings, AcknowledgingOrder
from isthmus.ordering.acknowledged.to import LogMembership, TotallyOrdering
from isthmus.ordering.group.channel import Incoming
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings

Protocol: TypeAlias = Literal["to", "po"]

MAX_AHEAD = 4096
"""PDUs of the next view that are kept until it begins here. More are as good as lost."""

MOST_SEEKS = 3
"""How often others are asked how the log goes on, before they are asked to agree."""


class AcknowledgingMember(GroupMember, ABC):
    """One process of a group by TO or PO: what they share. `make_member` makes the right one.

    `_ahead` are PDUs of a view that has begun elsewhere already; `_answer_at` is when an empty PDU is due. `_exist` is
    the highest number of each member that is known to exist; `_asked` how far it was asked for what is missing;
    `_ask_at` is when to ask for all of that again.
    """

    order: AcknowledgingOrder
    order_type: type[AcknowledgingOrder]

    def __init__(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        acknowledged: AcknowledgedSettings,
        settings: GroupSettings | None = None,
        now: Nanos = 0,
        *,
        joining: bool = False,
    ) -> None:
        self.acknowledged = acknowledged
        self._answer_at: Nanos | None = None
        self._checked = (0, 0, 0)
        self._ahead: list[tuple[ProcessId, Batch]] = []
        self._exist: dict[ProcessId, int] = {}
        self._asked: dict[ProcessId, int] = {}
        self._ask_at: dict[ProcessId, Nanos] = {}
        # Quorums decide nothing here: everybody has to have a PDU. And what goes over a medium everybody hears.
        settings = replace(settings or GroupSettings(), uniform=False, all_speak=MAX_MEMBERS)
        super().__init__(owner, members, lambda: self.order_type(acknowledged), settings, now, joining=joining)

    # Sending

    def _send_pending(self, now: Nanos, out: Outbox) -> bool:
        sent = False
        while self.window.pending and self.order.may_send():
            segment = self.window.take()
            if not segment:
                break
            self._send_batch(segment, now, out)
            sent = True
        return sent

    def _stamped(self, segment: Segment, now: Nanos, out: Outbox) -> Batch:
        number = self.outgoing.sent + 1
        batch = Batch(self.view.number, self.id, number, self.order.stamp(number), 0, segment)
        self.outgoing.append(batch, now)
        self.window.sent(batch)
        if self._keeps:
            out.stored.append(batch)
        self.order.sent(batch)
        self._answer_at = None
        return batch

    def _held_everywhere(self) -> int:
        return self.stability.stable(self.id)

    # Receiving

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        if self._ahead and not self.stopped:
            self._catch_up(now, out)
        ahead = self.view.number + 1
        if source in self.incoming and any(isinstance(pdu, Batch) and pdu.view == ahead for pdu in pdus):
            if len(self._ahead) < MAX_AHEAD:
                self._ahead += [(source, pdu) for pdu in pdus if isinstance(pdu, Batch) and pdu.view == ahead]
            # The view may begin with these very words; but there may be earlier ones that wait for it too.
            pdus = [pdu for pdu in pdus if not (isinstance(pdu, Batch) and pdu.view == ahead)]
        super().receive(source, pdus, now, out)

    def _on_status(self, source: ProcessId, status: Status, now: Nanos, out: Outbox) -> None:
        if status.view == self.view.number and not self.membership.blocked and not self._ahead:
            self._has_sent(source, status.sent, now, out)
        # The group layer would ask for what is missing in its own way.
        super()._on_status(source, replace(status, sent=0), now, out)

    def _has_sent(self, sender: ProcessId, count: int, now: Nanos, out: Outbox) -> None:
        """A member says how many PDUs it has sent: those that are not here are missing."""
        self._exists(sender, count, now)

    def _named(self, batch: Batch, now: Nanos) -> None:
        """Learn from a PDU's stamp which PDUs of others exist: whatever its sender had."""
        self._exists(batch.sender, batch.number, now)
        for member, expected in zip(self.view.members, batch.stamp, strict=False):
            if member != batch.sender:
                self._exists(member, expected - 1, now)

    def _exists(self, sender: ProcessId, number: int, now: Nanos) -> None:
        """Note that there are PDUs of a member up to this number, and begin to ask for those that are not here."""
        stream = self.incoming.get(sender)
        if stream is None or number <= stream.received:
            return
        self._exist[sender] = max(number, self._exist.get(sender, 0))
        # What is lost for certain is asked for in this step; the rest may only be late.
        self._ask_at.setdefault(sender, now + self.settings.retry_after // 4)

    @abstractmethod
    def _lost(self, sender: ProcessId, stream: Incoming[Batch]) -> int:
        """The number up to which PDUs of this member that are not here are lost for certain, and not only late."""

    def _ask(self, now: Nanos, out: Outbox) -> None:
        """Ask for each gap once, when it shows, and for all that is missing when nothing has come for too long.

        Asking with every PDU that came behind a gap made 3.4 requests of a loss (5 % lost, four entities), and as many
        answers.
        """
        for sender, due in list(self._ask_at.items()):
            stream, exist = self.incoming.get(sender), self._exist[sender]
            if stream is None or stream.received >= exist:
                del self._ask_at[sender]
                self._asked.pop(sender, None)
                continue
            after, last = max(stream.received, self._asked.get(sender, 0)), self._lost(sender, stream)
            if now >= due:
                after, last = stream.received, exist
            if last <= after:
                continue
            if after == stream.received:
                self._ask_at[sender] = now + self.settings.retry_after
            self._asked[sender] = last
            gaps = stream.gaps(after, last)
            out.sends.extend(((sender,), Fetch(self.view.number, sender, *gap)) for gap in gaps)

    # The end of a step

    def _end_step(self, now: Nanos, out: Outbox) -> None:
        if self.order.stages:
            out.stages += self.order.stages
            self.order.stages.clear()
        if self.membership.blocked or self._farewell is not None or self.view.number == 0 or self.stopped:
            self._answer_at = None
            return
        self._send_pending(now, out)
        if not self.order.owes() or not self._peers:
            self._answer_at = None
        elif self._answer_at is None:
            self._answer_at = now + self.acknowledged.answer_after
        if self._answer_at is not None and now >= self._answer_at:
            self._send_batch(EMPTY, now, out)
        if self.order.stages:
            out.stages += self.order.stages
            self.order.stages.clear()
        if self._owes_report:
            self._say_status(now, out)
            self._free_own(out)
        if self._ask_at:
            self._ask(now, out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        if self.stopped:
            return
        if self._ahead:
            self._catch_up(now, out)
            self._end_step(now, out)
        elif any(due is not None and now >= due for due in self._due()):
            self._end_step(now, out)
        super().wake(now, out)

    def deadline(self) -> Nanos | None:
        if self.stopped or self.membership.blocked:
            return super().deadline()
        return min([self._next_tick, *(due for due in self._due() if due is not None)])

    def _due(self) -> Iterator[Nanos | None]:
        """When there is something to do between two heartbeats."""
        yield self._answer_at
        yield from self._ask_at.values()

    # Views

    def install(self, decision: Install, now: Nanos, out: Outbox) -> None:
        if self.view.number:
            self.order.close(decision.proposal.order)
        super().install(decision, now, out)

    def _catch_up(self, now: Nanos, out: Outbox) -> None:
        """Take what came ahead of its view. Not in the step that begins the view: its rows belong behind that."""
        ahead, self._ahead = self._ahead, []
        for source, batch in ahead:
            if batch.view == self.view.number and source in self.incoming:
                self._on_batch(source, batch, now, out)
            elif batch.view > self.view.number:
                self._ahead.append((source, batch))

    def _enter(self, view: View, counts: dict[ProcessId, int], now: Nanos) -> None:
        super()._enter(view, counts, now)
        # Nobody acknowledges to a sender, so it cannot know what to send again; who lacks something says so.
        self.outgoing.peers.clear()
        self._answer_at = None
        self._exist.clear()
        self._asked.clear()
        self._ask_at.clear()

    def invariants(self) -> None:
        super().invariants()
        if self.view.number and not self.stopped and not self.membership.blocked:
            # Whatever the order does shows in these. Half of all steps of a simulation are heartbeats that change none.
            state = (self.view.number, self.order.used, sum(self.order.expected))
            if state != self._checked:
                self.order.invariants()
                self._checked = state


class PartiallyOrderingMember(AcknowledgingMember):
    """PO on MC: what is missing is fetched from its sender, and nothing else."""

    order_type = PartialOrder

    def _send_batch(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        batch = self._stamped(segment, now, out)
        out.sends.append((self.view.members, batch))
        # Its own channel is no way for a PDU to get lost or late on. What comes back to us is not looked at.
        self._hand_over(self._own_rank, batch, out)

    def _on_batch(self, source: ProcessId, batch: Batch, now: Nanos, out: Outbox) -> None:
        super()._on_batch(source, batch, now, out)
        rank = self._ranks.get(batch.sender)
        if batch.view != self.view.number or rank is None or not self.order.well_formed(rank, batch):
            return
        self._named(batch, now)

    def _lost(self, sender: ProcessId, stream: Incoming[Batch]) -> int:
        return stream.seen


class TotallyOrderingMember(AcknowledgingMember):
    """TO on 1C: what is missing makes this member go back to the failure point, or the cluster if nobody knows better.

    `_seek_at` is when to ask somebody else how the log goes on, after `_seeks` have been asked; `_seekers` wait for us
    to know: from which place on, and up to which PDU.
    """

    order: TotallyOrdering
    order_type = TotallyOrdering

    def __init__(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        acknowledged: AcknowledgedSettings,
        settings: GroupSettings | None = None,
        now: Nanos = 0,
        *,
        joining: bool = False,
    ) -> None:
        self._seek_at: Nanos | None = None
        self._seeks = 0
        self._seekers: dict[ProcessId, tuple[int, int, int]] = {}
        super().__init__(owner, members, acknowledged, settings, now, joining=joining)
        group = self.membership
        self.membership = LogMembership(owner, group.view, self, self.detector, group.retry_after, group.keepers)

    def _send_batch(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        # To this process too: the medium says where in the log it belongs.
        out.sends.append((self.view.members, self._stamped(segment, now, out)))

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        if source == self.id and not self.stopped:
            if self._ahead:
                self._catch_up(now, out)
            for pdu in pdus:
                if isinstance(pdu, Batch) and pdu.sender == self.id and pdu.view == self.view.number:
                    self._carried(pdu, out)
            self._end_step(now, out)
            return
        super().receive(source, pdus, now, out)

    def _carried(self, batch: Batch, out: Outbox) -> None:
        if not self.membership.blocked:
            self._hear(self._own_rank, batch.number, out)

    def _hear(self, rank: int, number: int, out: Outbox, *, is_pdu: bool = True) -> None:
        ready: list[Batch] = []
        self.order.hear(rank, number, ready, is_pdu=is_pdu)
        if ready:
            self._deliver(ready, out)

    def _on_batch(self, source: ProcessId, batch: Batch, now: Nanos, out: Outbox) -> None:
        sender, rank, stream = batch.sender, self._ranks.get(batch.sender), self.incoming.get(batch.sender)
        known = 0 if stream is None else max(stream.seen, self._exist.get(sender, 0))
        super()._on_batch(source, batch, now, out)
        if batch.view != self.view.number or self.membership.blocked or rank is None or source != sender:
            return
        if stream is None or not self.order.well_formed(rank, batch):
            return
        if batch.number > known:
            self._hear(rank, batch.number, out)
            if self.order.failed:
                lacking, number = self.order.missing()
                out.holds.append(Hold(batch, "received", self.view.members[lacking], number))
        else:
            # Sent again, for us. It was carried before, and its place is not here.
            self._go_on(out)
        self._named(batch, now)

    def _go_on(self, out: Outbox) -> None:
        ready: list[Batch] = []
        self.order.mend(ready)
        self.order.go_on(ready)
        if ready:
            self._deliver(ready, out)

    def _has_sent(self, sender: ProcessId, count: int, now: Nanos, out: Outbox) -> None:
        super()._has_sent(sender, count, now, out)
        rank = self._ranks.get(sender)
        if rank is not None:
            self._hear(rank, count, out, is_pdu=False)

    def _lost(self, sender: ProcessId, stream: Incoming[Batch]) -> int:
        """On 1C nothing is late: what is not here when later PDUs are was lost."""
        return self._exist[sender]

    # Back to the failure point

    def _end_step(self, now: Nanos, out: Outbox) -> None:
        super()._end_step(now, out)
        if self.membership.blocked or self._farewell is not None or self.view.number == 0 or self.stopped:
            return
        for seeker, (first, rank, number) in list(self._seekers.items()):
            places = self.order.places(first, rank, number)
            if places is not None:
                del self._seekers[seeker]
                out.sends.append(((seeker,), Places(self.view.number, *places)))
        if not self.order.failed or self.order.has_its_place():
            self._seek_at = None
        elif self._seek_at is None or now >= self._seek_at:
            self._seek(now, out)

    def _seek(self, now: Nanos, out: Outbox) -> None:
        """Ask where a missing PDU stands in the log: first its sender, then everybody; at last have all agree on it."""
        self._seeks = 0 if self._seek_at is None else self._seeks + 1
        self._seek_at = now + self.settings.retry_after
        if self._seeks >= MOST_SEEKS:
            self.go_back(now)
            return
        rank, number = self.order.missing()
        sender = self.view.members[rank]
        asked = self._peers if self._seeks else (sender,)
        out.sends.append((asked, Seek(self.view.number, self.order.sure(), sender, number, self.outgoing.sent)))

    def _on_other(self, source: ProcessId, pdu: Pdu, now: Nanos, out: Outbox) -> None:
        if not isinstance(pdu, Seek | Places) or pdu.view != self.view.number or self.membership.blocked:
            return
        if isinstance(pdu, Seek):
            if not self._ahead:
                self._has_sent(source, pdu.sent, now, out)
            rank = self._ranks.get(pdu.sender)
            if rank is not None:
                self._seekers[source] = (pdu.first, rank, pdu.number)
            return
        sure = self.order.sure()
        ready: list[Batch] = []
        self.order.follow(pdu.first, pdu.ranks, ready)
        if ready:
            self._deliver(ready, out)
        if self.order.sure() > sure:
            # If something else is missing now, that is a new question.
            self._seek_at = None

    def _due(self) -> Iterator[Nanos | None]:
        yield from super()._due()
        yield self._seek_at

    def _enter(self, view: View, counts: dict[ProcessId, int], now: Nanos) -> None:
        super()._enter(view, counts, now)
        self._seek_at = None
        self._seekers.clear()

    def go_back(self, now: Nanos) -> None:
        """Nobody knows where a lost PDU stood: begin a new view that agrees on it. Heartbeats tell the others so."""
        if not self.membership.highest_ballot:
            self.membership.heard_of(1)
            self._next_tick = now

    def _on_status(self, source: ProcessId, status: Status, now: Nanos, out: Outbox) -> None:
        calm = not self.membership.highest_ballot
        super()._on_status(source, status, now, out)
        if calm and self.membership.highest_ballot and not self.membership.blocked:
            # If it falls to this process to begin, there is nothing to wait for.
            self._next_tick = now


def make_member(
    protocol: Protocol,
    owner: ProcessId,
    members: Sequence[ProcessId],
    acknowledged: AcknowledgedSettings,
    settings: GroupSettings | None = None,
    now: Nanos = 0,
    *,
    joining: bool = False,
) -> AcknowledgingMember:
    member = TotallyOrderingMember if protocol == "to" else PartiallyOrderingMember
    return member(owner, members, acknowledged, settings, now, joining=joining)
