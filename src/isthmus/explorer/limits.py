"""What the explorer does not look at: refused where nothing true would be left to say, else said beside the result."""

from __future__ import annotations

from isthmus.core.ids import ProcessName
from isthmus.explorer.kinds import KINDS, SIMULATE
from isthmus.explorer.search import SearchOutcome
from isthmus.explorer.world import JUMPS_OF_TIME
from isthmus.topology.model import Topology
from isthmus.topology.problem import Problem


def refusal(topology: Topology, crashes: int) -> Problem | None:
    """Why this cannot be explored with so many crashes; None where it can."""
    first, *others = topology.parts()
    if others:
        reason = f"nothing joins {others[0][0]} to {first[0]}, and one search has one order to judge by"
        return Problem(file=topology.file, key="joins", reason=reason, way_out="give each part a file of its own")
    for system in topology.systems:
        kind = KINDS[system.kind]
        found = kind.refusal(topology, system)
        if found is None and crashes and kind.no_crashes:
            found = Problem(file=topology.file, key="exploration.crashes", reason=kind.no_crashes, way_out=SIMULATE)
        if found is not None:
            return found
    return _refuse_absent(topology)


def _refuse_absent(topology: Topology) -> Problem | None:
    """Who is on standby never comes, so it neither sends anything nor gets it."""
    exploration = topology.exploration
    named = [("sends", name) for name in exploration.sends or ()]
    for message in exploration.messages:
        named += [("messages", name) for name in (message.sender, *message.destinations)]
    absent = {ProcessName(system.name, member) for system in topology.systems for member in system.standby}
    for key, name in named:
        if name in absent:
            reason = f"{name} is on standby, and the explorer begins and ends without it"
            way_out = f"name another process, or take it out of systems.{name.system}.standby"
            return Problem(file=topology.file, key=f"exploration.{key}", reason=reason, way_out=way_out)
    return None


def left_out(topology: Topology, outcome: SearchOutcome, crashes: int) -> list[str]:
    """What was not looked at in a result, one line each."""
    found = [line for system in topology.systems for line in KINDS[system.kind].left_out(system)]
    if all(KINDS[system.kind].alone is None for system in topology.systems):
        found.append("links that break between live gateways, crashes of processes, and members that come or come back")
        if not crashes:
            found.append("crashes of gateways: --crashes 1 has one of them crash at any moment")
        if topology.exploration.stability == "late":
            found.append(
                'settled batches while anything else can happen: stability = "any" has gateways hear at any time'
            )
    if outcome.waiting:
        found.append(
            f"what follows {outcome.waiting:,} ends where a gateway waits for its time: it passes {JUMPS_OF_TIME} times"
        )
    return found
