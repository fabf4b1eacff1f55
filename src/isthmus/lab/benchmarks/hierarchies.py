"""Daisies and a system of clusters as real OS processes, under load; in the daisies, servers are killed with `kill -9`.

Each OS process is `isthmus run` with some of the processes of one system; a server that is to be killed has one to
itself. Everybody sends all the time and answers what it gets, so that there are chains of causes through all groups. In
the end all are told to stop, see everything through, and the oracles read the traces. A process that was killed has
written every row before anybody could know of it (`--trace-sync`), and whoever killed it ends its log.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from isthmus.core.ids import Nanos
from isthmus.hierarchy.daisy.generation import VIEWS
from isthmus.lab.harness.deaths import certify_death
from isthmus.lab.harness.joined_sites import ENVIRONMENT, ChildFailed, Ports
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.simulator.run import promised
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event, Report

SYSTEM = "shop"
HEARTBEAT, SUSPECT_AFTER = "50ms", "2s"
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
LOOK_EVERY = 0.1
PATIENCE = 60.0
"""Seconds after which whoever is waited for counts as stuck; none of it takes that long on a free machine."""


class Kill(Struct, frozen=True):
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


class Outcome(Struct, frozen=True):
    """One run, and what its traces say. `header` is the mean of `control_bytes` over all deliveries from others."""

    system: str
    processes: int
    os_processes: int
    messages: int
    deliveries: int
    seconds: float
    header: float
    kills: tuple[Kill, ...]
    report: Report
    trace: str
    changes: tuple[Change, ...] = ()


def daisy_file(port: int) -> str:
    everybody = [process for group in GROUPS.values() for process in group]
    times = f'heartbeat = "{HEARTBEAT}"\nsuspect-after = "{SUSPECT_AFTER}"\n'
    return _head(everybody, port, times) + "".join(
        f"[systems.{SYSTEM}.daisy.parts.{name}]\nprocesses = {_list(group)}\n\n" for name, group in GROUPS.items()
    )


def changing_file(port: int) -> str:
    """Groups of four to seven: the founders are one at first, and two with those who come later."""
    times = f'heartbeat = "{HEARTBEAT}"\nsuspect-after = "{SUSPECT_AFTER}"\nstandby = {_list(NEWCOMERS)}\n'
    return _head((*FOUNDERS, *NEWCOMERS), port, times) + f"[systems.{SYSTEM}.daisy]\nsplit-above = 7\nmerge-below = 4\n"


def clusters_file(port: int) -> str:
    """RST at the top and at the bottom, a coordinator in the middle."""
    table = f"[systems.{SYSTEM}.clusters"
    text = f'{table}]\ndelivery = "rst"\n\n'
    everybody: list[str] = []
    for half, parts in CLUSTERS.items():
        text += f'{table}.parts.{half}]\ndelivery = "coordinator"\n\n'
        for name, members in parts.items():
            everybody += members
            text += f'{table}.parts.{half}.parts.{name}]\ndelivery = "rst"\nprocesses = {_list(members)}\n\n'
    return _head(everybody, port) + text


def _head(processes: Sequence[str], port: int, times: str = "") -> str:
    return (
        f'[systems.{SYSTEM}]\nkind = "embedded"\norder = "causal"\n{times}'
        f'address = "{LOOPBACK}:{port}"\nprocesses = {_list(processes)}\n\n'
    )


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


class Spread:
    """One system, its processes dealt to OS processes; as an asynchronous context that leaves none behind."""

    def __init__(
        self,
        directory: Path,
        run: str,
        text: Callable[[int], str],
        shares: Sequence[Sequence[str]],
        rate: float,
        late: Sequence[Sequence[str]] = (),
    ) -> None:
        self.run = run
        self.rate = rate
        self.trace = directory / "trace"
        self.shares = [tuple(share) for share in shares]
        self.late = [tuple(share) for share in late]
        self._file = directory / f"{run}.toml"
        self._text = text
        self._ports = Ports()
        self._children: dict[tuple[str, ...], asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        ports = self._ports.take(sum(map(len, (*self.shares, *self.late))))
        self._file.write_text(self._text(ports), encoding="utf-8")
        try:
            for share in self.shares:
                await self._start(share)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _start(self, share: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "isthmus", "run", str(self._file), "--site", SYSTEM, "--run", self.run]
        command += ["--trace", str(self.trace), "--trace-sync", "--rate", f"{self.rate:g}", "-o", "json"]
        for process in share:
            command += ["--process", process]
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        with self._words(share).open("wb") as words:
            self._children[share] = await asyncio.create_subprocess_exec(
                *command, stdin=nothing, stdout=pipe, stderr=words, env=ENVIRONMENT
            )

    async def start_late(self) -> None:
        """Have those come who were not there at first."""
        for share in self.late:
            await self._start(share)
        self.shares += self.late

    def _words(self, share: tuple[str, ...]) -> Path:
        """What this OS process says to people."""
        return self._file.with_suffix(f".{share[0]}.log")

    def _failed(self, share: tuple[str, ...], code: int | None) -> ChildFailed:
        words = self._words(share).read_text(errors="replace").strip()[-500:]
        return ChildFailed(f"the OS process of {', '.join(share)} has ended with code {code}: {words}")

    async def delivered(self, more: int) -> None:
        """Wait until every live process has delivered so many more messages than now."""
        wanted = {path: count + more for path, count in self._counts().items()}
        await self._until(
            lambda: [path.stem for path, count in self._counts().items() if count < wanted[path]],
            f"have not delivered {more} more messages",
        )

    async def excluded(self, victim: str, mates: Sequence[str]) -> None:
        """Wait until each of these processes has a view without the victim."""
        name = f'"{SYSTEM}/{victim}"'.encode()

        def has_noticed(mate: str) -> bool:
            rows = self._log(mate).read_bytes().splitlines()
            return any(b'"event":"view"' in row and name not in row for row in rows)

        await self._until(lambda: [mate for mate in mates if not has_noticed(mate)], f"have no view without {victim}")

    async def regrouped(self, sizes: Sequence[int]) -> None:
        """Wait until all live processes are in local groups of these sizes."""
        living = [process for share in self._children for process in share]

        def lagging() -> list[str]:
            latest = {each: _latest_group(self._log(each)) for each in living}
            found = sorted(len(group) for group in set(latest.values()))
            together = all(set(group) <= set(living) for group in latest.values())
            return [] if together and found == sorted(sizes) else living

        await self._until(lagging, f"are not in groups of {' and '.join(map(str, sizes))}")

    async def _until(self, lagging: Callable[[], list[str]], what: str) -> None:
        """Wait until nobody lags behind any more."""
        deadline = time.monotonic() + PATIENCE
        while late := lagging():
            if time.monotonic() > deadline:
                raise ChildFailed(f"{', '.join(late)} {what} within {PATIENCE:g} s")
            for share, child in self._children.items():
                if child.returncode is not None:
                    raise self._failed(share, child.returncode)
            await asyncio.sleep(LOOK_EVERY)

    async def kill(self, victim: str) -> Nanos:
        """SIGKILL for the OS process of this one, and the end of its log. Returns when it was."""
        child = self._children.pop((victim,))
        at = time.time_ns()
        child.kill()
        await asyncio.wait_for(child.wait(), PATIENCE)
        certify_death(self.trace, self.run, SYSTEM, victim, time.time_ns())
        return at

    async def stop(self) -> list[Any]:
        """Have all end in good order. Returns what each has to say."""
        for child in self._children.values():
            child.send_signal(signal.SIGTERM)
        said = []
        for share, child in self._children.items():
            printed, _ = await asyncio.wait_for(child.communicate(), 2 * PATIENCE)
            if child.returncode:
                raise self._failed(share, child.returncode)
            said.append(msgspec.json.decode(printed))
        return said

    def _log(self, process: str) -> Path:
        return self.trace / f"{self.run}.{SYSTEM}.{process}.jsonl"

    def _counts(self) -> dict[Path, int]:
        logs = [self._log(process) for share in self._children for process in share]
        return {path: path.read_bytes().count(b'"event":"deliver"') if path.exists() else 0 for path in logs}

    async def _end(self) -> None:
        for child in self._children.values():
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await asyncio.wait_for(child.wait(), PATIENCE)
        self._ports.release()

    def outcome(self, seconds: float, kills: Sequence[tuple[str, Nanos]] = ()) -> Outcome:
        events = list(read_trace([self.trace]).events())
        headers = [
            row.control_bytes or 0 for row in events if row.event == "deliver" and row.origin_process != row.process
        ]
        return Outcome(
            system=self.run,
            processes=sum(map(len, self.shares)),
            os_processes=len(self.shares),
            messages=sum(row.event == "send" for row in events),
            deliveries=sum(row.event == "deliver" for row in events),
            seconds=seconds,
            header=sum(headers) / max(1, len(headers)),
            kills=tuple(_timed(events, victim, at) for victim, at in kills),
            report=judge(events, promised(load(self._file))),
            trace=str(self.trace),
            changes=tuple(_changes(events)),
        )


def _latest_group(log: Path) -> tuple[str, ...]:
    """The members of the latest view in the log of a process; nobody, if there is none."""
    rows = log.read_bytes().splitlines() if log.exists() else []
    views = [row for row in rows if b'"event":"view"' in row and row.endswith(b"}")]
    if not views:
        return ()
    return tuple(name.partition("/")[2] for name in msgspec.json.decode(views[-1])["destinations"])


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


def _timed(events: Sequence[Event], victim: str, at: Nanos) -> Kill:
    """Whoever relays after the first view without the victim is the next server: that is when things flow again."""
    group = next(name for name, members in GROUPS.items() if victim in members)
    noticed = min(
        row.time_ns
        for row in events
        if row.event == "view" and row.time_ns > at and row.process in GROUPS[group] and _without(row, victim)
    )
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
    return Kill(victim, noticed - at, max(inward, outward) - at)


def _without(row: Event, victim: str) -> bool:
    return f"{SYSTEM}/{victim}" not in (row.destinations or ())


async def run_daisy(
    directory: Path,
    victims: Sequence[str],
    together: Sequence[str] = tuple(GROUPS),
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """A daisy of three groups of four, whose servers are killed one after the other.

    `together` says which groups share an OS process: "ab" are one, "c" another.
    """
    rest = [[each for name in names for each in GROUPS[name] if each not in victims] for names in together]
    shares = [*((victim,) for victim in victims), *rest]
    kills: list[tuple[str, Nanos]] = []
    async with Spread(directory, "daisy", daisy_file, shares, rate) as daisy:
        await daisy.delivered(deliveries)
        started = time.perf_counter()
        for victim in victims:
            kills.append((victim, await daisy.kill(victim)))
            mates = [each for each in GROUPS[victim[0]] if each not in dict(kills)]
            await daisy.excluded(victim, mates)
            await daisy.delivered(deliveries)
            progress()
        seconds = time.perf_counter() - started
        await daisy.stop()
    return daisy.outcome(seconds, kills)


async def run_changing(
    directory: Path,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """A daisy of one group that splits when others have come, and merges when its topmost server is killed."""
    victim, *rest = FOUNDERS
    async with Spread(directory, "changing", changing_file, [(victim,), rest], rate, [NEWCOMERS]) as daisy:
        await daisy.delivered(deliveries)
        started = time.perf_counter()
        await daisy.start_late()
        await daisy.regrouped((4, 5))
        await daisy.delivered(deliveries)
        progress()
        await daisy.kill(victim)
        # The group of four takes one of the other's five, if it was its own that died.
        await daisy.regrouped((4, 4))
        await daisy.delivered(deliveries)
        progress()
        seconds = time.perf_counter() - started
        await daisy.stop()
    return daisy.outcome(seconds)


async def run_clusters(
    directory: Path,
    *,
    rate: float = RATE,
    deliveries: int = BEFORE,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """Three layers of clusters in three OS processes, of which two share a cluster at the bottom."""
    bottom = [members for half in CLUSTERS.values() for members in half.values()]
    first, second, third, fourth = bottom
    shares = [(*first, second[0]), (*second[1:], *third), fourth]
    async with Spread(directory, "clusters", clusters_file, shares, rate) as clusters:
        started = time.perf_counter()
        await clusters.delivered(deliveries)
        progress()
        seconds = time.perf_counter() - started
        await clusters.stop()
    return clusters.outcome(seconds)


async def measure(directory: Path, progress: Callable[[], None]) -> list[Outcome]:
    """All three. In the first daisy the servers of all three groups die, one after the other."""
    for name in ("daisy", "changing", "clusters"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return [
        await run_daisy(directory / "daisy", VICTIMS, progress=progress),
        await run_changing(directory / "changing", progress=progress),
        await run_clusters(directory / "clusters", rate=5 * RATE, deliveries=8 * BEFORE, progress=progress),
    ]
