"""What the causal delivery of one cluster is to those who use it (the CMD of the cluster paper, Sect. II).

A delivery is one member's part in a protocol that keeps causal order among the members of one cluster, with messages
from one member to one other; those that were sent back to back go together, in a run. Members are ranks, 0 to n - 1.
Channels between them are reliable and FIFO. Whatever
ordering information it needs is in `Hop.rows`; it puts that on a hop and is the only one to look at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias

from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop

DeliveryName: TypeAlias = Literal["rst", "coordinator"]
Rank: TypeAlias = int
Onward: TypeAlias = list[tuple[Rank, Hop]]
"""Hops that are to be sent, each with the rank of the member that it goes to."""


class Held(NamedTuple):
    """A hop that is not delivered yet: it waits until `number` messages of member `awaited` are delivered here."""

    sender: Rank
    hop: Hop
    awaited: Rank
    number: int


class CausalDelivery(Protocol):
    """One member's part. The methods stand in the order in which a message meets them."""

    def send(self, target: Rank, run: Addressed, onward: Onward) -> None:
        """Send a run to another member."""

    def accepts(self, sender: Rank, hop: Hop) -> bool:
        """Whether this hop can be one of this protocol's, whoever made it."""

    def receive(self, sender: Rank, hop: Hop, ready: list[Hop], onward: Onward, held: list[Held]) -> None:
        """A hop has come over the channel from `sender`. What can be delivered now is put into `ready`, in order."""

    def waiting(self) -> Iterator[Held]:
        """What has arrived and is not delivered, and why."""

    def invariants(self) -> None: ...
