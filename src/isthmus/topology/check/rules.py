"""The rules of the papers, and of common sense, that a topology must keep.

Every check looks at the whole topology and returns all that it finds. A rule of the papers carries its section, so that
somebody who is refused can read why. Checks that need sound names (sets, links, paths) are left out for a join
whose systems do not exist: one cause, one line.
"""

from __future__ import annotations

from isthmus.core.ids import SLOT_BITS, ProcessName
from isthmus.topology.check.caution import check_caution, check_ends
from isthmus.topology.check.names import give_gateways, unknown_gateway, unknown_process, unknown_system
from isthmus.topology.check.paths import check_paths
from isthmus.topology.kinds.table import KINDS
from isthmus.topology.model import REST, BaseAddress, Join, System, Topology, TransferSet
from isthmus.topology.problem import Problem, Problems, listing
from isthmus.topology.wiring import all_links, named_pairs


def check(topology: Topology) -> list[Problem]:
    """Everything that is wrong with a topology, and everything that deserves a warning."""
    report = Problems(topology.file)
    _check_systems(report, topology)
    sound = [_check_ends(report, topology, index) for index in range(len(topology.joins))]
    for index, join in enumerate(topology.joins):
        if sound[index]:
            _check_order(report, topology, index)
            _check_assign(report, topology, index)
            if _check_sets(report, topology, index) and join.assign != "paths":
                _check_links(report, topology, index)
    _check_cycles(report, topology, sound)
    if topology.paths:
        _check_path_order(report, topology)
        check_paths(report, topology)
    _check_senders(report, topology)
    _check_exploration(report, topology)
    _check_kinds(report, topology)
    check_caution(report, topology)
    if all(problem.kind != "structure" for problem in report.problems):
        check_ends(report, topology)
        _check_lines(report, topology)
    if all(sound) and all(system.broadcasts for system in topology.systems):
        _check_islands(report, topology)
    return report.problems


def _check_systems(report: Problems, topology: Topology) -> None:
    if not topology.systems:
        report.refuse("systems", "there is no system", "add [systems.NAME] with a kind")
    slots = sum(len(system.members) for system in topology.systems)
    if slots > 1 << SLOT_BITS:
        report.refuse("systems", f"{slots} processes and gateways, {1 << SLOT_BITS} fit", "use several topologies")
    taken: dict[BaseAddress, str] = {}
    for system in topology.systems:
        _check_ports(report, taken, system, "address", system.address, len(system.members))
        _check_ports(report, taken, system, "link-address", system.link_address, len(system.gateways))
        for address in system.other_link_addresses:
            _check_ports(report, taken, system, "link-address", address, 1)


def _check_ports(
    report: Problems, taken: dict[BaseAddress, str], system: System, key: str, first: BaseAddress | None, count: int
) -> None:
    own = [first.plus(place) for place in range(count)] if first is not None else []
    clash = next((address for address in own if address in taken), None)
    if clash is not None:
        reason = f"{clash} is taken by {taken[clash]}: everybody listens on a port of its own"
        report.refuse(f"systems.{system.name}.{key}", reason, f"choose {len(own)} free ports in a row")
    taken.update(dict.fromkeys(own, system.name))


def _check_ends(report: Problems, topology: Topology, index: int) -> bool:
    """Are there two different systems, with gateways, and is this their only join?"""
    join = topology.joins[index]
    key = f"joins[{index}].between"
    unknown = [unknown_system(report, topology, f"{key}[{place}]", name) for place, name in enumerate(join.between)]
    if any(unknown):
        return False
    if join.between[0] == join.between[1]:
        report.refuse(key, f"{join.between[0]} is joined with itself", "name two different systems")
        return False
    for earlier in range(index):
        if set(topology.joins[earlier].between) == set(join.between):
            reason = f"{listing(join.between)} are joined already, by joins[{earlier}]"
            report.refuse(key, reason, f"remove this join, and set joins[{earlier}].links for more links")
            return False
    sound = True
    for place, name in enumerate(join.between):
        system = topology.system(name)
        if refusal := KINDS[system.kind].refuse_join(system):
            report.refuse(f"{key}[{place}]", *refusal)
            sound = False
        elif not system.gateways:
            report.refuse(f"{key}[{place}]", f"{name} has no gateway to join it by", give_gateways(name))
            sound = False
    near, far = map(topology.system, join.between)
    if (near.tls is None) != (far.tls is None):
        plain = near if near.tls is None else far
        reason = f"{plain.name} has no TLS and the other side has: no link between them would open"
        report.refuse(key, reason, f"add [systems.{plain.name}.tls], or remove it from the other")
    return sound


def _check_order(report: Problems, topology: Topology, index: int) -> None:
    join = topology.joins[index]
    key = f"joins[{index}].order"
    if join.order == "total":
        reason = "totally ordered systems cannot be interconnected (message-passing, Theorem 1)"
        report.refuse(key, reason, 'use order = "causal"; inside each system the order stays total', "protocol")
    weak = [name for name in join.between if topology.system(name).order == "fifo"]
    if join.order == "causal" and weak:
        reason = (
            f"a causal join needs causal systems, and {listing(weak)} {'is' if len(weak) == 1 else 'are'} only FIFO"
        )
        way_out = f'write joins[{index}].order = "fifo"'
        if all("causal" in KINDS[topology.system(name).kind].orders for name in weak):
            way_out = f'set systems.{weak[0]}.order = "causal" if it is, or joins[{index}].order = "fifo"'
        report.refuse(key, f"{reason} (parallel, Sect. 5)", way_out, "protocol")


def _check_assign(report: Problems, topology: Topology, index: int) -> None:
    join = topology.joins[index]
    key = f"joins[{index}]"
    if join.assign == "uncoordinated":
        if join.order == "fifo":
            reason = "uncoordinated is a way to break causal order, and this join is FIFO"
            report.refuse(f"{key}.assign", reason, 'use assign = "transfer-sets"')
        else:
            reason = "gateways that are not coordinated break causal order (parallel, Theorem 2)"
            way_out = 'use assign = "striped", or simulate it with a top-level unsafe = true'
            report.refuse(f"{key}.assign", reason, way_out, "protocol")
    if join.assign == "paths" and not topology.paths:
        report.refuse(f"{key}.assign", "there are no paths", 'add [[paths]], or use assign = "transfer-sets"')
    if topology.paths:
        if join.assign != "paths":
            reason = "with [[paths]] every join is in path mode"
            report.refuse(f"{key}.assign", reason, f"remove {key}.assign, or all [[paths]]")
        for name, given in (("links", join.links is not None), ("transfer-sets", bool(join.sets))):
            if given:
                report.refuse(f"{key}.{name}", "with [[paths]] the paths name the links", f"remove {key}.{name}")
    elif join.assign == "striped" and join.sets:
        way_out = 'remove them, or use assign = "transfer-sets"'
        report.refuse(_sets_key(join, index), 'transfer sets are not used with assign = "striped"', way_out, "warning")


def _sets_key(join: Join, index: int) -> str:
    simple = any(each.to is None for each in join.sets)
    return f"joins[{index}].{'transfer-sets' if simple else 'sets'}"


def _check_sets(report: Problems, topology: Topology, index: int) -> bool:
    """Do the sets name what exists, and divide the processes of a side: each in one set, none in two?"""
    join = topology.joins[index]
    sound = True
    for each in join.sets:
        key = each.key.removesuffix(".processes")
        ends = [(f"{key}.from" if each.to else key, each.gateway), (f"{key}.to", each.to or each.gateway)]
        for end_key, end in ends if each.to else ends[:1]:
            if end.system not in join.between:
                report.refuse(end_key, f"{end} is in neither of {listing(join.between)}", "name a gateway of these two")
                sound = False
            elif unknown_gateway(report, topology, end_key, end):
                sound = False
        if each.to is not None and each.gateway.system == each.to.system:
            report.refuse(f"{key}.to", "a link connects two different systems", "name a gateway of the other system")
            sound = False
        for place, process in enumerate(each.processes):
            process_key = f"{each.key}[{place}]"
            if unknown_process(report, topology, process_key, process):
                sound = False
            elif process.system != each.gateway.system and process.system in join.between:
                reason = f"{process} is on the other side of this join"
                report.refuse(process_key, reason, f"name a process that comes by way of {each.gateway.system}")
                sound = False
    if sound:
        for side in join.between:
            _check_division(report, topology, index, topology.system(side))
    return sound


def _check_division(report: Problems, topology: Topology, index: int, side: System) -> None:
    join = topology.joins[index]
    sets = [each for each in join.sets if each.gateway.system == side.name]
    if not sets:
        return
    rule = "(parallel, Sect. 3)"
    first: dict[ProcessName, TransferSet] = {}
    for each in sets:
        for place, process in enumerate(each.processes):
            if process not in first:
                first[process] = each
                continue
            key = f"{each.key}[{place}]"
            earlier = first[process]
            if process.process == REST:
                report.refuse(key, f'"{REST}" is in two transfer sets of {side.name}', "all others can go one way only")
                continue
            where = f"that of {earlier.gateway} and that of {each.gateway}"
            report.refuse(key, f"{process} is in two transfer sets, {where} {rule}", "remove it from one", "protocol")
    if ProcessName(side.name, REST) in first:
        return
    for name in side.processes:
        if ProcessName(side.name, name) not in first:
            reason = f"{side.name}/{name} is in no transfer set {rule}"
            report.refuse(_sets_key(join, index), reason, f'add it to one, or "{REST}" for all others', "protocol")


MOST_LINKS = 1024


def _check_links(report: Problems, topology: Topology, index: int) -> None:
    join = topology.joins[index]
    if not isinstance(join.links, int):
        return
    key = f"joins[{index}].links"
    named = len(named_pairs(topology, index))
    if named > join.links:
        report.refuse(key, f"the transfer sets need {named} links, not {join.links}", f"write links = {named}")
    if join.links > MOST_LINKS:
        report.refuse(key, f"{join.links} links are more than any line needs", f"write at most {MOST_LINKS}")


def _check_cycles(report: Problems, topology: Topology, sound: list[bool]) -> None:
    """The joins must form a forest, except FIFO joins in path mode.

    Joins are added one by one; one that connects what is connected already closes a cycle. Causal ones come first, so
    that a cycle of causal joins alone is always named as such.
    """
    if topology.paths:
        return
    tree: dict[str, list[tuple[str, int]]] = {system.name: [] for system in topology.systems}
    sequence = sorted(range(len(topology.joins)), key=lambda each: topology.joins[each].order == "fifo")
    for index in sequence:
        if not sound[index]:
            continue
        start, end = topology.joins[index].between
        way = _way(tree, start, end)
        if way is None:
            tree[start].append((end, index))
            tree[end].append((start, index))
            continue
        systems = " - ".join([start, *(name for name, _ in way), start])
        orders = {topology.joins[each].order for each in [index, *(number for _, number in way)]}
        key = f"joins[{index}].between"
        if orders == {"fifo"}:
            reason = (
                f"closes the cycle {systems} of FIFO joins: a message would reach a system twice (parallel, Sect. 4)"
            )
            way_out = "remove one of these joins, or add [[paths]] for every process"
        else:
            kind = "causal joins" if "fifo" not in orders else "joins, not all FIFO"
            reason = f"closes the cycle {systems} of {kind} (parallel, Lemma 1)"
            way_out = "remove one of these joins"
        report.refuse(key, reason, way_out, "protocol")


def _check_path_order(report: Problems, topology: Topology) -> None:
    """Two paths are two ways for a message and its answer, and nothing coordinates them."""
    causal = [f"joins[{index}]" for index, join in enumerate(topology.joins) if join.order == "causal"]
    if causal:
        reason = f"paths keep FIFO order only, and {listing(causal)} {'is' if len(causal) == 1 else 'are'} causal"
        way_out = 'use order = "fifo", or remove [[paths]] and every join that closes a cycle'
        report.refuse(f"{causal[0]}.order", f"{reason} (parallel, Lemma 1)", way_out, "protocol")


def _way(tree: dict[str, list[tuple[str, int]]], start: str, end: str) -> list[tuple[str, int]] | None:
    """The walk from `start` to `end`: each step as (system arrived at, join taken); None when there is none."""
    came: dict[str, tuple[str, int]] = {}
    waiting = [start]
    for name in waiting:
        for neighbour, index in tree[name]:
            if neighbour != start and neighbour not in came:
                came[neighbour] = (name, index)
                waiting.append(neighbour)
    if end not in came:
        return None
    walk = []
    while end != start:
        previous, index = came[end]
        walk.append((end, index))
        end = previous
    return walk[::-1]


def _check_senders(report: Problems, topology: Topology) -> None:
    for place, sender in enumerate(topology.simulation.workload.senders or ()):
        unknown_process(report, topology, f"simulation.workload.senders[{place}]", sender)


def _check_kinds(report: Problems, topology: Topology) -> None:
    for name, kind in KINDS.items():
        systems = [system for system in topology.systems if system.kind == name]
        if systems:
            kind.check(report, topology, systems)


def _check_lines(report: Problems, topology: Topology) -> None:
    """Is every line of its own that of some link?"""
    links = all_links(topology)
    for index, own in enumerate(topology.simulation.link):
        if all(own.between) and not any(own.is_for(link.near, link.far) for link in links):
            reason = f"no link runs between {listing(own.between)}"
            way_out = "name two joined systems, or two gateways that a link connects"
            report.refuse(f"simulation.link[{index}].between", reason, way_out)


def _check_exploration(report: Problems, topology: Topology) -> None:
    exploration = topology.exploration
    addressed = [system for system in topology.systems if not system.broadcasts]
    if addressed and exploration.sends is not None:
        reason = f"in {addressed[0].name} a message has a destination"
        report.refuse("exploration.sends", reason, 'write messages = [{ from = "s/p", to = "s/q" }]')
    if exploration.messages and not addressed:
        reason = "every message here is for everybody: only in clusters or in a daisy has one a destination"
        report.refuse("exploration.messages", reason, 'write sends = ["s/p"]')


def _check_islands(report: Problems, topology: Topology) -> None:
    first, *others = topology.parts() or ((),)
    if others:
        apart = [name for part in others for name in part]
        reason = f"nothing joins {listing(apart)} to {first[0]}, so no message goes from one to the other"
        report.refuse("joins", reason, f"add [[joins]] between {first[0]} and {apart[0]}", "warning")
