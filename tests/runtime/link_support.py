"""What tests of links share: two gateways on loopback, with or without an emulated line between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from runtime_support import until

from isthmus.core.ids import LinkId, Nanos, ProcessId, ProcessName
from isthmus.core.segment import Segment
from isthmus.core.wire.join import Block, Line, LinkPdu, first_epoch
from isthmus.runtime.link.connection import LinkLimits
from isthmus.runtime.link.link import LinkCallbacks, LiveLink
from isthmus.runtime.link.links import Links
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.transport.tls import LinkTls
from isthmus.runtime.wan.emulator import Wan

GROUP = 11
LINK = 5
MADRID, VALENCIA = ProcessName("madrid", "g1"), ProcessName("valencia", "g1")
MADRID_SLOT, VALENCIA_SLOT = 3, 8
QUICK = LinkLimits(first_pause=0.002, longest_pause=0.02, connect=2.0)
"""For links that are to come back at once."""


def block(number: int, size: int = 100, messages: int = 1) -> Block:
    return Block(first_epoch(), number, Segment.of(MADRID_SLOT, number, [bytes(size)] * messages))


class Gateway:
    """One end: what it was told, in order. `on_ready` can be given something to do."""

    def __init__(self) -> None:
        self.pdus: list[LinkPdu] = []
        self.events: list[tuple[str, ProcessId | None]] = []
        self.ready = 0
        self.when_ready: Callable[[], None] = lambda: None
        self.when_received: Callable[[Sequence[LinkPdu]], None] = self.pdus.extend
        self.links: Links
        self.link: LiveLink

    def callbacks(self) -> LinkCallbacks:
        return LinkCallbacks(self._pdus, self._up, self._down, self._ready)

    def _pdus(self, link: LinkId, pdus: Sequence[LinkPdu]) -> None:
        assert link == LINK
        self.when_received(pdus)

    def _up(self, link: LinkId, peer: ProcessId) -> None:
        assert link == LINK
        self.events.append(("up", peer))

    def _down(self, link: LinkId) -> None:
        assert link == LINK
        self.events.append(("down", None))

    def _ready(self, link: LinkId, line: Line) -> None:
        assert link == LINK
        assert line.room > 0
        self.ready += 1
        self.when_ready()

    @property
    def numbers(self) -> list[int]:
        """The first numbers of the blocks that came."""
        return [pdu.first for pdu in self.pdus if isinstance(pdu, Block)]


def listening(
    where: Address = Address(LOOPBACK, 0),  # noqa: B008 - a NamedTuple does not change
    *,
    process: ProcessId = VALENCIA_SLOT,
    limits: LinkLimits = QUICK,
    tls: LinkTls | None = None,
    group: int = GROUP,
) -> tuple[Gateway, Address]:
    """The gateway of Valencia, which waits to be called, and where."""
    listener = listen(where)
    address = address_of(listener)
    gateway = Gateway()
    gateway.links = Links(
        process, VALENCIA, gateway.callbacks(), group=group, listener=listener, tls=tls, limits=limits
    )
    gateway.link = gateway.links.add(LINK, MADRID, MADRID_SLOT)
    gateway.links.open()
    return gateway, address


def dialling(
    where: Address,
    *,
    process: ProcessId = MADRID_SLOT,
    limits: LinkLimits = QUICK,
    tls: LinkTls | None = None,
    group: int = GROUP,
) -> Gateway:
    """The gateway of Madrid, which calls."""
    gateway = Gateway()
    gateway.links = Links(process, MADRID, gateway.callbacks(), group=group, tls=tls, limits=limits)
    gateway.link = gateway.links.add(LINK, VALENCIA, VALENCIA_SLOT, where)
    gateway.links.open()
    return gateway


@asynccontextmanager
async def closing(*ends: Gateway | Wan) -> AsyncIterator[None]:
    """End these with the test, as a crash would, and let the event loop notice."""
    try:
        yield
    finally:
        for end in ends:
            if isinstance(end, Gateway):
                end.links.abort()
            else:
                await end.close()
        for _ in range(3):
            await asyncio.sleep(0)


@asynccontextmanager
async def pair(
    *, limits: LinkLimits = QUICK, madrid_tls: LinkTls | None = None, valencia_tls: LinkTls | None = None
) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Both gateways, with a link between them that is up."""
    valencia, address = listening(limits=limits, tls=valencia_tls)
    madrid = dialling(address, limits=limits, tls=madrid_tls)
    async with closing(madrid, valencia):
        await up(madrid, valencia)
        yield madrid, valencia


@asynccontextmanager
async def pair_over_a_line(
    *,
    limits: LinkLimits = QUICK,
    madrid_tls: LinkTls | None = None,
    valencia_tls: LinkTls | None = None,
    delay: Nanos = 0,
    rate: int | None = None,
    queue: int | None = None,
) -> AsyncIterator[tuple[Gateway, Gateway, Wan]]:
    """The same over an emulated line, which can be cut."""
    valencia, address = listening(limits=limits, tls=valencia_tls)
    wan = await Wan.start(address, delay=delay, rate=rate, queue=queue)
    madrid = dialling(wan.address, limits=limits, tls=madrid_tls)
    async with closing(madrid, valencia, wan):
        await up(madrid, valencia)
        yield madrid, valencia, wan


async def up(*gateways: Gateway) -> None:
    await until(lambda: all(gateway.link.up for gateway in gateways))
