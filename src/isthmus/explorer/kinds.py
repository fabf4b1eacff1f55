"""The table of kinds: how each is explored, one line each.

What is explored is always code that runs for real: of groups the gateways between them, each group being nothing but
the definition of its order; where messages are for some processes each, the processes themselves, of one system that
stands alone. A kind of which no code would run is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from isthmus.explorer.clusters import explore_clusters
from isthmus.explorer.daisy import explore_daisy
from isthmus.explorer.search import SearchOutcome
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problem

SIMULATE = "use isthmus simulate"


def _nothing_against(topology: Topology, system: System) -> Problem | None:
    return None


def _nothing_left_out(system: System) -> list[str]:
    return []


class ExploredKind(Struct, frozen=True, kw_only=True):
    """`alone` explores a topology of one system of this kind: so many messages, at most so many states.

    It is None where a system is its definition. `no_crashes` says why nobody may crash there, `refusal` why a system
    cannot be explored at all, and `left_out` what of it is not looked at.
    """

    alone: Callable[[Topology, int | None, int | None], SearchOutcome] | None = None
    no_crashes: str = ""
    refusal: Callable[[Topology, System], Problem | None] = _nothing_against
    left_out: Callable[[System], list[str]] = _nothing_left_out


def _lonely_group(topology: Topology, system: System) -> Problem | None:
    if topology.is_joined(system.name):
        return None
    reason = "nothing joins this group, and of groups the explorer runs the gateways, not the members"
    return _refused(topology, system, "", reason, SIMULATE)


def _definition(system: System) -> list[str]:
    found = [f"how group {system.name} works inside: it is the definition of {system.order} order in agreed views"]
    if system.delivery == "fast":
        found.append(f'delivery = "fast" of {system.name}: a crash loses nothing here that anybody has delivered')
    if system.journal is not None:
        found.append(f"the journal of {system.name}: no site dies as a whole here")
    return found + _absent(system)


def _acknowledged(topology: Topology, system: System) -> Problem | None:
    reason = f"the explorer does not run TO and PO; {system.order} order by definition would say nothing about them"
    return _refused(topology, system, ".acknowledged", reason, SIMULATE)


def _log(topology: Topology, system: System) -> Problem | None:
    if not topology.is_joined(system.name):
        reason = "nothing joins this log, and of logs the explorer runs the gateway, not the broker"
        return _refused(topology, system, "", reason, SIMULATE)
    if len(system.processes) > 1:
        return _refused(topology, system, ".streams", "the explorer looks at one stream", "write one, or " + SIMULATE)
    return None


def _assumed_log(system: System) -> list[str]:
    return [
        f"how {system.provider} keeps {system.name}: it is a log in memory that keeps what docs/design/logs.md says"
    ]


def _broadcast_daisy(topology: Topology, system: System) -> Problem | None:
    if not system.broadcasts:
        return None
    reason = (
        "the explorer runs the processes of a daisy only where messages are for some of them each, and nothing joins it"
    )
    return _refused(topology, system, ".daisy.audience", reason, SIMULATE)


def _still_daisy(system: System) -> list[str]:
    found = ["heartbeats, so stability, suspicion and the flush: time stands still in a daisy here"]
    if system.own(DaisyTable).options.changes:
        found.append(f"groups of {system.name} that split and merge")
    return found + _absent(system)


def _absent(system: System) -> list[str]:
    absent = ", ".join(system.standby)
    return [f"members of {system.name} on standby, who never come here: {absent}"] if absent else []


def _reliable_clusters(system: System) -> list[str]:
    return ["crashes: clusters promise nothing after one"]


def _refused(topology: Topology, system: System, key: str, reason: str, way_out: str) -> Problem:
    return Problem(file=topology.file, key=f"systems.{system.name}{key}", reason=reason, way_out=way_out)


KINDS: dict[str, ExploredKind] = {
    "group": ExploredKind(refusal=_lonely_group, left_out=_definition),
    "acknowledged": ExploredKind(refusal=_acknowledged),
    "clusters": ExploredKind(
        alone=explore_clusters, no_crashes="clusters promise nothing after a crash", left_out=_reliable_clusters
    ),
    "daisy": ExploredKind(
        alone=explore_daisy,
        no_crashes="a daisy is explored without crashes",
        refusal=_broadcast_daisy,
        left_out=_still_daisy,
    ),
    "log": ExploredKind(refusal=_log, left_out=_assumed_log),
}
