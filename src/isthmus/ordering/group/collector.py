"""Stability in a group that is too large for everybody to tell everybody: one member gathers the counts of all.

Whoever has confirmed what is not known to be stable says so to the *collector*, the first member that it does not
suspect, with every heartbeat until it is told. The collector tells everybody the minimum. All that it says rests on
what each member of the view has said itself in this view, so it is true whoever collects, and two that collect at the
same time, or one that takes over and begins with nothing, do no harm. docs/design/group.md, "Heartbeats".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.core.clocks import dominates, merge
from isthmus.core.ids import ProcessId
from isthmus.core.wire.group import Stable, Status


class Collector:
    """The counts that were reported to one member in one view.

    `rows` are by rank, never falling; `departed` is what a member said last of senders that are gone. `fresh` have
    reported since the last heartbeat, `since_word` since the last word to everybody, which is `said`: None before all
    members have reported.
    """

    __slots__ = ("_others", "_was_open", "departed", "fresh", "rows", "said", "since_word")

    def __init__(self, others: Sequence[ProcessId] = ()) -> None:
        self._others = tuple(others)
        self._was_open = False
        self.rows: dict[ProcessId, list[int]] = {}
        self.departed: dict[ProcessId, dict[ProcessId, int]] = {}
        self.fresh: set[ProcessId] = set()
        self.since_word: set[ProcessId] = set()
        self.said: Stable | None = None

    def report(self, member: ProcessId, status: Status) -> None:
        """What a member has confirmed. Old news is harmless."""
        self.fresh.add(member)
        self.since_word.add(member)
        row = self.rows.get(member)
        if row is None:
            self.rows[member] = list(status.confirmed)
        else:
            merge(row, status.confirmed)
        self.departed[member] = dict(status.departed)

    @property
    def has_heard_all(self) -> bool:
        """Whether everybody has reported since the last word, so that it is time for the next."""
        return len(self.since_word) == len(self._others)

    def has_missed_it(self, status: Status) -> bool:
        """Whether who reports this only repeats it because it has not heard the last word."""
        said = self.said
        return said is not None and dominates(said.confirmed, status.confirmed)

    def word(self, view: int, confirmed: Sequence[int], departed: Mapping[ProcessId, int]) -> Stable | None:
        """What is to be told to everybody: the minimum, if it is known and news. The arguments are our own counts."""
        if len(self.rows) < len(self._others):
            return None
        self.since_word.clear()
        lists = [departed, *self.departed.values()]
        gone = sorted({sender for each in lists for sender in each})
        # Who does not list a departed sender has nothing of it that is not stable.
        left = [(sender, min(each[sender] for each in lists if sender in each)) for sender in gone]
        word = Stable(view, list(map(min, confirmed, *self.rows.values())), left)
        said = self.said
        if said is not None and word.confirmed == said.confirmed and set(word.departed) <= set(said.departed):
            return None
        self.said = word
        return word

    def lagging(self, confirmed: Sequence[int]) -> list[ProcessId]:
        """A heartbeat with something open: who has not reported since the last one, and what is open may wait for it.

        None of them the first time: reports come with everybody's heartbeats. The argument is our own counts.
        """
        fresh, rows = self.fresh, self.rows
        found: list[ProcessId] = []
        if self._was_open and len(fresh) < len(self._others):
            top = list(confirmed)
            for row in rows.values():
                merge(top, row)
            for other in self._others:
                if other not in fresh:
                    if other not in rows or self.departed[other] or not dominates(rows[other], top):
                        found.append(other)
        self._was_open = True
        fresh.clear()
        return found

    def rest(self) -> None:
        """A heartbeat with nothing open."""
        self._was_open = False
