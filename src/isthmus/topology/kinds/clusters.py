"""The `[systems.NAME.clusters]` table: a system whose processes are in a tree of clusters (docs/design/clusters.md)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.ordering.addressed.delivery import DeliveryName
from isthmus.topology.kinds.group import KEYS as GROUP_KEYS
from isthmus.topology.kinds.kind import Kind, Refusal, SystemTable
from isthmus.topology.kinds.tree import TreeReader, Wording, refuse_whole
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems, listing, quote
from isthmus.topology.read.keys import read_address
from isthmus.topology.read.table import Table

MAX_LAYERS = 32
KEYS = ("address", "heartbeat", "start-within")

_DELIVERIES: tuple[DeliveryName, ...] = ("rst", "coordinator")
_WORDING = Wording(
    key="clusters",
    node="cluster",
    nodes="clusters",
    depths="layers",
    rule="cluster, Definition 1",
    in_two="remove it from one; agents are members above by themselves",
    deepest=MAX_LAYERS,
)


def _read(table: Table, system: System) -> System:
    """Read a system of clusters: it has point-to-point messages, no views and no gateways."""
    for key in ("acknowledged", *(key for key in GROUP_KEYS if key not in KEYS)):
        table.foreign(key, "is for groups, and this system is made of clusters", "remove it, or [clusters]")
    if system.order != "causal":
        reason = f"clusters keep causal order, not {system.order}"
        table.refuse("order", reason, 'write order = "causal", or remove its clusters')
    if system.gateways:
        reason = "a system of clusters has none: its messages go to one process each, so a gateway would miss most"
        table.refuse("gateways", reason, "remove it, or the clusters")
    return replace(
        system,
        address=read_address(table, "address", len(system.members)),
        heartbeat=table.duration("heartbeat", system.heartbeat, low=1),
        start_within=table.duration("start-within", system.start_within, low=1),
        table=_Reader(system.processes, _WORDING).read_whole(table),
        broadcasts=False,
        revives=False,
    )


class _Reader(TreeReader[ClusterTable]):
    def make(
        self, table: Table, name: str, processes: tuple[str, ...] | None, parts: list[ClusterTable | None]
    ) -> ClusterTable | None:
        delivery = table.choice("delivery", _DELIVERIES, None, "how the members of this cluster keep causal order")
        agent, coordinator = table.text("agent"), table.text("coordinator")
        table.close()
        if None in parts or processes is None:
            return None
        cluster = ClusterTable(
            name=name,
            delivery=delivery,
            processes=processes,
            parts=tuple(part for part in parts if part is not None),
            agent=agent,
            coordinator=coordinator,
        )
        return cluster if self._is_sound(table, cluster) else None

    def _is_sound(self, table: Table, cluster: ClusterTable) -> bool:
        members = cluster.members
        if len(members) < 2:
            what = "one member" if members else "no member"
            way_out = (
                "list its process in the cluster above" if members and cluster.name else "list processes, or parts"
            )
            refuse_whole(table, f"a cluster of {what} has nobody to talk to (cluster, Definition 1)", way_out)
            return False
        sound = True
        if cluster.agent is not None and not cluster.name:
            reason = "the topmost cluster has no agent, as there is no cluster above (cluster, Sect. III.A)"
            table.refuse("agent", reason, "remove it")
            sound = False
        if cluster.coordinator is not None and cluster.delivery != "coordinator":
            table.refuse("coordinator", "rst has no coordinator", 'remove it, or write delivery = "coordinator"')
            sound = False
        for key, name in (("agent", cluster.agent), ("coordinator", cluster.coordinator)):
            if name is not None and name not in members:
                reason = f"{quote(name)} is no member of this cluster"
                table.refuse(key, reason, f"name one of {listing(members)}")
                sound = False
        return sound


def _check(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    """Refuse joins, and that processes come, go or restart: clusters stand alone and have no views."""
    for system in systems:
        if len(topology.systems) > 1 and not topology.is_joined(system.name):
            reason = "nothing can join a system of clusters to the others here"
            report.refuse(f"systems.{system.name}.clusters", reason, "give it a file of its own")
    if any(each.also for each in topology.exploration.messages):
        report.refuse("exploration.messages", "in clusters a message is for one process", 'remove "also"')
    faults = topology.simulation.faults
    for key, count in (("joins", faults.joins), ("leaves", faults.leaves)):
        if count:
            report.refuse(f"simulation.faults.{key}", "the processes of clusters never change", "remove it")


def _refuse_join(system: System) -> Refusal:
    reason = f"{system.name} is made of clusters: its messages go to one process each, and a join carries broadcasts"
    return Refusal(reason, f"remove this join, or systems.{system.name}.clusters")


def _picture(system: System) -> SystemTable:
    clusters = list(system.own(ClusterTable).all_clusters())
    agents = [cluster.representative if cluster.name else None for cluster in clusters]
    sizes = [len(cluster.members) for cluster in clusters]
    return SystemTable(
        title=f"{system.name}: messages from one process to one other",
        columns=("cluster", "delivery", "members", "agent"),
        rows=[
            (cluster.name or "topmost", cluster.delivery, str(size), agent or "–")
            for cluster, size, agent in zip(clusters, sizes, agents, strict=True)
        ],
        plain=[
            {"name": cluster.name, "delivery": cluster.delivery, "members": size, "agent": agent}
            for cluster, size, agent in zip(clusters, sizes, agents, strict=True)
        ],
    )


CLUSTERS = Kind(
    table="clusters",
    keys=KEYS,
    orders=("causal",),
    read=_read,
    check=_check,
    refuse_join=_refuse_join,
    picture=_picture,
)
