"""Where a check takes place: one broker, logs that are closed afterwards, chance that can be repeated, and patience."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import TypeVar

from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import BEGINNING, Entry, Log, LogSettings, Position, State, TooMany, Unavailable
from isthmus.runtime.log.trial import Trial

SLOWNESS = float(os.environ.get("ISTHMUS_PATIENCE", "1"))
"""How many times as long things may take as on a quick machine with nothing else to do."""
LIMIT = 120 * SLOWNESS
"""Seconds that one check may take."""
LONG_LEASE = 600.0

MANY, MUCH = 1000, 1 << 20
"""Entries and bytes of a slice where a check does not care."""

FAR = "far/clients"
"""The origin of what checks bring in."""

Result = TypeVar("Result")


class Broken(Exception):
    """A promise is not kept. The text says what was seen."""


def expect(condition: object, words: str) -> None:
    if not condition:
        raise Broken(words)


class Room:
    """What one check has at hand. `fresh`, `write` and `contents` are the trial's."""

    def __init__(self, trial: Trial, seed: str) -> None:
        self.trial = trial
        self.random = Random(seed)
        self._open: list[Log] = []
        self._killed = self._paused = False

    async def fresh(self) -> LogSettings:
        return await self.trial.fresh()

    async def open(self, settings: LogSettings) -> Log:
        """An adapter, open."""
        log = self.trial.make(settings)
        self._open.append(log)
        await self.insist(log.open)
        return log

    async def hold(self, settings: LogSettings, lease: float = LONG_LEASE) -> tuple[Log, State]:
        """An adapter that holds the claim."""
        log = await self.open(settings)
        return log, await self.claim(log, lease)

    async def claim(self, log: Log, lease: float = LONG_LEASE) -> State:
        """Ask for the claim until it is given."""
        while True:
            state = await self.insist(log.claim, "conformance", lease)
            if state is not None:
                return state
            await asyncio.sleep(0.02)

    async def insist(self, call: Callable[..., Awaitable[Result]], *arguments: object) -> Result:
        """Call until the broker is available, as the caller of an adapter does."""
        while True:
            try:
                return await call(*arguments)
            except Unavailable:
                await asyncio.sleep(0.05)

    async def read(
        self, log: Log, count: int, after: Position = BEGINNING, entries: int = MANY, size: int = MUCH
    ) -> tuple[list[Entry], Position]:
        """So many entries behind a place, by as many slices as it takes, and the place behind the last slice."""
        found: list[Entry] = []
        silent = 0
        while len(found) < count:
            some, after = await self.insist(log.read, after, entries, size)
            found += some
            silent = 0 if some else silent + 1
            expect(silent < 5, f"{len(found):,} of {count:,} entries were read, and then nothing came five times")
        return found, after

    async def write(self, settings: LogSettings, *bodies: bytes) -> None:
        """As a plain client that knows bodies only."""
        await self.trial.write(settings, [Content(body) for body in bodies])

    async def append(self, log: Log, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        """In as many parts as the broker makes necessary, each with a record of its own."""
        most = len(entries)
        while entries:
            part = entries[:most]
            after = record if len(part) == len(entries) else b"%b less %d" % (record, len(entries) - most)
            try:
                await log.append(part, after, expected)
            except TooMany as too_many:
                expect(0 < too_many.most < len(part), f"{len(part)} entries are too many, and {too_many.most} are not")
                most = too_many.most
                continue
            entries, expected = entries[most:], after

    # What happens to the broker

    async def kill(self) -> None:
        self._killed = True
        await self.trial.kill()

    async def restart(self) -> None:
        await self.trial.restart()
        self._killed = False

    async def pause(self) -> None:
        await self.trial.pause()
        self._paused = True

    async def go_on(self) -> None:
        await self.trial.go_on()
        self._paused = False

    async def leave(self) -> None:
        """Let go of everything, and have the broker run for the next check."""
        if self._paused:
            await self.go_on()
        if self._killed:
            await self.restart()
        for log in self._open:
            with suppress(Exception):
                await asyncio.wait_for(log.close(), LIMIT)


def foreign(first: int, last: int, size: int = 0) -> list[Entry]:
    """Entries with these numbers, as they come in from another system."""
    return [Entry(Content(b"%d" % seq + b"." * size), FAR, seq, "far") for seq in range(first, last + 1)]


def expect_once_in_order(entries: Sequence[Entry], last: int, origin: str = FAR) -> None:
    """Of an origin, everything from 1 to `last` stands there, once and in order."""
    seen = [entry.seq for entry in entries if entry.origin == origin]
    if seen == list(range(1, last + 1)):
        return
    twice = len(seen) - len(set(seen))
    lost = len(set(range(1, last + 1)) - set(seen))
    beyond = sum(seq > last for seq in set(seen))
    early = next((f"; {b} stands behind {a}" for a, b in pairwise(seen) if b != a + 1), "")
    raise Broken(f"of {last:,} entries {lost:,} are lost, {twice:,} stand there twice, {beyond:,} too many{early}")


def bodies(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.content.body for entry in entries]


def expect_same(what: str, seen: Sequence[bytes], wanted: Sequence[bytes]) -> None:
    """These bodies are those, in their order."""
    if list(seen) == list(wanted):
        return
    if len(seen) != len(wanted):
        raise Broken(f"{what}: {len(seen):,} entries instead of {len(wanted):,}")
    index = next(index for index, (one, other) in enumerate(zip(seen, wanted, strict=True)) if one != other)
    raise Broken(f"{what}: entry {index + 1} is {seen[index][:40]!r} instead of {wanted[index][:40]!r}")
