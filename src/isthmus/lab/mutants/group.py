"""Mistakes in the group layer and in its orders (docs/design/group.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.ids import Nanos
from isthmus.core.message import Batch
from isthmus.core.wire.group import Excluded, Install, Proposal, Stable
from isthmus.lab.mutants.mutant import mutant, part_of
from isthmus.ordering.group import member as group
from isthmus.ordering.group import membership
from isthmus.ordering.group.channel import Incoming, Outgoing, ReceiverState
from isthmus.ordering.group.collector import Collector
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import Attempt, Membership, MembershipPdu
from isthmus.ordering.group.quorum import can_be_quorum, is_quorum, quorum_level
from isthmus.ordering.group.stability import Stability
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import SEQUENCER, TotalOrder

# The originals that mutants build on, taken before anything is replaced.
_word: Callable[..., Stable | None] = Collector.word
_accept: Callable[..., list[Batch]] = Incoming.accept
_acknowledge: Callable[..., list[Batch]] = Outgoing.acknowledge
_hand_over: Callable[..., None] = GroupMember._hand_over
_handle: Callable[..., None] = Membership.handle
_install: Callable[..., None] = GroupMember.install
_finish_total: Callable[..., None] = TotalOrder.finish


# Causal order


@mutant("causes-ignored", of=CausalOrder._unmet)
def _causes_ignored(self: CausalOrder, rank: int, batch: Batch) -> tuple[int, int] | None:
    """The delivery condition does not look at causes."""
    if batch.number > self.safe_counts[rank]:
        return self._size + rank, batch.number
    return None


@part_of("causes-ignored", of=CausalOrder.arrived)
def _arrived_without_looking(self: CausalOrder, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
    self._deliver([batch], ready)


@mutant("stamp-forgets-one", of=CausalOrder.stamp)
def _stamp_forgets_one(self: CausalOrder, number: int) -> list[int]:
    """A stamp leaves out what was delivered of one member."""
    stamp = self.delivered.copy()
    stamp[(self._own_rank + 1) % len(stamp)] = 0
    stamp[self._own_rank] = number - 1
    return stamp


@mutant("held-drained-blindly", of=CausalOrder._deliver)
def _released_means_deliverable(self: CausalOrder, candidates: list[Batch], ready: list[Batch]) -> None:
    """The hold-back queue is drained last in first out, without looking at the other causes again."""
    queue = list(candidates)
    while queue:
        batch = queue.pop()
        rank = self._ranks[batch.sender]
        self.delivered[rank] = batch.number
        ready.append(batch)
        queue.extend(self.held.release(rank, batch.number))


# FIFO order and streams


@mutant("newest-first", breaks="fifo", of=FifoOrder.safe)
def _newest_first(self: FifoOrder, rank: int, count: int, ready: list[Batch]) -> None:
    """What became safe is delivered newest first."""
    self._safe[rank] = max(count, self._safe[rank])
    queue = self._queues[rank]
    while queue and queue[-1].number <= count:
        ready.append(queue.pop())


@mutant("duplicates", breaks="fifo", of=Incoming.accept)
def _duplicates_accepted(self: Incoming[Batch], batch: Batch) -> list[Batch]:
    """A duplicate is not dropped."""
    return [batch] if batch.number <= self.received else _accept(self, batch)


@mutant("gaps", breaks="fifo", of=Incoming.accept)
def _gaps_accepted(self: Incoming[Batch], batch: Batch) -> list[Batch]:
    """A stream goes on behind a gap."""
    if batch.number <= self.received:
        return []
    self.log.append(batch)
    self.received = self.seen = batch.number
    return [batch]


@mutant("sent-once", of=Outgoing.overdue)
def _never_again(self: Outgoing[Batch], now: Nanos) -> list[object]:
    """Nothing is ever sent again."""
    return []


@part_of("sent-once", of=Outgoing.acknowledge)
def _deaf_to_gaps(
    self: Outgoing[Batch], receiver: int, received: int, seen: int, now: Nanos, answers: int = 0
) -> list[Batch]:
    return _acknowledge(self, receiver, received, received, now)


@mutant("sent-again-once", of=Outgoing._is_lost)
def _never_lost_twice(self: Outgoing[Batch], peer: ReceiverState, seen: int, answers: int) -> bool:
    """What was sent again is never sent a third time."""
    return peer.acked >= peer.resent


@part_of("sent-again-once", of=Outgoing.overdue)
def _nothing_overdue(self: Outgoing[Batch], now: Nanos) -> list[object]:
    return []


@mutant("sent-again-at-every-sign", of=Outgoing._is_lost, scenario="narrow group")
def _always_lost(self: Outgoing[Batch], peer: ReceiverState, seen: int, answers: int) -> bool:
    """What was sent again is sent again at every sign that it has not come, however long the queue is."""
    return True


# Safe and stable


@mutant("quorum-of-one", of=quorum_level, where=group)
def _everybody_is_a_quorum(levels: list[int]) -> int:
    """A batch is safe as soon as one member holds it."""
    return max(levels)


@part_of("quorum-of-one", of=can_be_quorum, where=group)
def _anybody_can_be_a_quorum(count: int, size: int) -> bool:
    return True


@mutant("stable-too-early", of=Stability.stable)
def _stable_when_one_has_it(self: Stability, sender: int) -> int:
    """A batch is stable as soon as one member has confirmed it."""
    return max(row.get(sender, 0) for row in self.rows.values())


@part_of("stable-too-early", of=GroupMember.invariants)
def _not_noticed(self: GroupMember) -> None:
    """Takes the place of the invariants, which would see this mistake at once."""


@mutant("confirmed-on-arrival", of=GroupMember._hand_over)
def _confirmed_on_arrival(self: GroupMember, rank: int, batch: Batch, out: Outbox) -> None:
    """A batch is acknowledged as done when it arrives, before it is delivered."""
    self.stability.confirm(batch.sender, batch.number)
    _hand_over(self, rank, batch, out)


@mutant("collector-forgets-one", of=Collector.word, scenario="large group")
def _one_is_forgotten(
    self: Collector, view: int, confirmed: Sequence[int], departed: Mapping[int, int]
) -> Stable | None:
    """The collector does not wait for the counts of one member."""
    for last in self._others[-1:]:
        self.rows[last] = list(confirmed)
        self.departed[last] = {}
    return _word(self, view, confirmed, departed)


# View changes


@mutant("cut-at-the-minimum", of=Membership._cut)
def _cut_at_the_minimum(self: Membership, received: list[list[int]]) -> list[int]:
    """A view ends with what everybody holds, instead of what anybody holds."""
    return [min(column) for column in zip(*received, strict=True)]


@mutant("flush-skipped", of=Membership._missing)
def _nothing_is_missing(self: Membership, proposal: Proposal) -> list[tuple[int, int, int]]:
    """A view ends without an exchange of missing batches."""
    return []


@mutant("promise-not-kept", of=Membership.blocked)
def _never_blocked(self: Membership) -> bool:
    """A member goes on acknowledging and delivering after its promise."""
    return False


@mutant("split-brain", of=is_quorum, where=membership)
def _any_group_goes_on(some: object, members: object) -> bool:
    """A minority may go on by itself."""
    return True


@mutant("proposal-forgotten", of=Membership._choose, scenario="storm")
def _earlier_proposals_ignored(self: Membership, attempt: Attempt) -> Proposal:
    """A coordinator ignores proposals accepted under earlier ballots."""
    staying = [member for member in attempt.asked if member not in self.leavers]
    cut = self._cut([promise.received for promise in attempt.promises.values()])
    assert self.view is not None
    return Proposal(staying + sorted(self.joiners), list(self.view.members), cut)


@mutant("undead", of=Membership.handle)
def _exclusion_ignored(self: Membership, source: int, pdu: MembershipPdu, now: Nanos, out: Outbox) -> None:
    """A process that was excluded does not stop."""
    if not isinstance(pdu, Excluded):
        _handle(self, source, pdu, now, out)


@mutant("rest-dropped", of=GroupMember._finish_view)
def _rest_of_the_view_dropped(self: GroupMember, cut: dict[int, int]) -> list[Batch]:
    """What is undelivered when a view ends is dropped."""
    for sender, stream in self.incoming.items():
        stream.end_at(cut[sender])
    return []


@mutant("waiting-dropped", of=GroupMember.install)
def _waiting_messages_dropped(self: GroupMember, decision: Install, now: Nanos, out: Outbox) -> None:
    """Messages that waited for the new view are dropped."""
    self.window.pending.clear()
    self.window.pending_bytes = 0
    _install(self, decision, now, out)


@mutant("joiner-without-cut", of=Incoming, where=group)
def _joiner_expects_the_past(after: int = 0) -> Incoming[Batch]:
    """A joining process waits for batches from before its time."""
    return Incoming(0)


# Total order


@mutant("order-of-arrival", breaks="total", of=TotalOrder._drain)
def _own_order_of_arrival(self: TotalOrder, ready: list[Batch]) -> None:
    """Everybody delivers in its own order of arrival."""
    for rank, queue in enumerate(self._queues):
        while queue and queue[0].number <= self._safe[rank]:
            ready.append(queue.popleft())


@mutant("place-not-safe", breaks="total", of=TotalOrder._drain)
def _place_not_safe(self: TotalOrder, ready: list[Batch]) -> None:
    """A batch is delivered before a quorum knows its place."""
    while self._plan:
        rank, _ = self._plan[0]
        queue = self._queues[rank]
        if not queue or (rank != SEQUENCER and queue[0].number > self._safe[rank]):
            return
        self._plan.popleft()
        ready.append(queue.popleft())


@mutant("rest-by-own-taste", breaks="total", of=TotalOrder.finish)
def _rest_from_the_own_side(self: TotalOrder, ready: list[Batch]) -> None:
    """The unplaced rest of a view is delivered beginning with oneself."""
    self._queues = self._queues[self._own_rank :] + self._queues[: self._own_rank]
    self._plan.clear()
    _finish_total(self, ready)
