"""Counters of the rare cases: proof that a campaign without violations was not a campaign without events.

Each counter is raised by looking at what passes on the simulated network or happens to a simulated process, never by
code inside a protocol.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.topology.model import Topology

CASES: Final = {
    "loss": "a PDU was lost",
    "duplication": "a PDU arrived twice",
    "reordering": "a PDU overtook an earlier one",
    "partition": "the system was partitioned",
    "cut": "one direction between two processes was cut",
    "slow": "a process was slowed down",
    "crash": "a process crashed",
    "crash inside a multicast": "a process crashed when only some destinations had been sent to",
    "crash after delivery": "a process crashed after it delivered and before it sent anything",
    "crash in a view change": "a process crashed while a view change was under way",
    "exclusion": "a live process was excluded and stopped",
    "leave": "a process left in good order",
    "join": "a process joined a running system",
    "held for a cause": "a batch arrived before one of its causes",
    "held to be safe": "a batch arrived before a quorum held it",
    "held for what its sender had": "a PDU arrived before one that its sender had received",
    "held for its place": "a batch arrived before the sequencer had placed it",
    "gap": "a receiver saw a gap and said so",
    "view change": "a view was installed",
    "same members again": "a view was installed with the members of the one before, to go back behind a loss",
    "asked for a PDU": "a receiver asked a sender for what it had lost",
    "told of places": "a receiver was told by one who was sure where what it had lost stood",
    "flush fetched": "a view change had to fetch missing batches",
    "coordinators competed": "a member had promised a higher ballot already",
    "proposal taken over": "a coordinator met a proposal accepted under an earlier ballot",
    "link cut": "a link between systems was cut",
    "gateway crashed": "a gateway crashed",
    "sequencer crashed": "the first gateway of a system crashed",
    "gateway came back": "a new process took the place of a gateway that was gone",
    "gateway left": "a gateway left in good order while messages flowed",
    "server crashed": "the server of a group in a daisy crashed",
    "crash in a flush of servers": "a server crashed while its servers' group exchanged what it had",
    "groups changed": "a process of a daisy began another generation of its tree",
    "crash in a change of groups": "a process crashed while the tree of a daisy changed",
    "let in": "a process that came late was let into a daisy",
    "site died": "all processes of a site died at once, and it began again",
    "epoch": "a join began a new epoch",
    "block of an older epoch": "a block arrived when a later epoch had begun",
    "number before its turn": "a block arrived before the numbers before it were delivered",
    "window full": "a join had as much under way as it may",
    "back-pressure": "a process had messages and no credit",
    "relay": "a message was relayed from one cluster to the next",
}


class Sometimes(Counter[str]):
    """Counts by case; a misspelt case is an error."""

    def reach(self, case: str) -> None:
        if case not in CASES:
            raise KeyError(case)
        self[case] += 1


def expected(topology: Topology) -> list[str]:
    """The cases that a campaign over this topology should reach: those of its faults and of its order."""
    faults, network = topology.simulation.faults, topology.simulation.network
    orders = {system.order for system in topology.systems}
    groups = any(system.clusters is None for system in topology.systems)
    trees = [system.clusters for system in topology.systems if system.clusters is not None]
    daisies = [system.daisy for system in topology.systems if system.daisy is not None]
    gateways = any(system.gateways for system in topology.systems) and bool(topology.joins)
    # Where messages go to recipients only, groups carry none themselves.
    carrying = groups and not (daisies and all(daisy.options.inside == "recipients" for daisy in daisies))
    # Nobody comes back to a daisy.
    back = gateways and any(system.gateways and system.daisy is None for system in topology.systems)
    numbered = any(join.order == "causal" for join in topology.joins)
    protocols = {system.acknowledged.protocol for system in topology.systems if system.acknowledged is not None}
    quorums = groups and any(system.acknowledged is None for system in topology.systems)
    sequencers = any(system.order == "total" and system.acknowledged is None for system in topology.systems)
    # The nemesis leaves every local group its quorum: below five members nothing else fails during a view change.
    roomy = groups and all(_has_room(daisy) for daisy in daisies)
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
        "exclusion": groups and faults.partitions,
        "leave": faults.leaves,
        "join": faults.joins,
        "held for a cause": "causal" in orders if groups else any(map(_holds, trees)),
        "held to be safe": quorums,
        "held for what its sender had": protocols,
        "held for its place": sequencers,
        "gap": network.loss and (quorums or trees),
        "same members again": network.loss and "to" in protocols,
        "asked for a PDU": network.loss and protocols,
        "told of places": network.loss and "to" in protocols,
        "view change": groups and (faults.crashes or faults.partitions or faults.leaves),
        "flush fetched": carrying and network.loss and faults.crashes,
        "coordinators competed": roomy and faults.crashes and faults.partitions,
        "proposal taken over": roomy and faults.crashes and faults.partitions,
        "link cut": gateways and (faults.link_cuts or faults.site_cuts),
        "gateway crashed": gateways and faults.crashes,
        "sequencer crashed": gateways and faults.crashes,
        "epoch": gateways and (faults.crashes or faults.link_cuts or faults.site_cuts),
        "gateway came back": back and faults.crashes,
        "gateway left": gateways and faults.leaves,
        "block of an older epoch": gateways and (faults.crashes or faults.link_cuts or faults.site_cuts),
        "number before its turn": gateways and numbered,
        "window full": gateways and numbered,
        "site died": faults.restarts and any(system.journal for system in topology.systems),
        "relay": any(tree.parts for tree in trees) or any(daisy.parts for daisy in daisies),
        "server crashed": daisies and faults.crashes,
        "crash in a flush of servers": daisies and faults.crashes,
        "groups changed": any(daisy.options.changes for daisy in daisies),
        "crash in a change of groups": faults.crashes and any(daisy.options.changes for daisy in daisies),
        "let in": daisies and any(system.standby for system in topology.systems),
    }
    return [case for case in CASES if wanted.get(case, True)]


def _has_room(daisy: DaisyTable) -> bool:
    return any(len(group.processes) >= 5 for group in daisy.all_groups())


def _holds(tree: ClusterTable) -> bool:
    """Whether a cluster can hold messages back: a coordinator never does, nor do two members."""
    return any(each.delivery == "rst" and len(each.members) > 2 for each in tree.all_clusters())
