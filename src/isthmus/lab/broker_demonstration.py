"""What `isthmus demo --brokers` runs: brokers of several kinds joined over emulated lines, and a gateway that dies."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.lab.benchmarks.brokers import DELAY, Carried, Case, carry
from isthmus.lab.brokers.joined import HOLDS, JoinedBrokers, Load
from isthmus.lab.harness.os_process import SLOWNESS
from isthmus.lab.harness.sites import LinkQuality

NAMES = ("madrid", "oslo", "rome")
RATE_OF_A_LINE = 20_000_000
LINE = LinkQuality(DELAY, RATE_OF_A_LINE)
SIZE = 1024
LINKS = (1, 4)
WITHIN = 60.0 * SLOWNESS
"""Seconds after which a step has failed."""

Watch = Callable[[str, float], Awaitable[None]]
"""Lets so many seconds pass, and shows what goes on meanwhile."""


class Death(Struct, frozen=True):
    """A gateway that was killed: whose, and after how many seconds what was written later stood everywhere again."""

    system: str
    kinds: dict[str, str]
    written: dict[str, int]
    flowing_after: float
    differences: list[str]


async def measure_links(kinds: Sequence[str], seconds: float) -> list[Carried]:
    """From the first kind to the second, with each number of links."""
    figures = []
    for links in LINKS:
        with tempfile.TemporaryDirectory(prefix="isthmus-demo-") as directory:
            async with asyncio.timeout(seconds + WITHIN):
                case = Case(kinds[0], RATE_OF_A_LINE, SIZE, kinds[1])
                figures.append(await carry(Path(directory), case, "join", links, seconds))
    return figures


async def kill_gateway(directory: Path, kinds: Sequence[str], rate: float, seconds: float, watch: Watch) -> Death:
    """All brokers in a chain, written to everywhere; half-way the gateway in the middle dies and is started anew."""
    systems = dict(zip(NAMES, kinds, strict=False))
    victim = NAMES[1]
    async with asyncio.timeout(seconds + WITHIN), JoinedBrokers(directory, systems, links=4, line=LINE) as joined:
        hosts = await joined.run_gateways()
        loads = {name: Load(joined[name], rate, batch=20).begin() for name in systems}
        for name in systems:
            for other in systems:
                await loads[name].until_seen(joined[other], 1)
        await watch(f"{len(systems)} brokers, written to everywhere", seconds / 2)
        await hosts[victim].kill()
        killed = time.monotonic()
        await (await joined.start(victim)).says(HOLDS)
        later = {name: load.number for name, load in loads.items()}
        for name in systems:
            for other in systems:
                await loads[name].until_seen(joined[other], later[name])
        flowing = time.monotonic() - killed
        await watch(f"the gateway of {victim} was killed, another one goes on", seconds / 2)
        written = {name: await load.end() for name, load in loads.items()}
        await joined.settled()
        await joined.stop()
        return Death(victim, systems, written, flowing, joined.differences())
