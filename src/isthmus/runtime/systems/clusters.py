"""Runs the processes of a system of clusters over real sockets (docs/design/clusters.md, "For real").

A process sends to one other, and waits where the next processes on the way are too far behind. It has no views and does
not leave (`host.py` says how it ends). It is at rest when it has heard nothing: nobody speaks here unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from socket import socket

from isthmus.core.endpoint import Destinations
from isthmus.core.ids import MILLISECOND, Nanos, ProcessId
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import ClusterProcess, ClusterSettings
from isthmus.hierarchy.clusters.tree import hierarchy_of
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite, OnRun
from isthmus.runtime.systems.kind import RunKind
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.topology.model import System, Topology

RETRY_AFTER = 200 * MILLISECOND
"""TCP loses nothing while a connection lives: what is sent again was lost with one, or dropped at a full buffer."""


class ClusterDriver(AddressedDriver[ClusterProcess]):
    """One process of a system of clusters."""

    async def send(self, destination: ProcessId, *payloads: bytes) -> int:
        """Send to one process, as soon as there is credit. Returns the sequence number of the first."""
        return await self._send(payloads, (destination,))

    def _put(self, destinations: Destinations | None, payloads: Sequence[bytes], now: Nanos) -> int:
        assert destinations is not None, "a message for everybody"
        return self.process.send(destinations[0], payloads, now, self._out)

    def _is_at_rest(self) -> bool:
        """Whether everything has been acknowledged that went from here, and nothing waits here."""
        return not self.process.channels.unacknowledged() and next(self.process.waiting(), None) is None

    def what_is_left(self) -> str:
        held = sum(1 for _ in self.process.waiting())
        frames = sum(self.process.channels.unacknowledged().values())
        return f"{held} messages held, {frames} frames not acknowledged"

    def _received(self, peer: ProcessId, pdus: Sequence[Pdu]) -> None:
        self.last_busy = self._loop.time()
        super()._received(peer, pdus)


class ClusterSite(AddressedSite[ClusterDriver]):
    """The processes of one system of clusters that run in this event loop."""

    parts = "clusters"

    def __init__(self, topology: Topology, system: System, spec: SystemSpec) -> None:
        super().__init__(topology, spec)
        self.tree = hierarchy_of(system.own(ClusterTable), lambda name: self.names.id(system.name, name))

    async def start(
        self,
        process: ProcessId,
        listener: socket,
        on_run: OnRun,
        settings: ClusterSettings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ClusterDriver:
        """Start one process."""
        endpoint = ClusterProcess(process, self.tree, settings or ClusterSettings(retry_after=RETRY_AFTER))
        return await self.launch(process, listener, partial(ClusterDriver, endpoint, on_run), limits)

    async def write(self, driver: ClusterDriver, target: ProcessId, payload: bytes, rng: Random) -> None:
        """Send a message to `target` alone: each message is for one process here."""
        await driver.send(target, payload)

    def describe(self, process: ProcessId) -> str:
        return ", ".join(each.name or "topmost" for each in self.tree.clusters_of(process))


CLUSTERS = RunKind(
    site=ClusterSite, end_together=True, at_rest=lambda driver: driver.is_quiet, fixed="is made of clusters"
)
