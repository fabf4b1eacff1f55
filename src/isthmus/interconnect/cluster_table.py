"""The `[systems.NAME.clusters]` table: a system whose processes are in a tree of clusters (docs/design/clusters.md)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from isthmus.interconnect.problem import choose_from, listing, quote
from isthmus.interconnect.toml_table import NAME, Table
from isthmus.ordering.delivery import DeliveryName

MAX_LAYERS = 32

_DELIVERIES: tuple[DeliveryName, ...] = ("rst", "coordinator")


class ClusterTable(Struct, frozen=True, kw_only=True):
    """One cluster as the file has it. `name` is its path from the top; that of the topmost is empty."""

    name: str = ""
    delivery: DeliveryName
    processes: tuple[str, ...] = ()
    parts: tuple[ClusterTable, ...] = ()
    agent: str | None = None
    coordinator: str | None = None

    @property
    def members(self) -> tuple[str, ...]:
        return self.processes + tuple(part.representative for part in self.parts)

    @property
    def representative(self) -> str:
        """The agent: who is a member of the cluster above as well."""
        return self.agent or self.members[0]

    @property
    def serialiser(self) -> str:
        """The coordinator, where there is one."""
        return self.coordinator or self.representative

    @property
    def layers(self) -> int:
        return 1 + max((part.layers for part in self.parts), default=0)

    def all_clusters(self) -> Iterator[ClusterTable]:
        yield self
        for part in self.parts:
            yield from part.all_clusters()


def read_clusters(table: Table, processes: tuple[str, ...]) -> ClusterTable | None:
    """The tree of a system with these processes; None where the file has none, or none that holds together."""
    if "clusters" not in table.entries:
        return None
    reader = _Reader(processes)
    top = reader.read(table.table("clusters"), "", 1)
    if top is not None:
        for name in processes:
            if name not in reader.found_in:
                way_out = f"add it to the processes of one below [{table.at('clusters')}]"
                table.refuse("clusters", f"{name} is in no cluster (cluster, Definition 1)", way_out)
    return top


class _Reader:
    """`found_in` is the key of the cluster that lists each process."""

    def __init__(self, processes: tuple[str, ...]) -> None:
        self.processes = processes
        self.found_in: dict[str, str] = {}

    def read(self, table: Table, name: str, depth: int) -> ClusterTable | None:
        delivery = table.choice("delivery", _DELIVERIES, None, "how the members of this cluster keep causal order")
        parts_table = table.table("parts", named=True)
        if parts_table.entries and depth == MAX_LAYERS:
            table.refuse("parts", f"more than {MAX_LAYERS} layers", "make clusters larger")
            table.close()
            return None
        parts = [self._part(parts_table, name, each, depth) for each in parts_table.entries]
        processes = self._own(table, whole=not name and not parts)
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

    def _part(self, parts: Table, above: str, name: str, depth: int) -> ClusterTable | None:
        if not NAME.fullmatch(name):
            parts.refuse(name, f"{quote(name)} is not a name", "use letters, digits, _ and -")
        return self.read(parts.table(name), f"{above}.{name}" if above else name, depth + 1)

    def _own(self, table: Table, whole: bool) -> tuple[str, ...] | None:
        """The processes that are listed here. A flat system need not list them again."""
        names = table.names("processes", empty=True)
        if names is None:
            names = self.processes if whole else ()
        sound = True
        for place, name in enumerate(names):
            if name not in self.processes:
                way_out = choose_from(name, self.processes, "its processes are")
                table.refuse_element("processes", place, f"the system has no process {quote(name)}", way_out)
                sound = False
            elif name in self.found_in:
                reason = f"{name} is in two clusters, {self.found_in[name]} and {table.key} (cluster, Definition 1)"
                table.refuse_element(
                    "processes", place, reason, "remove it from one; agents are members above by themselves"
                )
                sound = False
            else:
                self.found_in[name] = table.key
        return names if sound else None

    def _is_sound(self, table: Table, cluster: ClusterTable) -> bool:
        members = cluster.members
        if len(members) < 2:
            what = "one member" if members else "no member"
            way_out = (
                "list its process in the cluster above" if members and cluster.name else "list processes, or parts"
            )
            self._refuse_whole(table, f"a cluster of {what} has nobody to talk to (cluster, Definition 1)", way_out)
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

    @staticmethod
    def _refuse_whole(table: Table, reason: str, way_out: str) -> None:
        table.report.incomplete = True
        table.report.refuse(table.key, reason, way_out)
