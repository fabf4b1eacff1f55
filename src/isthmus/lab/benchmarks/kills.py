"""`kill -9`, again and again, in the middle of a traced run of two joined sites: how soon it goes on, and what is lost.

Five kinds of victims. A **gateway** that is not the first of its site; the **sequencer**, which is whoever has been
there longest; the **relay**, which is that at the far site; the **last** gateway, whose site has none until it is
replaced; and a whole **site**, which keeps a journal and is started again. Gateways come back as new processes and
join. Everybody sends all the time, in both directions. In the end the oracles read the traces.

Does it take longer when much is under way? The first three are killed over emulated lines as well, once with little to
carry and once with as much as everybody's window takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.lab.harness.deaths import flowing_again
from isthmus.lab.harness.os_process import SLOWNESS, silence
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout, LinkQuality
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event, Report

Victim: TypeAlias = Literal["gateway", "sequencer", "relay", "last", "site"]
Queues: TypeAlias = Literal["none", "empty", "full"]
"""Whether there are emulated lines that things wait for, and whether anything does."""

VICTIMS: dict[Victim, tuple[str, tuple[str, ...]]] = {
    "gateway": (NEAR, ("g2",)),
    "sequencer": (NEAR, ("g1", "g2")),
    "relay": (FAR, ("g1", "g2")),
    "last": (NEAR, ("g1",)),
    "site": (NEAR, ()),
}
"""Where they are, and who of the gateways is killed, one after the other."""

CASES: tuple[tuple[Victim, Queues], ...] = (
    *((victim, "none") for victim in VICTIMS),
    *((victim, queues) for victim in ("gateway", "sequencer", "relay") for queues in ("empty", "full")),
)
LINE = LinkQuality(delay=25 * MILLISECOND, rate=20_000_000)
LARGE = 8192
"""Bytes of a message where lines are full: 600 a second over two of them, few enough to be traced."""

RATE = 60.0
"""Messages per second and process: some are under way at every moment, and hundreds of kills can still be judged."""
SUSPECT_AFTER = silence(500)
BEFORE = 0.6
"""Seconds of undisturbed traffic before each kill."""
AFTER = 2.5 * min(SLOWNESS, 6)
"""Seconds until a killed gateway is started anew."""
STABLE_WITHIN = 60.0 * SLOWNESS
LAST: Nanos = 10 * SECOND
"""How long after its return a standstill is put down to the death of a site, unless it dies again."""


class Kill(Struct, frozen=True):
    """One kill. Times in nanoseconds after it: when somebody had noticed, and when messages flowed again both ways.

    A site that is started again, and the successor of a last gateway, are noticed when they have got that far: nobody
    could do anything before.
    """

    at: Nanos
    noticed: Nanos
    flowing: Nanos

    @property
    def recovery(self) -> Nanos:
        return max(0, self.flowing - self.noticed)


class KillsOutcome(Struct, frozen=True):
    """All kills of one kind, and what the traces say in the end."""

    victim: Victim
    queues: Queues
    kills: tuple[Kill, ...]
    messages: int
    report: Report


class KilledSites(JoinedSites):
    """Two sites of which the near one keeps a journal, where it is to be killed as a whole."""

    def __init__(self, directory: Path, victim: Victim, trace: Path, queues: Queues = "none") -> None:
        self._site, gateways = VICTIMS[victim]
        self._gateways = [f"{self._site}/{name}" for name in gateways]
        each = 1 if victim == "last" else 2
        both = f'suspect-after = "{SUSPECT_AFTER}"\n'
        journal = 'journal = "journal"\n' if victim == "site" else ""
        line = None if queues == "none" else LINE
        layout = Layout(gateways=(each, each), links=each, both=both, near=journal, line=line)
        super().__init__(layout, directory, run="kills", apart=self._gateways, trace=trace)
        self.victim = victim
        self.queues = queues
        self._turn = 0

    async def send_all(self) -> None:
        """Have everybody send from now on: a little, or all that lines and windows take."""
        if self.queues != "full":
            await self.load(RATE)
            return
        for child in self.living():
            for process in (await child.figures()).delivered:
                await child.send(process, size=LARGE)

    async def kill_next(self) -> tuple[Nanos, Nanos, Nanos]:
        """One kill, and the victim's return. Returns, by the traces' clock, when it was, when it was noticed, and until
        when a standstill is put down to it: that a gateway comes back is another event."""
        name = self._next_victim()
        at = await self.kill(name)
        if self.victim == "site":
            await self[name].begin_life()
            noticed = time.time_ns()
            await self.load(RATE, NEAR)
            return at, noticed, noticed + LAST
        await asyncio.sleep(AFTER)
        over = time.time_ns()
        await self[name].restart()
        return at, time.time_ns() if self.victim == "last" else at, over

    def _next_victim(self) -> str:
        if not self._gateways:
            return self._site
        # Who comes back stands last in line, so with two of them the first in line changes with every kill.
        self._turn += 1
        return self._gateways[(self._turn - 1) % len(self._gateways)]


async def kill_again_and_again(
    directory: Path,
    victim: Victim,
    rounds: int,
    progress: Callable[[], None] = lambda: None,
    queues: Queues = "none",
) -> KillsOutcome:
    """`rounds` kills of one kind in one run, and the verdicts on its traces."""
    trace = directory / "trace"
    kills: list[tuple[Nanos, Nanos, Nanos]] = []
    async with KilledSites(directory, victim, trace, queues) as sites:
        await sites.linked()
        await sites.send_all()
        for _ in range(rounds):
            await asyncio.sleep(BEFORE)
            kills.append(await sites.kill_next())
            await sites.linked()
            progress()
        await asyncio.sleep(BEFORE)
        await sites.see_through(STABLE_WITHIN)
    events = list(read_trace([trace]).events())
    return KillsOutcome(
        victim=victim,
        queues=queues,
        kills=tuple(
            _timed(events, at, noticed, min(until, following))
            for (at, noticed, until), following in zip(kills, [*(kill[0] for kill in kills[1:]), 1 << 63], strict=True)
        ),
        messages=sum(event.event == "send" for event in events),
        report=judge(events, promised_by("causal")),
    )


async def measure(directory: Path, rounds: int, progress: Callable[[], None]) -> list[KillsOutcome]:
    outcomes = []
    for victim, queues in CASES:
        here = directory / f"{victim}-{queues}"
        here.mkdir()
        outcomes.append(await kill_again_and_again(here, victim, rounds, progress, queues))
    return outcomes


def _timed(events: Sequence[Event], at: Nanos, noticed: Nanos, until: Nanos) -> Kill:
    views = [event.time_ns for event in events if event.event == "view" and at < event.time_ns < until]
    if noticed == at and views:
        noticed = min(views)
    return Kill(at=at, noticed=noticed - at, flowing=flowing_again(events, (NEAR, FAR), at, until) - at)
