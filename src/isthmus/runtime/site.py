"""Puts one site of a topology together: the members of its system, and the links of its gateways.

A `Site` knows the topology and which part of it runs here; `start` brings one member to life. docs/design/sites.md says
who dials whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any

from isthmus.core.endpoint import Member, View
from isthmus.core.ids import SECOND, Nanos, ProcessId, ProcessName, slot_of
from isthmus.core.message import Batch
from isthmus.join.grouped import GroupGateway
from isthmus.join.member import GatewayMember, gateway_settings, seats_of
from isthmus.join.recovery import NOTHING
from isthmus.runtime.driver.gateway import GatewayDriver
from isthmus.runtime.driver.member import Confirms, MemberDriver
from isthmus.runtime.ends import LinkEnds
from isthmus.runtime.journal import VERSION, Head, Journal, read_former
from isthmus.runtime.link.connection import DEFAULT_LINK_LIMITS, LinkLimits
from isthmus.runtime.seats import SeatWatch
from isthmus.runtime.systems.members import make_group, start_member
from isthmus.runtime.systems.spec import SystemSpec, group_settings
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import Address
from isthmus.topology.model import SUSPECT_AFTER, System, Topology
from isthmus.topology.plans import plans

REAL_SUSPECT_AFTER: Nanos = 1 * SECOND
RETRY_AFTER = 2
"""Suspicion times after which an unanswered `Open` is said again."""


class Site:
    """One system of a topology, as its members here see it. `run` names the run and must be the same at all sites."""

    def __init__(
        self,
        topology: Topology,
        system: str,
        spec: SystemSpec,
        *,
        limits: LinkLimits = DEFAULT_LINK_LIMITS,
        journal_sync: bool = False,
    ) -> None:
        self.topology = topology
        self.system: System = topology.system(system)
        self.spec = spec
        self.names = spec.directory()
        self._plans = plans(topology, system)
        self._ends = LinkEnds(topology, self.system, spec.run, limits)
        self._journal = journal_of(topology, self.system)
        self._journal_sync = journal_sync
        self._seats = self._watch_seats()
        self._recovered = NOTHING
        if self._journal is not None:
            self._recovered = read_former(self._journal, spec.life, spec.run, spec.system)

    def _watch_seats(self) -> SeatWatch:
        joins: dict[str, frozenset[int]] = {}
        for plan in self._plans if self.system.revives else ():
            near, far = self.topology.joins[plan.join].between
            joins[far if near == self.system.name else near] = frozenset(plan.fellows)
        watch = SeatWatch(self.system.name, joins, self.names.name)
        watch.saw(View(1, tuple(self.spec.founders())))
        return watch

    def is_gateway(self, process: ProcessId) -> bool:
        return bool(self._plans) and slot_of(process) in self.topology.gateway_slots(self.system.name)

    async def start(
        self,
        process: ProcessId,
        listener: socket,
        *,
        on_batch: Callable[[Batch], None] | None = None,
        joining: bool = False,
    ) -> MemberDriver:
        """Start one member of the site; a gateway with its links."""
        if not self.is_gateway(process):
            make_driver = partial(self._watched, MemberDriver)
            return await start_member(
                self.spec, process, listener, on_batch=on_batch, joining=joining, make_driver=make_driver
            )
        name = self.names.name(process)
        with ExitStack() as unless_it_starts:
            link_listener = self._ends.listener(name.process)
            if link_listener is not None:
                unless_it_starts.callback(link_listener.close)
            tls = self._ends.tls(name.process)
            journal = self._open_journal(name)
            driver = await start_member(
                self.spec,
                process,
                listener,
                joining=joining,
                role="gateway",
                make_member=self._gateway_member,
                make_driver=partial(
                    self._watched,
                    GatewayDriver,
                    make_links=partial(self._ends.make, process, link_listener, tls),
                    journal=journal,
                ),
            )
            unless_it_starts.pop_all()
        return driver

    def _watched(self, make: Callable[..., MemberDriver], *arguments: Any, **options: Any) -> MemberDriver:
        driver = make(*arguments, **options)
        driver.on_view = self._seats.saw
        return driver

    def _gateway_member(self, spec: SystemSpec, process: ProcessId, joining: bool, confirms: Confirms) -> Member:
        settings = gateway_settings(group_settings(spec))
        group = make_group(spec, process, settings, joining=joining)
        gateway = GroupGateway(
            process,
            spec.founders(),
            self._plans,
            RETRY_AFTER * spec.suspect_after,
            joining=joining,
            keeping=self._journal is not None,
            recovered=self._recovered,
        )
        return GatewayMember(group, gateway)

    def _open_journal(self, name: ProcessName) -> Journal | None:
        if self._journal is None:
            return None
        spec, process = self.spec, self.names.id(*name)
        since = 1 if process in spec.founders() else process
        former = sorted(self._recovered.done.items())
        head = Head(VERSION, spec.run, spec.system, name.process, spec.life, since, former)
        return Journal(self._journal, head, self._recovered.done, sync=self._journal_sync)


def journal_of(topology: Topology, system: System) -> Path | None:
    """The directory of a system's journal; the file says where it is from where the file is."""
    return None if system.journal is None else Path(topology.file).parent / system.journal


def site_spec(
    topology: Topology, system: System, addresses: Sequence[Address], run: str, **settings: Any
) -> SystemSpec:
    """What the members of one system of a topology have to agree on; one address per member, in their order."""
    members = dict(zip(topology.slots(system.name), system.members, strict=True))
    return SystemSpec(
        run=topology.run_of(run, system.name),
        system=system.name,
        names=tuple(topology.directory().slots),
        addresses=dict(zip(topology.slots(system.name), addresses, strict=True)),
        order=system.order,
        delivery=system.delivery,
        heartbeat=system.heartbeat,
        suspect_after=REAL_SUSPECT_AFTER if system.suspect_after == SUSPECT_AFTER else system.suspect_after,
        start_within=system.start_within,
        keepers=tuple(topology.gateway_slots(system.name)) if system.journal is not None else (),
        standby=tuple(slot for slot, name in members.items() if name in system.standby),
        kind=system.kind,
        gateways=tuple(topology.gateway_slots(system.name)) if topology.is_joined(system.name) else (),
        seats=seats_of(plans(topology, system.name)) if system.revives else (),
        **(KINDS[system.kind].agree(system) | settings),
    )
