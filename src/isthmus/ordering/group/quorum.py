"""Quorums of a view: more than half of its members, or exactly half if the first is among them.

Any two quorums of one view share a member. All safety of the group layer comes from that one sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from isthmus.core.ids import ProcessId


def is_quorum(some: Collection[ProcessId], members: Sequence[ProcessId]) -> bool:
    """Whether `some` (all of them members) are a quorum of `members`."""
    weight = 2 * len(some) + (members[0] in some)
    return weight > len(members)


def can_be_quorum(count: int, size: int) -> bool:
    """Whether so many members of a view of this size may be a quorum."""
    return 2 * count >= size


def quorum_level(levels: Sequence[int]) -> int:
    """The highest level that a quorum has reached. `levels` is by rank; O(n log n) in C."""
    ordered = sorted(levels, reverse=True)
    size = len(ordered)
    majority = ordered[size // 2]
    if size % 2:
        return majority
    return max(majority, min(levels[0], ordered[size // 2 - 1]))
