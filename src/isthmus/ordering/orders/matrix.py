"""Causal order of batches that go to some members of a group only, with a matrix as large as the square of the group.

The matrix of `ordering/addressed/rst.py` (Raynal, Schiper and Toueg), for batches with several receivers: a batch
carries how many batches each member has sent to each other one, as far as its sender knows, **this one included**. So a
receiver learns whom else it went to, and what it sends later to one of those is held there until this one has been
delivered. A sender is a receiver of its own batches: it has to wait until they are safe as well, and answers must come
after them.

`number` counts a sender's batches, to whomever; a receiver sees some of these numbers. Its own count of a sender's
batches is in the matrix. Cost: n² integers per batch on the wire, and as many comparisons where it is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.ordering.orders.holding import HoldingOrder


class MatrixOrder(HoldingOrder):
    """One member's part in one view. `sent` is the matrix, row after row; `delivered` counts the batches to here."""

    __slots__ = ("sent",)

    def __init__(self, members: Sequence[ProcessId], own_rank: int) -> None:
        super().__init__()
        self.install(members, own_rank, [0] * len(members))
        self.sent = [0] * self._size**2

    def stamp(self, receivers: Iterable[int]) -> list[int]:
        """The stamp of a batch of this process, which goes to the members of these ranks now."""
        row = self._own_rank * self._size
        for rank in receivers:
            self.sent[row + rank] += 1
        return self.sent.copy()

    def well_formed(self, rank: int, batch: Batch) -> bool:
        """Whether a stamp off the wire makes sense at all, and says that this batch goes here."""
        return len(batch.stamp) == self._size**2 and self.count(rank, batch) > 0 < batch.number

    def count(self, rank: int, batch: Batch) -> int:
        """How many batches its sender had sent here with this one."""
        return batch.stamp[rank * self._size + self._own_rank]

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        """The next batch of a sender to here. Appends to `ready` what may be delivered now, in order."""
        unmet = self._unmet(rank, batch)
        if unmet is None:
            self._deliver([batch], ready)
        else:
            self.held.park(*unmet, batch)
            holds.append(self._hold(*unmet, batch))

    def _unmet(self, rank: int, batch: Batch) -> tuple[int, int] | None:
        for member, sent in enumerate(batch.stamp[self._own_rank :: self._size]):
            before = sent - 1 if member == rank else sent
            if before > self.delivered[member]:
                return member, before
        if batch.number > self.safe_counts[rank]:
            return self._size + rank, batch.number
        return None

    def _note_delivered(self, rank: int, batch: Batch) -> list[Batch]:
        self.delivered[rank] += 1
        self._learn(batch)
        return self.held.release(rank, self.delivered[rank])

    def _learn(self, batch: Batch) -> None:
        """Whoever delivers a batch knows from then on what its sender knew."""
        self.sent = list(map(max, self.sent, batch.stamp))

    def invariants(self) -> None:
        for rank, count in enumerate(self.delivered):
            sent = self.sent[rank * self._size + self._own_rank]
            assert count <= sent, f"{count} batches of rank {rank} delivered, which has sent {sent}"
