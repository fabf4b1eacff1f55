"""States of servers' groups in pieces: what is not settled at a seat may be more than should go at once.

Who lacks a state asks for one piece after the other, so that at any time one of them is on a line and what others have
to say there gets its turn (docs/design/daisy.md, "The flush").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from isthmus.core.message import Clocked
from isthmus.core.wire.daisy import SeatState
from isthmus.hierarchy.daisy.tree import DaisyTree
from isthmus.ordering.group.patience import FRAME_BYTES

MAX_MESSAGES = 1024
"""Of one batch, and of one piece of a state."""


def fill_frame(runs: Iterator[Clocked]) -> list[Clocked]:
    """The next messages that go into one frame: `FRAME_BYTES`, and the rest of the last message."""
    taken: list[Clocked] = []
    room = FRAME_BYTES
    while room > 0 and len(taken) < MAX_MESSAGES and (run := next(runs, None)) is not None:
        taken.append(run)
        room -= run.segment.payload_bytes + 8 * len(run.destinations)
    return taken


def _frames(runs: Sequence[Clocked]) -> list[list[Clocked]]:
    """At least one, be it empty."""
    left = iter(runs)
    return list(iter(lambda: fill_frame(left), [])) or [[]]


def cut(state: SeatState) -> list[SeatState]:
    """Cut a state into pieces that fit a frame. None of them asks for anything."""
    entries = _frames(state.entries)
    above = [] if state.above is None else _frames(state.above)
    count = len(entries)
    return [
        structs.replace(state, entries=each, above=None, asks=False, piece=number, pieces=count)
        for number, each in enumerate(entries)
    ] + [
        structs.replace(state, entries=[], above=each, asks=False, piece=number, pieces=count + len(above))
        for number, each in enumerate(above, count)
    ]


def makes_sense(state: SeatState, tree: DaisyTree) -> bool:
    """Whether a state off the wire speaks only of processes that there are."""
    runs = (*state.entries, *(state.above or ()))
    holders = {process for _, process in state.holders}
    return tree.knows(holders) and all(tree.knows((run.origin, *run.destinations)) for run in runs)


class Told:
    """What one seat has told of its state, so many pieces, in their order. Whether it `has` all of either list."""

    def __init__(self) -> None:
        self.pieces = 0
        self.entries: list[Clocked] = []
        self.above: list[Clocked] = []
        self.has_entries = False
        self.has_above = False

    def add(self, piece: SeatState) -> None:
        """Take the next piece."""
        self.pieces += 1
        is_last = self.pieces == piece.pieces
        if piece.above is None:
            self.entries += piece.entries
            self.has_entries = is_last
        else:
            self.above += piece.above
            self.has_above = is_last
