"""What all members of one embedded system must agree on: plain data, so that it can be handed to another OS process."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import LIFE, MILLISECOND, SECOND, Directory, Nanos, ProcessId, ProcessName, incarnation_of
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.ordering.acknowledged.member import Protocol
from isthmus.ordering.acknowledged.receipts import ActOn
from isthmus.ordering.group.window import GroupSettings, Seat
from isthmus.runtime.transport.address import Address
from isthmus.topology.model import START_WITHIN, Delivery
from isthmus.trace.writer import TraceFormat

MediumKind: TypeAlias = Literal["auto", "hub", "multicast"]

Own = TypeVar("Own", bound=Struct)


class AcknowledgedSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="acknowledged"):
    """What the entities of one system agree on, beside what every group does. Plain data, like `SystemSpec`.

    `where` is the hub, or the multicast group; None until that is decided. `loss` is the chance that an entity
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
    batch_messages: int = 4_096
    trace: str | None = None
    trace_format: TraceFormat = "jsonl"
    trace_sync: bool = False
    keepers: tuple[int, ...] = ()
    """Slots of the members that keep a journal."""
    life: int = 0
    """How often the whole system was started before."""
    standby: tuple[int, ...] = ()
    """Slots of members that are not there at the start."""
    start_within: Nanos = START_WITHIN
    """For so long a quorum of the founders waits for the others."""
    kind: str = "group"
    """What it is made of, by its name in the table of kinds (`table.py`)."""
    own: AcknowledgedSpec | DaisyTable | None = None
    """What systems of this kind have to agree on besides."""
    gateways: tuple[int, ...] = ()
    """Slots of the gateways, where the system is joined to others."""
    seats: tuple[Seat, ...] = ()
    """Its joins, where gateways may come to them later."""
    sockets_only: bool = False
    """Whether members in one event loop speak over sockets too, instead of handing PDUs over."""

    def __post_init__(self) -> None:
        if self.start_within <= 0:
            raise ValueError("founders that do not wait for each other at all exclude whoever comes second")

    def directory(self) -> Directory:
        return Directory(list(self.names))

    def founders(self) -> tuple[ProcessId, ...]:
        """The processes that this life of the system begins with."""
        present = sorted(self.addresses.keys() - set(self.standby))
        return tuple(incarnation_of(slot, self.life * LIFE) for slot in present)

    def everybody(self) -> tuple[ProcessId, ...]:
        """Whom a process that joins may ask: somebody in each place, whoever it is by then."""
        return tuple(incarnation_of(slot, self.life * LIFE) for slot in sorted(self.addresses))

    def own_of(self, kind: type[Own]) -> Own:
        """What systems of its kind agree on besides, for whoever knows that kind."""
        if not isinstance(self.own, kind):
            raise TypeError(f"{self.system} is of kind {self.kind} and has no {kind.__name__}")
        return self.own


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
        start_within=spec.start_within,
        seats=spec.seats,
    )
