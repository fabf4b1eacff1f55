"""FIFO order: every process's batches in the order in which it sent them, nothing more. The stamp is empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch


class FifoOrder:
    """One queue per stream, in which batches wait only to become safe."""

    __slots__ = ("_queues", "_safe")

    def __init__(self) -> None:
        self._queues: list[deque[Batch]] = []
        self._safe: list[int] = []

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        self._queues = [deque() for _ in members]
        self._safe = list(counts)

    def stamp(self, number: int) -> list[int]:
        return []

    def has_news(self) -> bool:
        return False

    def well_formed(self, rank: int, batch: Batch) -> bool:
        return not batch.stamp

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        queue = self._queues[rank]
        if not queue and batch.number <= self._safe[rank]:
            ready.append(batch)
            return
        queue.append(batch)
        holds.append(Hold(batch, "safe", batch.sender, batch.number))

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:
        if count <= self._safe[rank]:
            return
        self._safe[rank] = count
        queue = self._queues[rank]
        while queue and queue[0].number <= count:
            ready.append(queue.popleft())

    def finish(self, ready: list[Batch]) -> None:
        for queue in self._queues:
            ready.extend(queue)
            queue.clear()

    def waiting(self) -> Iterator[Hold]:
        for queue in self._queues:
            for batch in queue:
                yield Hold(batch, "safe", batch.sender, batch.number)
