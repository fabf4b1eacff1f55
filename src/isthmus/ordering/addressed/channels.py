"""Hops between members of clusters, as they go in frames over channels (`ordering/channels.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.core.wire.clusters import Hop, HopAck, HopFrame
from isthmus.ordering.channels import Framing

FRAME_HOPS = 64
FRAME_BYTES = 1 << 20
"""What goes into one frame at most, unless one hop alone is larger. A number of a matrix takes up to nine bytes."""

NUMBER_BYTES = 9


def _portions(hops: list[Hop]) -> Iterator[list[Hop]]:
    """Hops to one peer, as they go together into frames. Mostly there is one."""
    if len(hops) == 1:
        yield hops
        return
    portion: list[Hop] = []
    size = 0
    for hop in hops:
        weight = len(hop.run.segment.data) + NUMBER_BYTES * len(hop.rows) ** 2
        if portion and (size + weight > FRAME_BYTES or len(portion) == FRAME_HOPS):
            yield portion
            portion, size = [], 0
        portion.append(hop)
        size += weight
    yield portion


HOPS: Framing[Hop, HopFrame] = Framing(HopFrame, lambda frame: frame.hops, HopAck, _portions)
