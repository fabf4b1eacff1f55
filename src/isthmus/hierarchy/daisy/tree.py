"""The tree of groups of a daisy: who is below which group, and where a message has to go (daisy, Sect. 3.1 and 3.2).

Numbers are given out from the top down. The members of a local group are processes. The members of a servers' group are
**seats**, one per part: each is held by one process at a time, the server of that part. A message that is in a group is
relayed into a part if somebody below that part is to have it, and up if somebody outside is. One without destinations
is for everybody (docs/design/daisy-joins.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from isthmus.core.ids import ProcessId, slot_of
from isthmus.hierarchy.daisy.options import PLAIN, DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.shape import Shape

TOP = 0
NONE = -1


class DaisyGroup(NamedTuple):
    """One group. `parts` are the numbers of those below, by seat; empty for a local group. `seat` is its own, above."""

    number: int
    name: str
    parent: int
    seat: int
    parts: tuple[int, ...]
    everybody: tuple[ProcessId, ...]

    @property
    def is_local(self) -> bool:
        return not self.parts


class DaisyTree:
    """All groups of one system as they are in one generation. `home` is the local group of each slot.

    Its `options` are those of all generations.
    """

    def __init__(self, groups: list[DaisyGroup], generation: int = 0, options: DaisyOptions = PLAIN) -> None:
        self.groups = groups
        self.generation = generation
        self.options = options
        self.home = {slot: group.number for group in groups if group.is_local for slot in group.everybody}
        self._below = [frozenset(group.everybody) for group in groups]

    def path(self, process: ProcessId) -> list[DaisyGroup]:
        """The groups above a process, from its local group to the topmost."""
        group = self.groups[self.home[slot_of(process)]]
        path = [group]
        while group.parent != NONE:
            group = self.groups[group.parent]
            path.append(group)
        return path

    def is_below(self, group: int, process: ProcessId) -> bool:
        return slot_of(process) in self._below[group]

    def seat_of(self, group: int, process: ProcessId) -> int:
        """The seat of a servers' group that a process is below; `NONE` where it is elsewhere."""
        for seat, part in enumerate(self.groups[group].parts):
            if slot_of(process) in self._below[part]:
                return seat
        return NONE

    def goes_out(self, group: int, destinations: Collection[ProcessId]) -> bool:
        """Whether somebody outside this group is to have the message."""
        if not destinations:
            return group != TOP
        return not self._below[group].issuperset(map(slot_of, destinations))

    def goes_in(self, group: int, destinations: Collection[ProcessId]) -> bool:
        """Whether somebody below this group is to have the message."""
        return not destinations or not self._below[group].isdisjoint(map(slot_of, destinations))

    def is_for(self, process: ProcessId, destinations: Collection[ProcessId]) -> bool:
        return process in destinations or (not destinations and self.options.audience == "everybody")

    def shape(self, number: int = TOP) -> Shape:
        """The groups from this one down, as they are named and divided."""
        group = self.groups[number]
        processes = group.everybody if group.is_local else ()
        return Shape(group.name, processes, tuple(self.shape(part) for part in group.parts))

    def knows(self, processes: Collection[ProcessId]) -> bool:
        return self._below[TOP].issuperset(map(slot_of, processes))


def tree_of(table: DaisyTable, id_of: Callable[[str], ProcessId]) -> DaisyTree:
    """The tree that a file describes."""
    return grown(_shape_of(table, id_of), 0, table.options)


def _shape_of(table: DaisyTable, id_of: Callable[[str], ProcessId]) -> Shape:
    processes = tuple(sorted(map(id_of, table.processes)))
    return Shape(table.name, processes, tuple(_shape_of(part, id_of) for part in table.parts))


def grown(shape: Shape, generation: int, options: DaisyOptions) -> DaisyTree:
    """The tree of this shape."""
    groups: list[DaisyGroup] = []

    def add(part: Shape, parent: int, seat: int) -> DaisyGroup:
        number = len(groups)
        groups.append(DaisyGroup(number, part.name, parent, seat, (), tuple(sorted(part.processes))))
        below = [add(each, number, place) for place, each in enumerate(part.parts)]
        if below:
            everybody = tuple(sorted(process for each in below for process in each.everybody))
            parts = tuple(each.number for each in below)
            groups[number] = groups[number]._replace(parts=parts, everybody=everybody)
        return groups[number]

    add(shape, NONE, NONE)
    return DaisyTree(groups, generation, options)
