"""Mistakes in those who judge traces: the oracles, the engine of the audit, the streaming audit.

No simulation can catch these: a judge that is wrong says that all is well. They are caught by a second opinion, which
tests/lab/test_judge_mutants.py asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from isthmus.lab.mutants.mutant import Mutant, mutant
from isthmus.pipeline.engine import causes, judges
from isthmus.pipeline.engine.edges import Stretch, close
from isthmus.pipeline.engine.logs import DELIVER, OTHER, Array, Rows
from isthmus.pipeline.engine.receiver import Receiver
from isthmus.pipeline.engine.run import Run
from isthmus.pipeline.follow import chains
from isthmus.pipeline.follow.run import Reader
from isthmus.pipeline.follow.state import FollowedMessage, Row
from isthmus.pipeline.follow.words import Words
from isthmus.trace import history
from isthmus.trace.causality import chains_of_causes
from isthmus.trace.history import ProcessHistory, RunHistory
from isthmus.trace.oracles import _Channels
from isthmus.trace.schema import Event

JUDGE_MUTANTS: dict[str, Mutant] = {}
_wrong_judge = partial(mutant, among=JUDGE_MUTANTS)

# The originals that mutants build on, taken before anything is replaced.
_by_index: Callable[..., list[Event]] = history._by_index
_add_log: Callable[..., None] = RunHistory._add_log
_read: Callable[..., Rows] = Run.read
_take: Callable[..., None] = Reader._take
_unmet_cause: Callable[..., int | None] = _Channels.unmet_cause


# A row is skipped


@_wrong_judge("oracle-skips-a-row", of=history._by_index)
def _without_a_delivery(process: ProcessHistory, rows: list[Event]) -> list[Event]:
    """The oracles leave out the last delivery of every log."""
    sound = _by_index(process, rows)
    last = max((place for place, row in enumerate(sound) if row.event == "deliver"), default=len(sound))
    return sound[:last] + sound[last + 1 :]


@_wrong_judge("engine-skips-a-row", of=Run.read)
def _without_last_deliveries(self: Run, number: int, block: int) -> Rows:
    """The engine leaves out the last delivery of every block."""
    rows = _read(self, number, block)
    kind = rows.kind.copy()
    kind[np.flatnonzero(kind == DELIVER)[-1:]] = OTHER
    return rows._replace(kind=kind)


@_wrong_judge("follow-skips-a-row", of=Reader._take)
def _skips_the_fifth(self: Reader, number: int, row: Row, ready: list[int]) -> None:
    """The streaming audit leaves out the row with index 5 of every log."""
    if row.index != 5:
        _take(self, number, row, ready)


@_wrong_judge("first-of-two-rows-counts", of=history._by_index)
def _first_row_counts(process: ProcessHistory, rows: list[Event]) -> list[Event]:
    """Of two different rows with one index the oracles take the first."""
    first: dict[int, Event] = {}
    for row in rows:
        first.setdefault(row.index, row)
    return _by_index(process, list(first.values()))


# An own delivery before its send is taken for fine, or for a cause of itself


@_wrong_judge("oracle-accepts-early", of=RunHistory._add_log)
def _never_early(self: RunHistory, process: ProcessHistory, rows: list[Event]) -> None:
    """The oracles take a delivery before its own `send` row for fine."""
    _add_log(self, process, rows)
    process.early = []


@_wrong_judge("engine-accepts-early", of=Receiver.early)
def _nothing_early(self: Receiver) -> Array:
    """The engine takes a delivery before its own `send` row for fine."""
    return np.zeros(0, np.int64)


@_wrong_judge("engine-trusts-direct-edges", of=Receiver.hides)
def _hides_nothing(self: Receiver, stretch: Stretch) -> bool:
    """The engine judges by what senders saw, even where messages are invisible."""
    return False


@_wrong_judge("engine-closes-nothing", of=close, where=judges)
def _closes_nothing(run: Run, direct: Sequence[Stretch]) -> list[Stretch]:
    """The engine takes what senders saw for whole causal pasts."""
    return list(direct)


@_wrong_judge("follow-accepts-early", of=Words.not_sent_yet)
def _says_nothing(self: Words, number: int, message: FollowedMessage, index: int) -> None:
    """The streaming audit takes a delivery before its own `send` row for fine."""


@_wrong_judge("oracle-causes-itself", of=_Channels.unmet_cause)
def _itself_a_cause(self: _Channels, past: Any, index: int) -> int | None:
    """The oracles take a message that is delivered before it is sent for a cause of itself."""
    return _unmet_cause(self, past, index - 1)


# Chains of causes


def _ends_only(pairs: Sequence[tuple[Any, Any]], answer: Callable[..., Any]) -> list[list[Any]]:
    return [list(pair) for pair in pairs]


@_wrong_judge("oracle-forgets-the-chain", of=chains_of_causes)
def _oracle_ends(pairs: Sequence[tuple[Any, Any]], answer: Callable[..., Any]) -> list[list[Any]]:
    """The oracles show a cause and its effect, and nothing of what is between."""
    return _ends_only(pairs, answer)


@_wrong_judge("engine-forgets-the-chain", of=chains_of_causes, where=causes)
def _engine_ends(pairs: Sequence[tuple[Any, Any]], answer: Callable[..., Any]) -> list[list[Any]]:
    """The engine shows a cause and its effect, and nothing of what is between."""
    return _ends_only(pairs, answer)


@_wrong_judge("follow-forgets-the-chain", of=chains_of_causes, where=chains)
def _follow_ends(pairs: Sequence[tuple[Any, Any]], answer: Callable[..., Any]) -> list[list[Any]]:
    """The streaming audit shows a cause and its effect, and nothing of what is between."""
    return _ends_only(pairs, answer)
