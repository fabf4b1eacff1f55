"""Sites as real OS processes: started, fed, asked, killed, restarted, told to end; two of them over an emulated WAN.

    layout = Layout(links=4, line=Line(delay=25 * MILLISECOND, rate=20_000_000))
    async with JoinedSites(layout, directory, apart=["madrid/g2"]) as sites:
        await sites["madrid"].send("p1", size=1024, count=5000)
        await sites.kill("madrid/g2")
        await sites.see_through(within=30)

Every child is `site_process` in an OS process of its own, with one or more processes of one site. The lines are
`isthmus wan` in another one, so that the emulation takes no time from anybody. All of them are ended, by their process
ids, when the block is left, whatever happened in it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Struct

from isthmus.core.ids import LIFE, Nanos
from isthmus.core.units import format_duration, format_rate
from isthmus.lab.harness.deaths import certify_death
from isthmus.lab.harness.os_process import LOOK_EVERY, PATIENCE, ChildFailed, OsProcess, Ports
from isthmus.lab.harness.site_process import (
    SIZE,
    TICK,
    Answer,
    Assignment,
    Close,
    NumberedOrder,
    Order,
    Quiet,
    Send,
    SiteFigures,
    Stable,
    Tell,
)
from isthmus.runtime.load import LoadPlan
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.topology.file import load
from isthmus.topology.wiring import all_links

NEAR = "madrid"
FAR = "valencia"
WAIT = 2 * PATIENCE
"""Seconds after which something that is waited for will not come; none of it takes that long on a free machine."""


class LinkQuality(Struct, frozen=True):
    """What each link between the sites is like: delay one way, bits per second each way."""

    delay: Nanos
    rate: int | None = None

    def __str__(self) -> str:
        rate = f", {format_rate(self.rate)}/s per link" if self.rate else ""
        return f"{format_duration(2 * self.delay)} round trip{rate}"


class SiteChild(OsProcess):
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

    async def send(
        self, process: str, *, size: int = SIZE, rate: float | None = None, count: int = sys.maxsize
    ) -> None:
        """Have a process begin to send."""
        await self.ask(Send(process, LoadPlan(size, rate, count, TICK)))

    async def quiet(self) -> dict[str, int]:
        """End all sending. Returns how many messages were accepted of each process."""
        return msgspec.convert(await self.ask(Quiet()), dict[str, int])

    async def figures(self, *, measure: bool = False) -> SiteFigures:
        """How things stand. Delays are measured from one call that says `measure` to the next call."""
        return msgspec.convert(await self.ask(Tell(measure)), SiteFigures)

    async def stable(self, within: float = PATIENCE) -> None:
        """Wait until everything that was accepted here is stable in every system."""
        await self.ask(Stable(), within)

    async def close(self) -> None:
        """End in good order."""
        await self.ask(Close(), WAIT)
        await asyncio.wait_for(self.process.wait(), PATIENCE)

    async def ask(self, order: Order, within: float = PATIENCE) -> Any:
        """Give an order and wait for the answer."""
        self._number += 1
        number = self._number
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.write(msgspec.json.encode(NumberedOrder(number, order)))
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

    def __init__(self, line: LinkQuality, ends: Sequence[tuple[int, int]], log: Path) -> None:
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

    async def order(self, command: str, lines: int = 1) -> None:
        """One command of `isthmus wan --control`, such as `cut 0`, or `mend all` for so many lines."""
        self.write(command.encode())
        for _ in range(lines):
            await self._said()

    async def _said(self) -> None:
        if not await asyncio.wait_for(self.read_line(), PATIENCE):
            await self.kill()
            raise self.failure()


class Traffic(NamedTuple):
    """Two looks at one child, and what lies between them."""

    before: SiteFigures
    after: SiteFigures

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


class ProcessShare(NamedTuple):
    """What one OS process runs: processes of one site."""

    site: str
    members: Sequence[str]


class Sites:
    """The processes of a topology in OS processes, as an asynchronous context. Children are found by name.

    `describe` gives the topology file, on ports that it takes; `shares` says which children there are from the start.
    With a `line`, the join dials emulated ones. `settings` are more fields of `SystemSpec`, for all sites. With
    `trace`, every row of the traces is in that directory before anybody can know of it.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        describe: Callable[[Ports], str],
        shares: Mapping[str, ProcessShare],
        *,
        line: LinkQuality | None = None,
        settings: Mapping[str, Any] | None = None,
        trace: Path | None = None,
    ) -> None:
        self.run = run
        self.trace = trace
        self.file = directory / f"{run}.toml"
        self.lines: Lines | None = None
        self.children: dict[str, SiteChild] = {}
        self._describe = describe
        self._shares = shares
        self._line = line
        self._settings = dict(settings or {})
        if trace is not None:
            self._settings |= {"trace": str(trace), "trace_sync": True}
        self._ports = Ports()

    def __getitem__(self, name: str) -> SiteChild:
        return self.children[name]

    async def __aenter__(self) -> Self:
        try:
            self.file.write_text(self._describe(self._ports), encoding="utf-8")
            if self._line is not None:
                self.lines = Lines(self._line, self._ends(), self.file.with_suffix(".wan.log"))
                await self.lines.start()
            await self.start(self._shares)
        except BaseException:
            await self._end()
            raise
        return self

    def _ends(self) -> list[tuple[int, int]]:
        """For each link the port that is dialled, and the one where its far end waits."""
        topology = load(self.file)
        (join,) = topology.joins
        assert join.dial is not None, f"{self.file}: nobody dials the emulated lines"
        far = [topology.system(link.far.system).takes_links_at(link.far.process)[0] for link in all_links(topology)]
        return [(join.dial.port + index, address.port) for index, address in enumerate(far) if address is not None]

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        for child in self.children.values():
            await child.kill()
        if self.lines is not None:
            await self.lines.kill()
        self._ports.release()

    # Life and death.

    async def start(self, shares: Mapping[str, ProcessShare]) -> None:
        """Start children, and wait until their processes run."""
        new = {name: SiteChild(name, self._assignment(share)) for name, share in shares.items()}
        self.children |= new
        for child in new.values():
            await child.start()
        await asyncio.gather(*(child.running() for child in new.values()))

    def _assignment(self, share: ProcessShare) -> Assignment:
        members = tuple(share.members)
        return Assignment(
            topology=str(self.file), site=share.site, members=members, run=self.run, settings=self._settings
        )

    def living(self) -> list[SiteChild]:
        """Those that nobody has killed."""
        return [child for child in self.children.values() if not child.killed]

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
        """End all sending, wait until everything is stable in all systems, and end."""
        await asyncio.gather(*(child.quiet() for child in self.living()))
        await asyncio.gather(*(child.stable(within) for child in self.living()))
        await self.close()

    async def close(self) -> None:
        """End everybody in good order, so that traces are complete."""
        await asyncio.gather(*(child.close() for child in self.living()))

    # What they do.

    async def load(self, rate: float, *names: str) -> None:
        """Have every process that is no gateway send at this rate, at these children or, without a name, everywhere."""
        for child in self.living():
            if not names or child.name in names:
                for process in (await child.figures()).delivered:
                    await child.send(process, rate=rate)

    def lines_cpu(self) -> float:
        """Seconds of processor time that the emulated lines have taken."""
        return 0.0 if self.lines is None else self.lines.cpu_seconds()

    async def linked(self) -> None:
        """Wait until every link is up at both its ends."""
        await self._until(
            lambda look: [name for name, each in look.items() if not all(link.up for link in each.links)],
            "have links that are down",
        )

    async def delivered(self, more: int, *, imported: bool = False) -> None:
        """Wait until every live process has delivered so many more messages than now; `imported`: of other systems."""

        def counts(look: Mapping[str, SiteFigures]) -> dict[tuple[str, str], int]:
            answers = {name: figures.imported if imported else figures.delivered for name, figures in look.items()}
            return {(name, process): count for name, each in answers.items() for process, count in each.items()}

        before = counts(await self._look())
        await self._until(
            lambda look: ["/".join(name) for name, count in counts(look).items() if count < before[name] + more],
            f"have not delivered {more} more messages",
        )

    async def excluded(self, victim: str, mates: Sequence[str]) -> None:
        """Wait until each of these processes has a view without the victim."""

        def lagging(look: Mapping[str, SiteFigures]) -> list[str]:
            views = _views(look)
            return [mate for mate in mates if not views[mate] or victim in views[mate]]

        await self._until(lagging, f"have no view without {victim}")

    async def regrouped(self, sizes: Sequence[int]) -> None:
        """Wait until all live processes are in local groups of these sizes."""

        def lagging(look: Mapping[str, SiteFigures]) -> list[str]:
            views = _views(look)
            groups = set(map(frozenset, views.values()))
            regrouped = sorted(map(len, groups)) == sorted(sizes) and all(group <= views.keys() for group in groups)
            return [] if regrouped else list(views)

        await self._until(lagging, f"are not in groups of {' and '.join(map(str, sizes))}")

    async def _until(self, lagging: Callable[[Mapping[str, SiteFigures]], list[str]], what: str) -> None:
        """Look until nobody lags behind any more."""
        deadline = time.monotonic() + WAIT
        while late := lagging(await self._look()):
            if time.monotonic() > deadline:
                raise ChildFailed(f"{', '.join(late)} {what} after {WAIT:g} s")
            await asyncio.sleep(LOOK_EVERY)

    async def _look(self) -> dict[str, SiteFigures]:
        return {child.name: await child.figures() for child in self.living()}


def _views(look: Mapping[str, SiteFigures]) -> dict[str, list[str]]:
    return {process: view for figures in look.values() for process, view in figures.views.items()}


class Layout(Struct, frozen=True, kw_only=True):
    """Two joined sites. Without a `line`, links are plain loopback. `processes` and `gateways` are (near, far).

    `both` and `near` are more lines of the topology file, for both sites and for the near one.
    """

    processes: tuple[int, int] = (2, 2)
    gateways: tuple[int, int] = (2, 2)
    links: int = 2
    assign: Literal["striped", "transfer-sets"] = "striped"
    order: Literal["fifo", "causal"] = "causal"
    line: LinkQuality | None = None
    both: str = ""
    near: str = ""

    def members(self, site: str) -> tuple[list[str], list[str]]:
        """The names of a site's processes and of its gateways."""
        side = (NEAR, FAR).index(site)
        processes = [f"p{number}" for number in range(1, self.processes[side] + 1)]
        return processes, [f"g{number}" for number in range(1, self.gateways[side] + 1)]

    def shares(self, apart: Sequence[str]) -> dict[str, ProcessShare]:
        """A child for each site, under its name, and one for each member that is to be `apart`, such as `madrid/g1`."""
        shares: dict[str, ProcessShare] = {}
        for site in (NEAR, FAR):
            names = [name for names in self.members(site) for name in names]
            together = [name for name in names if f"{site}/{name}" not in apart]
            shares |= {site: ProcessShare(site, together)} if together else {}
            shares |= {f"{site}/{name}": ProcessShare(site, [name]) for name in names if name not in together}
        return shares

    def file(self, ports: Ports) -> str:
        """The topology file."""
        text = ""
        link_port = ports.take(self.gateways[1])
        for site in (NEAR, FAR):
            processes, gateways = self.members(site)
            text += f'[systems.{site}]\nkind = "embedded"\norder = "{self.order}"\nprocesses = {processes}\n'
            text += f"{self.both}{self.near if site == NEAR else ''}gateways = {len(gateways)}\n"
            text += f'address = "{LOOPBACK}:{ports.take(len(processes) + len(gateways))}"\n'
            text += f'link-address = "{LOOPBACK}:{link_port}"\n\n' if site == FAR else "\n"
        text += f'[[joins]]\nbetween = ["{NEAR}", "{FAR}"]\norder = "{self.order}"\nlinks = {self.links}\n'
        text += f'assign = "{self.assign}"\n'
        if self.line is not None:
            text += f'dial = "{LOOPBACK}:{ports.take(self.links)}"\n'
        return text


class JoinedSites(Sites):
    """The sites of a layout, and the lines between them."""

    def __init__(
        self, layout: Layout, directory: Path, *, run: str = "joined", apart: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(directory, run, layout.file, layout.shares(apart), line=layout.line, **options)
        self.layout = layout
