"""Starts one member of a system that broadcasts, whatever its kind: protocol, connections, trace, driver."""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import TypeAlias

from msgspec import structs

from isthmus.core.endpoint import Member, View
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.join.member import GatewayMember, Group
from isthmus.ordering.group.window import GroupSettings
from isthmus.runtime.driver.member import Confirms, MemberDriver
from isthmus.runtime.systems.launch import open_recorder, start_driver
from isthmus.runtime.systems.spec import SystemSpec, group_settings
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.hub import Hub
from isthmus.runtime.transport.medium import Medium
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits
from isthmus.trace.recorder import Beginning
from isthmus.trace.schema import Role

MemberFactory: TypeAlias = Callable[[SystemSpec, ProcessId, bool, Confirms], Member]
"""Makes the endpoint of one process: of which system, which process, whether it joins, who confirms."""


def group_member(spec: SystemSpec, process: ProcessId, joining: bool, confirms: Confirms) -> Member:
    """The member that a `SystemSpec` describes."""
    settings = structs.replace(group_settings(spec), auto_confirm=confirms == "member")
    return make_group(spec, process, settings, joining=joining)


def make_group(spec: SystemSpec, process: ProcessId, settings: GroupSettings, *, joining: bool) -> Group:
    """A member of the system, by whichever protocol its kind has."""
    make = KINDS[spec.kind].member
    if make is None:
        raise TypeError(f"{spec.system} is of kind {spec.kind}, which has no members that broadcast")
    return make(spec, process, settings, joining)


async def start_member(
    spec: SystemSpec,
    process: ProcessId,
    listener: socket,
    *,
    on_batch: Callable[[Batch], None] | None = None,
    joining: bool = False,
    role: Role = "app",
    limits: Limits = DEFAULT_LIMITS,
    make_member: MemberFactory = group_member,
    make_driver: Callable[..., MemberDriver] = MemberDriver,
) -> MemberDriver:
    """Start one process of a system that broadcasts, listening on `listener`."""
    confirms: Confirms = "driver" if on_batch is None else "member"

    def make(mesh: Carrier) -> MemberDriver:
        member = make_member(spec, process, joining, confirms)
        # Who follows a former process in its place owes nothing from before it came, even if nobody was there then.
        how: Beginning = "join" if joining or spec.life else "start"
        recorder = open_recorder(spec, process, how, None if joining else _first_view(spec, member), role)
        driver = make_driver(member, mesh, recorder, on_batch=on_batch, confirms=confirms)
        if isinstance(mesh, Medium):
            mesh.on_lost = driver.kill
        return driver

    kind = KINDS[spec.kind]
    return await start_driver(
        spec, process, listener, make, kind.connect, joining=joining, limits=limits, calls=kind.calls
    )


async def provide_medium(spec: SystemSpec, at: Address | None = None) -> tuple[SystemSpec, Hub | None]:
    """Decide on the medium of a system and start what it needs. A hub is to be closed by the caller, in the end."""
    provide = KINDS[spec.kind].provide
    return (spec, None) if provide is None else await provide(spec, at)


def _first_view(spec: SystemSpec, member: Member) -> View:
    """The view that a founding member begins in."""
    return KINDS[spec.kind].first_view(spec, member.group if isinstance(member, GatewayMember) else member)
