"""A daisy joined to a group, as real OS processes under load; servers and gateways of the daisy are killed (`kill -9`).

The daisy has two local groups of three and one of three gateways, which is all that the group on the other side ever
hears of. In one run its topmost server dies, then the gateway that is the sequencer and the server of its group. Nobody
comes back. In the end the oracles read the traces (docs/design/daisy-joins.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from isthmus.core.ids import Nanos
from isthmus.lab.benchmarks.hierarchies import PATIENCE, Kill, Outcome
from isthmus.lab.harness.deaths import STANDSTILL, certify_death, flowing_again
from isthmus.lab.harness.joined_sites import FAR, NEAR, ChildFailed, JoinedSites, Layout
from isthmus.simulator.run import promised
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event

RUN = "joined"
RATE = 30.0
"""Messages per second and process."""
BEFORE = 60
"""Messages of the other system that every process delivers before each kill, and after the last."""
SUSPECT_AFTER = "1s"
GROUPS: Mapping[str, Sequence[str]] = {"a": ("p1", "p2", "p3"), "b": ("p4", "p5", "p6"), "doors": ("g1", "g2", "g3")}
VICTIMS = ("p1", "g1")
"""The server of `a` and of all; then that of `doors`, which is the sequencer of its side."""
LOOK_EVERY = 0.1


class JoinedDaisy(JoinedSites):
    """The near site is a daisy, whose victims have OS processes of their own."""

    def __init__(self, directory: Path, victims: Sequence[str]) -> None:
        self.trace = directory / "trace"
        self.file = directory / f"{RUN}.toml"
        layout = Layout(processes=(6, 2), gateways=(3, 2), links=3)
        settings = {"trace": str(self.trace), "trace_sync": True}
        super().__init__(layout, directory, run=RUN, apart=[f"{NEAR}/{each}" for each in victims], settings=settings)

    def _topology(self) -> str:
        text = super()._topology().replace("kind =", f'suspect-after = "{SUSPECT_AFTER}"\nkind =')
        parts = ", ".join(f"parts.{name}.processes = {list(members)}" for name, members in GROUPS.items())
        daisy = f'daisy = {{ audience = "everybody", {parts} }}\n'
        return text.replace(f"[systems.{NEAR}]\n", f"[systems.{NEAR}]\n{daisy}", 1)

    async def load(self, rate: float) -> None:
        for child in self.children.values():
            for process in child.assignment.members:
                if process.startswith("p"):
                    await child.send(process, rate=rate)

    async def imported(self, more: int) -> None:
        """Wait until every live process has delivered so many more messages of the other system than now."""
        before = await self._imported()
        deadline = time.monotonic() + PATIENCE
        while any(count < before[name] + more for name, count in (await self._imported()).items()):
            if time.monotonic() > deadline:
                raise ChildFailed(f"not everybody has delivered {more} more messages within {PATIENCE:g} s")
            await asyncio.sleep(LOOK_EVERY)

    async def _imported(self) -> dict[str, int]:
        living = [child for child in self.children.values() if child.alive]
        figures = await asyncio.gather(*(child.figures() for child in living))
        return {
            f"{child.name}/{process}": count
            for child, each in zip(living, figures, strict=True)
            for process, count in each.imported.items()
        }

    async def kill(self, victim: str) -> Nanos:
        """SIGKILL, and the end of its log. Returns when it was, by the traces' clock."""
        at = time.time_ns()
        await self[f"{NEAR}/{victim}"].kill()
        certify_death(self.trace, RUN, NEAR, victim, time.time_ns())
        return at

    async def see_through(self) -> None:
        """End all sending, wait until everything is stable in both systems, and end."""
        living = [child for child in self.children.values() if child.alive]
        await asyncio.gather(*(child.quiet() for child in living))
        await asyncio.gather(*(child.stable(PATIENCE) for child in living))
        await self.close()


async def run_joined(
    directory: Path,
    victims: Sequence[str] = VICTIMS,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """The victims die one after the other, with messages flowing both ways."""
    kills: list[tuple[str, Nanos]] = []
    async with JoinedDaisy(directory, victims) as sites:
        await sites.linked()
        await sites.load(rate)
        await sites.imported(deliveries)
        started = time.perf_counter()
        for victim in victims:
            kills.append((victim, await sites.kill(victim)))
            await sites.imported(deliveries)
            progress()
        seconds = time.perf_counter() - started
        await sites.see_through()
        children = len(sites.children)
    events = list(read_trace([sites.trace]).events())
    headers = [
        row.control_bytes or 0
        for row in events
        if row.event == "deliver" and row.system == NEAR and row.origin_process != row.process
    ]
    # A standstill that began when the next one died is put down to that one.
    ends = [at - STANDSTILL for _, at in kills[1:]] + [time.time_ns()]
    return Outcome(
        system=RUN,
        processes=sum(map(len, GROUPS.values())) + sum(map(len, sites.layout.members(FAR))),
        os_processes=children,
        messages=sum(row.event == "send" for row in events),
        deliveries=sum(row.event == "deliver" and row.role == "app" for row in events),
        seconds=seconds,
        header=sum(headers) / max(1, len(headers)),
        kills=tuple(_timed(events, victim, at, until) for (victim, at), until in zip(kills, ends, strict=True)),
        report=judge(events, promised(load(sites.file))),
        trace=str(sites.trace),
    )


def _timed(events: Sequence[Event], victim: str, at: Nanos, until: Nanos) -> Kill:
    """When its local group had a view without it, and when messages flowed again both ways."""
    group = next(members for members in GROUPS.values() if victim in members)
    noticed = min(
        row.time_ns
        for row in events
        if row.event == "view"
        and (row.system, row.process in group, row.time_ns > at) == (NEAR, True, True)
        and f"{NEAR}/{victim}" not in (row.destinations or ())
    )
    return Kill(victim, noticed - at, flowing_again(events, (NEAR, FAR), at, until) - at)
