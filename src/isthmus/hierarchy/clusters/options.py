"""What the author of a system of clusters chooses: which there are, and how each keeps causal order."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from isthmus.ordering.addressed.delivery import DeliveryName


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
        """The agent: the member of this cluster that is a member of the cluster above as well."""
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
