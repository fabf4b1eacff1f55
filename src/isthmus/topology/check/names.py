"""Names that a topology uses but does not have."""

from __future__ import annotations

from isthmus.core.ids import ProcessName
from isthmus.topology.model import REST, Topology
from isthmus.topology.problem import Problems, choose_from, quote


def unknown_system(report: Problems, topology: Topology, key: str, name: str) -> bool:
    """Refuse a name that no system has."""
    if any(system.name == name for system in topology.systems):
        return False
    known = [system.name for system in topology.systems]
    report.refuse(key, f"there is no system {quote(name)}", choose_from(name, known, "the systems are"))
    return True


def unknown_gateway(report: Problems, topology: Topology, key: str, gateway: ProcessName) -> bool:
    """Refuse a gateway that its system does not have."""
    if unknown_system(report, topology, key, gateway.system):
        return True
    known = topology.system(gateway.system).gateways
    if gateway.process in known:
        return False
    way_out = choose_from(gateway.process, known, "its gateways are") if known else give_gateways(gateway.system)
    report.refuse(key, f"{gateway.system} has no gateway {quote(gateway.process)}", way_out)
    return True


def unknown_process(report: Problems, topology: Topology, key: str, process: ProcessName) -> bool:
    """Refuse a process that its system does not list; `*` is always known."""
    if unknown_system(report, topology, key, process.system):
        return True
    known = topology.system(process.system).processes
    if process.process in known or process.process == REST:
        return False
    listed = f'list it in systems.{process.system}.processes, or write "{REST}" for all'
    way_out = choose_from(process.process, known, "its processes are") if known else listed
    report.refuse(key, f"{process.system} has no process {quote(process.process)}", way_out)
    return True


def give_gateways(system: str) -> str:
    return f"set systems.{system}.gateways = 1"
