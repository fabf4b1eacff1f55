"""The table of kinds: how each is simulated, one line each; and what a campaign over some systems should reach."""

from __future__ import annotations

from isthmus.simulator.checks.sometimes import CASES
from isthmus.simulator.systems.acknowledged import ACKNOWLEDGED
from isthmus.simulator.systems.clusters import CLUSTERS
from isthmus.simulator.systems.daisy_broadcast import DAISY
from isthmus.simulator.systems.group import GROUP
from isthmus.simulator.systems.kind import SimulatedKind
from isthmus.topology.model import Topology

KINDS: dict[str, SimulatedKind] = {
    "group": GROUP,
    "acknowledged": ACKNOWLEDGED,
    "clusters": CLUSTERS,
    "daisy": DAISY,
}


def expected(topology: Topology) -> list[str]:
    """The cases that a campaign over this topology should reach: those of its faults and of its systems."""
    simulation, systems = topology.simulation, topology.systems
    faults, network = simulation.faults, simulation.network
    traits = [KINDS[system.kind].traits(system, simulation) for system in systems]
    views = any(each.views for each in traits)
    # Where the nemesis has to leave every small group its quorum, nothing else fails during a view change.
    roomy = views and all(each.roomy for each in traits)
    gateways = any(system.gateways for system in systems) and bool(topology.joins)
    revived = any(system.gateways and system.revives for system in systems)
    numbered = any(join.order == "causal" for join in topology.joins)
    epochs = gateways and (faults.crashes or faults.link_cuts or faults.site_cuts)
    own = frozenset().union(*(each.own for each in traits))
    wanted: dict[str, object] = {
        "loss": network.loss,
        "duplication": network.duplication,
        "reordering": network.reordering,
        "partition": faults.partitions,
        "cut": faults.cuts,
        "slow": faults.slow,
        "crash": faults.crashes,
        "crash inside a multicast": faults.crashes,
        "crash after delivery": faults.crashes,
        "crash in a view change": roomy and faults.crashes,
        "exclusion": views and faults.partitions,
        "leave": faults.leaves,
        "join": faults.joins,
        "held for a cause": any(each.holds for each in traits),
        "held to be safe": any(each.quorums for each in traits),
        "held for its place": any(each.sequenced for each in traits),
        "gap": network.loss and any(each.gaps for each in traits),
        "view change": views and (faults.crashes or faults.partitions or faults.leaves),
        "flush fetched": network.loss and faults.crashes and any(each.carries for each in traits),
        "coordinators competed": roomy and faults.crashes and faults.partitions,
        "proposal taken over": roomy and faults.crashes and faults.partitions,
        "link cut": gateways and (faults.link_cuts or faults.site_cuts),
        "gateway crashed": gateways and faults.crashes,
        "sequencer crashed": gateways and faults.crashes,
        "epoch": epochs,
        "gateway came back": gateways and revived and faults.crashes,
        "gateway left": gateways and faults.leaves,
        "block of an older epoch": epochs,
        "number before its turn": gateways and numbered,
        "window full": gateways and numbered,
        "site died": faults.restarts and any(system.journal for system in systems),
        "back-pressure": True,
    }
    return [case for case in CASES if wanted.get(case) or case in own]
