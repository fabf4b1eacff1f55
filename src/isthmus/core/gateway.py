"""The Gateway contract: how join protocols meet the system that they forward for, and the links.

A gateway never learns whether its system is an embedded group, a broker or an abstraction in the explorer. It hears
what the system delivers to it, in order; it may ask the system to broadcast messages that were born elsewhere; it
tells the system when it has finished with what was delivered. With the gateways of other systems it speaks over links,
with its fellows in the same system over the site's own network.

A **link** is FIFO and loses nothing while both its ends live: whoever runs the gateway sees to that, across
reconnections. `link_ready` says that a link has little left to send, so that a block put on it goes out soon.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, Self

from isthmus.core.endpoint import Carried, Destinations, View
from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.join import FellowPdu, Line, LinkPdu

UNKNOWN_LINE = Line()
"""Of a line that nothing has been measured of."""


class GatewayOutbox:
    """What one step of a gateway wants done. The order of the fields is the order of execution.

    1. `carried`: for the trace only.
    2. `relays`: to be broadcast in the own system, back to back, as this gateway's next messages.
    3. `confirms`: (local sender, batch number): finished with everything up to there.
    4. `to_fellows`: to fellow gateways of the same system.
    5. `links`: onto links.
    """

    __slots__ = ("carried", "confirms", "links", "relays", "to_fellows")

    def __init__(self) -> None:
        self.carried: list[Carried] = []
        self.relays: list[Segment] = []
        self.confirms: list[tuple[ProcessId, int]] = []
        self.to_fellows: list[tuple[Destinations, FellowPdu]] = []
        self.links: list[tuple[LinkId, LinkPdu]] = []

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.carried or self.relays or self.confirms or self.to_fellows or self.links)

    def clear(self) -> None:
        self.carried.clear()
        self.relays.clear()
        self.confirms.clear()
        self.to_fellows.clear()
        self.links.clear()


class Gateway(Protocol):
    """The join protocols of one gateway. Pure: time is an argument, there is no randomness."""

    @property
    def id(self) -> ProcessId: ...

    def delivered(self, batch: Batch, now: Nanos, out: GatewayOutbox) -> None:
        """The own system delivered this here. Includes what this gateway relayed itself."""

    def view(self, view: View, now: Nanos, out: GatewayOutbox) -> None:
        """The own system's membership changed, at this point of the delivery sequence."""

    def settled(self, sender: ProcessId, number: int, now: Nanos, out: GatewayOutbox) -> None:
        """Every live member of the own system has finished with `sender`'s batches up to `number`."""

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: GatewayOutbox) -> None: ...

    def from_fellow(self, source: ProcessId, pdus: Sequence[FellowPdu], now: Nanos, out: GatewayOutbox) -> None: ...

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: GatewayOutbox) -> None:
        """The link works, and `peer` is the process at its other end; perhaps a new one."""

    def link_down(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        """Nothing has come over the link for so long that others should take its part."""

    def link_ready(self, link: LinkId, now: Nanos, out: GatewayOutbox, line: Line = UNKNOWN_LINE) -> None:
        """A link has little left to send: it can take one block more."""

    def wake(self, now: Nanos, out: GatewayOutbox) -> None: ...

    def deadline(self) -> Nanos | None: ...

    def invariants(self) -> None: ...

    def fork(self) -> Self: ...

    def snapshot(self) -> Hashable: ...
