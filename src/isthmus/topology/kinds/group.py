"""A group: processes that broadcast to each other, in views (docs/design/group.md). What most systems are."""

from __future__ import annotations

from msgspec.structs import replace

from isthmus.topology.kinds.kind import Kind
from isthmus.topology.model import Delivery, System
from isthmus.topology.read.keys import check_patience, read_address, read_standby, read_tls
from isthmus.topology.read.table import Table

DELIVERIES: tuple[Delivery, ...] = ("uniform", "fast")
KEYS = (
    "address",
    "heartbeat",
    "link-address",
    "tls",
    "journal",
    "standby",
    "delivery",
    "suspect-after",
    "start-within",
)


def read_group(table: Table, system: System) -> System:
    """Read the keys that every group has, whatever carries its messages."""
    system = replace(
        system,
        address=read_address(table, "address", len(system.members)),
        link_address=read_address(table, "link-address", len(system.gateways)),
        tls=read_tls(table),
        journal=table.text("journal"),
        standby=read_standby(table, system),
        delivery=table.choice("delivery", DELIVERIES, system.delivery),
        heartbeat=table.duration("heartbeat", system.heartbeat, low=1),
        suspect_after=table.duration("suspect-after", system.suspect_after),
        start_within=table.duration("start-within", system.start_within, low=1),
    )
    check_patience(table, system)
    return system


def _read(table: Table, system: System) -> System:
    system = read_group(table, system)
    if system.delivery == "fast" and system.order == "total":
        reason = "a total order is agreed on by a quorum, so nothing can be delivered on receipt"
        table.refuse("delivery", reason, 'write delivery = "uniform", or order = "causal"')
    if system.journal is not None and system.order == "total":
        reason = "two unfinished messages might change places between the dead and those who follow them"
        table.refuse("journal", reason, 'remove it, or write order = "causal"')
    elif system.journal is not None and system.delivery == "fast":
        reason = "a message would be delivered before the journal has it"
        table.refuse("journal", reason, 'remove it, or write delivery = "uniform"')
    elif system.journal is not None and not system.gateways:
        table.refuse("journal", "the gateways write it, and there is none", "remove it, or write gateways = 1")
    return system


GROUP = Kind(keys=KEYS, read=_read)
