"""PO on MC: FIFO order on a medium with a channel per sender (TO/PO, Sect. 5).

A log per sender. What fails receipt condition (2) is held until what its sender had is here as well: on MC that may be
late and not lost, so nothing is discarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.ordering.acknowledged.receipts import AcknowledgingOrder


class PartialOrder(AcknowledgingOrder):
    """`held` is, by sender, what has arrived in its order and waits for PDUs of others.

    `_words[h][j]` are PDUs of E_h that say more of E_j's than those before them: what they expect of it, and their
    number.
    """

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        super().install(members, own_rank, counts)
        self.held: list[deque[Batch]] = [deque() for _ in members]
        self._said = [list(self.expected) for _ in members]
        self._words: list[list[deque[tuple[int, int]]]] = [[deque() for _ in members] for _ in members]

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self.undelivered[rank].append(batch)
        if self.closing:
            return
        self.used += 1
        self.held[rank].append(batch)
        progress = self._receive_from(rank, ready)
        while progress:
            # Somebody else's may have waited for just this.
            progress = any(self._receive_from(member, ready) for member, queue in enumerate(self.held) if queue)
        if self.held[rank]:
            lacking = self.lacking(self.held[rank][0])
            assert lacking is not None
            number = self.held[rank][0].stamp[lacking] - 1
            holds.append(Hold(batch, "received", self.members[lacking], number))

    def _receive_from(self, rank: int, ready: list[Batch]) -> bool:
        queue = self.held[rank]
        received = False
        while queue and self.lacking(queue[0]) is None:
            self.accept(rank, queue.popleft(), ready)
            received = True
        return received

    def accept(self, rank: int, batch: Batch, ready: list[Batch]) -> None:
        said, words = self._said[rank], self._words[rank]
        for member, (before, acknowledged) in enumerate(zip(said, batch.stamp, strict=False)):
            if acknowledged > before:
                said[member] = acknowledged
                words[member].append((acknowledged, batch.number))
        super().accept(rank, batch, ready)

    def answer(self, rank: int, number: int) -> None:
        """A member's later PDUs are pre-acknowledged later, so a word that says too little now is never asked again."""
        for member, by_member in enumerate(self._words):
            words = by_member[rank]
            while words and words[0][0] <= number:
                words.popleft()
            if words:
                self.needed[member] = max(self.needed[member], words[0][1] + 1)

    def invariants(self) -> None:
        super().invariants()
        for queue in self.held:
            assert not queue or self.lacking(queue[0]) is not None, "held for nothing"
