"""What a topology cannot survive, or cannot show: allowed mostly, but its author should know.

Each is one sentence with the way out. Warnings do not keep a file from being used. What can only be a mistake is
refused: gateways that are all on standby, two systems with one journal, faults that can never happen.
"""

from __future__ import annotations

from posixpath import normpath

from isthmus.core.ids import ProcessName
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems, listing
from isthmus.topology.wiring import links

TESTED_LOSS = 0.3
"""The highest share of lost PDUs that any example or campaign is tried with."""

SURVIVES_ONE = 3
"""Members of the smallest group that goes on when any one of them is gone."""


def check_caution(report: Problems, topology: Topology) -> None:
    """Look at everything; names need not be sound."""
    for system in topology.systems:
        _check_system(report, system, joined=topology.is_joined(system.name))
    _check_journals(report, topology)
    _check_loss(report, topology)
    _check_faults(report, topology)


def _check_system(report: Problems, system: System, *, joined: bool) -> None:
    key = f"systems.{system.name}"
    if joined and system.delivery == "fast":
        reason = "in a joined system a crash may lose for the others what only the crashed process had delivered"
        report.refuse(f"{key}.delivery", reason, 'write delivery = "uniform"', "warning")
    if not system.acts_alone and system.broadcasts and 0 < len(system.founders) < SURVIVES_ONE:
        _warn_of_size(report, key, system)


def _warn_of_size(report: Problems, key: str, system: System) -> None:
    founders = system.founders
    reason = f"{founders[0]} is the only member: when it is gone, so is the system"
    if len(founders) > 1:
        reason = f"of two members only {founders[0]} can go on alone: without it {founders[1]} stands still"
    way_out = f"have {SURVIVES_ONE} members or more, gateways included"
    if len(system.members) >= SURVIVES_ONE:
        way_out = f"take somebody out of {key}.standby"
    report.refuse(f"{key}.processes", reason, way_out, "warning")


def check_ends(report: Problems, topology: Topology) -> None:
    """Look at the gateways at which links end; only for a topology that can be wired."""
    alone: dict[ProcessName, list[str]] = {}
    for index, join in enumerate(topology.joins):
        for name, other in (join.between, join.between[::-1]):
            system = topology.system(name)
            pairs = [(link.near, link.far) for link in links(topology, index)]
            ends = dict.fromkeys(end for pair in pairs for end in pair if end.system == name)
            present = [end for end in ends if end.process not in system.standby]
            if not present:
                reason = f"every gateway that a link to {other} ends at is on standby: nothing would cross"
                report.refuse(f"systems.{name}.standby", reason, f"leave out {next(iter(ends)).process}")
            elif len(present) == 1 and not system.acts_alone:
                alone.setdefault(present[0], []).append(other)
    for gateway, others in alone.items():
        system = topology.system(gateway.system)
        reason = f"{gateway.process} is the only gateway to {listing(others)}: while it is gone nothing crosses"
        reason += ", and nothing becomes stable" if system.revives else ", and nobody can take its place"
        way_out = "write gateways = 2" if len(system.gateways) == 1 else "let links end at another one, which is there"
        report.refuse(f"systems.{system.name}.gateways", reason, way_out, "warning")
    for index, path in enumerate(topology.paths):
        for end in dict.fromkeys(end for link in path.links for end in link):
            if end.process in topology.system(end.system).standby:
                reason = f"{end} is on standby, and these messages have no other way"
                report.refuse(
                    f"paths[{index}].links", reason, f"take {end.process} out of systems.{end.system}.standby"
                )


def _check_journals(report: Problems, topology: Topology) -> None:
    owner: dict[str, str] = {}
    for system in topology.systems:
        if system.journal is None:
            continue
        other = owner.setdefault(normpath(system.journal), system.name)
        if other != system.name:
            reason = f"{other} writes its journal to this directory already, and each would delete the other's"
            report.refuse(f"systems.{system.name}.journal", reason, f'write journal = "{system.name}-journal"')


def _check_loss(report: Problems, topology: Topology) -> None:
    loss = topology.simulation.network.loss
    if loss > TESTED_LOSS:
        reason = f"{loss:g} of all PDUs is more than any protocol here is tested with; live processes may be left out"
        report.refuse("simulation.network.loss", reason, f"write {TESTED_LOSS:g} or less", "warning")


def _check_faults(report: Problems, topology: Topology) -> None:
    """Refuse to be asked for faults that cannot happen to any system of the file; kinds refuse what they never do."""
    faults, systems = topology.simulation.faults, topology.systems
    parted = any(len(system.members) > 1 for system in systems)
    joined = bool(topology.joins)
    kept = any(system.journal for system in systems)
    gone = faults.crashes or faults.leaves or faults.partitions or faults.cuts or faults.slow or faults.restarts
    absent = any(system.standby for system in systems)
    logs = any(system.acts_alone and topology.is_joined(system.name) for system in systems)
    of_logs = {
        "pauses": faults.pauses,
        "broker-kills": faults.broker_kills,
        "trims": faults.trims,
        "recreations": faults.recreations,
    }
    impossible = {
        "partitions": faults.partitions and not parted and "no system has two members to part",
        "cuts": faults.cuts and not parted and "no system has two members with a line between them",
        "joins": faults.joins and not gone and not absent and "nobody goes, so there is no place to come to",
        "link-cuts": faults.link_cuts and not joined and "there is no join, so no link",
        "site-cuts": faults.site_cuts and not joined and "there is no join, so no link",
        **{name: asked and not logs and "only logs have that, and none is joined" for name, asked in of_logs.items()},
        "restarts": faults.restarts and not kept and "only a system with a journal begins again, and none has one",
    }
    said = {problem.key for problem in report.problems}
    for name, reason in impossible.items():
        if reason and f"simulation.faults.{name}" not in said:
            report.refuse(f"simulation.faults.{name}", f"can never happen: {reason}", f"remove {name}")
