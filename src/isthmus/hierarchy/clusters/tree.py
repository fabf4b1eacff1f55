"""The tree of clusters of one system, and the way of a message through it (cluster, Sect. III.A and B).

A cluster consists of the processes that are listed in it and of the agents of the clusters right below it. Two
processes are together in at most one cluster, and there is one way between any two processes; everything that clusters
promise rests on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from isthmus.core.ids import ProcessId
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.ordering.addressed.delivery import DeliveryName, Rank

TOP = 0
"""The number of the topmost cluster."""

NONE = -1


class Cluster(NamedTuple):
    """One cluster. The topmost has no `parent` and no `agent`; layers count from 1, the lowest."""

    number: int
    name: str
    layer: int
    parent: int
    members: tuple[ProcessId, ...]
    agent: ProcessId
    delivery: DeliveryName
    coordinator: ProcessId


class ClusterPlace(NamedTuple):
    """A member of a cluster by its rank there."""

    cluster: int
    rank: Rank


class Hierarchy:
    """All clusters of one system, from the topmost down. `home` is the cluster that a process is listed in."""

    def __init__(self, clusters: list[Cluster], home: dict[ProcessId, int]) -> None:
        self.clusters = clusters
        self.home = home
        self.layers = clusters[TOP].layer
        self._ranks = [{member: rank for rank, member in enumerate(cluster.members)} for cluster in clusters]

    def rank(self, cluster: int, member: ProcessId) -> Rank | None:
        """The rank of a process in a cluster; None where it is no member."""
        return self._ranks[cluster].get(member)

    def clusters_of(self, process: ProcessId) -> Iterator[Cluster]:
        """The clusters that this process is a member of, from the lowest to the highest."""
        cluster = self.clusters[self.home[process]]
        yield cluster
        while cluster.agent == process:
            cluster = self.clusters[cluster.parent]
            yield cluster

    def next_hop(self, here: ProcessId, destination: ProcessId) -> ClusterPlace:
        """The member to whom a message for somebody else goes from here, in the cluster in which it goes there.

        Climb from the destination, agent by agent, up to a cluster that we are in. If there is none we are below: then
        our agent is next, in the highest cluster that we are in.
        """
        representative, cluster = destination, self.clusters[self.home[destination]]
        while True:
            ranks = self._ranks[cluster.number]
            if here in ranks:
                return ClusterPlace(cluster.number, ranks[representative])
            if cluster.number == TOP:
                *_, highest = self.clusters_of(here)
                return ClusterPlace(highest.number, self._ranks[highest.number][highest.agent])
            representative, cluster = cluster.agent, self.clusters[cluster.parent]

    def at_layer(self, process: ProcessId, layer: int) -> Cluster | None:
        """The cluster of this layer that a process is a member of; None where it is, on that layer, alone."""
        return next((cluster for cluster in self.clusters_of(process) if cluster.layer == layer), None)

    def is_relay(self, process: ProcessId) -> bool:
        """Whether messages of others go through this process."""
        return any(process in (cluster.agent, cluster.coordinator) for cluster in self.clusters_of(process))


def route(
    tree: Hierarchy, source: ProcessId, destination: ProcessId, layer: int = 1
) -> Iterator[tuple[ProcessId, ProcessId]]:
    """MRP of Fig. 3, as printed: the links that a message takes, in order, as (sender, receiver).

    A process that is listed above a layer is, on that layer, a cluster by itself and its own agent.
    """
    here, there = tree.at_layer(source, layer), tree.at_layer(destination, layer)
    if here is not None and here == there:
        yield source, destination
        return
    agent = source if here is None else here.agent
    far_agent = destination if there is None else there.agent
    if source != agent:
        yield source, agent
    yield from route(tree, agent, far_agent, layer + 1)
    if destination != far_agent:
        yield far_agent, destination


def hierarchy_of(table: ClusterTable, id_of: Callable[[str], ProcessId]) -> Hierarchy:
    """The tree that a file describes. The members of a cluster: its own processes, then the agents of its parts."""
    clusters: list[Cluster] = []
    home: dict[ProcessId, int] = {}

    def add(part: ClusterTable, parent: int, layer: int) -> None:
        index = len(clusters)
        top = parent == NONE
        agent = NONE if top else id_of(part.representative)
        coordinator = id_of(part.serialiser) if part.delivery == "coordinator" else NONE
        members = tuple(map(id_of, part.members))
        clusters.append(Cluster(index, part.name, layer, parent, members, agent, part.delivery, coordinator))
        home.update(dict.fromkeys(map(id_of, part.processes), index))
        for below in part.parts:
            add(below, index, layer - 1)

    add(table, NONE, table.layers)
    return Hierarchy(clusters, home)
