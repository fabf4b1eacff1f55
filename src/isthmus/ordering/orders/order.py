"""What the group layer asks of an order: in which sequence are the batches of one view delivered?

An order sees batches by the *rank* of their sender in the view, each stream in its own order and without gaps; it is
told which prefix of each stream is safe; it says what may be delivered now. It never sees the network, acknowledgements
or view changes in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from isthmus.core.endpoint import Hold, OrderName
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder


class Order(Protocol):
    """What one order knows in one view. `install` begins a view, `finish` ends it."""

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        """A view begins. Of the member of rank r everything up to `counts[r]` has been delivered, everywhere."""

    def stamp(self, number: int) -> list[int]:
        """The stamp of this process's own batch `number`, which is sent now."""

    def has_news(self) -> bool:
        """Whether the others wait for a stamp of ours: send a batch now, even without messages."""

    def well_formed(self, rank: int, batch: Batch) -> bool:
        """Whether a stamp off the wire makes sense at all. One that does not is treated as lost."""

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        """The next batch of a stream is here. Appends to `ready` what may be delivered now, in order."""

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:
        """A quorum holds the first `count` batches of a stream."""

    def finish(self, ready: list[Batch]) -> None:
        """The view ends, and what has arrived is all there will ever be: append the rest to `ready`."""

    def waiting(self) -> Iterator[Hold]:
        """What is held now, and for what."""


ORDERS: dict[OrderName, Callable[[], Order]] = {"fifo": FifoOrder, "causal": CausalOrder, "total": TotalOrder}
"""The orders that a system can keep, by the names that topology files use."""
