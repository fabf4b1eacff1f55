"""A table of the topology file that sorts the processes of a system into a tree: what all such tables have in common.

Each node lists processes, or has parts, which are nodes themselves. Every process of the system is listed once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

from isthmus.topology.problem import choose_from, quote
from isthmus.topology.read.table import NAME, Table

Node = TypeVar("Node")


class Wording(NamedTuple):
    """How refusals speak of a tree. `rule` is where the paper has it that a process is in one node."""

    key: str
    node: str
    nodes: str
    depths: str
    rule: str
    in_two: str
    """What to do about a process that is listed twice."""
    deepest: int


class TreeReader(ABC, Generic[Node]):
    """Reads one tree. `found_in` is the key of the node that lists a process; who is `absent` at first is in none."""

    def __init__(self, processes: tuple[str, ...], wording: Wording, absent: tuple[str, ...] = ()) -> None:
        self.processes = processes
        self.absent = absent
        self.wording = wording
        self.found_in: dict[str, str] = {}

    def read_whole(self, table: Table) -> Node | None:
        """The tree of a system; None where the file has none, or none that holds together."""
        key, node, rule = self.wording.key, self.wording.node, self.wording.rule
        if key not in table.entries:
            return None
        top = self._read(table.table(key), "", 1)
        if top is not None:
            for name in self.processes:
                if name not in self.found_in and name not in self.absent:
                    way_out = f"add it to the processes of one below [{table.at(key)}]"
                    table.refuse(key, f"{name} is in no {node} ({rule})", way_out)
        return top

    @abstractmethod
    def make(self, table: Table, name: str, processes: tuple[str, ...] | None, parts: list[Node | None]) -> Node | None:
        """One node, with the options of its own; it closes the table. None where something in it was refused."""

    def _read(self, table: Table, name: str, depth: int) -> Node | None:
        parts_table = table.table("parts", named=True)
        if parts_table.entries and depth == self.wording.deepest:
            reason = f"more than {self.wording.deepest} {self.wording.depths}"
            table.refuse("parts", reason, f"make {self.wording.nodes} larger")
            table.close()
            return None
        parts = [self._part(parts_table, name, each, depth) for each in parts_table.entries]
        return self.make(table, name, self._own(table, whole=not name and not parts), parts)

    def _part(self, parts: Table, above: str, name: str, depth: int) -> Node | None:
        if not NAME.fullmatch(name):
            parts.refuse(name, f"{quote(name)} is not a name", "use letters, digits, _ and -")
        return self._read(parts.table(name), f"{above}.{name}" if above else name, depth + 1)

    def _own(self, table: Table, whole: bool) -> tuple[str, ...] | None:
        """The processes that are listed here. A system of one node need not list them again."""
        names = table.names("processes", empty=True)
        if names is None:
            names = tuple(each for each in self.processes if each not in self.absent) if whole else ()
        sound = True
        for place, name in enumerate(names):
            if name not in self.processes:
                way_out = choose_from(name, self.processes, "its processes are")
                table.refuse_element("processes", place, f"the system has no process {quote(name)}", way_out)
                sound = False
            elif name in self.absent:
                reason = f"{name} is on standby, and in no {self.wording.node} before it comes"
                table.refuse_element("processes", place, reason, "remove it here, or from standby")
                sound = False
            elif name in self.found_in:
                reason = f"{name} is in two {self.wording.nodes}, {self.found_in[name]} and {table.key}"
                table.refuse_element("processes", place, f"{reason} ({self.wording.rule})", self.wording.in_two)
                sound = False
            else:
                self.found_in[name] = table.key
        return names if sound else None


def refuse_whole(table: Table, reason: str, way_out: str) -> None:
    """Refuse a node as such, and not for one of its keys."""
    table.report.incomplete = True
    table.report.refuse(table.key, reason, way_out)
