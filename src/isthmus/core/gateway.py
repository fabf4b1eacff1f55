"""The Gateway contract: how join protocols meet the system that they forward for, and the links.

What joins need of their own system is little, and is counted in **marks**: of each origin, everything up to a number.
They are told what the system delivers here, in order (`delivered`), what of it everybody there has finished with
(`settled`), and who acts for this side (`acting`). They ask it to bring in messages that were born elsewhere, to say
something to fellow gateways, and tell it what it need not keep for them any more (`JoinGateway.finished`). How a system
counts is its own affair: a group and a daisy in batches and views (`Gateway`, below), a log in positions.
docs/design/joins.md, "The seam".

With the gateways of other systems a gateway speaks over links. A **link** is FIFO and loses nothing while both its ends
live: whoever runs the gateway sees to that, across reconnections. `link_ready` says that a link has little left to
send, so that a block put on it goes out soon.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, Self

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.join import FellowPdu, Line, LinkPdu

UNKNOWN_LINE = Line()
"""Of a line that nothing has been measured of."""


class Company(NamedTuple):
    """Who acts for one side of all its joins: the gateways of the system that live. The first of a join's leads it.

    `term` rises whenever they change.
    """

    term: int
    actors: tuple[ProcessId, ...]


class Gateway(Protocol):
    """A gateway on a system that counts in batches and views. Pure: time is an argument, there is no randomness."""

    @property
    def id(self) -> ProcessId: ...

    def delivered_batch(self, batch: Batch, now: Nanos, out: Outbox) -> None:
        """The own system delivered this here. Includes what this gateway relayed itself."""

    def view(self, view: View, now: Nanos, out: Outbox) -> None:
        """The own system's membership changed, at this point of the delivery sequence."""

    def settled_batches(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        """Every live member of the own system has finished with `sender`'s batches up to `number`."""

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: Outbox) -> None: ...

    def from_fellow(self, source: ProcessId, pdus: Sequence[FellowPdu], now: Nanos, out: Outbox) -> None: ...

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        """The link works, and `peer` is the process at its other end; perhaps a new one."""

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        """Nothing has come over the link for so long that others should take its part."""

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox, line: Line = UNKNOWN_LINE) -> None:
        """A link has little left to send: it can take one block more."""

    def wake(self, now: Nanos, out: Outbox) -> None: ...

    def deadline(self) -> Nanos | None: ...

    def invariants(self) -> None: ...

    def fork(self) -> Self: ...

    def snapshot(self) -> Hashable: ...
