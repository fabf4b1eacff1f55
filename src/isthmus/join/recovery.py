"""What a site goes on with when all its processes died and it is started anew: docs/design/sites.md.

The gateways of the former life kept a journal. What of it is *done* only counts; the rest is broadcast once more in the
new system, under its old ids, by the first live gateway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.segment import Marks, Segment


class Recovered(Struct, frozen=True):
    """What the journals of former lives say. `done` is per origin; `segments` are beyond it, causes before effects."""

    done: dict[ProcessId, int]
    segments: tuple[Segment, ...]

    def last(self) -> dict[ProcessId, int]:
        """Of each origin, the last message that is to be broadcast again."""
        return {origin: seq for segment in self.segments for origin, seq in segment.marks.items()}


NOTHING = Recovered({}, ())


def merge(journals: Iterable[tuple[Mapping[ProcessId, int], Sequence[Segment]]]) -> Recovered:
    """Make one state of the journals of one site. Those that began first come first.

    Each holds the causes of what it holds, or a journal that began before it does. So what one has beyond the others
    may follow all of theirs. Messages of an origin must come without a gap; one that does not was never delivered.
    """
    done: dict[ProcessId, int] = {}
    found: list[Segment] = []
    for marks, segments in journals:
        for origin, seq in marks.items():
            done[origin] = max(seq, done.get(origin, 0))
        found += segments
    last = {origin: 0 for segment in found for origin in segment.marks} | done
    merged: list[Segment] = []
    for segment in found:
        fresh = segment.following(last)
        last.update(fresh.marks)
        if fresh:
            merged.append(fresh)
    return Recovered(done, tuple(merged))


class Replay:
    """Broadcasts the rest of a former life, once. `gateways` are the slots of all gateways of the system."""

    def __init__(self, owner: ProcessId, gateways: Collection[int], recovered: Recovered) -> None:
        self._owner = owner
        self._gateways = gateways
        self._left = list(recovered.segments)
        self._begun = False

    @property
    def over(self) -> bool:
        """Whether everything has been delivered again here, so that every gateway with a journal holds it."""
        return not self._left

    def delivered(self, marks: Marks) -> None:
        """What is delivered need not be broadcast by whoever comes after us. Each origin's messages come in order."""
        if self._left:
            self._left = [rest for each in self._left if (rest := each.beyond(marks))]

    def due(self, members: Sequence[ProcessId]) -> Sequence[Segment]:
        """What this process is to broadcast now: everything that is left, if it is its turn and it has not begun."""
        first = next((member for member in members if slot_of(member) in self._gateways), None)
        if self._begun or first != self._owner:
            return ()
        self._begun = True
        return tuple(self._left)


class SettledMarks:
    """Which messages every live member of the own system has finished with, by origin."""

    def __init__(self, done: Mapping[ProcessId, int]) -> None:
        self.marks: dict[ProcessId, int] = dict(done)
        self._waiting: dict[ProcessId, deque[tuple[int, Marks]]] = {}

    def delivered(self, sender: ProcessId, number: int, marks: Marks) -> None:
        self._waiting.setdefault(sender, deque()).append((number, marks))

    def settled(self, sender: ProcessId, number: int) -> None:
        queue = self._waiting.get(sender)
        while queue and queue[0][0] <= number:
            for origin, seq in queue.popleft()[1].items():
                self.marks[origin] = max(seq, self.marks.get(origin, 0))
