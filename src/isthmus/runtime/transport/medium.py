"""One entity on a broadcast medium: what the hub (`hub.py`) and multicast (`multicast.py`) have in common.

Everybody gets every parcel and takes those that are for it. On 1C a sender takes its own PDUs back as the medium
carried them, and they are never lost; elsewhere nobody looks at them. Loss is injected here, where a PDU arrives: each
by itself, whatever it came together with, by a seeded draw of the receiving entity.

Entities find one another by hails, which are not lost on purpose: who asks is answered by everybody.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from random import Random
from socket import socket

from msgspec import Struct

from isthmus.core.codec import FrameError, encode
from isthmus.core.endpoint import Destinations
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.transport.carrier import Receive, nobody
from isthmus.runtime.transport.hello import Hello
from isthmus.runtime.transport.parcel import HAIL, HERE, pack, unpack
from isthmus.runtime.transport.peer import Me

log = logging.getLogger(__name__)

HAIL_EVERY = 0.05
"""Seconds between two hails of an entity that waits for others."""


class Losses(Struct, frozen=True):
    """The chance that an entity misses a PDU, and the seed of its draws."""

    chance: float = 0.0
    seed: int = 0


class Medium(ABC):
    """One entity's end. `listener`, if there is one, holds the entity's address so that nobody else takes its place.

    `on_lost` is called once, when this entity can no longer be heard or hear.
    """

    def __init__(
        self,
        process: ProcessId,
        names: Directory,
        *,
        group: int,
        returns_own: bool,
        losses: Losses,
        listener: socket | None = None,
    ) -> None:
        self.me = Me(Hello(group, process), str(names.name(process)))
        self.receive: Receive = nobody
        self.on_lost: Callable[[str], None] = _nothing
        self.carried = 0
        """PDUs of others that the medium brought for this entity."""
        self.lost = 0
        """Those of them that it missed on purpose."""
        self.refused = 0
        self._names = names
        self._process = process
        self._returns_own = returns_own
        self._chance = losses.chance
        self._random = Random(f"loss {losses.seed} {process}").random
        self._listener = listener
        self._waiting: list[bytes] = []
        self._heard: set[ProcessId] = set()
        self._news = asyncio.Event()
        self._closed = False

    @property
    @abstractmethod
    def where(self) -> str:
        """Where the medium is, in words for messages and logs."""

    # Finding one another.

    @abstractmethod
    async def open(self) -> None:
        """Connect to the medium, or raise the problem that says why that is not possible."""

    async def reach(self, processes: Iterable[ProcessId], timeout: float) -> list[ProcessId]:
        """Hail until each of these has answered. Returns those that did not in time."""
        wanted = set(processes)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not wanted <= self._heard and (left := deadline - loop.time()) > 0 and not self._closed:
            self._put(pack(self._process, (), HAIL))
            try:
                await asyncio.wait_for(self._all_heard(wanted), min(left, HAIL_EVERY))
            except TimeoutError:
                pass
        return sorted(wanted - self._heard)

    async def _all_heard(self, wanted: set[ProcessId]) -> None:
        while not wanted <= self._heard:
            self._news.clear()
            await self._news.wait()

    def _hailed(self, source: ProcessId, body: bytes) -> None:
        if body == HAIL:
            self._put(pack(self._process, (), HERE))
        if source not in self._heard and len(self._heard) <= len(self._names.slots):
            self._heard.add(source)
            self._news.set()

    # Sending.

    def send(self, destinations: Destinations, pdu: Pdu) -> None:
        self._put(pack(self._process, destinations, encode(pdu)))

    def _put(self, parcel: bytes) -> None:
        if not self._closed:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._flush)
            self._waiting.append(parcel)

    def _flush(self) -> None:
        parcels, self._waiting = self._waiting, []
        if parcels:
            self._carry(parcels)

    @abstractmethod
    def _carry(self, parcels: list[bytes]) -> None:
        """Put these on the medium, in this order."""

    # Receiving.

    def _take(self, data: bytes) -> None:
        """Take whole parcels off the medium. Raises `FrameError` at a bad one; what came before it counts."""
        me, chance, random = self._process, self._chance, self._random
        sender: ProcessId = -1
        pdus: list[Pdu] = []
        try:
            for parcel in unpack(data):
                source, destinations, body = parcel
                if source == me:
                    if not self._returns_own or me not in destinations:
                        continue
                elif me not in destinations:
                    if not destinations:
                        self._hailed(source, body)
                    continue
                else:
                    self.carried += 1
                    if chance and random() < chance:
                        self.lost += 1
                        continue
                if source != sender:
                    # The order between senders is the medium's: what one step takes is of one of them.
                    if pdus:
                        self.receive(sender, pdus)
                    sender, pdus = source, []
                pdus.append(parcel.pdu())
        finally:
            if pdus:
                self.receive(sender, pdus)

    def _refuse(self, error: FrameError) -> None:
        self.refused += 1
        if self.refused == 1:
            log.warning("%s takes no notice of nonsense on the medium (%s): %s", self.me.label, self.where, error)

    # The end.

    async def close(self, timeout: float = 1.0) -> None:
        self._flush()
        self._shut()

    def abort(self) -> None:
        self._waiting.clear()
        self._shut()

    def _shut(self) -> None:
        self._closed = True
        self._news.set()
        if self._listener is not None:
            self._listener.close()


def _nothing(why: str) -> None:
    """Takes the news that the medium is lost while there is no driver that could hear it."""
