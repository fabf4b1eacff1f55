"""What systems of clusters and daisies have in common over real sockets: messages that are for some processes only.

A process sends to some others, and waits while it is too far ahead of them. Such a system ends as a whole, when
everything that was sent is where it belongs: `host.py` says when that is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from socket import socket
from typing import Any, ClassVar, Generic, TypeVar

from isthmus.core.endpoint import AddressedDelivery, View
from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.message import Addressed, Batch
from isthmus.runtime.driver.process import ProcessDriver, Sender
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.systems.launch import open_recorder, start_driver, to_each_peer
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.topology.model import Topology

OnRun = Callable[[Addressed], None]
"""Takes a run that was delivered. It is called synchronously and must not send; it may start a task that does."""


AnyProcess = TypeVar("AnyProcess", bound=Sender)


class AddressedDriver(ProcessDriver, Generic[AnyProcess]):
    """One process."""

    def __init__(self, process: AnyProcess, on_run: OnRun, mesh: Carrier, recorder: LiveRecorder | None) -> None:
        super().__init__(process, mesh, recorder)
        self.process = process
        self.on_run = on_run

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

    def unfinished(self) -> str:
        if self.ended is not None and self.ended.how != "end":
            return f"it stopped: {self.ended.why}"
        return "" if self.is_quiet else self.what_is_left()

    def _deliver(self, deliveries: list[Batch | View]) -> None:
        for item in deliveries:
            if isinstance(item, View):
                self.view = item

    def _deliver_addressed(self, deliveries: list[AddressedDelivery]) -> None:
        for delivered in deliveries:
            self.on_run(delivered.run)


AnyDriver = TypeVar("AnyDriver", bound=AddressedDriver[Any])


class AddressedSite(ABC, Generic[AnyDriver]):
    """The processes of one such system that run in this event loop. `parts` is what such a system consists of."""

    parts: ClassVar[str]

    def __init__(self, topology: Topology, spec: SystemSpec) -> None:
        self.spec = spec
        self.names = spec.directory()
        self.drivers: dict[str, AnyDriver] = {}
        self.everybody: list[ProcessId] = list(topology.slots(spec.system))

    @abstractmethod
    async def start(self, process: ProcessId, listener: socket, on_run: OnRun) -> AnyDriver:
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
