"""What `isthmus demo` runs: two sites over emulated lines with so many links; then a gateway that dies under load."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.lab.benchmarks.failover import STABLE_WITHIN, through_a_kill
from isthmus.lab.benchmarks.wan import LINE, WARM_UP, Figure, Watch, gateways_for, wan
from isthmus.lab.harness.sites import Layout

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


async def measure_links(numbers: Sequence[int], seconds: float, watch: Watch) -> list[Throughput]:
    """Messages per second from one process at one site to one at the other, for each number of links."""
    figures: list[Figure] = []
    for links in numbers:
        async with asyncio.timeout(WARM_UP + seconds + STEP_WITHIN):
            figures.append(await wan("striped", links, seconds=seconds, watch=watch))
    rates = [figure.messages_per_second for figure in figures]
    return [
        Throughput(figure.links, rate, figure.share or 0.0, rate / rates[0])
        for figure, rate in zip(figures, rates, strict=True)
    ]


async def kill_gateway(directory: Path, trace: Path, links: int, rate: float, seconds: float, watch: Watch) -> int:
    """Kill a gateway half-way through a run of that many seconds. When that was, in nanoseconds."""
    seconds = max(CRASH_SECONDS, seconds)
    layout = Layout(gateways=gateways_for(links), links=links, line=LINE)
    async with asyncio.timeout(seconds + STEP_WITHIN + STABLE_WITHIN):
        return await through_a_kill(directory, trace, layout, rate, seconds, watch)
