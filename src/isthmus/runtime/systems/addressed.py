"""What systems of clusters and daisies have in common over real sockets: messages that are for some processes only.

A process sends to some others, and waits while it is too far ahead of them. Such a system ends as a whole, when
everything that was sent is where it belongs. In one event loop that is plain to see; where its processes run in several
OS processes, each ends when everything has been at rest here for a while.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from random import Random
from socket import socket
from typing import ClassVar, Generic, TypeVar

from isthmus.core.endpoint import Delivered
from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.message import Addressed
from isthmus.runtime.driver.process import ProcessDriver, Sender
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.systems.launch import open_recorder, start_driver, to_each_peer
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.topology.model import Topology

LOOK_EVERY = 0.01

OnMessage = Callable[[Addressed], None]
"""Takes a delivery. It is called synchronously and must not send; it may start a task that does."""


class AddressedDriver(ProcessDriver):
    """One process. `last_busy` is when something last kept it from being at rest."""

    def __init__(self, process: Sender, mesh: Carrier, recorder: LiveRecorder | None, on_message: OnMessage) -> None:
        super().__init__(process, mesh, recorder)
        self.on_message = on_message
        self.last_busy = self._loop.time()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that is known here is still on its way."""
        return not self._to_send and self._is_at_rest()

    @abstractmethod
    def _is_at_rest(self) -> bool:
        """Whether the endpoint knows of nothing that is still on its way."""

    @abstractmethod
    def what_is_left(self) -> str:
        """What is still on its way from or to this process, in words."""

    def _deliver_addressed(self, deliveries: list[Delivered]) -> None:
        for delivered in deliveries:
            self.on_message(delivered.message)


AnyDriver = TypeVar("AnyDriver", bound=AddressedDriver)


class AddressedSite(ABC, Generic[AnyDriver]):
    """The processes of one such system that run in this event loop. `parts` is what such a system consists of."""

    parts: ClassVar[str]

    def __init__(self, topology: Topology, spec: SystemSpec) -> None:
        self.spec = spec
        self.names = spec.directory()
        self.drivers: dict[str, AnyDriver] = {}
        self.everybody: list[ProcessId] = list(topology.slots(spec.system))

    @abstractmethod
    async def start(self, process: ProcessId, listener: socket, on_message: OnMessage) -> AnyDriver:
        """Start one process, listening on `listener`."""

    @abstractmethod
    async def write(self, driver: AnyDriver, target: ProcessId, payload: bytes, rng: Random) -> None:
        """Send a message that `target` is to have, and whoever else such a load brings in by chance."""

    @abstractmethod
    def describe(self, process: ProcessId) -> str:
        """In words, for the table that `isthmus run` prints: which groups or clusters a process is a member of."""

    async def launch(
        self,
        process: ProcessId,
        listener: socket,
        make_driver: Callable[[Carrier, LiveRecorder | None], AnyDriver],
        limits: Limits = DEFAULT_LIMITS,
    ) -> AnyDriver:
        """Start one process. Who is on standby comes later, when the others are there."""

        def make(mesh: Carrier) -> AnyDriver:
            return make_driver(mesh, open_recorder(self.spec, process, "start", None, "app"))

        joining = slot_of(process) in self.spec.standby
        driver = await start_driver(self.spec, process, listener, make, to_each_peer, joining=joining, limits=limits)
        self.drivers[self.names.name(process).process] = driver
        return driver

    @property
    def is_whole(self) -> bool:
        """Whether all processes of the system run here."""
        return len(self.drivers) == len(self.everybody)

    async def close(self, within: float = 10.0, linger: float = 1.0) -> list[str]:
        """End, once everything has arrived. Returns what had not when time was up, in words.

        Where others run elsewhere nobody here can know that they have nothing more to send: so each stays until it has
        been at rest for `linger` seconds.
        """
        drivers = list(self.drivers.values())
        for driver in drivers:
            driver.stop_accepting("the system ends")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = 0.0 if self.is_whole else linger
        while loop.time() < deadline and not _is_over(drivers, loop.time() - pause):  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(LOOK_EVERY)
        unfinished = [f"{driver.mesh.me.label}: {left}" for driver in drivers if (left := _what_is_left(driver))]
        await asyncio.gather(*(driver.close() for driver in drivers))
        return unfinished


def _is_over(drivers: Iterable[AddressedDriver], since: float) -> bool:
    """Whether all processes are at rest, and have been since that time."""
    return all(driver.ended is not None or (driver.is_quiet and driver.last_busy <= since) for driver in drivers)


def _what_is_left(driver: AddressedDriver) -> str:
    if driver.ended is not None:
        return f"it stopped: {driver.ended.why}"
    return "" if driver.is_quiet else driver.what_is_left()
