"""What one gateway has to know of one join: its fellows, its links, who carries whose messages.

In slots, so that the protocol code never sees a name; `topology/plans.py` works it out from a topology, once.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.core.ids import LinkId

Share: TypeAlias = Literal["by-origin", "sets", "striped", "counted"]


class LinkEnd(Struct, frozen=True):
    """A link as seen from one side: the slots of its gateway here and of its gateway there."""

    link: LinkId
    near: int
    far: int


class JoinPlan(Struct, frozen=True):
    """One join, as one side of it sees it.

    `fellows` are the slots of this side's gateways that have a link of this join. `carriers` says by which link the
    messages of an origin slot go out, where that is fixed. `exported` and `imported` are the origin slots whose
    messages go out and come in by this join. In a `causal_system` what one gateway broadcasts after it delivered
    something comes after it everywhere. `far_acts_alone`: over there one gateway acts at a time, by a claim, and its
    incarnation is its term. `logs` are the slots of origins that are logs: nobody is told when their messages are
    stable.
    """

    join: int
    share: Share
    fellows: tuple[int, ...]
    links: tuple[LinkEnd, ...]
    carriers: dict[int, LinkId]
    exported: frozenset[int]
    imported: frozenset[int]
    numbered_imports: bool
    causal_system: bool
    far_acts_alone: bool = False
    logs: frozenset[int] = frozenset()
