"""Causal delivery by matrices: Raynal, Schiper and Toueg, as in the cluster paper, Sect. III.C.

`sent[i][j]` is how many messages member i has sent to member j, as far as is known here; every hop carries all of it,
as it was before the hop itself was counted, with all messages of its run. `delivered[i]` is how many messages of member
i were delivered here. A hop may be delivered when everything that its matrix says was sent here is delivered here.

A header has n² numbers, and yet a hop costs O(n) here. Row i of any matrix anywhere is what member i's own row was at
some moment, and that row only grows: of two versions of a row, one is at least as large in every entry, so comparing
them as tuples tells the later one. Rows are replaced and never changed; matrices share them, and none is ever copied
(docs/design/clusters.md, `rst`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from isthmus.core.holdback import HoldBack
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop
from isthmus.ordering.addressed.delivery import Held, Onward, Rank


class RstDelivery:
    """The part of the member of this rank in a cluster of `size` members."""

    __slots__ = ("_cluster", "_rank", "delivered", "held", "sent")

    def __init__(self, cluster: int, rank: Rank, size: int) -> None:
        self._cluster = cluster
        self._rank = rank
        self.sent: tuple[tuple[int, ...], ...] = (_nothing_sent(size),) * size
        self.delivered = [0] * size
        self.held: HoldBack[Rank, tuple[Rank, Hop]] = HoldBack()

    def send(self, target: Rank, run: Addressed, onward: Onward) -> None:
        onward.append((target, Hop(self._cluster, target, self.sent, run)))
        own = self._rank
        self.sent = _put(self.sent, own, _counted(self.sent[own], target, run.segment.messages))

    def accepts(self, sender: Rank, hop: Hop) -> bool:
        size = len(self.delivered)
        return (
            hop.target == self._rank != sender and len(hop.rows) == size and all(len(row) == size for row in hop.rows)
        )

    def receive(self, sender: Rank, hop: Hop, ready: list[Hop], onward: Onward, held: list[Held]) -> None:
        cause = self._missing(hop)
        if cause is not None:
            self.held.park(*cause, (sender, hop))
            held.append(Held(sender, hop, *cause))
            return
        queue = [(sender, hop)]
        for each_sender, each in queue:
            self._deliver(each_sender, each)
            ready.append(each)
            for released in self.held.release(each_sender, self.delivered[each_sender]):
                cause = self._missing(released[1])
                if cause is None:
                    queue.append(released)
                else:
                    self.held.park(*cause, released)

    def _missing(self, hop: Hop) -> tuple[Rank, int] | None:
        """What this hop waits for: a member, and how many of its messages have to be delivered here first."""
        own = self._rank
        for member, (row, delivered) in enumerate(zip(hop.rows, self.delivered, strict=True)):
            if row[own] > delivered:
                return member, row[own]
        return None

    def _deliver(self, sender: Rank, hop: Hop) -> None:
        """Count it, and learn from its matrix: what its sender knew when it had sent it."""
        messages = hop.run.segment.messages
        self.delivered[sender] += messages
        theirs = _put(hop.rows, sender, _counted(hop.rows[sender], self._rank, messages))
        self.sent = merged(self.sent, theirs)

    def waiting(self) -> Iterator[Held]:
        for awaited, number, (sender, hop) in self.held.waiting():
            yield Held(sender, hop, awaited, number)

    def invariants(self) -> None:
        own = self._rank
        for member, (row, delivered) in enumerate(zip(self.sent, self.delivered, strict=True)):
            assert row[member] == 0, f"member {member} has sent to itself"
            assert delivered <= row[own], f"{delivered} delivered of member {member}, which has sent {row[own]}"
        for held in self.waiting():
            assert held.number > self.delivered[held.awaited], f"held for what is delivered: {held}"


@cache
def _nothing_sent(size: int) -> tuple[int, ...]:
    """A row of zeros, one shared object: whether a row has changed is then seen without comparing its entries."""
    return (0,) * size


def merged(ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Of each row the later version: the maximum of two matrices. Most rows are the same object in both."""
    return tuple([mine if mine is other or mine >= other else other for mine, other in zip(ours, theirs, strict=True)])


def _put(matrix: tuple[tuple[int, ...], ...], place: Rank, row: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*matrix[:place], row, *matrix[place + 1 :])


def _counted(row: tuple[int, ...], target: Rank, messages: int) -> tuple[int, ...]:
    return (*row[:target], row[target] + messages, *row[target + 1 :])
