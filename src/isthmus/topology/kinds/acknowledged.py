"""The `[systems.NAME.acknowledged]` table: a group over a broadcast medium, by TO or PO (docs/design/to-po.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.topology.kinds.group import KEYS, read_group
from isthmus.topology.kinds.kind import Kind
from isthmus.topology.model import System
from isthmus.topology.read.table import Table

if TYPE_CHECKING:  # words only: who reads a file needs no protocol
    from isthmus.core.endpoint import OrderName
    from isthmus.ordering.acknowledged.member import Protocol
    from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings, ActOn

MAX_WINDOW = 1024

_PROTOCOLS: tuple[Protocol, ...] = ("to", "po")
_STAGES: tuple[ActOn, ...] = ("received", "pre-acknowledged", "acknowledged")
_ORDERS: dict[Protocol, OrderName] = {"to": "total", "po": "fifo"}


class AcknowledgedTable(Struct, frozen=True, kw_only=True):
    protocol: Protocol
    act_on: ActOn = "acknowledged"
    window: int = 8
    answer_after: Nanos = 2 * MILLISECOND

    @property
    def order(self) -> OrderName:
        """What the protocol guarantees."""
        return _ORDERS[self.protocol]

    def settings(self) -> AcknowledgedSettings:
        from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings

        return AcknowledgedSettings(self.act_on, self.window, self.answer_after)


def _read(table: Table, system: System) -> System:
    system = replace(read_group(table, system), table=_read_table(table, system.order))
    if "delivery" in table.entries:
        table.refuse("delivery", "is for groups without [acknowledged]", "remove it, and write act-on there")
    if system.journal is not None:
        table.refuse("journal", "is for groups without [acknowledged]", "remove it, or the acknowledgements")
    return system


def _read_table(system: Table, order: str) -> AcknowledgedTable:
    """The table of a system that says to keep this order."""
    table = system.table("acknowledged")
    default = AcknowledgedTable(protocol="to")
    read = AcknowledgedTable(
        protocol=table.choice("protocol", _PROTOCOLS, None, "how PDUs are acknowledged"),
        act_on=table.choice("act-on", _STAGES, default.act_on),
        window=table.integer("window", default.window, 1, MAX_WINDOW),
        answer_after=table.duration("answer-after", default.answer_after),
    )
    if "protocol" in table.entries and order != read.order:
        reason = f"{read.protocol} keeps {read.order} order, not {order}"
        fitting = [protocol for protocol, kept in _ORDERS.items() if kept == order]
        others = f', or use protocol = "{fitting[0]}"' if fitting else ""
        system.refuse("order", reason, f'write order = "{read.order}"{others}')
    if read.protocol == "to" and read.act_on == "received":
        reason = "what is only received may still change places, and then the order would not be total"
        table.refuse("act-on", reason, 'write act-on = "pre-acknowledged" or "acknowledged", or use protocol = "po"')
    table.close()
    return read


ACKNOWLEDGED = Kind(table="acknowledged", keys=KEYS, orders=tuple(_ORDERS.values()), read=_read)
