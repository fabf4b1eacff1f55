"""The `[systems.NAME.daisy]` table: a system whose processes are in a tree of groups (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from isthmus.interconnect.toml_table import Table
from isthmus.interconnect.tree_table import TreeReader, Wording, refuse_whole

MAX_LEVELS = 16

_WORDING = Wording(
    key="daisy",
    node="group",
    nodes="groups",
    depths="levels",
    rule="daisy, Sect. 3.1",
    in_two="remove it from one; servers are elected",
    deepest=MAX_LEVELS,
)


class DaisyTable(Struct, frozen=True, kw_only=True):
    """One group as the file has it: a local group of processes, or the servers' group of its parts.

    `name` is its path from the top; that of the topmost is empty, and says whether local groups are stars.
    """

    name: str = ""
    star: bool = False
    processes: tuple[str, ...] = ()
    parts: tuple[DaisyTable, ...] = ()

    @property
    def levels(self) -> int:
        """1 for a single local group."""
        return 1 + max((part.levels for part in self.parts), default=0)

    @property
    def members(self) -> int:
        """Of a local group its processes; of a servers' group its seats, one per part."""
        return len(self.parts) or len(self.processes)

    def all_groups(self) -> Iterator[DaisyTable]:
        yield self
        for part in self.parts:
            yield from part.all_groups()


def read_daisy(table: Table, processes: tuple[str, ...]) -> DaisyTable | None:
    """The tree of a system with these processes; None where the file has none, or none that holds together."""
    return _Reader(processes, _WORDING).read_whole(table)


class _Reader(TreeReader[DaisyTable]):
    def make(
        self, table: Table, name: str, processes: tuple[str, ...] | None, parts: list[DaisyTable | None]
    ) -> DaisyTable | None:
        star = not name and table.boolean("star", default=False)
        table.close()
        if None in parts or processes is None:
            return None
        if parts and processes:
            reason = "a group has processes or parts: a servers' group consists of the servers of its parts"
            table.refuse("processes", f"{reason} (daisy, Sect. 3.1)", "give them a part of their own")
            return None
        if not parts and not processes:
            refuse_whole(table, "a group of nobody", "list processes, or parts")
            return None
        sound = tuple(part for part in parts if part is not None)
        return DaisyTable(name=name, star=star, processes=processes, parts=sound)
