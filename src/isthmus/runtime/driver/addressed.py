"""What systems of clusters and daisies have in common over real sockets: messages that are for some processes only.

A process sends to some others, and waits while it is too far ahead of them. Such a system ends as a whole, when
everything that was sent is where it belongs. In one event loop that is plain to see; where its processes run in several
OS processes, each ends when everything has been at rest here for a while.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from socket import socket
from typing import Generic, Protocol, TypeVar

from isthmus.core.endpoint import Delivered, Endpoint
from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.message import Addressed
from isthmus.runtime.driver.endpoint import Driver, Ended
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.problems import NotAccepting, PeersUnreachable, RuntimeProblem
from isthmus.runtime.systems.group import SystemSpec
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.topology.model import Topology
from isthmus.trace.schema import TraceError
from isthmus.trace.writer import open_log

LOOK_EVERY = 0.01

OnMessage = Callable[[Addressed], None]
"""Takes a delivery. It is called synchronously and must not send; it may start a task that does."""


class AddressedEndpoint(Endpoint, Protocol):
    """A process whose messages are for some processes only."""

    def credit(self) -> int: ...


class AddressedDriver(Driver, ABC):
    """One process. `last_busy` is when something last kept it from being at rest."""

    def __init__(
        self, process: AddressedEndpoint, mesh: Mesh, recorder: LiveRecorder | None, on_message: OnMessage
    ) -> None:
        super().__init__(process, mesh, recorder)
        self.on_message = on_message
        self.refusal = ""
        self.accepted = 0
        self.last_busy = self._loop.time()
        self._credit = process.credit
        self._waiting: list[asyncio.Future[None]] = []

    @property
    @abstractmethod
    def is_quiet(self) -> bool:
        """Whether nothing that is known here is still on its way."""

    @abstractmethod
    def what_is_left(self) -> str:
        """What is on its way, in words."""

    @abstractmethod
    def _accept(self, destinations: tuple[ProcessId, ...], payloads: Sequence[bytes]) -> int:
        """Give messages to the endpoint. Returns the sequence number of the first."""

    async def send_to(self, destinations: tuple[ProcessId, ...], payloads: Sequence[bytes], largest: int) -> int:
        """Send as soon as there is credit. Returns the sequence number of the first."""
        for payload in payloads:
            if len(payload) > largest:
                raise ValueError(f"a payload of {len(payload)} bytes is larger than {largest}: send it in pieces")
        while not self._credit() and not self.refusal:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter
        if self.refusal:
            raise NotAccepting(self.refusal)
        first = 0
        try:
            first = self._accept(destinations, payloads)
            self.accepted += len(payloads)
            # The outbox is carried out after this, so the send stands before everything that it causes.
            if self.recorder is not None:
                self.recorder.sent(first, payloads, destinations)
            self._carry_out()
        except Exception as error:
            self._broken(error)
        return first

    def stop_accepting(self, why: str) -> None:
        self.refusal = self.refusal or why
        self._wake_senders()

    def _deliver_addressed(self, deliveries: list[Delivered]) -> None:
        super()._deliver_addressed(deliveries)
        for delivered in deliveries:
            self.on_message(delivered.message)

    def _step_done(self) -> None:
        super()._step_done()
        if self._waiting and self._credit():
            self._wake_senders()

    def _wake_senders(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _end(self, ended: Ended) -> None:
        super()._end(ended)
        self.stop_accepting(f"it has ended: {ended.why}")


AnyDriver = TypeVar("AnyDriver", bound=AddressedDriver)


class AddressedSite(ABC, Generic[AnyDriver]):
    """The processes of one such system that run in this event loop."""

    def __init__(self, topology: Topology, spec: SystemSpec) -> None:
        self.spec = spec
        self.names = spec.directory()
        self.drivers: dict[str, AnyDriver] = {}
        self.everybody: list[ProcessId] = list(topology.slots(spec.system))

    @abstractmethod
    async def start(self, process: ProcessId, listener: socket, on_message: OnMessage) -> AnyDriver:
        """Start one process, listening on `listener`."""

    @abstractmethod
    def describe(self, process: ProcessId) -> str:
        """What a process is in, for people."""

    async def launch(
        self,
        process: ProcessId,
        listener: socket,
        make_driver: Callable[[Mesh, LiveRecorder | None], AnyDriver],
        limits: Limits = DEFAULT_LIMITS,
    ) -> AnyDriver:
        """Start one process. Founders wait for one another first, as none can do its part alone."""
        spec, label = self.spec, str(self.names.name(process))
        tag = group_tag(f"{spec.run}/{spec.system}")
        mesh = Mesh(process, spec.addresses, listener, group=tag, label=label, limits=limits)
        try:
            await mesh.open()
            others = [other for other in spec.founders() if other != process]
            missing = await mesh.reach([] if slot_of(process) in spec.standby else others, spec.start_within)
            if missing:
                raise PeersUnreachable(label, list(map(str, missing)), spec.start_within)
            recorder = self._recorder(process)
        except BaseException:
            mesh.abort()
            raise
        driver = make_driver(mesh, recorder)
        self.drivers[self.names.name(process).process] = driver
        driver.start()
        return driver

    def _recorder(self, process: ProcessId) -> LiveRecorder | None:
        spec, name = self.spec, self.names.name(process)
        if spec.trace is None:
            return None
        try:
            log = open_log(spec.trace, spec.trace_format, spec.run, name.system, name.process, "app", self.names)
        except TraceError as error:
            raise RuntimeProblem(str(error)) from error
        return LiveRecorder(process, log, sync=spec.trace_sync)

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
    """Whether all are at rest, and have been since then."""
    return all(driver.ended is not None or (driver.is_quiet and driver.last_busy <= since) for driver in drivers)


def _what_is_left(driver: AddressedDriver) -> str:
    if driver.ended is not None:
        return f"it stopped: {driver.ended.why}"
    return "" if driver.is_quiet else driver.what_is_left()
