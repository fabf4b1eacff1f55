"""States of servers' groups in pieces: what is not settled at a seat may be more than one frame can take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from isthmus.core.message import Clocked
from isthmus.core.wire.daisy import SeatState
from isthmus.hierarchy.daisy.tree import DaisyTree

MAX_MESSAGES = 1024
MAX_BYTES = 1 << 20
"""Of one batch, and of one piece of a state, besides its last message."""


def fill_frame(runs: Iterator[Clocked]) -> list[Clocked]:
    """The next messages that go into one frame."""
    taken: list[Clocked] = []
    room = MAX_BYTES
    while room > 0 and len(taken) < MAX_MESSAGES and (run := next(runs, None)) is not None:
        taken.append(run)
        room -= run.segment.payload_bytes + 8 * len(run.destinations)
    return taken


def _frames(runs: Sequence[Clocked]) -> list[list[Clocked]]:
    left = iter(runs)
    return list(iter(lambda: fill_frame(left), []))


def cut(state: SeatState) -> list[SeatState]:
    """Cut a state into pieces that fit a frame. Only the last one asks for an answer."""
    entries = [structs.replace(state, entries=each, above=None, asks=False) for each in _frames(state.entries)]
    above = [structs.replace(state, entries=[], above=each, asks=False) for each in _frames(state.above or ())]
    # Every piece of a state whose sender knows what is above says so.
    pieces = [structs.replace(each, above=None if state.above is None else []) for each in entries] + above
    if len(pieces) <= 1:
        return [state]
    pieces = [structs.replace(each, piece=number, pieces=len(pieces)) for number, each in enumerate(pieces)]
    pieces[-1] = structs.replace(pieces[-1], asks=state.asks)
    return pieces


def makes_sense(state: SeatState, tree: DaisyTree) -> bool:
    """Whether a state off the wire speaks only of processes that there are."""
    runs = (*state.entries, *(state.above or ()))
    holders = {process for _, process in state.holders}
    return tree.knows(holders) and all(tree.knows((run.origin, *run.destinations)) for run in runs)


class Pieces:
    """Puts states together that come in pieces, by the seat that sends them."""

    def __init__(self) -> None:
        self._come: dict[int, dict[int, SeatState]] = {}

    def add(self, seat: int, state: SeatState) -> SeatState | None:
        """Take one piece. Returns the whole state once all of its pieces are there."""
        if state.pieces == 1:
            return state
        come = self._come.setdefault(seat, {})
        if any(_kind(each) != _kind(state) for each in come.values()):
            # It has been told anew, by another holder or with what is above.
            come.clear()
        come[state.piece] = state
        if len(come) < state.pieces:
            return None
        del self._come[seat]
        ordered = [come[number] for number in sorted(come)]
        entries = [run for each in ordered for run in each.entries]
        above = None if state.above is None else [run for each in ordered for run in each.above or ()]
        return structs.replace(state, entries=entries, above=above)


def _kind(state: SeatState) -> tuple[list[tuple[int, int]], bool, int]:
    """What pieces of one state have in common."""
    return state.holders, state.above is None, state.pieces
