"""The table of kinds: how each is simulated, one line each; and what a campaign over some systems should reach.

A campaign in which a fault that its file asks for never happened is no success, however well it went.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.simulator.checks.sometimes import CASES
from isthmus.simulator.systems.acknowledged import ACKNOWLEDGED
from isthmus.simulator.systems.clusters import CLUSTERS
from isthmus.simulator.systems.daisy_broadcast import DAISY
from isthmus.simulator.systems.group import GROUP
from isthmus.simulator.systems.kind import SimulatedKind
from isthmus.simulator.systems.log import LOG
from isthmus.topology.model import Topology

KINDS: dict[str, SimulatedKind] = {
    "group": GROUP,
    "acknowledged": ACKNOWLEDGED,
    "clusters": CLUSTERS,
    "daisy": DAISY,
    "log": LOG,
}


OFTEN = 20
"""A fault that should have happened this often, on the average, and never did, does not happen: chance is 1 in 10⁸."""


def asked_for(topology: Topology) -> dict[str, float]:
    """The faults that a file asks for, and how often each should happen in a run, on the average."""
    faults = topology.simulation.faults

    def drawn(most: int) -> float:
        return most if not faults.swarm else 0.5 * (1 + most) / 2 if most else 0.0

    systems = topology.systems
    several = [system for system in systems if len(system.members) > 1]
    crashes, leaves, links = drawn(faults.crashes), drawn(faults.leaves), bool(topology.joins)
    joined = [system for system in systems if topology.is_joined(system.name)]
    alone = [system for system in joined if len(system.gateways) == 1]
    # Who crashes is drawn among all members of a system.
    gateways = sum(len(system.gateways) / len(system.members) for system in joined)
    last = sum(1 / len(system.members) for system in alone)
    logs = sum(system.acts_alone for system in joined)
    wanted = {
        "crash": crashes * len(systems),
        "partition": drawn(faults.partitions) * len(several),
        "cut": drawn(faults.cuts) * len(several),
        "slow": drawn(faults.slow) * len(systems),
        "leave": leaves * len(systems),
        "join": drawn(faults.joins) * sum(system.revives for system in systems) if crashes or leaves else 0.0,
        "link cut": drawn(faults.link_cuts) * links,
        "site cut": drawn(faults.site_cuts) * links,
        "site died": drawn(faults.restarts) * sum(system.journal is not None for system in systems),
        "gateway crashed": crashes * gateways,
        "last gateway gone": crashes * last,
        "gateway paused": drawn(faults.pauses) * logs,
        "broker died": drawn(faults.broker_kills) * logs,
        "log trimmed": drawn(faults.trims) * logs,
        "log recreated": drawn(faults.recreations) * logs,
    }
    return {kind: times for kind, times in wanted.items() if times}


def never_happened(sometimes: Mapping[str, int], runs: int, topology: Topology) -> list[str]:
    """The faults that should have happened often in so many runs, and never did."""
    return [kind for kind, times in asked_for(topology).items() if runs * times >= OFTEN and not sometimes.get(kind)]


def expected(topology: Topology) -> list[str]:
    """The cases that a campaign over this topology should reach: those of its faults and of its systems."""
    simulation, systems = topology.simulation, topology.systems
    faults, network = simulation.faults, simulation.network
    traits = [KINDS[system.kind].traits(system, simulation) for system in systems]
    views = any(each.views for each in traits)
    # In a small group, a second failure while the first is being dealt with takes the quorum, and nothing follows.
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
        "link cut": gateways and faults.link_cuts,
        "site cut": gateways and faults.site_cuts,
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
