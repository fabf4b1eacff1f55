"""The flush of a servers' group: from what its seats tell, the one order in which all of them go on.

Each seat tells the messages that are not settled there. Of a message only one seat is believed whether it is settled:
the one that it comes from, behind which are those who know; and for what comes from above the group the seat of its
server, who is in the group above. What nobody who is believed tells is settled: a seat forgets nothing else.

The order is that of the clocks that messages bear from their origins on. It contains causality, and two seats cannot
contradict each other over it. That nothing is missing in it is argued in docs/design/daisy.md, "The flush".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import Clocked
from isthmus.hierarchy.daisy.tree import NONE


class Holder(NamedTuple):
    """Who holds a seat, and the view of the group behind it that decided so."""

    epoch: int
    process: ProcessId


class FlushResult(NamedTuple):
    """What a flush comes to: the messages that the view begins with, causes before effects, and what is settled."""

    agreed: list[Clocked]
    settled: list[Clocked]


def agree(
    states: Sequence[Sequence[Clocked]], above: Sequence[Clocked], seat_of: Callable[[ProcessId], int]
) -> FlushResult:
    """Work out from the lists of all seats what the view begins with. The order within a list makes no difference."""
    unsettled: dict[MessageId, Clocked] = {}
    others: dict[MessageId, Clocked] = {}
    for seat, runs in ((NONE, above), *enumerate(states)):
        for run in runs:
            (unsettled if seat_of(run.origin) == seat else others)[run.id] = run
    settled = [run for each, run in sorted(others.items()) if each not in unsettled]
    return FlushResult(sorted(unsettled.values(), key=by_clock), settled)


def by_clock(run: Clocked) -> tuple[int, ProcessId, int]:
    return run.clock, run.origin, run.last
