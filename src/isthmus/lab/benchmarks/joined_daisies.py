"""A daisy joined to a group, as real OS processes under load; servers and gateways of the daisy are killed (`kill -9`).

The daisy has two local groups of three and one of three gateways, which is all that the group on the other side ever
hears of. In one run its topmost server dies, then the gateway that is the sequencer and the server of its group. Nobody
comes back. In the end the oracles read the traces (docs/design/daisy-joins.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from isthmus.core.ids import Nanos
from isthmus.lab.benchmarks.hierarchies import HierarchyOutcome, ServerKill, noticed_at, outcome_of
from isthmus.lab.harness.deaths import STANDSTILL, flowing_again
from isthmus.lab.harness.os_process import silence
from isthmus.lab.harness.sites import FAR, NEAR, WAIT, JoinedSites, Layout
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event

RUN = "joined"
RATE = 30.0
"""Messages per second and process."""
BEFORE = 60
"""Messages of the other system that every process delivers before each kill, and after the last."""
SUSPECT_AFTER = silence(1000)
GROUPS: Mapping[str, Sequence[str]] = {"a": ("p1", "p2", "p3"), "b": ("p4", "p5", "p6"), "doors": ("g1", "g2", "g3")}
VICTIMS = ("p1", "g1")
"""The server of `a` and of all; then that of `doors`, which is the sequencer of its side."""


def joined_daisy(directory: Path, victims: Sequence[str]) -> JoinedSites:
    """Two sites of which the near one is a daisy, whose victims have OS processes of their own."""
    parts = ", ".join(f"parts.{name}.processes = {list(members)}" for name, members in GROUPS.items())
    layout = Layout(
        processes=(6, 2),
        gateways=(3, 2),
        links=3,
        both=f'suspect-after = "{SUSPECT_AFTER}"\n',
        near=f'daisy = {{ audience = "everybody", {parts} }}\n',
    )
    apart = [f"{NEAR}/{each}" for each in victims]
    return JoinedSites(layout, directory, run=RUN, apart=apart, trace=directory / "trace")


async def run_joined(
    directory: Path,
    victims: Sequence[str] = VICTIMS,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> HierarchyOutcome:
    """The victims die one after the other, with messages flowing both ways."""
    kills: list[tuple[str, Nanos]] = []
    async with joined_daisy(directory, victims) as sites:
        await sites.linked()
        await sites.load(rate)
        await sites.delivered(deliveries, imported=True)
        started = time.perf_counter()
        for victim in victims:
            kills.append((victim, await sites.kill(f"{NEAR}/{victim}")))
            await sites.delivered(deliveries, imported=True)
            progress()
        seconds = time.perf_counter() - started
        await sites.see_through(WAIT)
    events = list(read_trace([directory / "trace"]).events())
    # A standstill that began when the next one died is put down to that one.
    ends = [at - STANDSTILL for _, at in kills[1:]] + [time.time_ns()]
    return outcome_of(
        events,
        sites.file,
        NEAR,
        processes=sum(map(len, GROUPS.values())) + sum(map(len, sites.layout.members(FAR))),
        os_processes=len(sites.children),
        seconds=seconds,
        kills=[_timed(events, victim, at, until) for (victim, at), until in zip(kills, ends, strict=True)],
    )


def _timed(events: Sequence[Event], victim: str, at: Nanos, until: Nanos) -> ServerKill:
    """When its local group had a view without it, and when messages flowed again both ways."""
    group = next(members for members in GROUPS.values() if victim in members)
    noticed = noticed_at(events, NEAR, group, victim, at)
    return ServerKill(victim, noticed - at, flowing_again(events, (NEAR, FAR), at, until) - at)
