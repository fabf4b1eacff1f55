"""Applications for members in OS processes of their own. They report to the test line by line on standard output."""

from __future__ import annotations

import asyncio
import signal
import sys

from isthmus.adapters.embedded import EmbeddedProcess
from isthmus.runtime.problems import NotAccepting

LAST = b"last"


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def _take(process: EmbeddedProcess) -> None:
    taken: dict[str, int] = {}
    async for origin, seq, payload in process:
        taken[origin.process] = seq
        if seq % 500 == 0:
            say("delivered", origin.process, seq)
        if payload == LAST:
            say("last", origin.process)
    say("took", *(f"{name}:{seq}" for name, seq in sorted(taken.items())))


async def busy(process: EmbeddedProcess) -> None:
    """Sends as fast as the system lets it, and takes everything; says how much it got rid of.

    After SIGUSR1 it sends one last message and then only takes, so that a test can wait until all is quiet.
    """
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, enough.set)
    taking = asyncio.ensure_future(_take(process))
    sent = 0
    try:
        while not enough.is_set():
            sent = await process.send(*[b"x" * 100] * 20) + 19
        sent = await process.send(LAST)
    except NotAccepting as refusal:
        sent += refusal.accepted
    say("sent", sent)
    await taking


async def quiet(process: EmbeddedProcess) -> None:
    """Only takes."""
    say("up")
    await _take(process)


async def steady(process: EmbeddedProcess) -> None:
    """Sends a message every millisecond at most, and takes everything: the 500th comes after half a second at least."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_take(process))
        while True:
            await process.send(b"tick")
            await asyncio.sleep(0.001)


async def brief(process: EmbeddedProcess) -> None:
    """Sends a little, and returns."""
    say("first", await process.send(b"one", b"two"))


async def careful(process: EmbeddedProcess) -> None:
    """Sends one message, and says when nobody in the system lacks it any more."""
    say("up")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_take(process))
        await process.stable(await process.send(b"one"))
        say("stable")


async def broken(process: EmbeddedProcess) -> None:
    raise ZeroDivisionError("an application with a bug")
