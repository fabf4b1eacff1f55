"""A system by TO or PO for real: which medium it has, and what one entity on it is made of (docs/design/to-po.md).

TO needs one order for all, so its medium is a hub. PO is content with the order of each sender: UDP multicast where
the machine allows it, and a hub elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from socket import socket
from time import monotonic_ns
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from isthmus.core.ids import MILLISECOND, Directory, Nanos, ProcessId
from isthmus.ordering.acknowledged.member import AcknowledgingMember, Protocol, make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings, ActOn
from isthmus.ordering.group.window import GroupSettings
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.transport.address import LOOPBACK, Address, listen
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.hub import Hub, HubMedium
from isthmus.runtime.transport.medium import Losses, Medium
from isthmus.runtime.transport.multicast import MulticastMedium, NoMulticast, group_address, try_out

log = logging.getLogger(__name__)

MediumKind: TypeAlias = Literal["auto", "hub", "multicast"]


class AcknowledgedSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the entities of one system agree on, beside what every group does. Plain data, like `SystemSpec`.

    `where` is the hub, or the multicast group; None until `settle` has decided. `loss` is the chance that an entity
    misses a PDU, on top of what the medium loses by itself.
    """

    protocol: Protocol
    act_on: ActOn = "acknowledged"
    window: int = 8
    answer_after: Nanos = 2 * MILLISECOND
    medium: MediumKind = "auto"
    where: Address | None = None
    loss: float = 0.0
    loss_seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.loss < 1:
            raise ValueError(f"a loss of {self.loss:g} is no chance below 1")

    def member(
        self, process: ProcessId, founders: Sequence[ProcessId], settings: GroupSettings, *, joining: bool
    ) -> AcknowledgingMember:
        acknowledged = AcknowledgedSettings(self.act_on, self.window, self.answer_after)
        # What a group says again, it says for TCP, which loses nothing while a connection lives. A medium does.
        settings = structs.replace(settings, retry_after=min(settings.retry_after, 2 * settings.heartbeat))
        return make_member(self.protocol, process, founders, acknowledged, settings, monotonic_ns(), joining=joining)

    def open_end(self, process: ProcessId, names: Directory, group: str, listener: socket, within: float) -> Medium:
        """The end of one entity, not connected yet. `group` is the name of run and system."""
        if self.where is None:
            raise ValueError("nobody has decided where the medium is: call settle first")
        tag, losses = group_tag(group), Losses(self.loss, self.loss_seed)
        if self.medium == "multicast":
            return MulticastMedium(
                process, self.where, names, group=tag, returns_own=False, losses=losses, listener=listener
            )
        returns_own = self.protocol == "to"
        return HubMedium(
            process,
            self.where,
            names,
            group=tag,
            returns_own=returns_own,
            losses=losses,
            listener=listener,
            within=within,
        )


def settle(spec: AcknowledgedSpec, group: str, at: Address | None = None) -> AcknowledgedSpec:
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


async def provide(
    spec: AcknowledgedSpec, group: str, slots: Container[int], at: Address | None = None
) -> tuple[AcknowledgedSpec, Hub | None]:
    """Decide on the medium and start what it needs, which is nothing, or a hub that the caller is to close."""
    spec = settle(spec, group, at)
    if spec.medium == "multicast":
        return spec, None
    listener = listen(spec.where or Address(LOOPBACK, 0))
    hub = await Hub(listener, slots, group=group_tag(group), label=group).open()
    return structs.replace(spec, where=hub.address), hub
