"""Path mode: every process has a tree of links that reaches every other system exactly once (parallel, Sect. 4).

That is the paper's steps 1 and 2: one gateway isp(p) by which the messages of p leave their system, and paths with one
gateway per system. Reached twice, a system gets messages twice and in no order; not reached, it never gets them; with
two gateways in one system, what came in by one would have to leave by another.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.core.ids import ProcessName
from isthmus.topology.check.names import unknown_gateway, unknown_process
from isthmus.topology.model import REST, Path, Topology
from isthmus.topology.problem import Problems, listing

_RULE = "(parallel, Sect. 4)"


def check_paths(report: Problems, topology: Topology) -> None:
    owner: dict[ProcessName, int] = {}
    for index, path in enumerate(topology.paths):
        if _check_names(report, topology, index, path):
            _check_tree(report, topology, index, path)
        for process in path.processes:
            if process in owner:
                reason = f"{process} has a path already, paths[{owner[process]}] {_RULE}"
                report.refuse(f"paths[{index}].process", reason, "remove it from one of the two", "protocol")
            owner.setdefault(process, index)
    for name in _without_path(topology, owner):
        reason = f"{name} has no path {_RULE}"
        report.refuse("paths", reason, f'add [[paths]] with process = "{name}"', "protocol")


def _without_path(topology: Topology, owner: Iterable[ProcessName]) -> list[ProcessName]:
    missing = []
    for system in topology.systems:
        rest = ProcessName(system.name, REST)
        if rest not in owner:
            names = [ProcessName(system.name, process) for process in system.processes] or [rest]
            missing += [name for name in names if name not in owner]
    return missing


def _check_names(report: Problems, topology: Topology, index: int, path: Path) -> bool:
    """Do the processes exist and live together, and does every link run along a join?"""
    key = f"paths[{index}]"
    known = [not unknown_process(report, topology, f"{key}.process", process) for process in path.processes]
    homes = dict.fromkeys(process.system for process in path.processes)
    if len(homes) > 1:
        reason = f"the processes live in {listing(homes)}, and a tree has one root"
        report.refuse(f"{key}.process", reason, "write one [[paths]] for each system")
    sound = all(known) and len(homes) == 1
    joined = [set(join.between) for join in topology.joins]
    for number, ends in enumerate(path.links):
        link_key = f"{key}.links[{number}]"
        unknown = [unknown_gateway(report, topology, f"{link_key}[{place}]", end) for place, end in enumerate(ends)]
        systems = {end.system for end in ends}
        if any(unknown):
            sound = False
        elif len(systems) == 1:
            report.refuse(link_key, "a link connects two different systems", f"name a gateway outside {ends[0].system}")
            sound = False
        elif systems not in joined:
            pair = f'["{ends[0].system}", "{ends[1].system}"]'
            report.refuse(
                link_key, f"no join connects {ends[0].system} and {ends[1].system}", f"add [[joins]] between = {pair}"
            )
            sound = False
    return sound


def _check_tree(report: Problems, topology: Topology, index: int, path: Path) -> None:
    key = f"paths[{index}].links"
    home = path.processes[0].system
    who = listing(path.processes)
    gateway_of: dict[str, ProcessName] = {}
    arrivals = {home}
    said: set[str] = set()
    for number, (_, end) in enumerate(path.links):
        if end.system in arrivals:
            reason = f"reaches {end.system} twice {_RULE}"
            if end.system == home:
                reason = f"leads back to {home}, where {who} {'is' if len(path.processes) == 1 else 'are'} {_RULE}"
            report.refuse(f"{key}[{number}]", reason, "remove this link", "protocol")
        elif end.system not in gateway_of:
            gateway_of[end.system] = end
        arrivals.add(end.system)
    for number, (start, _) in enumerate(path.links):
        if start.system not in arrivals:
            reason = f"starts in {start.system}, which the path does not reach {_RULE}"
            report.refuse(f"{key}[{number}][0]", reason, f"add a link to {start}", "protocol")
            said.add(start.system)
            continue
        used = gateway_of.setdefault(start.system, start)
        if used != start:
            reason = f"uses {start.process} besides {used.process} in {start.system}: one gateway per system {_RULE}"
            report.refuse(f"{key}[{number}][0]", reason, f'write "{used}"', "protocol")
    for system in topology.systems:
        if system.name not in arrivals | said:
            reason = f"does not reach {system.name} {_RULE}"
            report.refuse(key, reason, f"add a link to a gateway of {system.name}", "protocol")
    _check_connected(report, key, path, home)


def _check_connected(report: Problems, key: str, path: Path, home: str) -> None:
    """Links that only lead to each other, in a ring apart from the tree, are used by nobody."""
    reached = [home]
    for name in reached:
        reached += [end.system for start, end in path.links if start.system == name and end.system not in reached]
    ends = {end.system for _, end in path.links}
    for number, (start, _) in enumerate(path.links):
        if start.system in ends and start.system not in reached:
            reason = f"starts in {start.system}, which no chain of links from {home} reaches {_RULE}"
            report.refuse(f"{key}[{number}]", reason, f"begin at a gateway of {home}", "protocol")
