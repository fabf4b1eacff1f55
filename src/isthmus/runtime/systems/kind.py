"""What a kind of system brings to the runtime; the table of kinds is in `table.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from isthmus.core.endpoint import View
from isthmus.core.ids import ProcessId
from isthmus.join.member import Group
from isthmus.ordering.group.window import GroupSettings
from isthmus.runtime.systems.addressed import AddressedSite
from isthmus.runtime.systems.launch import Connect, to_each_peer
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.hub import Hub
from isthmus.topology.model import System, Topology


def _nothing_besides(system: System) -> dict[str, Any]:
    return {}


def _everybody(spec: SystemSpec, member: Group) -> View:
    return View(1, spec.founders())


class RunKind(Struct, frozen=True, kw_only=True):
    """How systems of one kind are run for real.

    `agree` is what its table in the file adds to the `SystemSpec`. A system that broadcasts has members (`member`), a
    `first_view` of each, and something that carries its PDUs (`connect`), which may have to be provided first
    (`provide` decides where it is, and starts a hub if need be). One whose messages are for some processes each is a
    `site` of its own. Where processes `end_together` they do not leave one by one, and stay until each is `at_rest`, if
    others may need them till then. `fixed` says of a kind whose members are those of the file what it is, in words.
    Before it begins, a founder calls all others, or as many as it `calls`.
    """

    agree: Callable[[System], dict[str, Any]] = _nothing_besides
    member: Callable[[SystemSpec, ProcessId, GroupSettings, bool], Group] | None = None
    first_view: Callable[[SystemSpec, Any], View] = _everybody
    connect: Connect = to_each_peer
    provide: Callable[[SystemSpec, Address | None], Awaitable[tuple[SystemSpec, Hub | None]]] | None = None
    site: Callable[[Topology, System, SystemSpec], AddressedSite[Any]] | None = None
    end_together: bool = False
    at_rest: Callable[[Any], bool] | None = None
    fixed: str = ""
    calls: int | None = None
