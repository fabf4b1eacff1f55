"""A load generator: the application that `run` and `demo` put on a process of an embedded system.

It sends at a steady rate and takes whatever is delivered. Its orders come as JSON in the environment, because it runs
in OS processes of its own as well.
"""

from __future__ import annotations

import asyncio
import os
import time

import msgspec
from msgspec import Struct

from isthmus.adapters.embedded import EmbeddedProcess
from isthmus.runtime.problems import NotAccepting

VARIABLE = "ISTHMUS_LOAD"
TICK = 0.01


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """`rate` messages per second of `size` bytes, for `seconds`."""

    rate: float
    size: int
    seconds: float


async def application(process: EmbeddedProcess) -> None:
    """Send as ordered by the environment, take deliveries until told to stop."""
    load = msgspec.json.decode(os.environ[VARIABLE], type=Load)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_take(process))
            tasks.create_task(send_steadily(process, load))
    except* NotAccepting:
        """The process was told to stop while we were sending: what it accepted is its business now."""


async def _take(process: EmbeddedProcess) -> None:
    async for _ in process.driver.deliveries:
        pass


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
