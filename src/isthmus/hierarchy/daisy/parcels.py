"""Parcels: batches that go to some members of a local group, in causal order, in one view (docs/design/daisy.md).

A parcel is **safe** when `needed` members besides its sender hold it, and so are all earlier ones of its sender: only
then does anybody deliver it. It is **done** when all its receivers have delivered it, and so are all earlier ones; a
receiver holds it until it knows that. So of every parcel that anybody has delivered, and is not done, more members hold
a copy than may go before the next view; and each of its causes is as safe as it is.

The way of a parcel through this file: `send` → `_on_parcel` at its receivers, who hold it → `_on_receipt` at its sender
(safe) → the order → `ready`; then receipts of the delivery → done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from isthmus.core.endpoint import Hold, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.daisy import Parcel, PointPdu, Receipt, Standing
from isthmus.ordering.group.channel import Incoming, Outgoing
from isthmus.ordering.orders.matrix import MatrixOrder


class Posted(NamedTuple):
    """A parcel with the number that it has among those to one receiver."""

    number: int
    parcel: Parcel


class SentParcel(NamedTuple):
    """An own parcel, and by receiver how many it had been sent with this one."""

    batch: Batch
    counts: dict[ProcessId, int]


class Parcels:
    """One member's part in one view.

    `held[p]` are the batches of p, by number, that are here and not known to be done. `ready` and `finished` are those
    that became deliverable, and done, since somebody last took them away.
    """

    def __init__(self, owner: ProcessId, view: View, needed: int, retry_after: Nanos, now: Nanos) -> None:
        self.id = owner
        self.view = view
        self.needed = min(needed, len(view.members) - 1)
        self.sends: list[tuple[tuple[ProcessId, ...], PointPdu]] = []
        self.holds: list[Hold] = []
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self.order = MatrixOrder(view.members, self._ranks[owner])
        others = [member for member in view.members if member != owner]
        self.outgoing: dict[ProcessId, Outgoing[Posted]] = {
            member: Outgoing((member,), retry_after, now) for member in others
        }
        self.incoming: dict[ProcessId, Incoming[Posted]] = {member: Incoming() for member in others}
        self.held: dict[ProcessId, dict[int, Batch]] = {member: {} for member in view.members}
        self.done = dict.fromkeys(view.members, 0)
        self.ready: list[Batch] = []
        self.finished: list[Batch] = []
        self._sent = 0
        self._safe = 0
        self._not_safe: deque[SentParcel] = deque()
        self._not_done: deque[SentParcel] = deque()
        self._delivered_by = dict.fromkeys(view.members, 0)
        self._last_to = dict.fromkeys(others, 0)
        """The number of the last parcel to each, and in `_known_done` how many it knows to be done."""
        self._known_done = dict.fromkeys(others, 0)
        self._to_acknowledge: set[ProcessId] = set()
        self._to_tell: set[ProcessId] = set()

    # Sending

    def witnesses(self, receivers: Collection[ProcessId]) -> Iterator[ProcessId]:
        """Whom else a parcel of ours needs to be safe, beside those who are to have it: the next in the view."""
        missing = self.needed - sum(each != self.id for each in receivers)
        members = self.view.members
        place = self._ranks[self.id]
        for member in (*members[place + 1 :], *members[:place]):
            if missing > 0 and member not in receivers:
                missing -= 1
                yield member

    def send(self, segment: Segment, receivers: Collection[ProcessId], now: Nanos) -> None:
        """Send a parcel to these members; it is delivered here as well."""
        everybody = tuple(member for member in self.view.members if member in receivers or member == self.id)
        stamp = self.order.stamp([self._ranks[member] for member in everybody])
        self._sent += 1
        batch = Batch(self.view.number, self.id, self._sent, stamp, self._safe, segment)
        own_row = self._ranks[self.id] * len(self.view.members)
        sent = SentParcel(batch, {member: stamp[own_row + self._ranks[member]] for member in everybody})
        parcel = Parcel(batch, self.done[self.id])
        others = tuple(member for member in everybody if member != self.id)
        for member in others:
            self.outgoing[member].append(Posted(sent.counts[member], parcel), now)
            self._last_to[member] = self._sent
        if others:
            self.sends.append((others, parcel))
        self.held[self.id][batch.number] = batch
        self._not_safe.append(sent)
        self._not_done.append(sent)
        self.order.arrived(self._ranks[self.id], batch, self.ready, self.holds)
        self._count()

    def _count(self) -> None:
        """See what has become safe, and done, of what we sent."""
        while self._not_safe:
            batch, counts = self._not_safe[0]
            holding = sum(self._acked(member) >= count for member, count in counts.items() if member != self.id)
            if holding < self.needed:
                break
            self._not_safe.popleft()
            self._safe = batch.number
            if not self._safe_on_arrival(batch):
                self._to_tell.update(member for member in counts if member != self.id)
            self.order.safe(self._ranks[self.id], self._safe, self.ready)
        while self._not_done:
            batch, counts = self._not_done[0]
            if any(self._delivered_by[member] < count for member, count in counts.items()):
                break
            self._not_done.popleft()
            self._finish(self.id, batch.number)

    def _acked(self, member: ProcessId) -> int:
        return self.outgoing[member].peers[member].acked

    def _safe_on_arrival(self, batch: Batch) -> bool:
        """Whether a receiver and the sender are enough, and all before it was safe when it was sent."""
        return self.needed <= 1 and batch.safe + 1 == batch.number

    def _finish(self, sender: ProcessId, done: int) -> None:
        """All receivers have delivered the first `done` parcels of a sender."""
        if done > self.done[sender]:
            self.done[sender] = done
            held = self.held[sender]
            self.finished += [held.pop(number) for number in sorted(held) if number <= done]

    # Network and time

    def receive(self, source: ProcessId, pdu: PointPdu, now: Nanos) -> None:
        if source not in self.incoming:
            return
        if isinstance(pdu, Parcel):
            self._on_parcel(source, pdu)
        elif pdu.view != self.view.number:
            return
        elif isinstance(pdu, Receipt):
            self._on_receipt(source, pdu, now)
        else:
            self._to_acknowledge.add(source)
            self._learn(source, pdu.safe, pdu.done)

    def _on_parcel(self, source: ProcessId, parcel: Parcel) -> None:
        batch, rank = parcel.batch, self._ranks[source]
        if batch.view != self.view.number or batch.sender != source or not self.order.well_formed(rank, batch):
            return
        self._to_acknowledge.add(source)
        stream = self.incoming[source]
        for posted in stream.accept(Posted(self.order.count(rank, batch), parcel)):
            each = posted.parcel.batch
            self.held[source][each.number] = each
            if self._safe_on_arrival(each):
                self.order.safe(rank, each.number, self.ready)
            self.order.arrived(rank, each, self.ready, self.holds)
        stream.log.drop_through(stream.received)
        self._learn(source, batch.safe, parcel.done)

    def _learn(self, sender: ProcessId, safe: int, done: int) -> None:
        self.order.safe(self._ranks[sender], safe, self.ready)
        self._finish(sender, done)

    def _on_receipt(self, source: ProcessId, receipt: Receipt, now: Nanos) -> None:
        outgoing = self.outgoing[source]
        for posted in outgoing.acknowledge(source, receipt.received, receipt.seen, now):
            self.sends.append(((source,), posted.parcel))
        outgoing.log.drop_through(self._acked(source))
        self._delivered_by[source] = max(self._delivered_by[source], min(receipt.delivered, self._acked(source)))
        self._known_done[source] = max(self._known_done[source], receipt.done)
        self._count()

    def take(self) -> Sequence[Batch]:
        """What has become deliverable, in order. Whoever takes it delivers it: its senders hear so."""
        ready, self.ready = self.ready, []
        senders = [batch.sender for batch in ready]
        self._to_acknowledge.update(sender for sender in senders if sender != self.id)
        if self.id in senders:
            self._delivered_by[self.id] += senders.count(self.id)
            self._count()
        return ready

    def end_step(self) -> None:
        """The end of a step: one receipt per sender that something came of, one word on what became safe."""
        for member in sorted(self._to_acknowledge):
            stream = self.incoming[member]
            delivered = self.order.delivered[self._ranks[member]]
            receipt = Receipt(self.view.number, stream.received, stream.seen, delivered, self.done[member])
            self.sends.append(((member,), receipt))
        self._to_acknowledge.clear()
        self._say(self._to_tell)
        self._to_tell.clear()

    def tick(self, now: Nanos) -> None:
        """A heartbeat: send again what was not acknowledged, and our standing to whoever may hold something."""
        for member, outgoing in self.outgoing.items():
            for _, overdue in outgoing.overdue(now):
                self.sends.extend(((member,), posted.parcel) for posted in overdue)
        self._say({member for member, last in self._last_to.items() if self._known_done[member] < last})

    def _say(self, members: Collection[ProcessId]) -> None:
        if members:
            standing = Standing(self.view.number, self._safe, self.done[self.id])
            self.sends.append((tuple(sorted(members)), standing))

    # The cold path

    @property
    def is_quiet(self) -> bool:
        """Whether everything that is here is done."""
        return not any(self.held.values())

    def invariants(self) -> None:
        self.order.invariants()
        assert self.done[self.id] <= self._safe <= self._sent, "done before safe, or safe before sent"
        for member, held in self.held.items():
            assert all(number > self.done[member] for number in held), f"{member}: what is done is held"
