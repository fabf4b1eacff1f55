"""Works out what each gateway has to know of its joins: names turn into slots, wiring into plans."""

from __future__ import annotations

from isthmus.core.ids import LinkId, ProcessName
from isthmus.join.plan import JoinPlan, LinkEnd, Share
from isthmus.topology.model import Join, Topology
from isthmus.topology.wiring import Link, all_links, forwardings, path_links, upstream


def plans(topology: Topology, system_name: str) -> tuple[JoinPlan, ...]:
    """All joins of one system."""
    return tuple(
        _plan(topology, index, system_name) for index, join in enumerate(topology.joins) if system_name in join.between
    )


def _plan(topology: Topology, index: int, side: str) -> JoinPlan:
    join = topology.joins[index]
    slots = {name: slot for slot, name in enumerate(topology.directory().slots)}
    wires = [(number, link) for number, link in enumerate(all_links(topology)) if link.join == index]
    ends = tuple(_end(number, link, side, slots) for number, link in wires)
    other = join.between[1] if side == join.between[0] else join.between[0]
    carriers = _carriers(topology, index, side, slots)
    backwards = _carriers(topology, index, other, slots)
    if join.assign == "paths":
        exported, imported = frozenset(carriers), frozenset(backwards)
    else:
        exported = _origin_slots(topology, index, side, slots)
        imported = _origin_slots(topology, index, other, slots)
    return JoinPlan(
        join=index,
        share=_share(topology, join, side),
        fellows=tuple(sorted({end.near for end in ends})),
        links=ends,
        carriers=carriers,
        exported=exported,
        imported=imported,
        numbered_imports=_share(topology, join, other) != "by-origin",
        causal_system=topology.system(side).order != "fifo",
        far_acts_alone=topology.system(other).acts_alone,
        logs=frozenset(slot for name, slot in slots.items() if topology.system(name.system).acts_alone),
    )


def _share(topology: Topology, join: Join, side: str) -> Share:
    if join.order == "fifo" or join.assign in ("paths", "uncoordinated"):
        return "by-origin"
    system = topology.system(side)
    if system.order == "total" and not system.acts_alone:
        return "counted"
    return "sets" if join.assign == "transfer-sets" else "striped"


def _end(number: int, link: Link, side: str, slots: dict[ProcessName, int]) -> LinkEnd:
    near, far = (link.near, link.far) if link.near.system == side else (link.far, link.near)
    return LinkEnd(number, slots[near], slots[far])


def _origin_slots(topology: Topology, index: int, side: str, slots: dict[ProcessName, int]) -> frozenset[int]:
    systems = upstream(topology, index, side)
    return frozenset(
        slots[ProcessName(name, process)] for name in systems for process in topology.system(name).processes
    )


def _carriers(topology: Topology, index: int, side: str, slots: dict[ProcessName, int]) -> dict[int, LinkId]:
    """Origin slot -> link, for everything that leaves `side` by a fixed link of this join."""
    join = topology.joins[index]
    wires = all_links(topology)
    offset = next(number for number, link in enumerate(wires) if link.join == index)
    carriers: dict[int, LinkId] = {}
    if join.assign == "paths":
        for origin, path in path_links(topology).items():
            for start, end in path if origin in slots else ():
                if start.system == side and {start.system, end.system} == set(join.between):
                    carriers[slots[origin]] = _link_between(wires, index, start, end)
        return carriers
    for forwarding in forwardings(topology, index):
        if forwarding.gateway.system == side:
            for process in forwarding.processes:
                if process in slots:
                    carriers[slots[process]] = offset + forwarding.link
    return carriers


def _link_between(wires: tuple[Link, ...], index: int, start: ProcessName, end: ProcessName) -> LinkId:
    return next(
        number for number, link in enumerate(wires) if link.join == index and {link.near, link.far} == {start, end}
    )
