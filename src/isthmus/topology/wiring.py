"""Wiring: the links of every join, and whose messages each gateway forwards over them.

A file may leave much open: how many links, which gateways they connect, which processes use which link. Here the gaps
are closed, always in the same way, so that both ends of a link and every tool come to the same answer without asking
each other. Nothing here judges; an unsafe topology is wired exactly as it says.

Assignment is by **origin process**, wherever the message was re-broadcast since. So a set on one side of a join also
holds processes of systems further away on that side, and the rule of parallel, Sect. 3 (one process, one set) works
unchanged in chains, stars and trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, islice
from math import lcm

from msgspec import Struct

from isthmus.core.ids import ProcessName
from isthmus.topology.model import REST, Join, System, Topology, TransferSet


class Link(Struct, frozen=True, kw_only=True):
    """One FIFO channel between two gateways, usable both ways; `near` is of the join's first system."""

    join: int
    near: ProcessName
    far: ProcessName


class Forwarding(Struct, frozen=True, kw_only=True):
    """`gateway` sends the messages of these origin processes to `to`, over link number `link` of the join."""

    join: int
    link: int
    gateway: ProcessName
    to: ProcessName
    processes: tuple[ProcessName, ...]


def links(topology: Topology, join_index: int, count: int | None = None) -> tuple[Link, ...]:
    """The links of one join. `count` is the planner's answer to `links = "auto"`.

    First come the links that sets or paths name; the rest takes the gateways of both sides in turn, so that the load is
    even. Where there are more links than pairs of gateways, a pair has several. With no number given there are as many
    links as the larger side has gateways.
    """
    join = topology.joins[join_index]
    near, far = topology.system(join.between[0]), topology.system(join.between[1])
    pairs = named_pairs(topology, join_index)
    wanted = count if count is not None else join.links if isinstance(join.links, int) else join.planned
    wanted = wanted or len(pairs) or max(len(near.gateways), len(far.gateways))
    in_turn = tuple(_pairs_in_turn(near, far))
    further = [pair for pair in in_turn if pair not in pairs]
    wires = islice(chain(pairs, further, cycle(in_turn)), wanted)
    return tuple(Link(join=join_index, near=start, far=end) for start, end in wires)


def named_pairs(topology: Topology, join_index: int) -> dict[tuple[ProcessName, ProcessName], None]:
    """The pairs of gateways that the file asks for in this join, near side first, in the order of the file."""
    join = topology.joins[join_index]
    pairs: dict[tuple[ProcessName, ProcessName], None] = {}

    def add(start: ProcessName, end: ProcessName) -> None:
        pairs.setdefault((start, end) if start.system == join.between[0] else (end, start))

    if join.assign == "paths":
        for path in topology.paths:
            for start, end in path.links:
                if {start.system, end.system} == set(join.between):
                    add(start, end)
        return pairs
    if join.assign == "striped":
        return pairs
    for transfer_set in join.sets:
        if transfer_set.to is not None:
            add(transfer_set.gateway, transfer_set.to)
    for transfer_set in join.sets:
        gateway = transfer_set.gateway
        if transfer_set.to is not None or any(gateway in pair for pair in pairs):
            continue
        other = topology.system(_other(join, gateway.system))
        candidates = [ProcessName(other.name, name) for name in other.gateways]
        if candidates:
            add(gateway, min(candidates, key=lambda end: sum(end in pair for pair in pairs)))
    return pairs


def all_links(topology: Topology) -> tuple[Link, ...]:
    """Every link of the topology, join by join: the place in this list is the link's id."""
    return tuple(link for index in range(len(topology.joins)) for link in links(topology, index))


def forwardings(topology: Topology, join_index: int, count: int | None = None) -> tuple[Forwarding, ...]:
    """Who forwards whose messages over which link of a join, both directions.

    Empty for a striped causal join, where any gateway carries any block, and in path mode (see `path_links`). A message
    never goes back over the join that it came from; in a forest the sets see to that, as no process is on both sides.
    The name `*` stands for the clients of a broker that the file does not list.
    """
    join = topology.joins[join_index]
    if join.assign == "paths" or (join.assign == "striped" and join.order != "fifo"):
        return ()
    wires = links(topology, join_index, count)
    result: list[Forwarding] = []
    for side in join.between:
        origins = [
            origin for name in upstream(topology, join_index, side) for origin in _origins(topology.system(name))
        ]
        sets = [each for each in join.sets if each.gateway.system == side and join.assign != "striped"]
        result += _explicit(join_index, wires, sets, origins) if sets else _dealt(join_index, wires, side, origins)
    return tuple(result)


def path_links(topology: Topology) -> dict[ProcessName, tuple[tuple[ProcessName, ProcessName], ...]]:
    """Path mode: for each origin process the links that its messages take, as (from, to).

    A gateway that has a message of p forwards it over every link of p that starts at this gateway. A `system/*` entry
    is kept for processes that the file does not list.
    """
    result: dict[ProcessName, tuple[tuple[ProcessName, ProcessName], ...]] = {}
    for path in topology.paths:
        for process in path.processes:
            result.setdefault(process, path.links)
    for system in topology.systems:
        rest = result.get(ProcessName(system.name, REST))
        if rest is not None:
            for name in system.processes:
                result.setdefault(ProcessName(system.name, name), rest)
    return result


def upstream(topology: Topology, join_index: int, side: str) -> list[str]:
    """The systems whose messages can reach `side` without crossing this join, `side` first."""
    neighbours: dict[str, list[str]] = {}
    for index, join in enumerate(topology.joins):
        if index != join_index:
            for name in join.between:
                neighbours.setdefault(name, []).append(_other(join, name))
    found = {side: None}
    waiting = [side]
    for name in waiting:
        for neighbour in neighbours.get(name, ()):
            if neighbour not in found:
                found[neighbour] = None
                waiting.append(neighbour)
    return list(found)


def _other(join: Join, system: str) -> str:
    return join.between[1] if system == join.between[0] else join.between[0]


def _origins(system: System) -> list[ProcessName]:
    """Who may be the origin of a message in this system."""
    return [ProcessName(system.name, name) for name in system.processes]


def _pairs_in_turn(near: System, far: System) -> Iterator[tuple[ProcessName, ProcessName]]:
    """All pairs of gateways. Counting both sides round gives `lcm` different pairs; then one side is shifted by one."""
    width, height = len(near.gateways), len(far.gateways)
    for index in range(width * height):
        shifted = index + index // lcm(width, height)
        yield (
            ProcessName(near.name, near.gateways[index % width]),
            ProcessName(far.name, far.gateways[shifted % height]),
        )


def _explicit(
    join_index: int, wires: tuple[Link, ...], sets: list[TransferSet], origins: list[ProcessName]
) -> Iterator[Forwarding]:
    """Sets as the file gives them. Other origins go to the set with `*`, or to all sets in turn."""
    home = sets[0].gateway.system
    named = {process for each in sets for process in each.processes}
    rest = next((index for index, each in enumerate(sets) if (home, REST) in each.processes), None)
    if rest is None:
        # A listed process of this very system that no set names stays at home: an unsafe topology may show just that.
        unnamed = [each for each in origins if each not in named and (each.system != home or each.process == REST)]
    else:
        unnamed = [each for each in origins if each not in named]
    for index, each in enumerate(sets):
        number, to = _link_of(wires, each)
        dealt = unnamed[index :: len(sets)] if rest is None else unnamed if index == rest else []
        processes = (*each.processes, *dealt)
        yield Forwarding(join=join_index, link=number, gateway=each.gateway, to=to, processes=processes)


def _link_of(wires: tuple[Link, ...], transfer_set: TransferSet) -> tuple[int, ProcessName]:
    for number, link in enumerate(wires):
        ends = {link.near, link.far}
        if transfer_set.gateway in ends and (transfer_set.to is None or transfer_set.to in ends):
            return number, link.far if link.near == transfer_set.gateway else link.near
    raise LookupError(f"{transfer_set.gateway} has no link")


def _dealt(join_index: int, wires: tuple[Link, ...], side: str, origins: list[ProcessName]) -> Iterator[Forwarding]:
    """No set given: the origins are dealt to the links in turn."""
    for number, link in enumerate(wires):
        gateway, to = (link.near, link.far) if link.near.system == side else (link.far, link.near)
        processes = tuple(origins[number :: len(wires)])
        if processes:
            yield Forwarding(join=join_index, link=number, gateway=gateway, to=to, processes=processes)
