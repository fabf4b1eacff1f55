"""The `[systems.NAME.daisy]` table: a system whose processes are in a tree of groups (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, structs

from isthmus.interconnect.problem import choose_from, quote
from isthmus.interconnect.toml_table import NAME, Table

MAX_LEVELS = 16

_REMEDY = "list processes, or parts"


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
    if "daisy" not in table.entries:
        return None
    reader = _Reader(processes)
    daisy = table.table("daisy")
    star = daisy.boolean("star", default=False)
    top = reader.read(daisy, "", 1)
    if top is not None:
        top = structs.replace(top, star=star)
        for name in processes:
            if name not in reader.found_in:
                way_out = f"add it to the processes of one below [{table.at('daisy')}]"
                table.refuse("daisy", f"{name} is in no group (daisy, Sect. 3.1)", way_out)
    return top


class _Reader:
    """`found_in` is the key of the group that lists each process."""

    def __init__(self, processes: tuple[str, ...]) -> None:
        self.processes = processes
        self.found_in: dict[str, str] = {}

    def read(self, table: Table, name: str, level: int) -> DaisyTable | None:
        parts_table = table.table("parts", named=True)
        if parts_table.entries and level == MAX_LEVELS:
            table.refuse("parts", f"more than {MAX_LEVELS} levels", "make groups larger")
            table.close()
            return None
        parts = [self._part(parts_table, name, each, level) for each in parts_table.entries]
        processes = self._own(table, whole=not name and not parts)
        table.close()
        if None in parts or processes is None:
            return None
        if parts and processes:
            reason = "a group has processes or parts: a servers' group consists of the servers of its parts"
            table.refuse("processes", f"{reason} (daisy, Sect. 3.1)", "give them a part of their own")
            return None
        if not parts and not processes:
            table.report.incomplete = True
            table.report.refuse(table.key, "a group of nobody", _REMEDY)
            return None
        return DaisyTable(name=name, processes=processes, parts=tuple(part for part in parts if part is not None))

    def _part(self, parts: Table, above: str, name: str, level: int) -> DaisyTable | None:
        if not NAME.fullmatch(name):
            parts.refuse(name, f"{quote(name)} is not a name", "use letters, digits, _ and -")
        return self.read(parts.table(name), f"{above}.{name}" if above else name, level + 1)

    def _own(self, table: Table, whole: bool) -> tuple[str, ...] | None:
        """The processes that are listed here. A system of one group need not list them again."""
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
                reason = f"{name} is in two groups, {self.found_in[name]} and {table.key} (daisy, Sect. 3.1)"
                table.refuse_element("processes", place, reason, "remove it from one; servers are elected")
                sound = False
            else:
                self.found_in[name] = table.key
        return names if sound else None
