"""A gateway on a system that counts in batches and views: an embedded group, or a daisy whose messages are for all.

Joins count in marks of origins, such a system by sender and number of batch. This is what lies between: what of a
sender is to be confirmed when a mark rises, and which marks rise when a sender's batches are settled. And what only
such a system has: gateways that come later and take over from what it holds, and lives of the whole of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from isthmus.core.endpoint import Outbox, View
from isthmus.core.gateway import Company
from isthmus.core.ids import Nanos, ProcessId, life_of, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.segment import Marks
from isthmus.core.wire.join import term_of
from isthmus.join.gateway import RETRY_AFTER, JoinGateway
from isthmus.join.plan import JoinPlan
from isthmus.join.recovery import NOTHING, DoneMarks, Recovered, Replay

BROUGHT_IN = -1
"""The stream of all that gateways broadcast, beside those of the slots of processes."""


class Unsettled:
    """Batches of one stream that were delivered here, in order, and that somebody has not finished with.

    Everybody who has finished with a batch has had all that was delivered before it of the same origins, so marks rise
    in order of delivery. `_levels` is how far each sender's batches are settled.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[ProcessId, int, Marks]] = deque()
        self._levels: dict[ProcessId, int] = {}

    def add(self, batch: Batch) -> None:
        self._waiting.append((batch.sender, batch.number, batch.segment.marks))

    def settle(self, sender: ProcessId, number: int) -> dict[ProcessId, int]:
        """Everybody has finished with a sender's batches up to this number. Returns the marks that have risen by it."""
        self._levels[sender] = max(number, self._levels.get(sender, 0))
        waiting, risen = self._waiting, dict[ProcessId, int]()
        while waiting and waiting[0][1] <= self._levels.get(waiting[0][0], 0):
            risen.update(waiting.popleft()[2])
        if not waiting:
            self._levels.clear()
        return risen

    def forget_departed(self) -> None:
        """Nothing comes of senders that are gone, and whoever is there will be heard of again."""
        waiting = {sender for sender, _, _ in self._waiting}
        self._levels = {sender: number for sender, number in self._levels.items() if sender in waiting}


class GroupGateway(JoinGateway):
    """The joins of one gateway, for a system of batches and views.

    `_unconfirmed` holds, by the slot of the sender, the batches that this gateway has not finished with: sender,
    number, and the last message of the sender itself that joins have to confirm, or 0. Only the origin's own stream
    waits for the far side: what a gateway broadcast waits nowhere, since its stream mixes messages of all joins, and
    two systems would wait for each other for ever. `_finished` are the marks that joins have confirmed. `_base` is, at
    one that comes, what lies before its first view, of each sender; `_before` the marks of what was delivered before.
    """

    def __init__(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        plans: Sequence[JoinPlan],
        retry_after: Nanos = RETRY_AFTER,
        *,
        joining: bool = False,
        keeping: bool = False,
        recovered: Recovered = NOTHING,
    ) -> None:
        super().__init__(owner, members, plans, retry_after, joining=joining, recovered=recovered)
        self.done_before = recovered.done
        self._finished = SlotMarks()
        self._unconfirmed: dict[int, deque[tuple[ProcessId, int, int]]] = {}
        self._unsettled: dict[int, Unsettled] = {}
        self._base: Mapping[ProcessId, int] = {}
        self._before: Marks = {}
        self._done = DoneMarks(recovered.done) if keeping else None
        self._replay = Replay(owner, recovered) if recovered.segments else None

    # What the system delivers, and what it may forget

    def delivered_batch(self, batch: Batch, now: Nanos, out: Outbox) -> None:
        stream = self._stream_of(batch.sender)
        if stream == BROUGHT_IN or self._done is not None:
            # Joins have to know when what they brought in is settled; of all else only a journal has.
            self._unsettled.setdefault(stream, Unsettled()).add(batch)
        if self._replay is not None:
            self._replay.delivered(batch.segment.marks, batch.sender, batch.number)
        self.delivered(batch.segment, now, out)
        self._await(self._unconfirmed, (batch,))
        self._confirm(slot_of(batch.sender), out)

    def _stream_of(self, sender: ProcessId) -> int:
        slot = slot_of(sender)
        return BROUGHT_IN if slot in self.everybody else slot

    def _await(self, queues: dict[int, deque[tuple[ProcessId, int, int]]], batches: Iterable[Batch]) -> None:
        for batch in batches:
            own = batch.segment.marks.get(batch.sender, 0)
            needed = own if own and self.goes_out(batch.sender) else 0
            queues.setdefault(slot_of(batch.sender), deque()).append((batch.sender, batch.number, needed))

    def finished(self, origin: ProcessId, seq: int, out: Outbox) -> None:
        self._finished.raise_to(origin, seq)
        self._confirm(slot_of(origin), out)

    def _confirm(self, slot: int, out: Outbox) -> None:
        """Tell the system which batches of a slot are finished with, in their order."""
        queue = self._unconfirmed.get(slot)
        if not queue or not self.is_caught_up:
            return
        levels: dict[ProcessId, int] = {}
        while queue and queue[0][2] <= self._finished.get(queue[0][0]):
            sender, number, _ = queue.popleft()
            levels[sender] = number
        out.confirms.extend(levels.items())

    def settled_batches(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        if self._replay is not None:
            self._replay.have_settled(sender, number)
        unsettled = self._unsettled.get(self._stream_of(sender))
        risen = unsettled.settle(sender, number) if unsettled is not None else None
        if risen:
            if self._done is not None:
                self._done.settled(risen)
            self.settled(risen, out)

    # Views

    def view(self, view: View, now: Nanos, out: Outbox) -> None:
        company = Company(term_of(life_of(self.id), view.number), self._acting_among(view.members))
        for unsettled in self._unsettled.values():
            unsettled.forget_departed()
        if self._replay is not None and self.is_caught_up:
            self._replay.view()
        self._play_on(company.actors, out)
        self.acting(company, now, out)

    def begin_behind(self, base: Mapping[ProcessId, int]) -> None:
        """A view begins, and of each sender everything up to `base` lies before it."""
        if not self.has_come:
            self._base = dict(base)

    def take_over_batches(
        self, marks: Mapping[ProcessId, int], batches: Sequence[Batch], now: Nanos, out: Outbox
    ) -> None:
        """What was delivered before this gateway came, of each origin, and what of it may not have crossed yet."""
        past: dict[int, deque[tuple[ProcessId, int, int]]] = {}
        self._await(past, batches)
        for sender, number in self._base.items():
            if number:
                past.setdefault(slot_of(sender), deque()).append((sender, number, 0))
        for slot, queue in self._unconfirmed.items():
            past.setdefault(slot, deque()).extend(queue)
        self._unconfirmed = past
        self._base, self._before = {}, dict(marks)
        if self._done is not None:
            self._done.go_on_from(marks)
        if self._replay is not None:
            self._replay.was_delivered(SlotMarks(marks.items()))
        self.take_over(marks, [batch.segment for batch in batches], now, out)
        for slot in past:
            self._confirm(slot, out)

    def all_have_arrived(self, now: Nanos, out: Outbox) -> None:
        """Every member of the own system has delivered all that lies before its present view.

        Nobody will tell one that has come that what was delivered before its time has settled, and whoever could have
        told the sending side may be gone. But now everybody has it.
        """
        if self._replay is not None:
            self._replay.all_have_arrived()
        before, self._before = self._before, {}
        self.settled(before, out)

    # Lives

    def wake(self, now: Nanos, out: Outbox) -> None:
        self._play_on(self.actors, out)
        super().wake(now, out)

    def _play_on(self, actors: Sequence[ProcessId], out: Outbox) -> None:
        """After a restart of the whole site: broadcast what it had not finished before, if that falls to us."""
        if self._replay is not None and self.is_caught_up:
            out.relays.extend(self._replay.due(actors))

    @property
    def is_replayed(self) -> bool:
        """Whether everything that the site had not finished before its restart has been delivered here."""
        return self._replay is None or self._replay.over

    @property
    def former_are_over(self) -> bool:
        """Whether everybody in the own system has delivered what its former lives left."""
        return self.is_caught_up and (self._replay is None or self._replay.settled)

    def done(self) -> dict[ProcessId, int]:
        """Per origin, the last message that everybody here has finished with and every join has confirmed.

        Only a gateway that keeps a journal, and has to know what it need not keep, keeps count of it.
        """
        assert self._done is not None, "this gateway keeps no journal"
        return self._done.done(self.onward)
