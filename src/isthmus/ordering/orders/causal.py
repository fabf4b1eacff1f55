"""Causal order with a vector as long as the group (Birman, Schiper, Stephenson; the papers' "conventional" protocol).

A batch carries, per rank, how many batches its sender had delivered when it sent it; the sender's own entry counts its
earlier batches, so FIFO order is the same rule. A receiver delivers a batch when it has itself delivered as
many of everybody's. That is exact at the level of batches: no batch waits for one that is not among its causes, except
that the messages of one batch share its causes.

Cost: n integers per batch on the wire, one comparison of vectors per arrival (0.4 µs at n = 8), O(1) per held batch
and release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from isthmus.core.clocks import dominates, first_excess
from isthmus.core.endpoint import Hold
from isthmus.core.holdback import HoldBack
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch


class CausalOrder:
    """`delivered` and `safe` count batches by rank; `held` parks a batch under what it waits for.

    Key r of the hold-back queue is "delivered of rank r", key n + r is "safe of rank r".
    """

    __slots__ = ("_members", "_own_rank", "_ranks", "_size", "delivered", "held", "safe_counts")

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.safe_counts: list[int] = []
        self.held: HoldBack[int, Batch] = HoldBack()
        self._members: tuple[ProcessId, ...] = ()
        self._ranks: dict[ProcessId, int] = {}
        self._own_rank = 0
        self._size = 0

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        self.delivered = list(counts)
        self.safe_counts = list(counts)
        self.held.clear()
        self._members = tuple(members)
        self._ranks = {member: rank for rank, member in enumerate(members)}
        self._own_rank = own_rank
        self._size = len(members)

    def stamp(self, number: int) -> list[int]:
        stamp = self.delivered.copy()
        stamp[self._own_rank] = number - 1
        return stamp

    def has_news(self) -> bool:
        return False

    def well_formed(self, rank: int, batch: Batch) -> bool:
        return len(batch.stamp) == self._size and batch.stamp[rank] == batch.number - 1

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        if batch.number <= self.safe_counts[rank] and not self.held and dominates(self.delivered, batch.stamp):
            self.delivered[rank] = batch.number
            ready.append(batch)
            return
        while (unmet := self._unmet(rank, batch)) is not None:
            key, level = unmet
            # A cause was delivered by whoever names it, so it is safe: word of that may be under way still. Not so the
            # sender's own earlier batches: those it has only sent.
            if key >= self._size or key == rank or level <= self.safe_counts[key]:
                self.held.park(key, level, batch)
                holds.append(self._hold(key, level, batch))
                return
            self.safe(key, level, ready)
        self._deliver([batch], ready)

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:
        if count <= self.safe_counts[rank]:
            return
        self.safe_counts[rank] = count
        if self.held:
            self._deliver(self.held.release(self._size + rank, count), ready)

    def finish(self, ready: list[Batch]) -> None:
        """With uniform delivery everything comes out. With fast delivery a batch whose cause died with its
        only holders stays held, at every survivor alike, until the next view drops it."""
        held = [batch for _, _, batch in self.held.waiting()]
        self.held.clear()
        self.safe_counts = [max(batch.number for batch in held)] * self._size if held else self.safe_counts
        self._deliver(held, ready)

    def waiting(self) -> Iterator[Hold]:
        for key, level, batch in self.held.waiting():
            yield self._hold(key, level, batch)

    def _hold(self, key: int, level: int, batch: Batch) -> Hold:
        reason = "delivered" if key < self._size else "safe"
        return Hold(batch, reason, self._members[key % self._size], level)

    def _unmet(self, rank: int, batch: Batch) -> tuple[int, int] | None:
        """The first thing that this batch has to wait for, as (key, level)."""
        missing = first_excess(batch.stamp, self.delivered)
        if missing >= 0:
            return missing, batch.stamp[missing]
        if batch.number > self.safe_counts[rank]:
            return self._size + rank, batch.number
        return None

    def _deliver(self, candidates: list[Batch], ready: list[Batch]) -> None:
        """Deliver what can be, then look again at whatever waited for it, until nothing moves."""
        queue = deque(candidates)
        while queue:
            batch = queue.popleft()
            rank = self._ranks[batch.sender]
            unmet = self._unmet(rank, batch)
            if unmet is not None:
                self.held.park(*unmet, batch)
                continue
            self.delivered[rank] = batch.number
            ready.append(batch)
            if self.held:
                queue.extend(self.held.release(rank, batch.number))
