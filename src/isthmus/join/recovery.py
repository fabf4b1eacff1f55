"""What a site goes on with when all its processes died and it is started anew: docs/design/sites.md.

The gateways of the former life kept a journal. What of it is *done* only counts; the rest is broadcast once more in the
new system, under its old ids, by the first live gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Marks, Segment


class Recovered(Struct, frozen=True):
    """What the journals of former lives say. `segments` are beyond `done`, causes before effects.

    `done` is per origin, as `SlotMarks.counted` has it.
    """

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
    done = SlotMarks()
    found: list[Segment] = []
    for marks, segments in journals:
        done.merge(marks.items())
        found += segments
    last = done.copy()
    merged: list[Segment] = []
    for segment in found:
        fresh = segment.following({origin: last.get(origin) for origin in segment.marks})
        last.update(fresh.marks)
        if fresh:
            merged.append(fresh)
    return Recovered(dict(done.counted()), tuple(merged))


class Replay:
    """Broadcasts the rest of a former life, once.

    `settled` says that every member has delivered all of it: nothing of the new life is sent before. `_last` is the
    batch with which it was complete here.
    """

    def __init__(self, owner: ProcessId, recovered: Recovered) -> None:
        self._owner = owner
        self._left = list(recovered.segments)
        self._begun = False
        self._last: tuple[ProcessId, int] | None = None
        self._before_view = False
        self.settled = not self._left

    @property
    def over(self) -> bool:
        """Whether everything has been delivered again here, so that every gateway with a journal holds it."""
        return not self._left

    def delivered(self, marks: Marks, sender: ProcessId = 0, number: int = 0) -> None:
        """What is delivered need not be broadcast by whoever comes after us. Each origin's messages come in order."""
        if self._left:
            self._left = [rest for each in self._left if (rest := each.beyond(marks))]
            self._last = (sender, number)

    def was_delivered(self, marks: SlotMarks) -> None:
        """The same of what lies before the first view of one that comes."""
        if self._left:
            self.delivered({origin: seq for each in self._left for origin, seq in marks.at(each.marks).items()})
            self._before_view = self.over

    def have_settled(self, sender: ProcessId, number: int) -> None:
        """Every member has finished with this batch of a sender, and all before it."""
        if self.over and self._last is not None and self._last[0] == sender and self._last[1] <= number:
            self.settled = True

    def view(self) -> None:
        """A view begins, and everything that was delivered here lies before it."""
        self._before_view = self.over

    def all_have_arrived(self) -> None:
        """Every member has delivered what lies before the present view."""
        self.settled = self.settled or self._before_view

    def due(self, actors: Sequence[ProcessId]) -> Sequence[Segment]:
        """What this process is to broadcast now: everything that is left, if it is its turn and it has not begun."""
        if self._begun or not actors or actors[0] != self._owner:
            return ()
        self._begun = True
        return tuple(self._left)


class DoneMarks:
    """Which messages the site is done with: everybody here has finished with them, and every join has confirmed them.

    `_finished` are marks that joins had not confirmed when we last looked, origin by origin. `_known` are the streams
    of which something is done as far as this gateway has seen it; of others it knows at most how many messages there
    were.
    """

    def __init__(self, done: Mapping[ProcessId, int]) -> None:
        self._done = SlotMarks(done.items())
        self._known = set(map(slot_of, done))
        self._finished: dict[ProcessId, int] = {}

    def settled(self, marks: Marks) -> None:
        """Everybody here has finished with everything up to these."""
        self._finished.update(marks)

    def done(self, onward: Callable[[ProcessId], Iterable[SlotMarks]]) -> dict[ProcessId, int]:
        """What everybody has finished with and every join onward has confirmed."""
        for origin, seq in sorted(self._finished.items()):
            level = min([seq, *(confirmed.get(origin) for confirmed in onward(origin))])
            if level > self._done.get(origin):
                self._done.raise_to(origin, level)
                self._known.add(slot_of(origin))
        self._finished = {origin: seq for origin, seq in self._finished.items() if seq > self._done.get(origin)}
        return {origin: seq for origin, seq in self._done.counted() if slot_of(origin) in self._known}

    def go_on_from(self, counted: Mapping[ProcessId, int]) -> None:
        """What was delivered before this gateway came. What of it is done others know; it counts all the same."""
        self._done = SlotMarks(counted.items())
        self._known.clear()
