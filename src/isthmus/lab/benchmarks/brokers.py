"""What a join of two brokers carries, beside what people use and beside a bare reader and appender.

Every figure is of a source broker that is full already: how many entries a second arrive at the far one, from the first
tenth of them to the last. All of it runs on real servers with the same settings, in one go on one machine, over plain
loopback or emulated lines with a rate for each connection. After each run of the join the contents are compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from isthmus.core.ids import MILLISECOND
from isthmus.lab.benchmarks.brokers_child import Orders
from isthmus.lab.brokers.joined import WAIT, Broker, JoinedBrokers
from isthmus.lab.brokers.plain import STREAM
from isthmus.lab.harness.os_process import ChildFailed, OsProcess, Ports
from isthmus.lab.harness.sites import Lines, LinkQuality
from isthmus.runtime.log.interface import LogSettings

NEAR, FAR = "madrid", "oslo"
DELAY = 25 * MILLISECOND
RATES: tuple[int | None, ...] = (None, 20_000_000, 100_000_000)
"""Bits per second of each connection; none: plain loopback."""
SIZES = (100, 1024)
LINKS = (1, 4, 8)
SECONDS = 2.5
"""About how long each run takes."""
_AROUND = 60
"""Bytes around a body on a line, roughly: only for how many entries to try."""
_QUICKEST = 40_000.0
_LOOK_EVERY = 0.02

Way: TypeAlias = Literal["join", "bare", "copier"]


class Carried(Struct, frozen=True):
    """Entries per second from broker to broker. `cpu` are microseconds per entry: of each process that carries."""

    kind: str
    rate: int | None
    size: int
    way: Way
    links: int
    per_second: float
    cpu: tuple[float, ...]
    sound: bool | None = None


class Case(Struct, frozen=True):
    """`far` is the kind of the far broker, where it is another one."""

    kind: str
    rate: int | None
    size: int
    far: str = ""

    @property
    def line(self) -> LinkQuality | None:
        return None if self.rate is None else LinkQuality(DELAY, self.rate)

    def entries(self, links: int, seconds: float) -> int:
        quickest = _QUICKEST if self.size < 1000 else _QUICKEST / 2
        carried = quickest if self.rate is None else self.rate * links / 8 / (self.size + _AROUND)
        return int(min(carried, quickest) * seconds)


def cases(kinds: tuple[str, ...], *, short: bool) -> list[Case]:
    sizes, rates = (SIZES[:1], RATES[:2]) if short else (SIZES, RATES)
    return [Case(kind, rate, size) for kind in kinds for rate in rates for size in sizes]


def runs(case: Case, *, short: bool) -> list[tuple[Way, int]]:
    copier: list[tuple[Way, int]] = [("copier", 1)] if case.kind in ("valkey", "redis") else []
    links = (1, 4) if short else LINKS
    return [("bare", 1), *copier, *(("join", each) for each in links)]


def measure(kinds: tuple[str, ...], *, short: bool = False, seconds: float = SECONDS) -> Iterator[Carried]:
    for case in cases(kinds, short=short):
        for way, links in runs(case, short=short):
            with TemporaryDirectory(prefix="isthmus-bench-") as directory:
                yield asyncio.run(carry(Path(directory), case, way, links, seconds))


def count(kinds: tuple[str, ...], *, short: bool = False) -> int:
    return sum(len(runs(case, short=short)) for case in cases(kinds, short=short))


async def carry(directory: Path, case: Case, way: Way, links: int, seconds: float) -> Carried:
    """One run: a full broker, an empty one, and what carries from one to the other."""
    line = case.line if way == "join" else None
    kinds = {NEAR: case.kind, FAR: case.far or case.kind}
    entries = case.entries(links, seconds)
    async with JoinedBrokers(directory, kinds, links=links, line=line, trace=False, run="bench") as joined:
        await joined[NEAR].client.fill(entries, case.size)
        if way == "join":
            carrying: list[OsProcess] = [*(await joined.run_gateways()).values()]
            per_second, cpu = await _watched(joined[FAR], entries, carrying)
        else:
            async with _Beside(directory, case, way, joined) as carrying:
                per_second, cpu = await _watched(joined[FAR], entries, carrying)
        sound = None
        if way == "join":
            await joined.settled()
            sound = not joined.differences()
        return Carried(case.kind, case.rate, case.size, way, links, per_second, cpu, sound)


async def _watched(far: Broker, entries: int, carrying: list[OsProcess]) -> tuple[float, tuple[float, ...]]:
    """Entries per second, from when a tenth has arrived until all have; and what each process took of each, in µs."""
    first: tuple[float, int] | None = None
    before: list[float] = []
    give_up = time.monotonic() + WAIT
    while True:
        there, now = await far.client.count(), time.monotonic()
        if first is None and there >= entries / 10:
            first, before = (now, there), [each.cpu_seconds() for each in carrying]
        if first is not None and there >= entries:
            arrived = max(there - first[1], 1)
            cpu = (each.cpu_seconds() - earlier for each, earlier in zip(carrying, before, strict=True))
            return arrived / max(now - first[0], 1e-9), tuple(each * 1e6 / arrived for each in cpu)
        if now > give_up:
            raise ChildFailed(f"of {entries} entries {there} have arrived after {WAIT:g} s")
        for each in carrying:
            if not each.alive:
                raise each.failure()
        await asyncio.sleep(_LOOK_EVERY)


class _Beside:
    """The processes of a bare pair, or of a copier, and their line."""

    def __init__(self, directory: Path, case: Case, way: Way, joined: JoinedBrokers) -> None:
        self._directory = directory
        self._case = case
        self._way = way
        self._joined = joined
        self._ports = Ports()
        self._lines: Lines | None = None
        self._processes: list[OsProcess] = []

    async def __aenter__(self) -> list[OsProcess]:
        near, far = self._joined[NEAR], self._joined[FAR]
        port = far.server.port if self._way == "copier" else self._ports.take(1)
        dial = port
        if self._case.line is not None:
            dial = self._ports.take(1)
            self._lines = Lines(self._case.line, [(dial, port)], self._directory / "beside.wan.log")
            await self._lines.start()
        if self._way == "copier":
            orders = [Orders(does="copy", port=dial, source=near.server.port, stream=STREAM)]
        else:
            orders = [
                Orders(does="read", port=dial, settings=_settings(near)),
                Orders(does="append", port=port, settings=_settings(far)),
            ]
        for order in orders:
            command = ("isthmus.lab.benchmarks.brokers_child", msgspec.json.encode(order).decode())
            self._processes.append(OsProcess(order.does, command, self._directory / f"{order.does}.log"))
            await self._processes[-1].start()
        return self._processes

    async def __aexit__(self, *_: object) -> None:
        for each in self._processes:
            await each.kill()
        if self._lines is not None:
            await self._lines.kill()
        self._ports.release()


def _settings(broker: Broker) -> LogSettings:
    return LogSettings(
        system=broker.name,
        provider=broker.kind.provider,
        url=broker.server.url,
        streams=(STREAM,),
        state=f"bare-{broker.name}",
    )


def beside(carried: Carried, figures: list[Carried], way: Way) -> float:
    """How the join compares with another way over the same lines; 0 where there is none."""
    same = [each for each in figures if (each.kind, each.rate, each.size) == (carried.kind, carried.rate, carried.size)]
    beside = [each.per_second for each in same if each.way == way]
    return carried.per_second / max(beside) if beside else 0.0
