"""What the orders share that hold a batch until its causes are delivered and it is safe: all but what a cause is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.holdback import HoldBack
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch


class HoldingOrder(ABC):
    """`delivered` and `safe_counts` count batches by rank; `held` parks a batch under what it waits for.

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

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:
        """Enough members hold the first `count` batches of a sender."""
        if count <= self.safe_counts[rank]:
            return
        self.safe_counts[rank] = count
        if self.held and (released := self.held.release(self._size + rank, count)):
            self._deliver_caused(released, ready)

    def waiting(self) -> Iterator[Hold]:
        for key, level, batch in self.held.waiting():
            yield self._hold(key, level, batch)

    def _hold(self, key: int, level: int, batch: Batch) -> Hold:
        reason = "delivered" if key < self._size else "safe"
        return Hold(batch, reason, self._members[key % self._size], level)

    @abstractmethod
    def _unmet(self, rank: int, batch: Batch) -> tuple[int, int] | None:
        """The first thing that this batch has to wait for, as (key, level)."""

    def _deliver_caused(self, batches: list[Batch], ready: list[Batch]) -> None:
        """Deliver what had all its causes when it was parked, and waited to be safe alone; then what waited for it."""
        ready.extend(batches)
        waited = [each for batch in batches for each in self._note_delivered(self._ranks[batch.sender], batch)]
        if waited:
            self._deliver(waited, ready)

    def _deliver(self, candidates: list[Batch], ready: list[Batch]) -> None:
        """Deliver what can be, then look again at whatever waited for it, until nothing moves. `candidates` grows."""
        for batch in candidates:
            rank = self._ranks[batch.sender]
            unmet = self._unmet(rank, batch)
            if unmet is not None:
                self.held.park(*unmet, batch)
                continue
            ready.append(batch)
            candidates += self._note_delivered(rank, batch)

    @abstractmethod
    def _note_delivered(self, rank: int, batch: Batch) -> list[Batch]:
        """This batch is delivered. Returns what has waited for it."""
