"""Applications for members in OS processes of their own. They report to the test line by line on standard output."""

from __future__ import annotations

import asyncio
import sys

from isthmus.adapters.embedded import EmbeddedProcess
from isthmus.runtime.problems import NotAccepting


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def _take(process: EmbeddedProcess) -> None:
    taken: dict[str, int] = {}
    async for origin, seq, _ in process:
        taken[origin.process] = seq
        if seq % 500 == 0:
            say("delivered", origin.process, seq)
    say("took", *(f"{name}:{seq}" for name, seq in sorted(taken.items())))


async def busy(process: EmbeddedProcess) -> None:
    """Sends for ever, as fast as the system lets it, and takes everything; says at the end how much it got rid of."""
    taking = asyncio.ensure_future(_take(process))
    sent = 0
    try:
        while True:
            sent = await process.send(*[b"x" * 100] * 20) + 19
    except NotAccepting as refusal:
        sent += refusal.accepted
    say("sent", sent)
    await taking


async def quiet(process: EmbeddedProcess) -> None:
    """Only takes."""
    say("up")
    await _take(process)


async def brief(process: EmbeddedProcess) -> None:
    """Sends a little, and returns."""
    say("first", await process.send(b"one", b"two"))


async def broken(process: EmbeddedProcess) -> None:
    raise ZeroDivisionError("an application with a bug")
