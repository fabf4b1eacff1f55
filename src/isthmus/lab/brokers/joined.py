"""Real brokers, joined by real gateways: everything an OS process of its own, written and read by plain clients.

    async with JoinedBrokers(directory, {"madrid": "valkey", "oslo": "nats"}, links=4) as joined:
        await joined.run_gateways()
        await joined["madrid"].client.write([b"one", b"two"])
        await joined.settled()
        assert not joined.differences()

Gateways are `isthmus run`, lines are `isthmus wan`. All of them are ended, by their process ids, when the block is
left. The judgement of the contents needs no trace: it is what stands in the brokers, as a plain client reads it.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Self

from isthmus.lab.brokers.plain import BATCH, KINDS, STREAM, Away, Client, Seen
from isthmus.lab.brokers.server import Server
from isthmus.lab.harness.os_process import LOOK_EVERY, PATIENCE, ChildFailed, OsProcess, Ports
from isthmus.lab.harness.sites import Lines, LinkQuality
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Report

WAIT = 2 * PATIENCE
HOSTS = 2
"""Addresses that a log has for its links: those of its gateway's host and of a standby's."""
HOLDS, STANDS_BY = "holds the claim", "is a standby"


class Host(OsProcess):
    """`isthmus run` of one log: a gateway, or a standby of it."""

    def __init__(self, site: str, name: str, command: tuple[str, ...], log: Path) -> None:
        super().__init__(name, command, log)
        self.site = site
        self.log = log

    def words(self) -> str:
        """What it has said to people so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def says(self, what: str, within: float = WAIT) -> str:
        """Wait until it has said something that fits, and return all that it has said."""
        give_up = time.monotonic() + within
        while not re.search(what, words := self.words()):
            if not self.alive:
                words = self.words()
                if re.search(what, words):
                    return words
                raise self.failure()
            if time.monotonic() > give_up:
                raise ChildFailed(f"{self.name} has not said {what!r} for {within:g} s, but: {words[-1000:]}")
            await asyncio.sleep(LOOK_EVERY / 4)
        return words

    async def ended(self, within: float = WAIT) -> int:
        """Wait until it has ended by itself; its exit code."""
        return await asyncio.wait_for(self.process.wait(), within)

    async def stop(self) -> int:
        """Have it end in good order."""
        if self.alive:
            self.process.terminate()
        return await self.ended()

    @property
    def acts(self) -> bool:
        """Whether it is the gateway, as far as it has said."""
        words = self.words()
        return self.alive and words.rfind(HOLDS) > words.rfind(STANDS_BY)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def memory(self) -> int:
        """Bytes that it has in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096


class Broker:
    """One broker of the topology, and what a reader has seen in it so far."""

    def __init__(self, name: str, kind: str, server: Server, state: str) -> None:
        self.name = name
        self.kind = KINDS[kind]
        self.server = server
        self.state = state
        self.client: Client = self.new_client()
        self.reader: Client = self.new_client()
        self.seen: list[Seen] = []
        self._after: Any = None

    def new_client(self) -> Client:
        return self.kind.client(self.server, self.state)

    async def look(self) -> None:
        """Read on, about to the end that there is now. While somebody writes there is always more."""
        while True:
            found, self._after = await self.reader.read(self._after)
            self.seen += found
            if len(found) < BATCH:
                return

    async def look_to_the_end(self) -> bool:
        """The same, and whether everything that the broker says it has was seen."""
        with suppress(Away):  # of connections from before a kill
            await self.look()
            return len(self.seen) >= await self.client.count()
        return False

    async def look_again(self) -> None:
        """Read everything from the beginning: as much as the broker says that there is."""
        self.seen, self._after = [], None
        give_up = time.monotonic() + WAIT
        while time.monotonic() < give_up and not await self.look_to_the_end():
            """More of it."""

    def own(self) -> list[bytes]:
        return [each.body for each in self.seen if not each.origin]

    def of(self, system: str) -> list[bytes]:
        """Bodies that were brought in from a system."""
        return [each.body for each in self.seen if each.origin.partition("/")[0] == system]

    async def close(self) -> None:
        await self.client.close()
        await self.reader.close()
        if self.server.alive:
            self.server.go_on()
        await asyncio.to_thread(self.server.stop)


class JoinedBrokers:
    """Brokers of these kinds, by name, in a chain or with the `joins` that are given.

    `embedded` are groups of two processes that are joined to them, each with so many gateways. With a `line`, links
    dial emulated ones. `tables` are more lines for the tables of systems, by name; `servers` are made already. `trace`:
    whether gateways write one.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Mapping[str, str],
        *,
        joins: Sequence[tuple[str, str]] | None = None,
        links: int = 1,
        line: LinkQuality | None = None,
        tables: Mapping[str, str] | None = None,
        servers: Mapping[str, Server] | None = None,
        embedded: Mapping[str, int] | None = None,
        trace: bool = True,
        run: str = "joined",
    ) -> None:
        self.run = run
        self.directory = directory
        self.file = directory / f"{run}.toml"
        self.trace = directory / "trace" if trace else None
        self.joins = tuple(pairwise(kinds)) if joins is None else tuple(joins)
        self.lines: Lines | None = None
        self.hosts: list[Host] = []
        self.brokers: dict[str, Broker] = {}
        self._kinds = dict(kinds)
        self._embedded = dict(embedded or {})
        self._links = links
        self._line = line
        self._tables = dict(tables or {})
        self._servers = dict(servers or {})
        self._ports = Ports()
        self._ends: list[tuple[int, int]] = []

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    async def __aenter__(self) -> Self:
        try:
            for name, kind in self._kinds.items():
                server = self._servers.get(name) or KINDS[kind].server(self.directory / name)
                self.brokers[name] = Broker(name, kind, server, f"{self.run}-{name}")
            await asyncio.gather(*(asyncio.to_thread(each.server.start) for each in self.brokers.values()))
            for broker in self.brokers.values():
                await broker.client.prepare()
                await broker.reader.watch()
            self.file.write_text(self._describe(), encoding="utf-8")
            if self._line is not None:
                self.lines = Lines(self._line, self._ends, self.file.with_suffix(".wan.log"))
                await self.lines.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        for host in self.hosts:
            await host.kill()
        if self.lines is not None:
            await self.lines.kill()
        for broker in self.brokers.values():
            with suppress(ProcessLookupError):
                await broker.close()
        self._ports.release()

    def _describe(self) -> str:
        """The topology file."""
        text = ""
        addresses: dict[str, int] = {}
        for name, broker in self.brokers.items():
            first = addresses[name] = self._ports.take(HOSTS)
            listen = ", ".join(f'"{LOOPBACK}:{first + host}"' for host in range(HOSTS))
            text += f'[systems.{name}]\nkind = "{broker.kind.provider}"\nurl = "{broker.server.url}"\n'
            text += f'stream = "{STREAM}"\ngateways = 1\nlink-address = [{listen}]\n'
            text += f"{broker.kind.table}{self._tables.get(name, '')}\n"
        for name, gateways in self._embedded.items():
            own, links = self._ports.take(gateways + 2), self._ports.take(gateways)
            addresses[name] = links
            text += f'[systems.{name}]\nkind = "embedded"\norder = "causal"\nprocesses = ["p1", "p2"]\n'
            text += f'gateways = {gateways}\naddress = "{LOOPBACK}:{own}"\nlink-address = "{LOOPBACK}:{links}"\n\n'
        for near, far in self.joins:
            text += f'[[joins]]\nbetween = ["{near}", "{far}"]\norder = "causal"\nlinks = {self._links}\n'
            if self._line is not None:
                dial = self._ports.take(self._links)
                self._ends += [(dial + link, addresses[far]) for link in range(self._links)]
                text += f'dial = "{LOOPBACK}:{dial}"\n'
            text += "\n"
        return text

    # Gateways

    async def start(self, name: str, *more: str) -> Host:
        """One more host of a log: its gateway, if nobody else is."""
        command = ["isthmus", "run", str(self.file), "--site", name, "--run", self.run, "-o", "json", *more]
        if self.trace is not None:
            command += ["--trace", str(self.trace)]
        if self.trace is not None:
            self.trace.mkdir(exist_ok=True)
        own = f"{name}-{len(self.hosts)}"
        host = Host(name, own, tuple(command), self.directory / f"{own}.log")
        self.hosts.append(host)
        await host.start()
        return host

    async def run_gateways(self) -> dict[str, Host]:
        """One host for each log, and the claims in their hands."""
        hosts = {name: await self.start(name) for name in self.brokers}
        for host in hosts.values():
            await host.says(HOLDS)
        return hosts

    async def stop(self) -> None:
        """End all gateways in good order, so that traces are complete."""
        living = [host for host in self.hosts if host.alive]
        codes = await asyncio.gather(*(host.stop() for host in living))
        for host, code in zip(living, codes, strict=True):
            if code:
                raise host.failure()

    def acting(self, name: str) -> Host | None:
        """The host that is the gateway of a log now."""
        return next((host for host in reversed(self.hosts) if host.site == name and host.acts), None)

    def audit(self) -> Report:
        """What the traces say, of all that was promised."""
        assert self.trace is not None
        return judge(read_trace([self.trace]).events(), promised_by("causal", views=False))

    # Contents

    async def settled(self, within: float = WAIT) -> None:
        """Wait until everything that stands in one broker stands in all, or `differences` says what is wrong."""
        give_up = time.monotonic() + within
        while True:
            complete = [await broker.look_to_the_end() for broker in self.brokers.values()]
            wanted = sum(len(broker.own()) for broker in self.brokers.values())
            if all(complete) and all(len(broker.seen) >= wanted for broker in self.brokers.values()):
                return
            self.check_hosts()
            if time.monotonic() > give_up:
                has = {name: len(broker.seen) for name, broker in self.brokers.items()}
                raise ChildFailed(
                    f"of {wanted} entries, after {within:g} s the brokers have {has}; {self.last_words()}"
                )
            await asyncio.sleep(LOOK_EVERY)

    def check_hosts(self) -> None:
        """No gateway has ended by itself."""
        for host in self.hosts:
            if not host.killed and not host.alive:
                raise host.failure()

    def last_words(self) -> str:
        return "; ".join(f"{host.name}: {host.words()[-300:]}" for host in self.hosts if not host.killed)

    def differences(self) -> list[str]:
        """What is lost, twice or out of order, by what stands in the brokers; nothing where all is well.

        Bodies have to be all different.
        """
        found: list[str] = []
        for name, broker in self.brokers.items():
            twice = [body for body, times in Counter(each.body for each in broker.seen).items() if times > 1]
            if twice:
                found.append(f"{name} has {len(twice)} bodies more than once, such as {twice[0]!r}")
            for other, source in self.brokers.items():
                if other == name:
                    continue
                there, here = source.own(), broker.of(other)
                lost = set(there).difference(here)
                if lost:
                    found.append(f"{name} lacks {len(lost)} of {len(there)} of {other}, such as {min(lost)!r}")
                elif here != there and not twice:
                    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False)))
                    what = "out of order" if same < len(there) else f"which {other} does not have"
                    found.append(f"{name} has entry {same} of {other} {what}: {here[same]!r}")
        return found


class Load:
    """A plain client that writes numbered bodies to one broker, as fast as it is acknowledged or at a rate.

    When the broker goes away it waits for it, and does not say again what was under way: what of that is there counts.
    """

    def __init__(self, broker: Broker, rate: float | None = None, *, batch: int = 100, size: int = 0) -> None:
        self._client = broker.new_client()
        self._rate = rate
        self._batch = batch
        self._mark = broker.name.encode() + b"-"
        self._size = size
        self._task: asyncio.Task[None] | None = None
        self._ends = asyncio.Event()
        self.written = 0
        self.number = 0

    def begin(self) -> Self:
        self._task = asyncio.ensure_future(self._write())
        return self

    async def _write(self) -> None:
        due = time.monotonic()
        while not self._ends.is_set():
            numbers = range(self.number, self.number + self._batch)
            bodies = [(self._mark + b"%d-" % number).ljust(self._size, b".") for number in numbers]
            self.number += len(bodies)
            try:
                await self._client.write(bodies)
                self.written += len(bodies)
            except Away:
                await asyncio.sleep(LOOK_EVERY)
            if self._rate:
                due = max(due, time.monotonic() - 1) + len(bodies) / self._rate
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ends.wait(), max(0.0, due - time.monotonic()))

    async def until_seen(self, at: Broker, number: int, within: float = WAIT) -> None:
        """Wait until a body with this number or a later one stands in another broker."""
        async with asyncio.timeout(within):
            looked = 0
            while True:
                with suppress(Away):
                    await at.look()
                fresh, looked = at.seen[looked:], len(at.seen)
                if any(each.body.startswith(self._mark) and self.number_of(each.body) >= number for each in fresh):
                    return
                await asyncio.sleep(LOOK_EVERY / 4)

    def number_of(self, body: bytes) -> int:
        return int(body[len(self._mark) :].partition(b"-")[0])

    async def end(self) -> int:
        """Write no more; what is under way is seen through. A client's library may swallow a cancellation."""
        self._ends.set()
        if self._task is not None:
            await self._task
        await self._client.close()
        return self.written
