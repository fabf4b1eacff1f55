"""What the explorer's parts tell each other: events, steps, violations."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from isthmus.core.ids import ProcessId

PduNumber: TypeAlias = int
Direction: TypeAlias = int
"""Twice the number of a link, plus 1 from its far end to its near end."""

END: PduNumber = -1
"""In a queue of a link: what the far end sends ends here, because it has crashed."""

_NEW = -10


def new_end(token: int) -> PduNumber:
    """In a queue of a link: another gateway of a log is at its far end now, which holds the claim by this token."""
    return _NEW - token


def token_of(pdu: PduNumber) -> int:
    """The token of a gateway that is new at the far end of a link; not positive if this is no such word."""
    return _NEW - pdu


NOBODY: ProcessId = -1
"""Where something happens to a system as a whole."""


class Effect(NamedTuple):
    """What a gateway did in a step: `kind` is `broadcasts`, `puts` (on a link) or `tells` (a fellow)."""

    kind: str
    subject: tuple[Any, ...]


class StepEvent(NamedTuple):
    """One thing that happens at one place. `account` knows how each kind reads."""

    kind: str
    site: int
    process: ProcessId
    subject: tuple[Any, ...] = ()
    effects: tuple[Effect, ...] = ()


class BrokenPromise(NamedTuple):
    """A broken promise. `first` should have come before `second`, or is the only message concerned, or empty."""

    property: str
    process: str
    first: str
    second: str
    why: str


class Step(NamedTuple):
    """What one site can do, and where it leads. Its cost is the number of its events.

    `frames` go onto links; `closes` are the directions that nobody listens to any more. `relayed` and `settles` are the
    sets of messages that a gateway broadcast, and that are settled in the system where they were sent: both have to be
    judged against the rest of the world.
    """

    target: int
    cost: int
    frames: tuple[tuple[Direction, PduNumber], ...]
    crash: bool
    closes: tuple[Direction, ...]
    relayed: int
    settles: int
    violation: BrokenPromise | None
    events: tuple[StepEvent, ...]


class Moves(NamedTuple):
    """What a site can do by itself. Deliveries at processes are steps only where the exploration is not reduced."""

    usual: tuple[Step, ...]
    deliveries: tuple[Step, ...]
