"""A group for real: members that speak to each other over TCP, in views."""

from __future__ import annotations

from time import monotonic_ns

from isthmus.core.ids import ProcessId
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import ALL_SPEAK, GroupSettings
from isthmus.ordering.orders.order import ORDERS
from isthmus.runtime.systems.kind import RunKind
from isthmus.runtime.systems.spec import SystemSpec


def _member(spec: SystemSpec, process: ProcessId, settings: GroupSettings, joining: bool) -> GroupMember:
    members = spec.everybody() if joining else spec.founders()
    return GroupMember(process, members, ORDERS[spec.order], settings, monotonic_ns(), joining=joining)


GROUP = RunKind(member=_member, calls=ALL_SPEAK - 1)
