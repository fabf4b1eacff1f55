"""The suite that every adapter passes: each check is a promise of `Log`, tried on a real broker.

It knows `Trial` and `Log` and nothing else. `isthmus conformance MODULE:CLASS` runs it and prints a table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from isthmus.adapters.conformance import appending, claims, contents, reading
from isthmus.adapters.conformance.room import LIMIT, Broken, Room
from isthmus.runtime.log.trial import NotPossible, Trial

Verdict: TypeAlias = Literal["holds", "broken", "not possible"]


class Check(NamedTuple):
    """One promise. Its sentence is the docstring of the function that tries it."""

    name: str
    promise: str
    run: Callable[[Room], Awaitable[None]]


class Outcome(Struct, frozen=True):
    """What became of a check; `why` says what was seen, or why it is not possible."""

    name: str
    promise: str
    verdict: Verdict
    why: str
    seconds: float


CHECKS: Sequence[Check] = tuple(
    Check(run.__name__.replace("_", "-"), (run.__doc__ or "").strip(), run)
    for part in (reading, appending, claims, contents)
    for run in part.CHECKS
)


async def run_check(check: Check, trial: Trial, seed: int) -> Outcome:
    """Try one promise on a broker that runs. What goes wrong in any way, or takes too long, breaks it."""
    room = Room(trial, f"{seed} {check.name}")
    begun = time.monotonic()
    verdict: Verdict = "holds"
    why = ""
    try:
        try:
            async with asyncio.timeout(LIMIT):
                await check.run(room)
        finally:
            await room.leave()
    except NotPossible as reason:
        verdict, why = "not possible", str(reason)
    except Broken as broken:
        verdict, why = "broken", str(broken)
    except TimeoutError:
        verdict, why = "broken", f"it had not come to an end after {LIMIT:.0f} s"
    except Exception as error:
        verdict, why = "broken", f"{type(error).__name__}: {error}"
    return Outcome(check.name, check.promise, verdict, why, round(time.monotonic() - begun, 2))


async def run_suite(
    trial: Trial, checks: Sequence[Check], seed: int, done: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Start the broker, try these promises one by one, and stop it. `done` hears of each at once."""
    outcomes: list[Outcome] = []
    try:
        await trial.start()
        for check in checks:
            outcomes.append(await run_check(check, trial, seed))
            done(outcomes[-1])
    finally:
        await trial.stop()
    return outcomes
