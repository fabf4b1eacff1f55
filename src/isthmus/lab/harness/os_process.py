"""OS processes that run isthmus, and ports for them: started, told, heard, killed, and never left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import isthmus
from isthmus.runtime.transport.address import LOOPBACK

SLOWNESS = float(os.environ.get("ISTHMUS_PATIENCE", "1"))
"""How many times as long things may take as on a quick machine with nothing else to do; tests measure it."""
PATIENCE = 30.0 * SLOWNESS
"""Seconds after which a child that does not answer counts as stuck."""


def silence(milliseconds: int) -> str:
    """How long somebody is silent before it is suspected, as a topology file says it: longer on a slow machine, where
    a live process may not get its turn, but not so long that nothing would be noticed in a test."""
    return f"{round(milliseconds * min(SLOWNESS, 6))}ms"


LOOK_EVERY = 0.1
"""Seconds between two looks at what other processes have done."""

_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever calls somebody."""
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(isthmus.__file__).parents[1])}
_LONGEST_ANSWER = 1 << 26


class ChildFailed(Exception):
    """A child has ended, or said no, or nothing, where an answer was due."""


class OsProcess:
    """`python -m` with some command. What it says to people goes to `log`, or, without one, where ours goes."""

    def __init__(self, name: str, command: tuple[str, ...], log: Path | None = None) -> None:
        self.name = name
        self._command = command
        self.killed = False
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.killed = False
        pipe = asyncio.subprocess.PIPE
        with (self._log or Path(os.devnull)).open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self._command),
                stdin=pipe,
                stdout=pipe,
                stderr=None if self._log is None else log,
                env=_ENVIRONMENT,
                limit=_LONGEST_ANSWER,
            )

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def read_line(self) -> bytes:
        """The next line that it says to programs; nothing when it has ended."""
        assert self.process.stdout is not None
        return await self.process.stdout.readline()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.killed = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                if self._process.returncode is None:
                    self._process.kill()
            await asyncio.wait_for(self._process.wait(), PATIENCE)

    def failure(self) -> ChildFailed:
        """That it has ended, with its last words."""
        words = "" if self._log is None else self._log.read_text(errors="replace")[-500:].strip()
        return ChildFailed(f"{self.name} has ended with code {self.process.returncode}: {words}")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Ports:
    """Ports in a row on loopback that nobody else gets while we hold them; whoever we tell can listen on them.

    A bound socket that does not listen keeps the kernel and other users of this class away. It lets itself be joined
    only by sockets that ask for it (`SO_REUSEADDR`), and that is set after binding, so that our own bind finds out
    whether the port is free.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, count: int) -> int:
        """The first of `count` ports in a row."""
        random = Random()
        for _ in range(200):
            first = random.randrange(_PORTS.start, _PORTS.stop - count)
            row: list[socket.socket] = []
            try:
                for port in range(first, first + count):
                    row.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                    row[-1].bind((LOOPBACK, port))
            except OSError:
                for each in row:
                    each.close()
                continue
            for each in row:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held += row
            return first
        raise ChildFailed(f"there are no {count} free ports in a row on {LOOPBACK}")

    def release(self) -> None:
        for each in self._held:
            each.close()
        self._held.clear()
