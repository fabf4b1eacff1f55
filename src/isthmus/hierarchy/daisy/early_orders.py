"""The two orders of a daisy that forwards on receipt (docs/design/daisy-on-receipt.md).

`ReceiptOrder` is that of a local group: causal, and it says besides what has come and is safe, deliverable or not.
`SeatOrder` is that of a servers' group, in whose streams messages may come before their causes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from isthmus.core.clocks import first_excess
from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.hierarchy.daisy.record import Causes, unpack_with
from isthmus.ordering.orders.causal import CausalOrder


class ReceiptOrder(CausalOrder):
    """`_arrived` are, by rank, batches that have come and that nobody has taken."""

    __slots__ = ("_arrived", "_ended")

    def __init__(self) -> None:
        super().__init__()
        self._arrived: list[deque[Batch]] = []
        self._ended: list[Batch] = []

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        # Whatever has come of a view that ends is delivered with it.
        self._ended += [batch for stream in self._arrived for batch in stream]
        self._arrived = [deque() for _ in members]
        super().install(members, own_rank, counts)

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self._arrived[rank].append(batch)
        super().arrived(rank, batch, ready, holds)

    def take(self) -> list[Batch]:
        """What has come since the last time and is held by a quorum; of each sender in its order."""
        taken, self._ended = self._ended, []
        for stream, safe in zip(self._arrived, self.safe_counts, strict=True):
            while stream and stream[0].number <= safe:
                taken.append(stream.popleft())
        return taken


class SeatOrder(CausalOrder):
    """A batch waits for batches of seats, by its stamp, and for messages of the members of its origin's local group.

    `delivered` counts the batches of each seat up to the first that is not delivered; `_beyond` are those after it that
    are. `latest` is the last message of each origin that is delivered in this view. Key r of the hold-back queue is
    "delivered of seat r", key n + p is "the latest of process p".
    """

    __slots__ = ("_behind", "_beyond", "latest", "received")

    def __init__(self, behind: Sequence[Sequence[ProcessId]]) -> None:
        """`behind` are the members of the local group behind each seat; of another group nobody."""
        super().__init__()
        self._behind = behind
        self._beyond: list[set[int]] = []
        self.latest: dict[ProcessId, int] = {}
        self.received: list[int] = []

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        super().install(members, own_rank, counts)
        self._beyond = [set() for _ in members]
        self.latest = {}
        self.received = list(counts)

    def stamp(self, number: int) -> list[int]:
        """The stamp of what is passed on when it is delivered: it may follow from everything that was here before."""
        stamp = self.received.copy()
        stamp[self._own_rank] = number - 1
        return stamp

    def well_formed(self, rank: int, batch: Batch) -> bool:
        return len(batch.stamp) == self._size and batch.stamp[rank] < batch.number

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self.received[rank] = batch.number
        unmet = self._unmet(rank, batch)
        if unmet is None:
            self._deliver([batch], ready)
            return
        self.held.park(*unmet, batch)
        holds.append(self._hold(*unmet, batch))

    def _hold(self, key: int, level: int, batch: Batch) -> Hold:
        if key < self._size:
            return super()._hold(key, level, batch)
        return Hold(batch, "delivered", key - self._size, level, "message")

    def _unmet(self, rank: int, batch: Batch) -> tuple[int, int] | None:
        missing = first_excess(batch.stamp, self.delivered)
        if missing >= 0:
            return missing, batch.stamp[missing]
        for process, number in self._causes(rank, batch):
            if self.latest.get(process, 0) < number:
                return self._size + process, number
        return None

    def _causes(self, rank: int, batch: Batch) -> Iterator[tuple[ProcessId, int]]:
        for _, way in unpack_with(batch.segment):
            if isinstance(way, Causes):
                yield from zip(self._behind[rank], way.group, strict=False)

    def _note_delivered(self, rank: int, batch: Batch) -> list[Batch]:
        released: list[Batch] = []
        for origin, seq in batch.segment.ids():
            self.latest[origin] = max(seq, self.latest.get(origin, 0))
            released += self.held.release(self._size + origin, seq)
        beyond = self._beyond[rank]
        beyond.add(batch.number)
        while self.delivered[rank] + 1 in beyond:
            self.delivered[rank] += 1
            beyond.remove(self.delivered[rank])
        return released + self.held.release(rank, self.delivered[rank])
