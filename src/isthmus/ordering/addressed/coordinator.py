"""Causal delivery by one member through whom everything goes: the centralised approach (cluster, Sect. III.C).

A member sends a hop to the coordinator, and the coordinator passes it on to its target, in the order in which hops come
to it; channels are FIFO. So everybody delivers a part of one sequence, the coordinator's, and that contains causal
order: a message is in the sequence before anybody can have delivered it, and so before anything that follows from it. A
hop carries no ordering information at all. The price is the load of the coordinator, and one more message per hop.
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop
from isthmus.ordering.addressed.delivery import Held, Onward, Rank


class CoordinatorDelivery:
    """The part of the member of this rank; it may be the coordinator itself. All state there is is in the channels."""

    __slots__ = ("_cluster", "_coordinator", "_rank", "_size")

    def __init__(self, cluster: int, rank: Rank, size: int, coordinator: Rank) -> None:
        self._cluster = cluster
        self._rank = rank
        self._size = size
        self._coordinator = coordinator

    def send(self, target: Rank, run: Addressed, onward: Onward) -> None:
        hop = Hop(self._cluster, target, (), run)
        if self._rank == self._coordinator:
            self._pass_on(hop, onward)
        else:
            onward.append((self._coordinator, hop))

    def accepts(self, sender: Rank, hop: Hop) -> bool:
        if hop.rows or hop.target >= self._size:
            return False
        if self._rank == self._coordinator:
            return hop.target != sender
        return sender == self._coordinator and hop.target == self._rank

    def receive(self, sender: Rank, hop: Hop, ready: list[Hop], onward: Onward, held: list[Held]) -> None:
        if hop.target == self._rank:
            ready.append(hop)
        else:
            self._pass_on(hop, onward)

    def _pass_on(self, hop: Hop, onward: Onward) -> None:
        """At the coordinator: pass a message on as the next one of the single sequence."""
        onward.append((hop.target, hop))

    def waiting(self) -> Iterator[Held]:
        """Nothing ever waits: what the coordinator sends comes in its order."""
        return iter(())

    def invariants(self) -> None:
        """Nothing to check: no state is kept here."""
