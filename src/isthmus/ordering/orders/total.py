"""Total order by a sequencer: the first member of the view.

The sequencer's stream *is* the order. The stamp of its batch lists runs (rank, how many), flattened: these batches come
next, and after them the sequencer's own messages. Everybody else's stamp is empty. A batch is delivered in its
place when it is safe and so is the sequencer's batch that placed it; so no crash can take the place away.

What a view leaves unplaced is delivered at its end by rank and number. All survivors hold the same batches then, so
they agree without another word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch

SEQUENCER = 0
MAX_PLACED = 1 << 16
"""Batches that one stamp may place; one off the wire that claims more is not ours."""


class TotalOrder:
    """`plan` is the order still to be delivered: (rank, number of the sequencer's batch that says so).

    By rank, `placed` counts the batches that have a place, and `delivered` those that have left it.
    """

    __slots__ = ("_delivered", "_members", "_own_rank", "_placed", "_plan", "_queues", "_safe", "_unplaced")

    def __init__(self) -> None:
        self._members: tuple[ProcessId, ...] = ()
        self._own_rank = 0
        self._queues: list[deque[Batch]] = []
        self._safe: list[int] = []
        self._placed: list[int] = []
        self._delivered: list[int] = []
        self._plan: deque[tuple[int, int]] = deque()
        self._unplaced: list[int] = []

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        self._members = tuple(members)
        self._own_rank = own_rank
        self._queues = [deque() for _ in members]
        self._safe = list(counts)
        self._placed = list(counts)
        self._delivered = list(counts)
        self._plan.clear()
        self._unplaced.clear()

    def stamp(self, number: int) -> list[int]:
        runs: list[int] = []
        for rank in self._unplaced:
            if runs and runs[-2] == rank:
                runs[-1] += 1
            else:
                runs += (rank, 1)
        self._unplaced.clear()
        return runs

    def has_news(self) -> bool:
        return bool(self._unplaced)

    def well_formed(self, rank: int, batch: Batch) -> bool:
        stamp = batch.stamp
        if rank != SEQUENCER:
            return not stamp
        if len(stamp) % 2 or sum(stamp[1::2]) > MAX_PLACED:
            return False
        return all(0 < placed < len(self._members) for placed in stamp[::2]) and all(stamp[1::2])

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self._queues[rank].append(batch)
        if rank == SEQUENCER:
            for placed, count in zip(batch.stamp[::2], batch.stamp[1::2], strict=True):
                self._plan.extend([(placed, batch.number)] * count)
                self._placed[placed] += count
            self._plan.append((SEQUENCER, batch.number))
            self._placed[SEQUENCER] = batch.number
        elif self._own_rank == SEQUENCER:
            self._unplaced.append(rank)
        self._drain(ready)
        queue = self._queues[rank]
        if queue and queue[-1] is batch:
            holds.append(self._why(rank, batch))

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:
        if count > self._safe[rank]:
            self._safe[rank] = count
            self._drain(ready)

    def finish(self, ready: list[Batch]) -> None:
        # A place can outlive its batch: the sequencer placed it, then both of its holders died. Nobody delivered it.
        for rank, _ in self._plan:
            if self._queues[rank]:
                ready.append(self._queues[rank].popleft())
        for queue in self._queues:
            ready.extend(queue)
            queue.clear()
        self._plan.clear()

    def waiting(self) -> Iterator[Hold]:
        for rank, queue in enumerate(self._queues):
            for batch in queue:
                yield self._why(rank, batch)

    def _why(self, rank: int, batch: Batch) -> Hold:
        """What a batch waits for: to be safe, to have a place, for that place to be safe, or for those before it."""
        if batch.number > self._safe[rank]:
            return Hold(batch, "safe", batch.sender, batch.number)
        if batch.number > self._placed[rank]:
            return Hold(batch, "ordered", self._members[SEQUENCER], self._placed[SEQUENCER] + 1)
        first, placed_by = self._plan[0]
        if placed_by > self._safe[SEQUENCER]:
            return Hold(batch, "safe", self._members[SEQUENCER], placed_by)
        return Hold(batch, "delivered", self._members[first], self._delivered[first] + 1)

    def _drain(self, ready: list[Batch]) -> None:
        plan, safe, queues = self._plan, self._safe, self._queues
        while plan:
            rank, placed_by = plan[0]
            queue = queues[rank]
            if placed_by > safe[SEQUENCER] or not queue or queue[0].number > safe[rank]:
                return
            plan.popleft()
            ready.append(queue.popleft())
            self._delivered[rank] = ready[-1].number
