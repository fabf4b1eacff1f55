"""Members of one system in OS processes of their own, and what each has said so far."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runtime_support import PATIENCE, soon

import isthmus
from isthmus.adapters.embedded import spawn
from isthmus.runtime.systems.spec import SystemSpec

NAMES = ["p1", "p2", "p3", "p4"]
HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(Path(isthmus.__file__).parents[1])])}


class Child:
    """One member in an OS process, and what it has said so far."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, news: asyncio.Condition) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.sent = -1
        self.over = False
        self._news = news
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode().strip()
            words = text.split()
            if words[0] == "delivered":
                self.delivered[words[1]] = int(words[2])
            elif words[0] == "sent":
                self.sent = int(words[1])
            self.lines.append(text)
            await self._tell()
        self.over = True
        await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def ended(self) -> int:
        code = await soon(self.process.wait())
        await soon(self._reading)
        return code

    async def errors(self) -> str:
        assert self.process.stderr is not None
        return (await soon(self.process.stderr.read())).decode()


class Children:
    def __init__(self, spec: SystemSpec) -> None:
        self.spec = spec
        self.children: list[Child] = []
        self._news = asyncio.Condition()

    async def start(
        self,
        name: str,
        application: str,
        listener: socket.socket | None = None,
        *,
        spec: SystemSpec | None = None,
        **options: Any,
    ) -> Child:
        """Start one. It knows the system as all others do, unless there is a `spec` of its own."""
        process = await spawn(
            spec or self.spec,
            name,
            application and f"child_applications:{application}",
            listener,
            env=ENVIRONMENT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            **options,
        )
        child = Child(name, process, self._news)
        self.children.append(child)
        return child

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that only what a child says, or its end, can make true."""
        async with self._news, asyncio.timeout(PATIENCE):
            await self._news.wait_for(condition)


@asynccontextmanager
async def children(spec: SystemSpec) -> AsyncIterator[Children]:
    group = Children(spec)
    try:
        yield group
    finally:
        for child in group.children:
            if child.process.returncode is None:
                child.process.kill()
            await child.ended()
