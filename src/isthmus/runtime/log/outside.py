"""A log as commands look at it: without the claim, beside whoever holds it, and with an end to their patience.

`run` waits for a broker for ever; who types a command wants to hear that it does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from isthmus.runtime.log.interface import Log, Unavailable
from isthmus.runtime.log.place import LogPlace
from isthmus.runtime.problems import RuntimeProblem

LONGEST_AWAY = 10.0
"""Seconds for which a broker may not answer before a command gives up."""
_PAUSE = 0.1

_Result = TypeVar("_Result")


class Outside:
    """One log of a topology, open, and no claim on it."""

    def __init__(self, place: LogPlace, log: Log, longest_away: float = LONGEST_AWAY) -> None:
        self.place = place
        self.name = place.system.name
        self.log = log
        self._longest_away = longest_away

    async def __call__(self, call: Callable[..., Awaitable[_Result]], *arguments: Any) -> _Result:
        """Call the broker until it answers, for so long."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._longest_away
        while True:
            try:
                return await call(*arguments)
            except Unavailable as reason:
                if loop.time() >= give_up:
                    raise RuntimeProblem(
                        f"{self.name}: the broker does not answer: {reason}. Start it, or look at url in "
                        f"systems.{self.name}."
                    ) from reason
                await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def opened(place: LogPlace, log: Log, longest_away: float = LONGEST_AWAY) -> AsyncIterator[Outside]:
    outside = Outside(place, log, longest_away)
    try:
        await outside(log.open)
        yield outside
    finally:
        await log.close()
