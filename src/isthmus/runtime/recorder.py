"""What a driver tells about its endpoint, and how that becomes a trace, off the hot path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from isthmus.core.endpoint import Hold, View
from isthmus.core.message import Batch

Ending: TypeAlias = Literal["leave", "crash", "end"]
"""The last event of a process that got to say it."""


class Recorder(Protocol):
    """Hears of everything that happens at one process, in its order. Calls must be cheap: one per batch is many."""

    def sent(self, first: int, payloads: Sequence[bytes]) -> None:
        """This process broadcast messages of its own, with sequence numbers from `first` on."""

    def delivered(self, batch: Batch) -> None: ...

    def view(self, view: View) -> None: ...

    def stable(self, batch: Batch) -> None: ...

    def held(self, holds: Sequence[Hold]) -> None:
        """Why batches that arrived are not delivered yet. The list is the driver's; keep its items, not it."""

    def ended(self, how: Ending, why: str) -> None: ...


class _NoRecorder:
    """Records nothing."""

    def sent(self, first: int, payloads: Sequence[bytes]) -> None: ...
    def delivered(self, batch: Batch) -> None: ...
    def view(self, view: View) -> None: ...
    def stable(self, batch: Batch) -> None: ...
    def held(self, holds: Sequence[Hold]) -> None: ...
    def ended(self, how: Ending, why: str) -> None: ...


NO_RECORDER: Recorder = _NoRecorder()
