"""Runs the processes of a system of clusters over real sockets (docs/design/clusters.md, "For real").

A process sends to one other, and waits where the next processes on the way are too far behind. It has no views and does
not leave: a system of clusters ends as a whole, when everything that was sent has arrived. In one event loop that is
plain to see; where its processes run in several OS processes each ends when it has heard nothing for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from socket import socket

from isthmus.core.endpoint import Delivered
from isthmus.core.ids import MILLISECOND, ProcessId, slot_of
from isthmus.core.message import MAX_PAYLOAD, Addressed
from isthmus.core.pdu import Pdu
from isthmus.interconnect.cluster import ClusterProcess, ClusterSettings
from isthmus.interconnect.hierarchy import hierarchy_of
from isthmus.interconnect.topology import System, Topology
from isthmus.runtime.assembly import SystemSpec
from isthmus.runtime.driver import Driver
from isthmus.runtime.hello import group_tag
from isthmus.runtime.mesh import Mesh
from isthmus.runtime.peer import DEFAULT_LIMITS, Limits
from isthmus.runtime.problems import NotAccepting, PeersUnreachable, RuntimeProblem
from isthmus.runtime.recorder import NO_RECORDER, Recorder, TraceRecorder
from isthmus.trace.schema import TraceError
from isthmus.trace.writer import open_log

RETRY_AFTER = 200 * MILLISECOND
"""TCP loses nothing while a connection lives: what is sent again was lost with one, or dropped at a full buffer."""

LOOK_EVERY = 0.01


class ClusterDriver(Driver):
    """One process. Deliveries go to `on_message`, called synchronously, which must not send: it may start a task."""

    def __init__(
        self, process: ClusterProcess, mesh: Mesh, recorder: Recorder, on_message: Callable[[Addressed], None]
    ) -> None:
        super().__init__(process, mesh, recorder)
        self.process = process
        self.on_message = on_message
        self.refusal = ""
        self.last_heard = self._loop.time()
        self._waiting: list[asyncio.Future[None]] = []

    async def send(self, destination: ProcessId, *payloads: bytes) -> int:
        """Send to one process, as soon as there is credit. Returns the sequence number of the first."""
        for payload in payloads:
            if len(payload) > MAX_PAYLOAD:
                raise ValueError(f"a payload of {len(payload)} bytes is larger than {MAX_PAYLOAD}: send it in pieces")
        while not self.process.credit() and not self.refusal:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter
        if self.refusal:
            raise NotAccepting(self.refusal)
        first = 0
        try:
            first = self.process.send(destination, payloads, self._now(), self._out)
            self.recorder.sent_to(destination, first, payloads)
            self._carry_out()
        except Exception as error:
            self._broken(error)
        return first

    @property
    def is_quiet(self) -> bool:
        """Whether everything has been acknowledged that went from here, and nothing waits here."""
        return not self.process.channels.unacknowledged() and next(self.process.waiting(), None) is None

    def stop_accepting(self, why: str) -> None:
        self.refusal = self.refusal or why
        self._wake_senders()

    def _received(self, peer: ProcessId, pdus: Sequence[Pdu]) -> None:
        self.last_heard = self._loop.time()
        super()._received(peer, pdus)

    def _deliver_addressed(self, deliveries: list[Delivered]) -> None:
        super()._deliver_addressed(deliveries)
        for delivered in deliveries:
            self.on_message(delivered.message)

    def _step_done(self) -> None:
        super()._step_done()
        if self._waiting and self.process.credit():
            self._wake_senders()

    def _wake_senders(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class ClusterSite:
    """The processes of one system of clusters that run in this event loop."""

    def __init__(self, topology: Topology, system: System, spec: SystemSpec) -> None:
        if system.clusters is None:
            raise ValueError(f"{system.name} has no clusters")
        self.spec = spec
        self.names = spec.directory()
        self.tree = hierarchy_of(system.clusters, lambda name: self.names.id(system.name, name))
        self.drivers: dict[str, ClusterDriver] = {}
        self._everybody = list(topology.slots(system.name))

    async def start(
        self,
        process: ProcessId,
        listener: socket,
        on_message: Callable[[Addressed], None],
        settings: ClusterSettings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ClusterDriver:
        """Start one process. All wait for one another first, as none can do its part alone."""
        spec, label = self.spec, str(self.names.name(process))
        tag = group_tag(f"{spec.run}/{spec.system}")
        mesh = Mesh(process, spec.addresses, listener, group=tag, label=label, limits=limits)
        try:
            await mesh.open()
            others = [other for other in self._everybody if slot_of(other) != slot_of(process)]
            missing = await mesh.reach(others, spec.start_within)
            if missing:
                raise PeersUnreachable(label, list(map(str, missing)), spec.start_within)
            recorder = self._recorder(process)
        except BaseException:
            mesh.abort()
            raise
        endpoint = ClusterProcess(process, self.tree, settings or ClusterSettings(retry_after=RETRY_AFTER))
        driver = ClusterDriver(endpoint, mesh, recorder, on_message)
        self.drivers[self.names.name(process).process] = driver
        driver.start()
        return driver

    def _recorder(self, process: ProcessId) -> Recorder:
        spec, name = self.spec, self.names.name(process)
        if spec.trace is None:
            return NO_RECORDER
        try:
            log = open_log(spec.trace, spec.trace_format, spec.run, name.system, name.process, "app", self.names)
        except TraceError as error:
            raise RuntimeProblem(str(error)) from error
        return TraceRecorder(process, log, self.names, joining=False, sync=spec.trace_sync)

    @property
    def is_whole(self) -> bool:
        """Whether all processes of the system run here."""
        return len(self.drivers) == len(self._everybody)

    async def close(self, within: float = 10.0, linger: float = 1.0) -> list[str]:
        """End, once everything has arrived. Returns what had not when time was up, in words.

        Where others run elsewhere nobody here can know that they have nothing more to relay: so each stays until it has
        heard nothing for `linger` seconds.
        """
        drivers = list(self.drivers.values())
        for driver in drivers:
            driver.stop_accepting("the system ends")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = 0.0 if self.is_whole else linger
        while loop.time() < deadline and not _is_over(drivers, loop.time() - pause):  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(LOOK_EVERY)
        unfinished = [f"{driver.mesh.me.label}: {_what_is_left(driver)}" for driver in drivers if not driver.is_quiet]
        await asyncio.gather(*(driver.close() for driver in drivers))
        return unfinished


def _is_over(drivers: Iterable[ClusterDriver], since: float) -> bool:
    """Whether all are quiet, and have been since then."""
    return all(driver.ended is not None or (driver.is_quiet and driver.last_heard <= since) for driver in drivers)


def _what_is_left(driver: ClusterDriver) -> str:
    held = sum(1 for _ in driver.process.waiting())
    frames = sum(driver.process.channels.unacknowledged().values())
    return f"{held} messages held, {frames} frames not acknowledged"
