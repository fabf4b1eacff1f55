"""Mistakes in the group layer and in its orders (docs/design/group.md)."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.ids import Nanos
from isthmus.core.message import Batch
from isthmus.core.wire.group import Excluded, Install, Proposal
from isthmus.lab.mutants.mutant import Mutant
from isthmus.ordering.group import member as group
from isthmus.ordering.group import membership
from isthmus.ordering.group.channel import Incoming, Outgoing
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import Attempt, Membership, MembershipPdu
from isthmus.ordering.group.stability import Stability
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import SEQUENCER, TotalOrder

# Causal order


def _causes_ignored(self: CausalOrder, rank: int, batch: Batch) -> tuple[int, int] | None:
    if batch.number > self.safe_counts[rank]:
        return self._size + rank, batch.number
    return None


def _arrived_without_looking(self: CausalOrder, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
    self._deliver([batch], ready)


def _stamp_forgets_one(self: CausalOrder, number: int) -> list[int]:
    stamp = self.delivered.copy()
    stamp[(self._own_rank + 1) % len(stamp)] = 0
    stamp[self._own_rank] = number - 1
    return stamp


def _released_means_deliverable(self: CausalOrder, candidates: list[Batch], ready: list[Batch]) -> None:
    queue = list(candidates)
    while queue:
        batch = queue.pop()
        rank = self._ranks[batch.sender]
        self.delivered[rank] = batch.number
        ready.append(batch)
        queue.extend(self.held.release(rank, batch.number))


# FIFO order and streams


def _newest_first(self: FifoOrder, rank: int, count: int, ready: list[Batch]) -> None:
    self._safe[rank] = max(count, self._safe[rank])
    queue = self._queues[rank]
    while queue and queue[-1].number <= count:
        ready.append(queue.pop())


def _duplicates_accepted(self: Incoming[Batch], batch: Batch) -> list[Batch]:
    return [batch] if batch.number <= self.received else _accept(self, batch)


def _gaps_accepted(self: Incoming[Batch], batch: Batch) -> list[Batch]:
    if batch.number <= self.received:
        return []
    self.log.append(batch)
    self.received = self.seen = batch.number
    return [batch]


def _never_again(self: Outgoing[Batch], now: Nanos) -> list[object]:
    return []


def _deaf_to_gaps(self: Outgoing[Batch], receiver: int, received: int, seen: int, now: Nanos) -> list[Batch]:
    return _acknowledge(self, receiver, received, received, now)


# Safe and stable


def _everybody_is_a_quorum(levels: list[int]) -> int:
    return max(levels)


def _stable_when_one_has_it(self: Stability, sender: int) -> int:
    return max(row.get(sender, 0) for row in self.rows.values())


def _confirmed_on_arrival(self: GroupMember, rank: int, batch: Batch, out: Outbox) -> None:
    self.stability.confirm(batch.sender, batch.number)
    _hand_over(self, rank, batch, out)


# View changes


def _cut_at_the_minimum(self: Membership, received: list[list[int]]) -> list[int]:
    return [min(column) for column in zip(*received, strict=True)]


def _nothing_is_missing(self: Membership, proposal: Proposal) -> list[tuple[int, int, int]]:
    return []


def _never_blocked(self: Membership) -> bool:
    return False


def _any_group_goes_on(some: object, members: object) -> bool:
    return True


def _earlier_proposals_ignored(self: Membership, attempt: Attempt) -> Proposal:
    staying = [member for member in attempt.asked if member not in self.leavers]
    cut = self._cut([promise.received for promise in attempt.promises.values()])
    assert self.view is not None
    return Proposal(staying + sorted(self.joiners), list(self.view.members), cut)


def _exclusion_ignored(self: Membership, source: int, pdu: MembershipPdu, now: Nanos, out: Outbox) -> None:
    if not isinstance(pdu, Excluded):
        _handle(self, source, pdu, now, out)


def _rest_of_the_view_dropped(self: GroupMember, cut: dict[int, int], out: Outbox) -> None:
    for sender, stream in self.incoming.items():
        stream.end_at(cut[sender])


def _waiting_messages_dropped(self: GroupMember, decision: Install, now: Nanos, out: Outbox) -> None:
    self.window.drop_pending()
    _install(self, decision, now, out)


def _joiner_expects_the_past(after: int = 0) -> Incoming[Batch]:
    return Incoming(0)


# Total order


def _own_order_of_arrival(self: TotalOrder, ready: list[Batch]) -> None:
    for rank, queue in enumerate(self._queues):
        while queue and queue[0].number <= self._safe[rank]:
            ready.append(queue.popleft())


def _place_not_safe(self: TotalOrder, ready: list[Batch]) -> None:
    while self._plan:
        rank, _ = self._plan[0]
        queue = self._queues[rank]
        if not queue or (rank != SEQUENCER and queue[0].number > self._safe[rank]):
            return
        self._plan.popleft()
        ready.append(queue.popleft())


def _rest_from_the_own_side(self: TotalOrder, ready: list[Batch]) -> None:
    self._queues = self._queues[self._own_rank :] + self._queues[: self._own_rank]
    self._plan.clear()
    _finish_total(self, ready)


# The originals that mutants build on, taken before anything is replaced.
_accept: Callable[..., list[Batch]] = Incoming.accept
_acknowledge: Callable[..., list[Batch]] = Outgoing.acknowledge
_hand_over: Callable[..., None] = GroupMember._hand_over
_handle: Callable[..., None] = Membership.handle
_install: Callable[..., None] = GroupMember.install
_finish_total: Callable[..., None] = TotalOrder.finish


GROUP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "causes-ignored",
        "causal",
        "the delivery condition does not look at causes",
        ((CausalOrder, "_unmet", _causes_ignored), (CausalOrder, "arrived", _arrived_without_looking)),
    ),
    Mutant(
        "stamp-forgets-one",
        "causal",
        "a stamp leaves out what was delivered of one member",
        ((CausalOrder, "stamp", _stamp_forgets_one),),
    ),
    Mutant(
        "held-drained-blindly",
        "causal",
        "the hold-back queue is drained last in first out, without looking at the other causes again",
        ((CausalOrder, "_deliver", _released_means_deliverable),),
    ),
    Mutant("newest-first", "fifo", "what became safe is delivered newest first", ((FifoOrder, "safe", _newest_first),)),
    Mutant("duplicates", "fifo", "a duplicate is not dropped", ((Incoming, "accept", _duplicates_accepted),)),
    Mutant("gaps", "fifo", "a stream goes on behind a gap", ((Incoming, "accept", _gaps_accepted),)),
    Mutant(
        "sent-once",
        "causal",
        "nothing is ever sent again",
        ((Outgoing, "overdue", _never_again), (Outgoing, "acknowledge", _deaf_to_gaps)),
    ),
    Mutant(
        "quorum-of-one",
        "causal",
        "a batch is safe as soon as one member holds it",
        ((group, "quorum_level", _everybody_is_a_quorum),),
    ),
    Mutant(
        "stable-too-early",
        "causal",
        "a batch is stable as soon as one member has confirmed it",
        ((Stability, "stable", _stable_when_one_has_it), (GroupMember, "invariants", lambda self: None)),
    ),
    Mutant(
        "confirmed-on-arrival",
        "causal",
        "a batch is acknowledged as done when it arrives, before it is delivered",
        ((GroupMember, "_hand_over", _confirmed_on_arrival),),
    ),
    Mutant(
        "cut-at-the-minimum",
        "causal",
        "a view ends with what everybody holds, instead of what anybody holds",
        ((Membership, "_cut", _cut_at_the_minimum),),
    ),
    Mutant(
        "flush-skipped",
        "causal",
        "a view ends without an exchange of missing batches",
        ((Membership, "_missing", _nothing_is_missing),),
    ),
    Mutant(
        "promise-not-kept",
        "causal",
        "a member goes on acknowledging and delivering after its promise",
        ((Membership, "blocked", property(_never_blocked)),),
    ),
    Mutant(
        "split-brain",
        "causal",
        "a minority may go on by itself",
        ((membership, "is_quorum", _any_group_goes_on),),
    ),
    Mutant(
        "proposal-forgotten",
        "causal",
        "a coordinator ignores proposals accepted under earlier ballots",
        ((Membership, "_choose", _earlier_proposals_ignored),),
        scenario="storm",
    ),
    Mutant(
        "undead",
        "causal",
        "a process that was excluded does not stop",
        ((Membership, "handle", _exclusion_ignored),),
    ),
    Mutant(
        "rest-dropped",
        "causal",
        "what is undelivered when a view ends is dropped",
        ((GroupMember, "_finish_view", _rest_of_the_view_dropped),),
    ),
    Mutant(
        "waiting-dropped",
        "causal",
        "messages that waited for the new view are dropped",
        ((GroupMember, "install", _waiting_messages_dropped),),
    ),
    Mutant(
        "joiner-without-cut",
        "causal",
        "a joining process waits for batches from before its time",
        ((group, "Incoming", _joiner_expects_the_past),),
    ),
    Mutant(
        "order-of-arrival",
        "total",
        "everybody delivers in its own order of arrival",
        ((TotalOrder, "_drain", _own_order_of_arrival),),
    ),
    Mutant(
        "place-not-safe",
        "total",
        "a batch is delivered before a quorum knows its place",
        ((TotalOrder, "_drain", _place_not_safe),),
    ),
    Mutant(
        "rest-by-own-taste",
        "total",
        "the unplaced rest of a view is delivered beginning with oneself",
        ((TotalOrder, "finish", _rest_from_the_own_side),),
    ),
)
