"""Causal order with a vector as long as the group (Birman, Schiper, Stephenson; the papers' "conventional" protocol).

A batch carries, per rank, how many batches its sender had delivered when it sent it; the sender's own entry counts its
earlier batches, so FIFO order is the same rule. A receiver delivers a batch when it has itself delivered as
many of everybody's. That is exact at the level of batches: no batch waits for one that is not among its causes, except
that the messages of one batch share its causes.

Cost: n integers per batch on the wire, one comparison of vectors per arrival (0.4 µs at n = 8), O(1) per held batch
and release.
"""

from __future__ import annotations

from isthmus.core.clocks import dominates, first_excess
from isthmus.core.endpoint import Hold
from isthmus.core.message import Batch
from isthmus.ordering.orders.holding import HoldingOrder


class CausalOrder(HoldingOrder):
    """A batch waits for as many batches of everybody as its stamp says."""

    __slots__ = ()

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

    def finish(self, ready: list[Batch]) -> None:
        """With uniform delivery everything comes out. With fast delivery a batch whose cause died with its
        only holders stays held, at every survivor alike, until the next view drops it."""
        held = [batch for _, _, batch in self.held.waiting()]
        self.held.clear()
        self.safe_counts = [max(batch.number for batch in held)] * self._size if held else self.safe_counts
        self._deliver(held, ready)

    def _unmet(self, rank: int, batch: Batch) -> tuple[int, int] | None:
        missing = first_excess(batch.stamp, self.delivered)
        if missing >= 0:
            return missing, batch.stamp[missing]
        if batch.number > self.safe_counts[rank]:
            return self._size + rank, batch.number
        return None

    def _note_delivered(self, rank: int, batch: Batch) -> list[Batch]:
        self.delivered[rank] = batch.number
        return self.held.release(rank, batch.number)
