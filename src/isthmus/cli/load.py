"""A load generator: the application that `isthmus run --rate` puts on the processes of a site."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from isthmus.adapters.embedded import EmbeddedProcess

TICK = 0.01


class Load(Struct, frozen=True):
    """`rate` messages per second of `size` bytes, for `seconds`."""

    rate: float
    size: int
    seconds: float


async def send_steadily(process: EmbeddedProcess, load: Load) -> None:
    """Keep to the rate on average: what a slow moment left out is made up for, unless back-pressure says no."""
    payload = bytes(load.size)
    started = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - started) < load.seconds:
        due = int(elapsed * load.rate) - sent
        if due > 0:
            await process.send(*[payload] * due)
            sent += due
        await asyncio.sleep(TICK)
