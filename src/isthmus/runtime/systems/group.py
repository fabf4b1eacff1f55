"""Puts one member of an embedded system together: protocol, connections, trace, driver.

This is the one place that knows them all. A `SystemSpec` says everything that the members of one system must agree
on; it is plain data, so that it can be handed to another OS process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from isthmus.core.endpoint import Member, View
from isthmus.core.ids import (
    LIFE,
    MILLISECOND,
    SECOND,
    Directory,
    Nanos,
    ProcessId,
    ProcessName,
    incarnation_of,
    slot_of,
)
from isthmus.core.message import Batch
from isthmus.hierarchy.daisy.member import DaisyMember, daisy_member
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.tree import DaisyTree, tree_of
from isthmus.join.member import GatewayMember, Group
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.order import ORDERS
from isthmus.runtime.driver.endpoint import Driver
from isthmus.runtime.driver.member import Confirms, MemberDriver
from isthmus.runtime.driver.recorder import FLUSH_AFTER, PART_AFTER, LiveRecorder
from isthmus.runtime.problems import PeersUnreachable, RuntimeProblem
from isthmus.runtime.systems.acknowledged import AcknowledgedSpec, provide
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.hub import Hub
from isthmus.runtime.transport.medium import Medium
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.trace.recorder import Beginning
from isthmus.trace.schema import Role, TraceError
from isthmus.trace.writer import TraceFormat, open_log

OrderName: TypeAlias = Literal["fifo", "causal", "total"]
Delivery: TypeAlias = Literal["uniform", "fast"]

AnyDriver = TypeVar("AnyDriver", bound=Driver)


class SystemSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One embedded system, as all its members know it.

    `names` are those of all slots of the topology, since messages of other systems may come here; `addresses` are
    those of this system's slots. Times are in nanoseconds; the silence after which a member is suspected allows for an
    operating system that has other things to do.
    """

    run: str
    system: str
    names: tuple[ProcessName, ...]
    addresses: dict[int, Address]
    order: OrderName = "causal"
    delivery: Delivery = "uniform"
    heartbeat: Nanos = 20 * MILLISECOND
    suspect_after: Nanos = 1 * SECOND
    retry_after: Nanos = 200 * MILLISECOND
    window_messages: int = 16_384
    window_bytes: int = 8 << 20
    batch_messages: int = 1_024
    trace: str | None = None
    trace_format: TraceFormat = "jsonl"
    trace_sync: bool = False
    keepers: tuple[int, ...] = ()
    """Slots of the members that keep a journal."""
    life: int = 0
    """How often the whole system was started before."""
    standby: tuple[int, ...] = ()
    """Slots of members that are not there at the start."""
    start_within: float = 30.0
    """Seconds for founding members to find one another."""
    acknowledged: AcknowledgedSpec | None = None
    """What a group over a broadcast medium has to agree on besides."""
    daisy: DaisyTable | None = None
    """The tree of groups, of a daisy whose messages are for everybody."""
    gateways: tuple[int, ...] = ()
    """Slots of the gateways, where the system is joined to others."""

    def directory(self) -> Directory:
        return Directory(list(self.names))

    def founders(self) -> tuple[ProcessId, ...]:
        """The processes that this life of the system begins with."""
        present = sorted(self.addresses.keys() - set(self.standby))
        return tuple(incarnation_of(slot, self.life * LIFE) for slot in present)

    def tree(self) -> DaisyTree:
        """The groups of a daisy."""
        assert self.daisy is not None, f"{self.system} is no daisy"
        names = self.directory()
        return tree_of(self.daisy, lambda name: names.id(self.system, name))


MemberFactory: TypeAlias = Callable[[SystemSpec, ProcessId, bool, Confirms], Member]
"""Makes the endpoint of one process: of which system, which process, whether it joins, who confirms."""


def group_member(spec: SystemSpec, process: ProcessId, joining: bool, confirms: Confirms) -> Member:
    """The member that a `SystemSpec` describes."""
    settings = structs.replace(group_settings(spec), auto_confirm=confirms == "member")
    return make_group(spec, process, settings, joining=joining)


def make_group(spec: SystemSpec, process: ProcessId, settings: GroupSettings, *, joining: bool) -> Group:
    """A member of the system, by whichever protocol it has."""
    founders = spec.founders()
    if spec.daisy is not None:
        return daisy_member(process, spec.tree(), spec.gateways, settings, monotonic_ns())
    if spec.acknowledged is not None:
        return spec.acknowledged.member(process, founders, settings, joining=joining)
    return GroupMember(process, founders, ORDERS[spec.order], settings, monotonic_ns(), joining=joining)


def group_settings(spec: SystemSpec) -> GroupSettings:
    return GroupSettings(
        heartbeat=spec.heartbeat,
        suspect_after=spec.suspect_after,
        retry_after=spec.retry_after,
        window_messages=spec.window_messages,
        window_bytes=spec.window_bytes,
        batch_messages=spec.batch_messages,
        uniform=spec.delivery == "uniform",
        keepers=frozenset(spec.keepers),
    )


async def start_member(
    spec: SystemSpec,
    process: ProcessId,
    listener: socket.socket,
    *,
    on_batch: Callable[[Batch], None] | None = None,
    on_view: Callable[[View], None] | None = None,
    confirms: Confirms | None = None,
    joining: bool = False,
    role: Role = "app",
    limits: Limits = DEFAULT_LIMITS,
    make_member: MemberFactory = group_member,
    make_driver: Callable[..., MemberDriver] = MemberDriver,
) -> MemberDriver:
    """Start one process of a system that broadcasts, listening on `listener`."""
    confirmed_by: Confirms = confirms or ("driver" if on_batch is None else "member")

    def make(mesh: Carrier) -> MemberDriver:
        member = make_member(spec, process, joining, confirmed_by)
        # Who follows a former process in its place owes nothing from before it came, even if nobody was there then.
        how: Beginning = "join" if joining or spec.life else "start"
        recorder = open_recorder(spec, process, how, None if joining else _first_view(spec, member), role)
        driver = make_driver(member, mesh, recorder, on_batch=on_batch, on_view=on_view, confirms=confirmed_by)
        if isinstance(mesh, Medium):
            mesh.on_lost = driver.kill
        return driver

    return await start_driver(spec, process, listener, make, joining=joining, limits=limits)


async def start_driver(
    spec: SystemSpec,
    process: ProcessId,
    listener: socket.socket,
    make: Callable[[Carrier], AnyDriver],
    *,
    joining: bool,
    limits: Limits,
) -> AnyDriver:
    """Connect one process with the others, and let the driver run that `make` puts on top of that.

    Founding members wait for one another first: until all can be reached, silence means that somebody is still
    starting, and must not be taken for a crash. A process that joins needs only somebody who answers.
    """
    names = spec.directory()
    mesh = _carrier(spec, process, names, listener, limits)
    try:
        await mesh.open()
        if not joining:
            others = [founder for founder in spec.founders() if slot_of(founder) != slot_of(process)]
            missing = await mesh.reach(others, spec.start_within)
            if missing:
                raise PeersUnreachable(str(names.name(process)), list(map(str, missing)), spec.start_within)
        driver = make(mesh)
    except BaseException:
        mesh.abort()
        raise
    driver.start()
    return driver


async def provide_medium(spec: SystemSpec, at: Address | None = None) -> tuple[SystemSpec, Hub | None]:
    """Decide on the medium of a system and start what it needs. A hub is to be closed by the caller, in the end."""
    if spec.acknowledged is None:
        return spec, None
    acknowledged, hub = await provide(spec.acknowledged, f"{spec.run}/{spec.system}", spec.addresses, at)
    return structs.replace(spec, acknowledged=acknowledged), hub


def _carrier(
    spec: SystemSpec, process: ProcessId, names: Directory, listener: socket.socket, limits: Limits
) -> Carrier:
    """What carries the PDUs of this process: a medium, if the system has one, or TCP to each of the others."""
    group = f"{spec.run}/{spec.system}"
    if spec.acknowledged is not None:
        return spec.acknowledged.open_end(process, names, group, listener, spec.start_within)
    label = str(names.name(process))
    return Mesh(process, spec.addresses, listener, group=group_tag(group), label=label, limits=limits)


def _first_view(spec: SystemSpec, member: Member) -> View:
    """What a founding member is in at the start: the whole group, or its local group of a daisy."""
    group: object = member.group if isinstance(member, GatewayMember) else member
    return group.view if isinstance(group, DaisyMember) else View(1, spec.founders())


def open_recorder(
    spec: SystemSpec, process: ProcessId, how: Beginning, view: View | None, role: Role
) -> LiveRecorder | None:
    """Begin the trace of one process, if the system is to be traced."""
    if spec.trace is None:
        return None
    names = spec.directory()
    name = names.name(process)
    try:
        process_log = open_log(spec.trace, spec.trace_format, spec.run, name.system, name.process, role, names)
    except TraceError as error:
        raise RuntimeProblem(str(error)) from error
    flush_after = FLUSH_AFTER if spec.trace_format == "jsonl" else PART_AFTER
    return LiveRecorder(process, process_log, how, view, sync=spec.trace_sync, flush_after=flush_after)
