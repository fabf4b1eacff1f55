"""A gateway is killed in the middle of a traced run of two joined sites: the run, and what its traces say of it.

The victim is the first gateway of the near site, the worst one to lose: it is the sequencer of what goes out, and leads
whatever comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.lab.benchmarks.wan import Watch
from isthmus.lab.harness.deaths import flowing_again
from isthmus.lab.harness.os_process import SLOWNESS
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout
from isthmus.trace.schema import Event

RUN = "demo"
VICTIM = "g1"
STABLE_WITHIN = 40.0 * SLOWNESS
"""Seconds for everything that was sent to become stable everywhere, after the kill and the end of the load."""


class FailoverFigures(Struct, frozen=True):
    """What a user asks first: how much, how fast, how long was the hiccup. Of application processes only.

    Latencies are between the sites and from before the kill. `flowed_again_after_ms` is when messages arrived again, in
    the direction in which they stood still the longest.
    """

    messages: int
    deliveries: int
    deliveries_per_second: int
    latency_ms: dict[str, float]
    next_view_after_kill_ms: int | None
    flowed_again_after_ms: int


async def through_a_kill(
    directory: Path, trace: Path, layout: Layout, rate: float, seconds: float, watch: Watch
) -> Nanos:
    """Every process of both sites sends at `rate`; half-way the victim gets SIGKILL. All traces go to `trace`.

    Returns when it was killed, by the clock of the traces.
    """
    victim = f"{NEAR}/{VICTIM}"
    async with JoinedSites(layout, directory, run=RUN, apart=[victim], trace=trace) as sites:
        await sites.linked()
        await sites.load(rate)
        await watch(sites, f"{layout.links} links, traced", seconds / 2)
        killed_at = await sites.kill(victim)
        await watch(sites, f"{victim} is dead, the others go on", seconds / 2)
        await sites.see_through(STABLE_WITHIN)
    return killed_at


def figures_of(events: Sequence[Event], killed_at: Nanos) -> FailoverFigures:
    sent_at = {_message(event): event.time_ns for event in events if event.event == "send"}
    delivered = [event for event in events if event.event == "deliver" and event.role == "app"]
    delays = sorted(
        event.time_ns - sent_at[_message(event)]
        for event in delivered
        if event.origin_system != event.system and event.time_ns < killed_at and _message(event) in sent_at
    ) or [0]
    views = [event.time_ns for event in events if event.event == "view" and event.time_ns > killed_at]
    times = [event.time_ns for event in delivered]
    # After the last send there is little to flow.
    flowing = flowing_again(events, (NEAR, FAR), killed_at, max(sent_at.values()))
    elapsed = max(times) - min(times)
    return FailoverFigures(
        messages=len(sent_at),
        deliveries=len(delivered),
        deliveries_per_second=round(len(delivered) * SECOND / elapsed),
        latency_ms={f"p{p}": round(delays[len(delays) * p // 100] / MILLISECOND, 1) for p in (50, 90, 99)},
        next_view_after_kill_ms=round((min(views) - killed_at) / MILLISECOND) if views else None,
        flowed_again_after_ms=round((flowing - killed_at) / MILLISECOND),
    )


def _message(event: Event) -> tuple[str | None, str | None, int | None]:
    return event.origin_system, event.origin_process, event.origin_seq
