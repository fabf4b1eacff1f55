"""What the conformance suite needs besides an adapter: a broker to try it on, and clients that know nothing of isthmus.

Whoever writes an adapter writes one of these beside it. It starts a broker of its own, on loopback, and stops it;
`isthmus conformance MODULE:CLASS` does the rest. What a broker cannot do raises `NotPossible`; the suite says so and
counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings


class NotPossible(Exception):
    """This broker has no such thing, for the reason that the text gives."""


class Trial(Protocol):
    """One real broker, made without arguments. Everything but `make` is as an operator or a plain client does it."""

    async def start(self) -> None:
        """Start the broker. Nothing else is called before."""

    async def stop(self) -> None:
        """End the broker and remove what it kept."""

    async def fresh(self) -> LogSettings:
        """A new, empty log, with a name that was never used."""

    def make(self, settings: LogSettings) -> Log:
        """An adapter on that log, not open yet."""

    async def write(self, settings: LogSettings, contents: Sequence[Content]) -> None:
        """Append these, in this order, with the broker's usual client."""

    async def contents(self, settings: LogSettings) -> Sequence[Entry]:
        """Everything that is in the log, in its order, as the broker's usual client sees it."""

    async def trim(self, settings: LogSettings, keep: int) -> None:
        """Remove the oldest entries but the last so many, as retention would."""

    async def recreate(self, settings: LogSettings) -> None:
        """Delete the log, and make an empty one of the same name."""

    async def kill(self) -> None:
        """`kill -9` of the broker."""

    async def restart(self) -> None:
        """Start the broker again, on what it had on disk."""

    async def pause(self) -> None:
        """Have the broker answer nothing, connections open, as SIGSTOP does."""

    async def go_on(self) -> None:
        """Have it go on."""
