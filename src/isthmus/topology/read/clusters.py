"""The `[systems.NAME.clusters]` table: a system whose processes are in a tree of clusters (docs/design/clusters.md)."""

from __future__ import annotations

from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.ordering.addressed.delivery import DeliveryName
from isthmus.topology.problem import listing, quote
from isthmus.topology.read.table import Table
from isthmus.topology.read.tree import TreeReader, Wording, refuse_whole

MAX_LAYERS = 32

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


def read_clusters(table: Table, processes: tuple[str, ...]) -> ClusterTable | None:
    """The tree of a system with these processes; None where the file has none, or none that holds together."""
    return _Reader(processes, _WORDING).read_whole(table)


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
