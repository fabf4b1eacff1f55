"""What a kind of system brings to the topology file.

The reader, the rules and `isthmus check` know kinds by this alone: nobody else asks which kind a system is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from isthmus.core.endpoint import OrderName
from isthmus.topology.model import ORDERS, System, Topology
from isthmus.topology.problem import Problems
from isthmus.topology.read.table import Table


class Refusal(NamedTuple):
    """Why something cannot be, and what to do instead."""

    reason: str
    way_out: str


class SystemTable(NamedTuple):
    """What `isthmus check` shows of one system: a table for people, and the same for programs."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    plain: list[dict[str, Any]]


def _sound(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    """The check of a kind whose systems do not depend on the rest of the file: nothing can be wrong."""


def _joinable(system: System) -> Refusal | None:
    return None


def _nothing_to_see(system: System) -> SystemTable | None:
    return None


class Kind(Struct, frozen=True, kw_only=True):
    """One kind. `providers` are the words after `kind =` that it is for.

    `table` is the key of its own table below `[systems.NAME]`, by which it is known; a kind without one is what a
    system is that has none of them. `keys` are the other keys that not every system has, `orders`
    those that such a system can keep. `read` takes what the file
    says of one system, `check` looks at all systems of this kind in the whole topology, `refuse_join` says why a system
    cannot be joined to others, and `picture` what is worth seeing of it.
    """

    providers: tuple[str, ...] = ("embedded",)
    table: str = ""
    keys: tuple[str, ...] = ()
    orders: tuple[OrderName, ...] = ORDERS
    read: Callable[[Table, System], System]
    check: Callable[[Problems, Topology, Sequence[System]], None] = _sound
    refuse_join: Callable[[System], Refusal | None] = _joinable
    picture: Callable[[System], SystemTable | None] = _nothing_to_see
