"""How far something is that takes its time: whoever works says it here, and whoever watches is told.

Nothing is handed from function to function for it, because most calls have no watcher. Where nobody watches, work is
cut as it suits the work; where somebody does, into smaller parts, so that there is something to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Stage(NamedTuple):
    """One thing that is being done: `done` of `of` jobs, and of `rows` rows where that is known."""

    name: str
    done: int
    of: int
    rows_done: int = 0
    rows: int = 0


Watcher = Callable[[Stage], object]

_watcher: ContextVar[Watcher | None] = ContextVar("isthmus watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """What is done in this block, in this thread, is told to the watcher."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def is_watched() -> bool:
    return _watcher.get() is not None


def tell(stage: Stage) -> None:
    watcher = _watcher.get()
    if watcher is not None:
        watcher(stage)
