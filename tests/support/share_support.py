"""What the tests of shares have in common: a join that is as small as can be, and bounds that a short run meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from isthmus.join import share
from isthmus.join.plan import JoinPlan, LinkEnd, Share

ORIGINS = (0, 1, 2)
FAR_ORIGINS = (90, 91)
"""Processes of the far side, whose messages come in: ours may be answers to them."""

BLOCK_MESSAGES, ROOM, STRIPE, WINDOW = 4, 20, 3, 8


@contextmanager
def small_bounds() -> Iterator[None]:
    """Bounds that a short run meets, wherever a share keeps them."""
    with (
        patch.multiple(share, BLOCK_BYTES=ROOM),
        patch.object(share.Sequenced, "window", WINDOW),
        patch.object(share.Sequenced, "block_messages", BLOCK_MESSAGES),
        patch.object(share.Counted, "window", WINDOW),
        patch.object(share.Counted, "stripe", STRIPE),
    ):
        yield


def plan_of(kind: Share, gateways_of_links: Sequence[int]) -> JoinPlan:
    """Link i is one of the gateway `gateways_of_links[i]`; the origins are dealt to the links in turn."""
    links = tuple(LinkEnd(link, near, 20 + link) for link, near in enumerate(gateways_of_links))
    carriers = {origin: origin % len(links) for origin in ORIGINS} if kind in ("by-origin", "sets") else {}
    fellows = tuple(sorted(set(gateways_of_links)))
    numbered = kind != "by-origin"
    return JoinPlan(0, kind, fellows, links, carriers, frozenset(ORIGINS), frozenset(FAR_ORIGINS), numbered, True)
