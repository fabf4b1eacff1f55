"""Two joined sites as real OS processes, with an emulated WAN between them: started, fed, asked, killed, restarted.

    layout = Layout(links=4, line=Line(delay=25 * MILLISECOND, rate=20_000_000))
    async with JoinedSites(layout, directory, apart=["madrid/g2"]) as sites:
        await sites["madrid"].send("p1", size=1024, count=5000)
        await sites["madrid/g2"].kill()
        await sites["madrid"].stable()

Every child is `site_process` in an OS process of its own, with one or more members of one site; by default one child
runs a whole site. The lines are `isthmus wan` in another one, so that the emulation takes no time from anybody. All of
them are ended, by their process ids, when the block is left, whatever happened in it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Struct

import isthmus
from isthmus.core.ids import Nanos
from isthmus.core.units import format_duration, format_rate
from isthmus.lab.harness.site_process import (
    Answer,
    Assignment,
    Close,
    Figures,
    Numbered,
    Order,
    Quiet,
    Send,
    Stable,
    Tell,
)
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.topology.file import load
from isthmus.topology.wiring import all_links

NEAR = "madrid"
FAR = "valencia"
PATIENCE = 30.0
"""Seconds after which a child that does not answer counts as stuck."""

_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever calls somebody."""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(isthmus.__file__).parents[1])}
_LONGEST_ANSWER = 1 << 26

Value = TypeVar("Value")


class Line(Struct, frozen=True):
    """What each link between the sites is like: delay one way, bits per second each way."""

    delay: Nanos
    rate: int | None = None

    def __str__(self) -> str:
        rate = f", {format_rate(self.rate)}/s per link" if self.rate else ""
        return f"{format_duration(2 * self.delay)} round trip{rate}"


class Layout(Struct, frozen=True, kw_only=True):
    """Two joined sites. Without a `line`, links are plain loopback. `processes` and `gateways` are (near, far)."""

    processes: tuple[int, int] = (2, 2)
    gateways: tuple[int, int] = (2, 2)
    links: int = 2
    assign: Literal["striped", "transfer-sets"] = "striped"
    order: Literal["fifo", "causal"] = "causal"
    line: Line | None = None

    def members(self, site: str) -> tuple[list[str], list[str]]:
        """The names of a site's processes and of its gateways."""
        side = (NEAR, FAR).index(site)
        processes = [f"p{number}" for number in range(1, self.processes[side] + 1)]
        return processes, [f"g{number}" for number in range(1, self.gateways[side] + 1)]


class ChildFailed(Exception):
    """A child has ended, or said no, or nothing, where an answer was due."""


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


class Child:
    """One OS process with members of one site. `lives` counts how often its members have been started anew."""

    def __init__(self, name: str, assignment: Assignment) -> None:
        self.name = name
        self.assignment = assignment
        self.lives = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0

    # Life and death.

    async def start(self) -> None:
        """Start it. `running` says when its members run: members of one site wait for one another."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus.lab.harness.site_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=ENVIRONMENT,
            limit=_LONGEST_ANSWER,
        )
        self._number = 0
        self._answers = {0: asyncio.get_running_loop().create_future()}
        self._reading = asyncio.ensure_future(self._read(self._process))
        self._write(self.assignment)

    async def running(self) -> None:
        await self._answer(0)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                if self._process.returncode is None:
                    self._process.kill()
            async with asyncio.timeout(PATIENCE):
                await self._process.wait()
                if self._reading is not None:
                    await asyncio.wait((self._reading,))

    async def restart(self) -> None:
        """Its members come back as new processes, which join those of their site that live."""
        await self.kill()
        self.lives += 1
        members = tuple(f"{name.partition('+')[0]}+{self.lives}" for name in self.assignment.members)
        self.assignment = msgspec.structs.replace(self.assignment, members=members, joining=True)
        await self.start()
        await self.running()

    # Orders.

    async def send(self, process: str, *, size: int = 100, rate: float | None = None, count: int | None = None) -> None:
        """Have a process begin to send."""
        await self.ask(Send(process, size, rate, count))

    async def quiet(self) -> dict[str, int]:
        """End all sending. Returns how many messages were accepted of each process."""
        return msgspec.convert(await self.ask(Quiet()), dict[str, int])

    async def figures(self, *, measure: bool = False, flow: bool = False) -> Figures:
        """How things stand. Delays are measured from one call that says `measure` to the next call."""
        return msgspec.convert(await self.ask(Tell(measure, flow)), Figures, str_keys=True)

    async def stable(self, within: float = PATIENCE) -> None:
        """Wait until everything that was accepted here is stable in every system."""
        await self.ask(Stable(), within)

    async def close(self) -> None:
        """End in good order."""
        await self.ask(Close())
        if self._process is not None:
            await asyncio.wait_for(self._process.wait(), PATIENCE)

    async def ask(self, order: Order, within: float = PATIENCE) -> Any:
        """Give an order and wait for the answer."""
        self._number += 1
        number = self._number
        self._answers[number] = asyncio.get_running_loop().create_future()
        self._write(Numbered(number, order))
        return await self._answer(number, within)

    async def _answer(self, number: int, within: float = PATIENCE) -> Any:
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._answers[number]), within)
        except TimeoutError:
            raise ChildFailed(f"{self.name} has not answered for {within:g} s") from None
        if answer.error:
            raise ChildFailed(f"{self.name}: {answer.error}")
        return answer.value

    def _write(self, value: Any) -> None:
        assert self._process is not None and self._process.stdin is not None, f"{self.name} was never started"
        self._process.stdin.write(msgspec.json.encode(value) + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            answer = msgspec.json.decode(line, type=Answer)
            waiting = self._answers.get(answer.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for number, waiting in self._answers.items():
            if not waiting.done():
                waiting.set_result(Answer(number, error="it has ended"))


class Lines:
    """`isthmus wan`: one emulated line per link, in an OS process of its own."""

    def __init__(self, line: Line, ends: Sequence[tuple[int, int]], log: Path) -> None:
        self._line = line
        self._ends = ends
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "isthmus", "wan", "--control", "--delay", format_duration(self._line.delay)]
        if self._line.rate is not None:
            command += ["--rate", format_rate(self._line.rate)]
        for here, there in self._ends:
            command += ["--line", f"{LOOPBACK}:{here}={LOOPBACK}:{there}"]
        pipe = asyncio.subprocess.PIPE
        with self._log.open("wb") as log:
            # It tells of every call that nobody takes, and while gateways are dead there are many.
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=log, env=ENVIRONMENT
            )
        for _ in self._ends:
            await self._said()

    async def order(self, command: str) -> None:
        """One command of `isthmus wan --control` for one line, such as `cut 0` or `mend 0`."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        await self._said()

    async def _said(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        if not await asyncio.wait_for(self._process.stdout.readline(), PATIENCE):
            raise ChildFailed(f"the WAN emulator has ended: {self._log.read_text(errors='replace')[-500:].strip()}")

    def cpu_seconds(self) -> float:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                if self._process.returncode is None:
                    self._process.kill()
            await asyncio.wait_for(self._process.communicate(), PATIENCE)


class Traffic(NamedTuple):
    """Two looks at one child, and what lies between them."""

    before: Figures
    after: Figures

    @property
    def seconds(self) -> float:
        return (self.after.at - self.before.at) / 1e9

    def imported_per_second(self, process: str) -> float:
        """Messages from other systems that a process delivered."""
        return (self.after.imported[process] - self.before.imported[process]) / self.seconds

    def bytes_per_link(self) -> dict[int, int]:
        """Bytes that went out, by link."""
        earlier = {each.link: each.bytes_out for each in self.before.links}
        return {each.link: each.bytes_out - earlier[each.link] for each in self.after.links}

    @property
    def cpu(self) -> float:
        """Share of a core that the child took."""
        return (self.after.cpu - self.before.cpu) / self.seconds


class JoinedSites:
    """Both sites and the lines between them, as an asynchronous context. Children are found by name.

    `apart` names members (`madrid/g1`) that get a child of their own, under that name; all others of a site run in the
    child that has the name of the site. `settings` are more fields of `SystemSpec`, for both sites.
    """

    def __init__(
        self,
        layout: Layout,
        directory: Path,
        *,
        run: str = "joined",
        apart: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.layout = layout
        self.run = run
        self.lines: Lines | None = None
        self.children: dict[str, Child] = {}
        self._directory = directory
        self._apart = apart
        self._settings = dict(settings or {})
        self._ports = Ports()

    def __getitem__(self, name: str) -> Child:
        return self.children[name]

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    async def close(self) -> None:
        """End everybody in good order, so that traces are complete."""
        await asyncio.gather(*(child.close() for child in self.children.values() if child.alive))

    def lines_cpu(self) -> float:
        """Seconds of processor time that the emulated lines have taken."""
        return 0.0 if self.lines is None else self.lines.cpu_seconds()

    async def linked(self, within: float = PATIENCE) -> None:
        """Wait until every link is up at both its ends."""

        async def all_up() -> bool:
            figures = [await child.figures() for child in self.children.values() if child.alive]
            return all(link.up for each in figures for link in each.links)

        async with asyncio.timeout(within):
            while not await all_up():  # noqa: ASYNC110 - the links are in other processes
                await asyncio.sleep(0.02)

    async def _start(self) -> None:
        file = self._directory / f"{self.run}.toml"
        file.write_text(self._topology(), encoding="utf-8")
        if self.lines is not None:
            await self.lines.start()
        for site in (NEAR, FAR):
            processes, gateways = self.layout.members(site)
            members = processes + gateways
            own = [name for name in members if f"{site}/{name}" in self._apart]
            together = tuple(name for name in members if name not in own)
            for name, here in [(site, together), *((f"{site}/{name}", (name,)) for name in own)]:
                if here:
                    assignment = Assignment(
                        topology=str(file), site=site, members=here, run=self.run, settings=self._settings
                    )
                    self.children[name] = Child(name, assignment)
        for child in self.children.values():
            await child.start()
        await asyncio.gather(*(child.running() for child in self.children.values()))

    def _topology(self) -> str:
        """The topology file, on ports that are ours until the end; and the lines that go with it."""
        layout = self.layout
        text = ""
        link_port = self._ports.take(layout.gateways[1])
        for site in (NEAR, FAR):
            processes, gateways = layout.members(site)
            names = ", ".join(f'"{name}"' for name in processes)
            text += f'[systems.{site}]\nkind = "embedded"\norder = "{layout.order}"\nprocesses = [{names}]\n'
            text += f"gateways = {len(gateways)}\n"
            text += f'address = "{LOOPBACK}:{self._ports.take(len(processes) + len(gateways))}"\n'
            text += f'link-address = "{LOOPBACK}:{link_port}"\n\n' if site == FAR else "\n"
        text += f'[[joins]]\nbetween = ["{NEAR}", "{FAR}"]\norder = "{layout.order}"\nlinks = {layout.links}\n'
        text += f'assign = "{layout.assign}"\n'
        if layout.line is not None:
            first = self._ports.take(layout.links)
            text += f'dial = "{LOOPBACK}:{first}"\n'
            file = self._directory / f"{self.run}.toml"
            file.write_text(text, encoding="utf-8")
            far = [link.far.process for link in all_links(load(file))]
            ends = [(first + index, link_port + int(gateway[1:]) - 1) for index, gateway in enumerate(far)]
            self.lines = Lines(layout.line, ends, self._directory / f"{self.run}.wan.log")
        return text

    async def _end(self) -> None:
        for child in self.children.values():
            await child.kill()
        if self.lines is not None:
            await self.lines.kill()
        self._ports.release()
