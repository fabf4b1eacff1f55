"""What forwarding on receipt costs and gains (docs/design/daisy-on-receipt.md; daisy, Sect. 3.4, optimisation 1).

Counted as in `daisies.py`, each beside the same in a daisy that forwards on delivery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec import structs

from isthmus.core.endpoint import AddressedDelivery
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY, Segment
from isthmus.core.wire.daisy import DaisyFrame, Offered, Parcel
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable, Forward
from isthmus.hierarchy.daisy.record import unpack
from isthmus.lab.counts.daisies import FAST, DaisyRig, MessageCost, even_daisy
from isthmus.lab.counts.rig import PaperNetwork
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.ordering.group.window import GroupSettings
from isthmus.planner.expressions import PARTS
from isthmus.simulator.world import Host

UNIFORM = structs.replace(FAST, uniform=True)
CAUSE, LARGE = b"cause", b"large"
SERVER, OTHER, ANSWERER, _SEAT, FAR = range(5)


def _daisy(options: DaisyOptions, size: int, parts: int) -> DaisyTable:
    return structs.replace(even_daisy(size * parts, parts, 2), options=options)


def across(forward: Forward, size: int, settings: GroupSettings = FAST) -> MessageCost:
    """One message from the last of the first of three groups to the last of all: neither is a server."""
    return DaisyRig(_daisy(DaisyOptions(forward=forward), size, PARTS), settings).send(size - 1, (PARTS * size - 1,))


def count_vectors() -> list[CountRow]:
    rows = []
    for size in (2, 3, 8):
        for forward in get_args(Forward):
            early = forward == "on-receipt"
            expected = (
                {1: 2 * size + PARTS, 0: size + PARTS, PARTS: size} if early else {1: size, 0: PARTS, PARTS: size}
            )
            headers = across(forward, size).headers.items()
            for group, place in ((1, "in its own group"), (0, "among servers"), (PARTS, "in the last group")):
                counted = [header.entries for (number, _, _), header in headers if number == group]
                rows.append(row(f"n = {size}, {forward}, {place}", "entries", expected[group], counted))
    return rows


def count_bytes() -> list[CountRow]:
    """All that a message without payload takes on its way, beside the entries of its vectors."""
    rows = []
    for size in (2, 3, 8):
        for forward in get_args(Forward):
            headers = across(forward, size).headers.values()
            entries = sum(header.entries for header in headers)
            size_of_all = sum(header.size for header in headers)
            rows.append(row(f"n = {size}, {forward}", "bytes", entries, [size_of_all], above=True))
    return rows


def count_hops() -> list[CountRow]:
    """As many as ever, where nothing overtakes anything. In groups of five and more a quorum is waited for, twice."""
    rows = []
    for size, hops in ((3, 3), (4, 3), (5, 7)):
        for forward in get_args(Forward):
            counted = [at // MILLISECOND for at in across(forward, size, UNIFORM).at.values()]
            rows.append(row(f"n = {size}, {forward}", "hops", hops, counted))
    return rows


# A cause that is late


class UnevenNetwork(PaperNetwork):
    """The line from the sender of the cause to its server is long, and a large message takes its time on any."""

    cause_takes = 1
    large_takes = 1

    def arrivals(self, source: ProcessId, destination: ProcessId, pdu: Pdu, now: Nanos) -> Iterable[Nanos]:
        arrivals = super().arrivals(source, destination, pdu, now)
        takes = 1
        messages = _messages_of(pdu)
        if messages:
            found = [payload for run in unpack(messages) for payload in run.segment.payloads()]
            takes = self.large_takes if LARGE in found else 1
            if (source, destination) == (OTHER, SERVER):
                takes = self.cause_takes
        return [at + (takes - 1) * MILLISECOND for at in arrivals]


def _messages_of(pdu: Pdu) -> Segment:
    """The messages that a word brings, in whichever way local groups send them."""
    word = pdu.pdu if isinstance(pdu, DaisyFrame) else None
    if isinstance(word, Parcel):
        word = word.batch
    return word.segment if isinstance(word, (Batch, Offered)) else EMPTY


class LateCause(DaisyRig):
    """Of three: one writes to another group, and to a fellow, who writes to the other group too, and at length."""

    def __init__(self, options: DaisyOptions, cause_takes: int, large_takes: int) -> None:
        super().__init__(_daisy(options, 3, 2), UNIFORM, UnevenNetwork)
        assert isinstance(self.network, UnevenNetwork)
        self.network.cause_takes, self.network.large_takes = cause_takes, large_takes
        self.delivered: dict[bytes, Nanos] = {}

    def play(self) -> Nanos:
        """When the effect is delivered in the other group."""
        self.write(OTHER, (FAR,), CAUSE)
        self.write(OTHER, (ANSWERER,), b"to a fellow")
        self.world.run_until(SECOND)
        assert list(self.delivered) == [b"to a fellow", CAUSE, LARGE]
        return self.delivered[LARGE]

    def on_message(self, host: Host, delivered: AddressedDelivery) -> None:
        self.delivered.update(dict.fromkeys(delivered.run.segment.payloads(), self.world.now))
        if host.id == ANSWERER:
            self.world.at(self.world.now, self.write, ANSWERER, (FAR,), LARGE)


def count_delay() -> list[CountRow]:
    """In milliseconds, of which a hop takes one. The effect is with its server before the cause."""
    rows = []
    for cause, large in ((6, 1), (6, 3), (9, 3), (12, 5)):
        expected = {"on-delivery": cause + 2 * large, "on-receipt": max(cause + 2, 1 + 3 * large)}
        for forward in get_args(Forward):
            counted = [round(LateCause(DaisyOptions(forward=forward), cause, large).play() / MILLISECOND)]
            rows.append(row(f"c = {cause}, e = {large}, {forward}", "hops", expected[forward], counted))
    return rows


SECTIONS: tuple[Section, ...] = (
    Section(
        name="early-header",
        what="Numbers in the header of a message, daisy of three groups of n that forwards on receipt",
        paper="daisy, Sect. 3.4",
        formula="one vector for each group that it was in: 2n + 3, n + 3, n; otherwise n, 3, n",
        count=count_vectors,
    ),
    Section(
        name="early-bytes",
        what="The same in bytes, as encoded, over all hops, beside the number of entries",
        paper="none",
        formula="more than the entries",
        count=count_bytes,
    ),
    Section(
        name="early-hops",
        what="Hops of one message to another group of n, delivered where a quorum holds it",
        paper="none",
        formula="3 up to n = 4, else 7, forwarded on receipt or on delivery",
        count=count_hops,
    ),
    Section(
        name="early-delay",
        what="Hops until an effect is delivered whose cause comes to the server after c and that takes e on every line",
        paper="daisy, Sect. 3.4",
        formula="max(c + 2, 1 + 3e) instead of c + 2e",
        count=count_delay,
    ),
)
