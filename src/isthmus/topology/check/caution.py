"""What a topology cannot survive, or cannot show: allowed mostly, but its author should know.

Each is one sentence with the way out. Warnings do not keep a file from being used. What can only be a mistake is
refused: gateways that are all on standby, two systems with one journal, faults that can never happen.
"""

from __future__ import annotations

from posixpath import normpath

from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems

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
    present = [name for name in system.gateways if name not in system.standby]
    if joined and system.gateways and not present:
        reason = "all gateways are on standby: nothing would cross until one is started by hand"
        report.refuse(f"{key}.standby", reason, f"leave out {system.gateways[0]}")
    elif joined and len(present) == 1:
        reason = f"{present[0]} is the only gateway: while it is gone nothing crosses, and what it held is lost"
        report.refuse(f"{key}.gateways", reason, "write gateways = 2", "warning")
    if system.lists_everybody and system.broadcasts and 0 < len(system.founders) < SURVIVES_ONE:
        _warn_of_size(report, key, system)


def _warn_of_size(report: Problems, key: str, system: System) -> None:
    founders = system.founders
    reason = f"{founders[0]} is the only member: when it is gone, so is the system"
    if len(founders) > 1:
        reason = f"of two members only {founders[0]} can go on alone: without it {founders[1]} stands still"
    report.refuse(f"{key}.processes", reason, f"have {SURVIVES_ONE} members or more, gateways included", "warning")


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
    impossible = {
        "partitions": faults.partitions and not parted and "no system has two members to part",
        "cuts": faults.cuts and not parted and "no system has two members with a line between them",
        "link-cuts": faults.link_cuts and not joined and "there is no join, so no link",
        "site-cuts": faults.site_cuts and not joined and "there is no join, so no link",
        "restarts": faults.restarts and not kept and "only a system with a journal begins again, and none has one",
    }
    for name, reason in impossible.items():
        if reason:
            report.refuse(f"simulation.faults.{name}", f"can never happen: {reason}", f"remove {name}")
