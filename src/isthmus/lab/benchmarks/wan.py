"""What parallel links are worth: throughput with 1, 2, 4 and 8 of them over an emulated WAN, side by side in one run.

Two sites, each in an OS process of its own, the lines between them in another. One application process of the near site
sends, and one of the far site counts what it delivers; causal order all the way. Shares are payload alone, of what the
lines can carry: whatever headers, ordering and reports take is not in them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Literal

from msgspec import Struct

from isthmus.core.ids import MILLISECOND
from isthmus.core.units import format_rate
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout, LinkQuality, Traffic
from isthmus.runtime.loop import run

LINE = LinkQuality(delay=25 * MILLISECOND, rate=20_000_000)
SIZE = 1024
LINKS = (1, 2, 4, 8)
COMPARED = 4
"""Links with which the two ways to share messages among them are compared."""
SMALL = 100
WARM_UP = 2.5
SECONDS = 7.0
LATENCY_SECONDS = 3.0
MOST_LINKS = 8
LOADS = (0.01, 0.05, 0.25, 0.5, 0.8)
LIMPING = 2_000_000
"""Bits per second of a line that limps: a tenth of the others'."""
FAST_LINE = LinkQuality(delay=25 * MILLISECOND, rate=100_000_000)
WINDOW_PER_LINK = 4 << 20
"""Bytes that a sender may have on their way, per link: several times rate × (round trip + what stability takes)."""

Assign = Literal["striped", "transfer-sets"]
Watch = Callable[[JoinedSites, str, float], Awaitable[None]]
"""Lets so many seconds pass, and shows what goes on meanwhile; the text says what that is."""


async def _let_pass(sites: JoinedSites, what: str, seconds: float) -> None:
    await asyncio.sleep(seconds)


class Latency(Struct, frozen=True):
    """Milliseconds from `send` at the near site to delivery at the far one, at a part of what the lines carry."""

    messages_per_second: float
    p50: float
    p99: float


class LoadedLatency(Struct, frozen=True):
    """The same over eight links, striped, with the part of the lines' rate that is sent."""

    line: str
    load: float
    latency: Latency


class Disturbed(Struct, frozen=True):
    """Full load on eight lines of which something ails the first, beside the same before it did.

    `others` is what the other seven carry, `line` what the first one does, `delivered` what arrives: shares of what it
    was before.
    """

    what: str
    others: float
    line: float
    delivered: float


class Figure(Struct, frozen=True):
    """One layout under full load. `cores` are what the sites and the lines took: near, far, lines."""

    assign: Assign
    links: int
    gateways: tuple[int, int]
    senders: int
    size: int
    messages_per_second: float
    share: float | None
    bytes_per_link: dict[int, int]
    cores: tuple[float, float, float]
    latency: Latency | None = None


def count() -> int:
    """How many figures `measure` gives."""
    return len(LINKS) + 3 + 1


def measure(seconds: float = SECONDS) -> Iterator[Figure]:
    """Striped over 1, 2, 4, 8 links; then both ways to share with one sender and with several; then plain loopback."""
    for links in LINKS:
        yield run(wan("striped", links, seconds=seconds, latency=True))
    yield run(wan("transfer-sets", COMPARED, seconds=seconds))
    yield run(wan("striped", COMPARED, senders=COMPARED, seconds=seconds))
    yield run(wan("transfer-sets", COMPARED, senders=COMPARED, seconds=seconds))
    yield run(loopback(seconds))


async def latencies(line: LinkQuality, loads: Sequence[float] = LOADS) -> list[LoadedLatency]:
    """How long messages take over eight such lines, from nearly nothing to nearly all that they carry."""
    layout = Layout(processes=(1, 1), gateways=gateways_for(MOST_LINKS), links=MOST_LINKS, line=line)
    settings = {"window_messages": 1 << 17, "window_bytes": WINDOW_PER_LINK * MOST_LINKS}
    assert line.rate is not None
    capacity = line.rate * MOST_LINKS / 8 / SIZE
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        async with JoinedSites(layout, Path(directory), run="bench", settings=settings) as sites:
            await sites.linked()
            return [LoadedLatency(str(line), load, await _latency(sites, capacity * load, SIZE)) for load in loads]


async def disturbed(seconds: float = SECONDS) -> list[Disturbed]:
    """What becomes of eight lines under full load when one is cut for half of every second, or limps."""
    layout = Layout(processes=(1, 1), gateways=gateways_for(MOST_LINKS), links=MOST_LINKS, line=LINE)
    settings = {"window_messages": 1 << 17, "window_bytes": WINDOW_PER_LINK * MOST_LINKS}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        async with JoinedSites(layout, Path(directory), run="bench", settings=settings) as sites:
            await sites.linked()
            await sites[NEAR].send("p1", size=SIZE)
            found = []
            for what, ail, heal in (
                ("cut for 0.5 s of every second", _flap, "mend 0"),
                (f"carries {format_rate(LIMPING)}/s", _limp, f"rate 0 {format_rate(LINE.rate or 0)}"),
            ):
                await asyncio.sleep(WARM_UP)
                sound = await _carried(sites, asyncio.sleep(seconds))
                ill = await _carried(sites, ail(sites, seconds))
                await _order(sites, heal)
                found.append(
                    Disturbed(what, *(now / before if before else 0.0 for before, now in zip(sound, ill, strict=True)))
                )
            return found


async def _flap(sites: JoinedSites, seconds: float) -> None:
    for _ in range(ceil(seconds)):
        await _order(sites, "cut 0")
        await asyncio.sleep(0.5)
        await _order(sites, "mend 0")
        await asyncio.sleep(0.5)


async def _limp(sites: JoinedSites, seconds: float) -> None:
    await _order(sites, f"rate 0 {format_rate(LIMPING)}")
    await asyncio.sleep(seconds)


async def _order(sites: JoinedSites, command: str) -> None:
    assert sites.lines is not None
    await sites.lines.order(command)


async def _carried(sites: JoinedSites, meanwhile: Awaitable[None]) -> tuple[float, float, float]:
    """Bytes per second of the other lines and of the first, and messages per second that arrive."""
    before = await sites[NEAR].figures(), await sites[FAR].figures()
    await meanwhile
    near, far = Traffic(before[0], await sites[NEAR].figures()), Traffic(before[1], await sites[FAR].figures())
    first, *others = (size / near.seconds for _, size in sorted(near.bytes_per_link().items()))
    return sum(others), first, far.imported_per_second("p1")


def gateways_for(links: int) -> tuple[int, int]:
    """Gateways of the two sites, as few as give every link a pair of its own: each message reaches every member.

    At the far site two at most: with one process that makes three members, of which any two are a quorum, and block
    after block is broadcast without waiting for more than one hop.
    """
    far = min(2, links)
    return max(2, ceil(links / far)) if links > 1 else 1, far


async def wan(
    assign: Assign,
    links: int,
    *,
    senders: int = 1,
    seconds: float = SECONDS,
    latency: bool = False,
    line: LinkQuality = LINE,
    watch: Watch = _let_pass,
) -> Figure:
    layout = Layout(processes=(senders, 1), gateways=gateways_for(links), links=links, assign=assign, line=line)
    return await _measure(layout, senders, SIZE, seconds, WINDOW_PER_LINK * links // senders, latency, watch)


async def loopback(seconds: float = SECONDS) -> Figure:
    """Small messages through one link without any line: what the software itself carries."""
    layout = Layout(processes=(1, 1), gateways=(1, 1), links=1)
    return await _measure(layout, 1, SMALL, seconds, 64 << 20, latency=False)


async def _measure(
    layout: Layout, senders: int, size: int, seconds: float, window: int, latency: bool, watch: Watch = _let_pass
) -> Figure:
    settings = {"window_messages": 1 << 17, "window_bytes": window}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        async with JoinedSites(layout, Path(directory), run="bench", settings=settings) as sites:
            near, far = sites[NEAR], sites[FAR]
            await sites.linked()
            capacity = layout.line.rate * layout.links / 8 / size if layout.line and layout.line.rate else None
            measured = await _latency(sites, capacity / 4, size) if latency and capacity else None
            for number in range(1, senders + 1):
                await near.send(f"p{number}", size=size)
            await asyncio.sleep(min(WARM_UP, seconds))
            before = await near.figures(), await far.figures(), sites.lines_cpu()
            await watch(sites, "1 link" if layout.links == 1 else f"{layout.links} links", seconds)
            after = await near.figures(), await far.figures(), sites.lines_cpu()
    at_near, at_far = Traffic(before[0], after[0]), Traffic(before[1], after[1])
    rate = at_far.imported_per_second("p1")
    return Figure(
        assign=layout.assign,
        links=layout.links,
        gateways=layout.gateways,
        senders=senders,
        size=size,
        messages_per_second=rate,
        share=rate / capacity if capacity else None,
        bytes_per_link=dict(sorted(at_near.bytes_per_link().items())),
        cores=(at_near.cpu, at_far.cpu, (after[2] - before[2]) / seconds),
        latency=measured,
    )


async def _latency(sites: JoinedSites, rate: float, size: int) -> Latency:
    near, far = sites[NEAR], sites[FAR]
    await near.send("p1", size=size, rate=rate)
    await asyncio.sleep(1.0)
    before = await far.figures(measure=True)
    await asyncio.sleep(LATENCY_SECONDS)
    after = await far.figures()
    await near.quiet()
    p50, p99 = percentiles(after.delays)
    return Latency(Traffic(before, after).imported_per_second("p1"), p50, p99)


def percentiles(delays: Sequence[int]) -> tuple[float, float]:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(delays) or [0]
    return ordered[len(ordered) // 2] / MILLISECOND, ordered[len(ordered) * 99 // 100] / MILLISECOND


def speed_up(figure: Figure, figures: Sequence[Figure]) -> float:
    """Over one striped link, measured in the same run."""
    one = next(each for each in figures if each.assign == "striped" and each.links == 1 and each.share is not None)
    return figure.messages_per_second / one.messages_per_second
