"""The Endpoint contract: how protocol code meets the world that runs it.

An endpoint is a state machine. Whoever runs it (simulator, explorer, asyncio driver) calls one input method at a
time with the current time and one `Outbox`, then carries out what the outbox holds and clears it for the next
call. Inputs are batches and outputs are plain lists in one reused object, because an object per event or
effect costs a factor of six at these rates.

Time is an argument, in nanoseconds. There is no randomness. Equal inputs give equal outputs, so a run can be
replayed byte for byte, and the explorer can branch by `fork`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias

from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.message import Addressed, Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.clusters import Hop
from isthmus.core.wire.join import FellowPdu, LinkPdu
from isthmus.core.wire.pdu import Pdu

Destinations: TypeAlias = tuple[ProcessId, ...]

OrderName: TypeAlias = Literal["fifo", "causal", "total"]
"""What a system can keep, weakest first."""


class View(NamedTuple):
    """Who is in the system, from this point of the delivery sequence on. Members are in rank order."""

    number: int
    members: tuple[ProcessId, ...]


class Hold(NamedTuple):
    """Why a batch that has arrived is not delivered yet: it waits for `number` of `awaited`'s batches to be `reason`.

    `reason` is `delivered` (a cause is missing here), `safe` (no quorum holds it yet) or `ordered` (the sequencer
    has not placed it). Where messages are for single processes the `unit` is a message, and those to here are counted.
    """

    batch: Batch
    reason: str
    awaited: ProcessId
    number: int
    unit: Literal["batch", "message"] = "batch"


class AddressedDelivery(NamedTuple):
    """A delivery of messages that are for some processes only. `hop` is what brought them; None if they are own."""

    run: Addressed
    hop: Hop | Batch | None


class Carried(NamedTuple):
    """Messages that went onto a link (`transfer`), came off one (`accept`) or got their numbers (`sequence`).

    Inside a system, between processes that relay, there is no link, and `peer` is the next process on the way.
    """

    event: Literal["transfer", "accept", "sequence"]
    link: LinkId
    segment: Segment
    peer: ProcessId | None = None


Stage: TypeAlias = Literal["receive", "pre-acknowledge", "acknowledge"]


class Staged(NamedTuple):
    """A batch has come one stage further here, on its way to being acknowledged (docs/design/to-po.md)."""

    stage: Stage
    batch: Batch


class Outbox:
    """What one step of an endpoint wants done. Whoever runs it does so in this order, which is that of the fields.

    1. `stored`: batches that this process holds from now on; one that keeps a journal writes them first of all.
    2. The trace gets its rows (`trace/recorder.py`), again in the order of the fields: of `stages`, `deliveries`,
       `addressed`, `stable`, `holds` and `carried`. So nothing of a step is seen anywhere before it is on record.
       `stages`, `holds` and `carried` are for the trace only.
    3. `deliveries`: to the application, in this order; a `View` among them is the change of view.
       `addressed`: the same, of an endpoint whose messages are for some processes only.
    4. `stable`: own batches that every live destination has finished with; their buffers are free.
    5. `settled`: (sender, number): the same of anybody's batches, as far as it is known here.
    6. `sends`: one entry per multicast, whatever the number of its destinations: a driver encodes it once.
    7. `links`: onto links to other systems, where the endpoint is a gateway.
    8. `stopped`: when not empty, the endpoint takes no further part; the text says why.

    Three more are between the joins of a gateway and its system, and empty again when the step ends, in this order:
    `relays`, to be broadcast in the own system, back to back, as this gateway's next messages; `confirms`, (local
    sender, batch number), finished with up to there; `to_fellows`, to fellow gateways of the same system.
    """

    __slots__ = (
        "addressed",
        "carried",
        "confirms",
        "deliveries",
        "holds",
        "links",
        "relays",
        "sends",
        "settled",
        "stable",
        "stages",
        "stopped",
        "stored",
        "to_fellows",
    )

    def __init__(self) -> None:
        self.stored: list[Batch] = []
        self.stages: list[Staged] = []
        self.deliveries: list[Batch | View] = []
        self.addressed: list[AddressedDelivery] = []
        self.stable: list[Batch] = []
        self.settled: list[tuple[ProcessId, int]] = []
        self.holds: list[Hold] = []
        self.carried: list[Carried] = []
        self.sends: list[tuple[Destinations, Pdu]] = []
        self.links: list[tuple[LinkId, LinkPdu]] = []
        self.stopped = ""
        self.relays: list[Segment] = []
        self.confirms: list[tuple[ProcessId, int]] = []
        self.to_fellows: list[tuple[Destinations, FellowPdu]] = []

    def clear(self) -> None:
        """Empty the outbox in place. A driver that wants to keep a list takes it out before.

        Nearly all lists are empty after nearly every step, and to ask takes a third of the time that clearing does.
        """
        if self.stored:
            self.stored.clear()
        if self.stages:
            self.stages.clear()
        if self.deliveries:
            self.deliveries.clear()
        if self.addressed:
            self.addressed.clear()
        if self.stable:
            self.stable.clear()
        if self.settled:
            self.settled.clear()
        if self.holds:
            self.holds.clear()
        if self.carried:
            self.carried.clear()
        if self.sends:
            self.sends.clear()
        if self.links:
            self.links.clear()
        if self.relays:
            self.relays.clear()
        if self.confirms:
            self.confirms.clear()
        if self.to_fellows:
            self.to_fellows.clear()
        self.stopped = ""


class Endpoint(Protocol):
    """Any protocol that a driver can run."""

    @property
    def id(self) -> ProcessId: ...

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        """PDUs that arrived together from one peer, in order of arrival."""

    def wake(self, now: Nanos, out: Outbox) -> None:
        """Time has passed. A spurious call does nothing."""

    def deadline(self) -> Nanos | None:
        """When `wake` must be called at the latest. Cheap: drivers ask after every step."""

    # The cold path, for simulator and explorer.

    def invariants(self) -> None:
        """Raise `AssertionError` where the state contradicts the protocol's design note."""

    def fork(self) -> Self: ...

    def snapshot(self) -> Hashable: ...


class Member(Endpoint, Protocol):
    """An endpoint that is one process of a broadcast system."""

    def broadcast(self, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        """Accept new messages of this process. Returns the sequence number stamped on the first.

        What does not fit the window, or comes during a view change, waits inside; callers that stay within
        `credit` keep that bounded.
        """

    def relay(self, segments: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        """Broadcast messages that were born elsewhere, back to back, under the ids that they have."""

    def credit(self) -> int:
        """How many more messages fit now. 0 is back-pressure: some live member is behind."""

    def confirm(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        """The application has finished with `sender`'s batches up to `number`; only then can they become stable."""

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Stop accepting, see everything accepted through to stability, then go. `stopped` says when."""
