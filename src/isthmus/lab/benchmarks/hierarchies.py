"""Daisies and a system of clusters as real OS processes, under load; in the daisies, servers are killed with `kill -9`.

A server that is to be killed has an OS process to itself. Everybody sends all the time and answers what it gets, so
that there are chains of causes through all groups. In the end all are told to stop, see everything through, and the
oracles read the traces.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.core.ids import Nanos
from isthmus.hierarchy.daisy.generation import VIEWS
from isthmus.lab.harness.os_process import Ports, silence
from isthmus.lab.harness.sites import ProcessShare, Sites
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.simulator.run import promised
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event, Report

SYSTEM = "shop"
HEARTBEAT, SUSPECT_AFTER = "50ms", silence(2000)
"""A machine with other things to do must not make a process look dead that is only waiting its turn."""
RATE = 10.0
"""Messages per second and process, before answers."""
BEFORE = 25
"""Deliveries at every live process before a kill, after the last one, and at the end of a run without any."""
VICTIMS = ("a1", "b1", "c1")
GROUPS = {group: tuple(f"{group}{number}" for number in range(1, 5)) for group in "abc"}
"""The daisy: three local groups of four."""
CLUSTERS = {
    half: {f"{half}{part}": tuple(f"{half}{part}{number}" for number in range(1, 4)) for part in "xy"} for half in "ab"
}
"""The clusters: three layers, two parts in each; three processes in every cluster at the bottom."""
FOUNDERS = tuple(f"p{number}" for number in range(1, 7))
NEWCOMERS = tuple(f"p{number}" for number in range(7, 10))
"""The daisy that changes: it begins as one group, which is too large with those who come later."""


class ServerKill(Struct, frozen=True):
    """One server. Nanoseconds after its death: when its group had a view without it, and when, after that, a message
    from that group had come out and one from elsewhere had come in."""

    victim: str
    noticed: Nanos
    flowing: Nanos


class Change(Struct, frozen=True):
    """One generation of a daisy's tree: its local groups, and the longest that a process had no delivery around it."""

    generation: int
    groups: tuple[tuple[str, ...], ...]
    pause: Nanos


class HierarchyOutcome(Struct, frozen=True):
    """One run, and what its traces say. `header` is the mean of `control_bytes` over all deliveries from others."""

    system: str
    processes: int
    os_processes: int
    messages: int
    deliveries: int
    seconds: float
    header: float
    kills: tuple[ServerKill, ...]
    report: Report
    trace: str
    changes: tuple[Change, ...] = ()


def daisy_file(ports: Ports) -> str:
    everybody = [process for group in GROUPS.values() for process in group]
    times = f'heartbeat = "{HEARTBEAT}"\nsuspect-after = "{SUSPECT_AFTER}"\n'
    return _head(everybody, ports, times) + "".join(
        f"[systems.{SYSTEM}.daisy.parts.{name}]\nprocesses = {list(group)}\n\n" for name, group in GROUPS.items()
    )


def changing_file(ports: Ports) -> str:
    """Groups of four to seven: the founders are one at first, and two with those who come later."""
    times = f'heartbeat = "{HEARTBEAT}"\nsuspect-after = "{SUSPECT_AFTER}"\nstandby = {list(NEWCOMERS)}\n'
    table = f"[systems.{SYSTEM}.daisy]\nsplit-above = 7\nmerge-below = 4\n"
    return _head((*FOUNDERS, *NEWCOMERS), ports, times) + table


def clusters_file(ports: Ports) -> str:
    """RST at the top and at the bottom, a coordinator in the middle."""
    table = f"[systems.{SYSTEM}.clusters"
    text = f'{table}]\ndelivery = "rst"\n\n'
    everybody: list[str] = []
    for half, parts in CLUSTERS.items():
        text += f'{table}.parts.{half}]\ndelivery = "coordinator"\n\n'
        for name, members in parts.items():
            everybody += members
            text += f'{table}.parts.{half}.parts.{name}]\ndelivery = "rst"\nprocesses = {list(members)}\n\n'
    return _head(everybody, ports) + text


def _head(processes: Sequence[str], ports: Ports, times: str = "") -> str:
    return (
        f'[systems.{SYSTEM}]\nkind = "embedded"\norder = "causal"\n{times}'
        f'address = "{LOOPBACK}:{ports.take(len(processes))}"\nprocesses = {list(processes)}\n\n'
    )


def outcome_of(
    events: Sequence[Event],
    file: Path,
    system: str,
    *,
    processes: int,
    os_processes: int,
    seconds: float,
    kills: Sequence[ServerKill] = (),
) -> HierarchyOutcome:
    """What the traces of a run say; `header` is that of messages inside `system`."""
    delivered = [row for row in events if row.event == "deliver" and row.role == "app"]
    headers = [
        row.control_bytes or 0
        for row in events
        if row.event == "deliver" and row.system == system and row.origin_process != row.process
    ]
    return HierarchyOutcome(
        system=file.stem,
        processes=processes,
        os_processes=os_processes,
        messages=sum(row.event == "send" for row in events),
        deliveries=len(delivered),
        seconds=seconds,
        header=sum(headers) / max(1, len(headers)),
        kills=tuple(kills),
        report=judge(events, promised(load(file))),
        trace=str(file.parent / "trace"),
        changes=tuple(_changes(events)),
    )


def _spread(directory: Path, run: str, describe: Callable[[Ports], str], shares: Sequence[Sequence[str]]) -> Sites:
    """One system, its processes dealt to OS processes; each is found by the name of the first process in it."""
    return Sites(directory, run, describe, _named(shares), trace=directory / "trace")


def _named(shares: Sequence[Sequence[str]]) -> dict[str, ProcessShare]:
    return {share[0]: ProcessShare(SYSTEM, share) for share in shares}


def _outcome(sites: Sites, seconds: float, kills: Sequence[tuple[str, Nanos]] = ()) -> HierarchyOutcome:
    events = list(read_trace([sites.file.parent / "trace"]).events())
    return outcome_of(
        events,
        sites.file,
        SYSTEM,
        processes=sum(len(child.assignment.members) for child in sites.children.values()),
        os_processes=len(sites.children),
        seconds=seconds,
        kills=[_timed(events, victim, at) for victim, at in kills],
    )


def _changes(events: Sequence[Event]) -> Iterator[Change]:
    """The generations after the first, from the views that processes began them with."""
    views = [row for row in events if row.event == "view" and int(row.peer or 0) % VIEWS == 1 and row.peer != "1"]
    deliveries: dict[str, list[Nanos]] = {}
    for row in events:
        if row.event == "deliver":
            deliveries.setdefault(row.process, []).append(row.time_ns)
    for generation in sorted({int(row.peer or 0) // VIEWS for row in views}):
        begun = [row for row in views if int(row.peer or 0) // VIEWS == generation]
        groups = {tuple(name.partition("/")[2] for name in row.destinations or ()) for row in begun}
        pauses = []
        for row in begun:
            times = sorted(deliveries.get(row.process, ()))
            after = bisect_left(times, row.time_ns)
            if 0 < after < len(times):
                pauses.append(times[after] - times[after - 1])
        yield Change(generation, tuple(sorted(groups)), max(pauses, default=0))


def _timed(events: Sequence[Event], victim: str, at: Nanos) -> ServerKill:
    """Whoever relays after the first view without the victim is the next server: that is when things flow again."""
    group = next(name for name, members in GROUPS.items() if victim in members)
    noticed = noticed_at(events, SYSTEM, GROUPS[group], victim, at)
    sent = {
        (row.process, row.origin_seq): row.time_ns for row in events if row.event == "send" and row.time_ns > noticed
    }
    inward, outward = (
        min(
            row.time_ns
            for row in events
            if row.event == "deliver"
            and (row.origin_process, row.origin_seq) in sent
            and (row.process in GROUPS[group]) == into
            and (row.origin_process in GROUPS[group]) != into
        )
        for into in (True, False)
    )
    return ServerKill(victim, noticed - at, max(inward, outward) - at)


def noticed_at(events: Sequence[Event], system: str, group: Sequence[str], victim: str, at: Nanos) -> Nanos:
    """When a process of a local group first had a view without this one, which was killed at that time."""
    return min(
        row.time_ns
        for row in events
        if row.event == "view"
        and (row.system, row.process in group, row.time_ns > at) == (system, True, True)
        and f"{system}/{victim}" not in (row.destinations or ())
    )


async def run_daisy(
    directory: Path,
    victims: Sequence[str],
    together: Sequence[str] = tuple(GROUPS),
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> HierarchyOutcome:
    """A daisy of three groups of four, whose servers are killed one after the other.

    `together` says which groups share an OS process: "ab" are one, "c" another.
    """
    rest = [[each for name in names for each in GROUPS[name] if each not in victims] for names in together]
    shares = [*((victim,) for victim in victims), *rest]
    kills: list[tuple[str, Nanos]] = []
    async with _spread(directory, "daisy", daisy_file, shares) as daisy:
        await daisy.load(rate)
        await daisy.delivered(deliveries)
        started = time.perf_counter()
        for victim in victims:
            kills.append((victim, await daisy.kill(victim)))
            mates = [each for each in GROUPS[victim[0]] if each not in dict(kills)]
            await daisy.excluded(victim, mates)
            await daisy.delivered(deliveries)
            progress()
        seconds = time.perf_counter() - started
        await daisy.close()
    return _outcome(daisy, seconds, kills)


async def run_changing(
    directory: Path,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> HierarchyOutcome:
    """A daisy of one group that splits when others have come, and merges when its topmost server is killed."""
    victim, *rest = FOUNDERS
    async with _spread(directory, "changing", changing_file, [(victim,), rest]) as daisy:
        await daisy.load(rate)
        await daisy.delivered(deliveries)
        started = time.perf_counter()
        await daisy.start(_named([NEWCOMERS]))
        await daisy.load(rate, NEWCOMERS[0])
        await daisy.regrouped((4, 5))
        await daisy.delivered(deliveries)
        progress()
        await daisy.kill(victim)
        # The group of four takes one of the other's five, if it was its own that died.
        await daisy.regrouped((4, 4))
        await daisy.delivered(deliveries)
        progress()
        seconds = time.perf_counter() - started
        await daisy.close()
    return _outcome(daisy, seconds)


async def run_clusters(
    directory: Path,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> HierarchyOutcome:
    """Three layers of clusters in three OS processes, of which two share a cluster at the bottom."""
    bottom = [members for half in CLUSTERS.values() for members in half.values()]
    first, second, third, fourth = bottom
    shares = [(*first, second[0]), (*second[1:], *third), fourth]
    async with _spread(directory, "clusters", clusters_file, shares) as clusters:
        await clusters.load(rate)
        started = time.perf_counter()
        await clusters.delivered(deliveries)
        progress()
        seconds = time.perf_counter() - started
        await clusters.close()
    return _outcome(clusters, seconds)


async def measure(directory: Path, progress: Callable[[], None]) -> list[HierarchyOutcome]:
    """Run the daisy, the changing daisy and the clusters. In the first, the servers of all groups die in turn."""
    for name in ("daisy", "changing", "clusters"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return [
        await run_daisy(directory / "daisy", VICTIMS, progress=progress),
        await run_changing(directory / "changing", progress=progress),
        await run_clusters(directory / "clusters", rate=5 * RATE, deliveries=8 * BEFORE, progress=progress),
    ]
