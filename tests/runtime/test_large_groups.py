"""Many members in one event loop, over TCP: they start, rest on few connections, and go on when some die."""

from __future__ import annotations

import asyncio
import socket

from runtime_support import run_test, soon, until

from isthmus.adapters.embedded import EmbeddedSystem
from isthmus.core.message import Batch
from isthmus.ordering.group.window import ALL_SPEAK, WATCHERS
from isthmus.runtime.transport.acceptor import AT_ONCE, Acceptor
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen

NAMES = [f"p{number}" for number in range(32)]


def connections(system: EmbeddedSystem, name: str) -> int:
    mesh = system[name].driver.mesh
    return len(mesh.connections)


def test_members_of_a_large_group_rest_on_few_connections_and_all_get_what_one_sends() -> None:
    async def scenario() -> None:
        delivered: list[Batch] = []
        async with EmbeddedSystem(NAMES, callbacks=dict.fromkeys(NAMES, delivered.append)) as system:
            # Those called at the start and those that call it, and one to the collector.
            assert connections(system, "p20") <= 2 * (ALL_SPEAK - 1) + 2 * WATCHERS + 2
            seq = await system["p9"].send(b"to everybody")
            await soon(system["p9"].stable(seq))
            assert len(delivered) == len(NAMES)
            assert {system[name].driver.member.view.number for name in NAMES} == {1}

    run_test(scenario())


def test_a_large_group_goes_on_without_its_first_members() -> None:
    """The collector and all that watch it."""

    async def scenario() -> None:
        delivered: list[Batch] = []
        async with EmbeddedSystem(NAMES, callbacks=dict.fromkeys(NAMES, delivered.append)) as system:
            for name in NAMES[:4]:
                system[name].driver.kill()
            members = [system[name].driver.member for name in NAMES[4:]]
            await until(lambda: all(len(member.view.members) == len(NAMES) - 4 for member in members))
            delivered.clear()
            seq = await system["p9"].send(b"to those that are left")
            await soon(system["p9"].stable(seq))
            assert len(delivered) == len(NAMES) - 4

    run_test(scenario())


class _Noted(asyncio.Protocol):
    def __init__(self, taken: list[asyncio.BaseTransport]) -> None:
        self._taken = taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._taken.append(transport)


def test_all_calls_are_taken_until_the_end_and_none_after_it() -> None:
    async def scenario() -> None:
        listener = listen(Address(LOOPBACK, 0))
        taken: list[asyncio.BaseTransport] = []
        acceptor = Acceptor(listener, lambda: _Noted(taken))
        callers = [socket.create_connection(address_of(listener)) for _ in range(3 * AT_ONCE)]
        acceptor.open()
        await until(lambda: len(taken) == len(callers))
        acceptor.close()
        late = socket.create_connection(address_of(listener))
        await asyncio.sleep(0.01)
        assert len(taken) == len(callers)
        for connection in (*callers, late, listener):
            connection.close()
        for transport in taken:
            transport.close()
        await asyncio.sleep(0)

    run_test(scenario())
