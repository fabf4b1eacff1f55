"""One system of any kind, its processes dealt to OS processes: started, watched by its traces, killed, told to end.

    async with SpreadSystem(directory, "daisy", describe, [("a1",), ("a2", "a3")], rate=10) as daisy:
        await daisy.delivered(25)
        await daisy.kill("a1")
        await daisy.excluded("a1", ["a2", "a3"])
        await daisy.stop()

Each OS process is `isthmus run`, in which everybody sends at a rate and answers what it gets. It writes every row of
its traces before anybody can know of it (`--trace-sync`), so they say at any time how far each process is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from isthmus.core.ids import Nanos
from isthmus.lab.harness.deaths import certify_death
from isthmus.lab.harness.os_process import LOOK_EVERY, ChildFailed, OsProcess, Ports

SYSTEM = "shop"
PATIENCE = 60.0
"""Seconds after which whoever is waited for counts as stuck; none of it takes that long on a free machine."""


class SpreadSystem:
    """An asynchronous context that leaves no OS process behind.

    `describe` gives the topology file on ports from a first one on; its system is called `SYSTEM`. `shares` are the
    processes of each OS process that there is from the start, `late` those of the ones that come later.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        describe: Callable[[int], str],
        shares: Sequence[Sequence[str]],
        rate: float,
        late: Sequence[Sequence[str]] = (),
    ) -> None:
        self.run = run
        self.trace = directory / "trace"
        self.file = directory / f"{run}.toml"
        self.shares = [tuple(share) for share in shares]
        self._late = [tuple(share) for share in late]
        self._rate = rate
        self._describe = describe
        self._ports = Ports()
        self._children: dict[tuple[str, ...], OsProcess] = {}

    async def __aenter__(self) -> Self:
        ports = self._ports.take(sum(map(len, (*self.shares, *self._late))))
        self.file.write_text(self._describe(ports), encoding="utf-8")
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
        command = ["isthmus", "run", str(self.file), "--site", SYSTEM, "--run", self.run, "--trace", str(self.trace)]
        command += ["--trace-sync", "--rate", f"{self._rate:g}", "-o", "json"]
        for process in share:
            command += ["--process", process]
        name = f"the OS process of {', '.join(share)}"
        child = OsProcess(name, tuple(command), log=self.file.with_suffix(f".{share[0]}.log"))
        await child.start()
        self._children[share] = child

    async def start_late(self) -> None:
        """Have those come who were not there at first."""
        for share in self._late:
            await self._start(share)
        self.shares += self._late

    async def kill(self, victim: str) -> Nanos:
        """SIGKILL for the OS process of this one, and the end of its log. Returns when it was."""
        child = self._children.pop((victim,))
        at = time.time_ns()
        await child.kill()
        certify_death(self.trace, self.run, SYSTEM, victim, time.time_ns())
        return at

    async def stop(self) -> list[Any]:
        """Have all end in good order. Returns what each has to say."""
        said = await asyncio.gather(*(child.terminate(2 * PATIENCE) for child in self._children.values()))
        return [msgspec.json.decode(each) for each in said]

    async def _end(self) -> None:
        for child in self._children.values():
            await child.kill()
        self._ports.release()

    # What the traces say so far

    async def delivered(self, more: int) -> None:
        """Wait until every live process has delivered so many more messages than now."""
        wanted = {process: self._deliveries(process) + more for process in self._living()}
        await self._until(
            lambda: [process for process in self._living() if self._deliveries(process) < wanted[process]],
            f"have not delivered {more} more messages",
        )

    async def excluded(self, victim: str, mates: Sequence[str]) -> None:
        """Wait until each of these processes has a view without the victim."""
        await self._until(
            lambda: [mate for mate in mates if all(victim in view for view in self._views(mate))],
            f"have no view without {victim}",
        )

    async def regrouped(self, sizes: Sequence[int]) -> None:
        """Wait until all live processes are in local groups of these sizes."""
        living = self._living()

        def lagging() -> list[str]:
            groups = {frozenset(views[-1]) if (views := self._views(each)) else frozenset() for each in living}
            regrouped = sorted(map(len, groups)) == sorted(sizes) and all(group <= set(living) for group in groups)
            return [] if regrouped else living

        await self._until(lagging, f"are not in groups of {' and '.join(map(str, sizes))}")

    async def _until(self, lagging: Callable[[], list[str]], what: str) -> None:
        """Wait until nobody lags behind any more."""
        deadline = time.monotonic() + PATIENCE
        while late := lagging():
            if time.monotonic() > deadline:
                raise ChildFailed(f"{', '.join(late)} {what} within {PATIENCE:g} s")
            for child in self._children.values():
                if not child.alive:
                    raise child.failure()
            await asyncio.sleep(LOOK_EVERY)

    def _living(self) -> list[str]:
        return [process for share in self._children for process in share]

    def _deliveries(self, process: str) -> int:
        return len(self._rows(process, "deliver"))

    def _views(self, process: str) -> list[list[str]]:
        """The members of each view of a process."""
        views = [msgspec.json.decode(row)["destinations"] for row in self._rows(process, "view")]
        return [[name.partition("/")[2] for name in members] for members in views]

    def _rows(self, process: str, event: str) -> list[bytes]:
        """The rows of one kind in the log of a process; the last row of the log may be half written."""
        log = self.trace / f"{self.run}.{SYSTEM}.{process}.jsonl"
        kind = f'"event":"{event}"'.encode()
        rows = log.read_bytes().splitlines() if log.exists() else []
        return [row for row in rows if kind in row and row.endswith(b"}")]
