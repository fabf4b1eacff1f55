"""Two joined sites as real OS processes, with an emulated WAN between them: started, fed, asked, killed, restarted.

    layout = Layout(links=4, line=Line(delay=25 * MILLISECOND, rate=20_000_000))
    async with JoinedSites(layout, directory, apart=["madrid/g2"]) as sites:
        await sites["madrid"].send("p1", size=1024, count=5000)
        await sites.kill("madrid/g2")
        await sites.see_through(within=30)

Every child is `site_process` in an OS process of its own, with one or more members of one site; by default one child
runs a whole site. The lines are `isthmus wan` in another one, so that the emulation takes no time from anybody. All of
them are ended, by their process ids, when the block is left, whatever happened in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Struct

from isthmus.core.ids import LIFE, Nanos
from isthmus.core.units import format_duration, format_rate
from isthmus.lab.harness.deaths import certify_death
from isthmus.lab.harness.os_process import LOOK_EVERY, PATIENCE, ChildFailed, OsProcess, Ports
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


class Child(OsProcess):
    """One OS process with members of one site. `lives` counts how often its members have been started anew."""

    def __init__(self, name: str, assignment: Assignment) -> None:
        super().__init__(name, ("isthmus.lab.harness.site_process",))
        self.assignment = assignment
        self.lives = 0
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0

    # Life and death.

    async def start(self) -> None:
        """Start it. `running` says when its members run: members of one site wait for one another."""
        await super().start()
        self._number = 0
        self._answers = {0: asyncio.get_running_loop().create_future()}
        self._reading = asyncio.ensure_future(self._read())
        self.write(msgspec.json.encode(self.assignment))

    async def running(self) -> None:
        await self._answer(0)

    async def kill(self) -> None:
        await super().kill()
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=PATIENCE)

    async def restart(self) -> None:
        """Its members come back as new processes, which join those of their site that live."""
        await self._start_anew(1, joining=True)

    async def begin_life(self) -> None:
        """A whole site begins its next life, from its journal."""
        await self._start_anew(LIFE, settings={**self.assignment.settings, "life": self.lives + 1})

    async def _start_anew(self, incarnations: int, **changes: Any) -> None:
        """So many incarnations lie between two lives of its members."""
        await self.kill()
        self.lives += 1
        bases = [name.partition("+")[0] for name in self.assignment.members]
        members = tuple(f"{base}+{self.lives * incarnations}" for base in bases)
        self.assignment = msgspec.structs.replace(self.assignment, members=members, **changes)
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
        await asyncio.wait_for(self.process.wait(), PATIENCE)

    async def ask(self, order: Order, within: float = PATIENCE) -> Any:
        """Give an order and wait for the answer."""
        self._number += 1
        number = self._number
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.write(msgspec.json.encode(Numbered(number, order)))
        return await self._answer(number, within)

    async def _answer(self, number: int, within: float = PATIENCE) -> Any:
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._answers[number]), within)
        except TimeoutError:
            raise ChildFailed(f"{self.name} has not answered for {within:g} s") from None
        if answer.error:
            raise ChildFailed(f"{self.name}: {answer.error}")
        return answer.value

    async def _read(self) -> None:
        while line := await self.read_line():
            answer = msgspec.json.decode(line, type=Answer)
            waiting = self._answers.get(answer.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for number, waiting in self._answers.items():
            if not waiting.done():
                waiting.set_result(Answer(number, error="it has ended"))


class Lines(OsProcess):
    """`isthmus wan`: one emulated line per link, in an OS process of its own."""

    def __init__(self, line: Line, ends: Sequence[tuple[int, int]], log: Path) -> None:
        command = ["isthmus", "wan", "--control", "--delay", format_duration(line.delay)]
        if line.rate is not None:
            command += ["--rate", format_rate(line.rate)]
        for here, there in ends:
            command += ["--line", f"{LOOPBACK}:{here}={LOOPBACK}:{there}"]
        # It tells of every call that nobody takes, and while gateways are dead there are many.
        super().__init__("the WAN emulator", tuple(command), log)
        self._ends = ends

    async def start(self) -> None:
        await super().start()
        for _ in self._ends:
            await self._said()

    async def order(self, command: str) -> None:
        """One command of `isthmus wan --control` for one line, such as `cut 0` or `mend 0`."""
        self.write(command.encode())
        await self._said()

    async def _said(self) -> None:
        if not await asyncio.wait_for(self.read_line(), PATIENCE):
            await self.kill()
            raise self.failure()


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
    child that has the name of the site. `settings` are more fields of `SystemSpec`, for both sites; `both` and `near`
    more lines of the topology file, for both sites and for the near one. With `trace`, every row of the traces is in
    that directory before anybody can know of it.
    """

    def __init__(
        self,
        layout: Layout,
        directory: Path,
        *,
        run: str = "joined",
        apart: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        trace: Path | None = None,
        both: str = "",
        near: str = "",
    ) -> None:
        self.layout = layout
        self.run = run
        self.trace = trace
        self.file = directory / f"{run}.toml"
        self.lines: Lines | None = None
        self.children: dict[str, Child] = {}
        self._directory = directory
        self._apart = apart
        self._settings = dict(settings or {})
        if trace is not None:
            self._settings |= {"trace": str(trace), "trace_sync": True}
        self._tables = {NEAR: both + near, FAR: both}
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

    def living(self) -> list[Child]:
        return [child for child in self.children.values() if child.alive]

    async def load(self, rate: float, *sites: str) -> None:
        """Have every process of these sites send at this rate; without a name, of both."""
        for child in self.living():
            for member in child.assignment.members:
                if member.startswith("p") and child.assignment.site in (sites or (NEAR, FAR)):
                    await child.send(member, rate=rate)

    async def imported(self, more: int, within: float) -> None:
        """Wait until every live process has delivered so many more messages of the other system than now."""
        before = await self._imported()
        deadline = time.monotonic() + within
        while any(count < before[name] + more for name, count in (await self._imported()).items()):
            if time.monotonic() > deadline:
                raise ChildFailed(f"not everybody has delivered {more} more messages within {within:g} s")
            await asyncio.sleep(LOOK_EVERY)

    async def _imported(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for child in self.living():
            figures = await child.figures()
            counts |= {f"{child.name}/{process}": count for process, count in figures.imported.items()}
        return counts

    async def kill(self, name: str) -> Nanos:
        """SIGKILL for one child, and the end of its members' logs. Returns when it was, by the traces' clock."""
        child = self[name]
        at = time.time_ns()
        await child.kill()
        if self.trace is not None:
            for member in child.assignment.members:
                certify_death(self.trace, self.run, child.assignment.site, member, time.time_ns())
        return at

    async def see_through(self, within: float) -> None:
        """End all sending, wait until everything is stable in both systems, and end."""
        await asyncio.gather(*(child.quiet() for child in self.living()))
        await asyncio.gather(*(child.stable(within) for child in self.living()))
        await self.close()

    async def close(self) -> None:
        """End everybody in good order, so that traces are complete."""
        await asyncio.gather(*(child.close() for child in self.living()))

    def lines_cpu(self) -> float:
        """Seconds of processor time that the emulated lines have taken."""
        return 0.0 if self.lines is None else self.lines.cpu_seconds()

    async def linked(self, within: float = PATIENCE) -> None:
        """Wait until every link is up at both its ends."""

        async def all_up() -> bool:
            figures = [await child.figures() for child in self.living()]
            return all(link.up for each in figures for link in each.links)

        async with asyncio.timeout(within):
            while not await all_up():  # noqa: ASYNC110 - the links are in other processes
                await asyncio.sleep(0.02)

    async def _start(self) -> None:
        self.file.write_text(self._topology(), encoding="utf-8")
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
                        topology=str(self.file), site=site, members=here, run=self.run, settings=self._settings
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
            text += f"{self._tables[site]}gateways = {len(gateways)}\n"
            text += f'address = "{LOOPBACK}:{self._ports.take(len(processes) + len(gateways))}"\n'
            text += f'link-address = "{LOOPBACK}:{link_port}"\n\n' if site == FAR else "\n"
        text += f'[[joins]]\nbetween = ["{NEAR}", "{FAR}"]\norder = "{layout.order}"\nlinks = {layout.links}\n'
        text += f'assign = "{layout.assign}"\n'
        if layout.line is not None:
            first = self._ports.take(layout.links)
            text += f'dial = "{LOOPBACK}:{first}"\n'
            self.file.write_text(text, encoding="utf-8")
            far = [link.far.process for link in all_links(load(self.file))]
            ends = [(first + index, link_port + int(gateway[1:]) - 1) for index, gateway in enumerate(far)]
            self.lines = Lines(layout.line, ends, self._directory / f"{self.run}.wan.log")
        return text

    async def _end(self) -> None:
        for child in self.children.values():
            await child.kill()
        if self.lines is not None:
            await self.lines.kill()
        self._ports.release()
