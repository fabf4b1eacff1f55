"""What local groups and servers' groups of a daisy have in common: a run goes through one after the other."""

from __future__ import annotations

from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import Clocked
from isthmus.hierarchy.daisy.record import GroupRecord
from isthmus.hierarchy.daisy.tree import DaisyGroup, DaisyTree


class Stage:
    """One group, as one of its members knows it. `_offered` are, of each origin, the last run that we have put in."""

    def __init__(self, owner: ProcessId, tree: DaisyTree, group: DaisyGroup) -> None:
        self.id = owner
        self.tree = tree
        self.number = group.number
        self.record = GroupRecord()
        self._offered: dict[ProcessId, int] = {}

    def goes_beyond(self, run: Clocked) -> bool:
        """Whether somebody outside this group has to do with it."""
        inside = self.tree.is_below(self.number, run.origin)
        return not inside or self.tree.goes_out(self.number, run.destinations)

    def has(self, run: MessageId) -> bool:
        """Whether it has been in this group, or is on its way there from us."""
        return self.record.has(run) or run.seq <= self._offered.get(run.origin, 0)

    def is_settled(self, run: MessageId) -> bool:
        """Whether nobody will ever need this message again."""
        return self.record.is_settled(run)
