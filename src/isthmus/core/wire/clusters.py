"""What members of a cluster say to each other, where a message goes to one process (docs/design/clusters.md)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from isthmus.core.message import MAX_MEMBERS, Addressed, Number
from isthmus.core.segment import MAX_SEGMENT_MESSAGES
from isthmus.core.wire.group import WirePdu

Row = Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)]
Matrix = Annotated[tuple[Row, ...], Meta(max_length=MAX_MEMBERS)]


class Hop(WirePdu, frozen=True):
    """A run within one cluster, for the member of rank `target`. `rows` is all its ordering information."""

    cluster: Number
    target: Number
    rows: Matrix
    run: Addressed


class HopFrame(WirePdu, frozen=True, tag="hops"):
    """Hops to one peer, numbered, because the network between members loses and reorders."""

    number: Number
    hops: Annotated[list[Hop], Meta(max_length=MAX_SEGMENT_MESSAGES)]


class HopAck(WirePdu, frozen=True, tag="hops-ack"):
    """Frames up to `received` have arrived without a gap, and number `seen` has been seen."""

    received: Number
    seen: Number
