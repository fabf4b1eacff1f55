"""What `isthmus demo` runs: two sites over emulated lines with so many links; then a gateway that dies under load."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.lab.benchmarks.failover import STABLE_WITHIN, Watch, through_a_kill
from isthmus.lab.benchmarks.wan import LINE, SIZE, WINDOW_PER_LINK, gateways_for
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout, Traffic

WARM_UP = 2.0
CRASH_SECONDS = 4.0
"""At least so long is the run in which a gateway dies: its fellows miss it after one second."""
STEP_WITHIN = 40.0
"""Seconds, beside those that it is meant to take, after which a step of the demo has failed."""


class Throughput(Struct, frozen=True):
    """What so many links carried; `share` is payload of what the lines can carry at most."""

    links: int
    messages_per_second: float
    share: float
    speed_up: float


async def measure_links(directory: Path, numbers: Sequence[int], seconds: float, watch: Watch) -> list[Throughput]:
    """Messages per second from one process at one site to one at the other, for each number of links."""
    results: list[Throughput] = []
    for links in numbers:
        async with asyncio.timeout(WARM_UP + seconds + STEP_WITHIN):
            rate = await _measure(directory, links, seconds, watch)
        raw = links * (LINE.rate or 0) / 8 / SIZE
        first = results[0] if results else None
        speed_up = rate / first.messages_per_second if first is not None else 1.0
        results.append(Throughput(links, rate, rate / raw, speed_up))
    return results


async def _measure(directory: Path, links: int, seconds: float, watch: Watch) -> float:
    """As fast as the links let it."""
    layout = Layout(processes=(1, 1), gateways=gateways_for(links), links=links, line=LINE)
    settings = {"window_messages": 1 << 17, "window_bytes": WINDOW_PER_LINK * links}
    async with JoinedSites(layout, directory, run=f"links-{links}", settings=settings) as sites:
        await sites.linked()
        await sites[NEAR].send("p1", size=SIZE)
        await asyncio.sleep(min(WARM_UP, seconds))
        before = await sites[FAR].figures()
        await watch(sites, "1 link" if links == 1 else f"{links} links", seconds)
        return Traffic(before, await sites[FAR].figures()).imported_per_second("p1")


async def kill_gateway(directory: Path, trace: Path, links: int, rate: float, seconds: float, watch: Watch) -> int:
    """Kill a gateway half-way through a run of that many seconds. When that was, in nanoseconds."""
    seconds = max(CRASH_SECONDS, seconds)
    layout = Layout(gateways=gateways_for(links), links=links, line=LINE)
    async with asyncio.timeout(seconds + STEP_WITHIN + STABLE_WITHIN):
        return await through_a_kill(directory, trace, layout, rate, seconds, watch)
