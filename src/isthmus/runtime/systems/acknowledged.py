"""A system by TO or PO for real: which medium it has, and what one entity on it is made of (docs/design/to-po.md).

TO needs one order for all, so its medium is a hub. PO is content with the order of each sender: UDP multicast where
the machine allows it, and a hub elsewhere.
"""

from __future__ import annotations

import logging
from socket import socket
from time import monotonic_ns
from typing import Any

from msgspec import structs

from isthmus.core.ids import SECOND, ProcessId
from isthmus.ordering.acknowledged.member import AcknowledgingMember, make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings
from isthmus.ordering.group.window import GroupSettings
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.kind import RunKind
from isthmus.runtime.systems.spec import AcknowledgedSpec, SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, listen
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.hub import Hub, HubMedium
from isthmus.runtime.transport.medium import Losses, Medium
from isthmus.runtime.transport.multicast import MulticastMedium, NoMulticast, group_address, try_out
from isthmus.runtime.transport.peer import Limits
from isthmus.topology.kinds.acknowledged import AcknowledgedTable
from isthmus.topology.model import System

log = logging.getLogger(__name__)


def _agree(system: System) -> dict[str, Any]:
    """What the entities have to agree on, as the file says it. Which medium carries them is not the file's business."""
    table = system.own(AcknowledgedTable)
    own = AcknowledgedSpec(
        protocol=table.protocol, act_on=table.act_on, window=table.window, answer_after=table.answer_after
    )
    return {"own": own}


def _member(spec: SystemSpec, process: ProcessId, settings: GroupSettings, joining: bool) -> AcknowledgingMember:
    own = spec.own_of(AcknowledgedSpec)
    acknowledged = AcknowledgedSettings(own.act_on, own.window, own.answer_after)
    # What a group says again, it says for TCP, which loses nothing while a connection lives. A medium does.
    settings = structs.replace(settings, retry_after=min(settings.retry_after, 2 * settings.heartbeat))
    members = spec.everybody() if joining else spec.founders()
    return make_member(own.protocol, process, members, acknowledged, settings, monotonic_ns(), joining=joining)


def _connect(spec: SystemSpec, process: ProcessId, listener: socket, limits: Limits) -> Medium:
    """One entity's end of the medium, not connected yet."""
    own, names = spec.own_of(AcknowledgedSpec), spec.directory()
    if own.where is None:
        raise ValueError("nobody has decided where the medium is: call decide first")
    tag, losses = group_tag(f"{spec.run}/{spec.system}"), Losses(own.loss, own.loss_seed)
    if own.medium == "multicast":
        return MulticastMedium(
            process, own.where, names, group=tag, returns_own=False, losses=losses, listener=listener
        )
    return HubMedium(
        process,
        own.where,
        names,
        group=tag,
        returns_own=own.protocol == "to",
        losses=losses,
        listener=listener,
        within=spec.start_within / SECOND,
    )


def decide(spec: AcknowledgedSpec, group: str, at: Address | None = None) -> AcknowledgedSpec:
    """Decide on the medium, and where it is: at an address that is known, or, without one, anywhere that is free.

    A hub without an address is still to be started, and then `where` is None.
    """
    if spec.where is not None:
        return spec
    if spec.protocol == "to" and spec.medium == "multicast":
        raise RuntimeProblem(
            "TO needs a medium that carries everything in one order, and multicast is none. "
            'Use the hub (`--medium hub`), or protocol = "po".'
        )
    if spec.protocol == "po" and spec.medium != "hub" and (at is None or at.host == LOOPBACK):
        meeting = group_address(group_tag(group), 0 if at is None else at.port)
        try:
            return structs.replace(spec, medium="multicast", where=try_out(meeting))
        except NoMulticast as problem:
            if spec.medium == "multicast":
                raise
            log.warning("%s: there will be a hub instead. %s", group, problem)
    elif spec.medium == "multicast":
        raise RuntimeProblem(f"Multicast stays on this machine, and {at} is elsewhere. Use the hub (`--medium hub`).")
    return structs.replace(spec, medium="hub", where=at)


async def _provide(spec: SystemSpec, at: Address | None) -> tuple[SystemSpec, Hub | None]:
    """Decide on the medium and start what it needs, which is nothing, or a hub that the caller is to close."""
    group = f"{spec.run}/{spec.system}"
    own = decide(spec.own_of(AcknowledgedSpec), group, at)
    if own.medium == "multicast":
        return structs.replace(spec, own=own), None
    listener = listen(own.where or Address(LOOPBACK, 0))
    hub = await Hub(listener, spec.addresses, group=group_tag(group), label=group).open()
    return structs.replace(spec, own=structs.replace(own, where=hub.address)), hub


ACKNOWLEDGED = RunKind(agree=_agree, member=_member, connect=_connect, provide=_provide)
