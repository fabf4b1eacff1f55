"""Runs the processes of a daisy over real sockets (docs/design/daisy.md, "For real").

A process sends to any set of processes, and waits while too much of what it sent is not stable everywhere. Processes
may be killed at any time: their groups go on without them. The daisy ends as a whole (`host.py`), because a group
that is gone leaves a seat that nobody holds. A process is at rest where nothing is kept, held or under way; heartbeats
go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from socket import socket
from time import monotonic_ns
from typing import Any

from isthmus.core.endpoint import Destinations, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.hierarchy.daisy.member import DaisyMember, daisy_member
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.join.member import GatewayMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.systems.addressed import AddressedDriver, AddressedSite, OnRun
from isthmus.runtime.systems.kind import RunKind
from isthmus.runtime.systems.spec import SystemSpec, group_settings
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.topology.model import System, Topology

WINDOW = 256
"""Own messages of a process that are not stable everywhere. A message is stable after a few heartbeats, so that is some
thousand a second of each process; what a new server has to see through stays short."""


class DaisyDriver(AddressedDriver[DaisyProcess]):
    """One process of a daisy."""

    async def send(self, destinations: Sequence[ProcessId], *payloads: bytes) -> int:
        """Send to these processes, as soon as there is credit. Returns the sequence number of the first."""
        chosen = tuple(sorted(set(destinations)))
        if not chosen or not self.process.tree.knows(chosen):
            raise ValueError(f"a message to {chosen}: name one or more processes of this system")
        return await self._send(payloads, chosen)

    def _put(self, destinations: Destinations | None, payloads: Sequence[bytes], now: Nanos) -> int:
        assert destinations is not None, "a message for everybody"
        return self.process.send(destinations, payloads, now, self._out)

    def _is_at_rest(self) -> bool:
        """Whether everything is stable that was sent here, or kept here for others, and nothing is held."""
        return self.process.is_quiet

    def what_is_left(self) -> str:
        process = self.process
        if process.is_outside:
            return f"not let in yet, with {len(process.waiting_to_send)} messages to send"
        held = sum(1 for _ in process.waiting())
        kept = sum(len(level.record.kept) for level in process.levels)
        changing = ", groups about to change" if process.is_changing else ""
        return f"{len(process.unstable)} messages not stable, {kept} kept for others, {held} held{changing}"

    def _step_done(self) -> None:
        super()._step_done()
        if not self.is_quiet:
            self.last_busy = self._loop.time()


class DaisySite(AddressedSite[DaisyDriver]):
    """The processes of one daisy that run in this event loop."""

    parts = "groups"

    def __init__(self, topology: Topology, system: System, spec: SystemSpec) -> None:
        super().__init__(topology, spec)
        self.tree = tree_of(system.own(DaisyTable), lambda name: self.names.id(system.name, name))

    async def start(
        self, process: ProcessId, listener: socket, on_run: OnRun, limits: Limits = DEFAULT_LIMITS
    ) -> DaisyDriver:
        """Start one process."""
        settings = group_settings(self.spec)

        def make(mesh: Carrier, recorder: LiveRecorder | None) -> DaisyDriver:
            # Silence counts from here: until all could be reached, it meant that somebody was still starting.
            endpoint = DaisyProcess(process, self.tree, settings, monotonic_ns())
            return DaisyDriver(endpoint, on_run, mesh, recorder)

        return await self.launch(process, listener, make, limits)

    async def write(self, driver: DaisyDriver, target: ProcessId, payload: bytes, rng: Random) -> None:
        """Send a message to `target`, and now and then to others as well, or to everybody."""
        everybody = self.everybody
        others = rng.sample(everybody, rng.choice((0, 0, 1, min(2, len(everybody)), len(everybody))))
        # Whoever is not in the tree now has not come yet, or is gone.
        present = [each for each in (target, *others) if driver.process.tree.knows((each,))]
        if present:
            await driver.send(present, payload)

    def describe(self, process: ProcessId) -> str:
        """The local group, and the groups above in which it holds a seat now."""
        daisy = self.drivers[self.names.name(process).process].process
        if daisy.is_outside:
            return "not let in yet"
        groups = (daisy.tree.groups[level.number] for level in daisy.levels)
        return ", ".join(group.name or ("everybody" if group.is_local else "topmost") for group in groups)


def _is_at_rest(driver: DaisyDriver | MemberDriver) -> bool:
    """Whether a process, or the gateway of a daisy that broadcasts, knows of nothing that is still on its way."""
    if isinstance(driver, DaisyDriver):
        return driver.is_quiet
    member: object = driver.member
    if isinstance(member, GatewayMember):
        if member.gateway.unfinished():
            return False
        member = member.group
    assert isinstance(member, DaisyMember)
    return member.is_quiet


def _agree(system: System) -> dict[str, Any]:
    return {"own": system.own(DaisyTable), "window_messages": WINDOW}


def _member(spec: SystemSpec, process: ProcessId, settings: GroupSettings, joining: bool) -> DaisyMember:
    names = spec.directory()
    tree = tree_of(spec.own_of(DaisyTable), lambda name: names.id(spec.system, name))
    return daisy_member(process, tree, spec.gateways, settings, monotonic_ns())


def _first_view(spec: SystemSpec, member: DaisyMember) -> View:
    """The view that a process begins in: that of its local group."""
    return member.view


DAISY = RunKind(
    agree=_agree,
    member=_member,
    first_view=_first_view,
    site=DaisySite,
    end_together=True,
    at_rest=_is_at_rest,
    fixed="is a daisy",
)
