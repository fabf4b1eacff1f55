"""What tests of the runtime share: members on loopback, a stranger who speaks to them, and waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from flood_member import FloodMember
from patience import seconds

from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.host import SystemHost
from isthmus.runtime.loop import run
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.transport.hello import Hello, encode_hello
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits

GROUP = 7
PATIENCE = seconds(20)
"""After which a test that waits has failed. Nothing takes that long."""

Result = TypeVar("Result")


def run_test(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a test in the event loop that users get. It fails when it does not end."""
    return run(_bounded(main, 2 * PATIENCE))


def run_with_children(main: Coroutine[Any, Any, Result], within: float = 2 * PATIENCE) -> Result:
    """Run a test that starts OS processes.

    Not in uvloop, which runs Python code between fork and exec. A process of tests may have threads (Spark, Arrow), and
    a lock that one of them held at the fork is held for ever in the child, while the parent waits for its exec.
    """
    return asyncio.run(_bounded(main, within))


async def _bounded(main: Coroutine[Any, Any, Result], within: float) -> Result:
    async with asyncio.timeout(within):
        return await main


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that only other callbacks of this event loop can make true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - conditions of the code under test, which sets no event for us
            await asyncio.sleep(0.001)


async def soon(awaitable: Awaitable[Result]) -> Result:
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def end_apart(sites: Sequence[AddressedSite[Any]], linger: float) -> list[str]:
    """End a system whose processes are dealt to these sites, as if each was in an OS process of its own.

    Returns what had not arrived when time was up.
    """
    hosts: list[SystemHost[AddressedDriver[Any]]] = [
        SystemHost(site.spec, stop_timeout=PATIENCE, linger=linger) for site in sites
    ]
    for host, site in zip(hosts, sites, strict=True):
        host.processes = site.drivers
    await asyncio.gather(*(host.end() for host in hosts))
    return [line for host in hosts for line in host.unfinished()]


class Flood:
    """A running system of flooding members, and what each has delivered."""

    def __init__(self) -> None:
        self.drivers: list[MemberDriver] = []
        self.delivered: list[list[Batch]] = []
        self.addresses: dict[int, Address] = {}
        self.strangers: list[Stranger] = []

    async def stranger(self, member: int) -> Stranger:
        """Somebody who has connected to a member, and has not said anything yet."""
        stranger = Stranger(*await soon(asyncio.open_connection(*self.addresses[member])))
        self.strangers.append(stranger)
        return stranger

    def payloads(self, member: int, sender: ProcessId) -> list[bytes]:
        """What one member has delivered of one sender."""
        return [
            payload
            for batch in self.delivered[member]
            if batch.sender == sender
            for payload in batch.segment.payloads()
        ]


@asynccontextmanager
async def flood(
    size: int,
    *,
    callbacks: bool = True,
    window: int = 8192,
    limits: Limits = DEFAULT_LIMITS,
    recorder: LiveRecorder | None = None,
    also: Callable[[ProcessId, Batch], None] = lambda process, batch: None,
) -> AsyncIterator[Flood]:
    """`size` flooding members on loopback. With `callbacks` they take everything; otherwise the test iterates.

    What else a callback does, `also` says.
    """
    listeners = [listen(Address(LOOPBACK, 0)) for _ in range(size)]
    system = Flood()
    system.addresses = {slot: address_of(listener) for slot, listener in enumerate(listeners)}
    try:
        for process in range(size):
            mesh = Mesh(process, system.addresses, listeners[process], group=GROUP, label=f"p{process}", limits=limits)
            await mesh.open()
            delivered: list[Batch] = []

            def take(batch: Batch, process: ProcessId = process, delivered: list[Batch] = delivered) -> None:
                delivered.append(batch)
                also(process, batch)

            driver = MemberDriver(
                FloodMember(process, range(size), window),
                mesh,
                recorder,
                on_batch=take if callbacks else None,
            )
            driver.start()
            system.drivers.append(driver)
            system.delivered.append(delivered)
        yield system
    finally:
        for stranger in system.strangers:
            await stranger.hang_up()
        for driver in system.drivers:
            driver.kill("the test is over")
        await until(lambda: not any(driver.mesh.connections for driver in system.drivers))


class Stranger:
    """A plain TCP client that says what it likes to a member."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await soon(self._writer.drain())

    async def hello(self, process: ProcessId, group: int = GROUP) -> bytes:
        """Introduce itself as a process; returns the answer."""
        await self.say(encode_hello(Hello(group, process)))
        return await soon(self._reader.readexactly(24))

    async def hang_up(self) -> None:
        self._writer.close()
        try:
            await soon(self._writer.wait_closed())
        except ConnectionError:
            pass

    async def is_hung_up_on(self) -> bool:
        """Wait for the end of the connection."""
        try:
            while await soon(self._reader.read(1 << 16)):
                pass
        except ConnectionError:
            pass
        return True
