"""Messages on their way onto a link: a parcel becomes one block, and waits in the lane of its link until that is ready.

What a link cannot take waits in its lane, where it is one with what the export keeps anyhow, and not in the link: a new
epoch finds at most one block in its way, and no load is too much for a link. How much there is altogether the windows
of the origins say, in messages and bytes (docs/design/joins.md, Window).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Marks, Segment, join

NO_MARKS: Marks = {}


class Parcel(NamedTuple):
    """A block that has no epoch yet. `first` is the number of its first message, 0 where nothing is numbered.

    `home` and `after` are as in `Block` (core/wire/join.py).
    """

    first: int
    segment: Segment
    home: int | None = None
    after: Marks = NO_MARKS

    @property
    def last(self) -> int:
        """The number of the last message."""
        return self.first + self.segment.messages - 1


class Lane:
    """What waits for one link. `room` is how many bytes may go onto it now; 0: it is not ready for any.

    Where blocks are `apart`, each parcel is one, as in Fig. 5, where every message goes by itself; else all that fits
    goes as one block.
    """

    __slots__ = ("_apart", "room", "waiting")

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self.room = 0
        self.waiting: deque[Parcel] = deque()

    def take(self) -> Parcel:
        """The next block: as much of what waits as there is room for."""
        room = self.room
        parcel = self.waiting.popleft()
        front, rest = parcel.segment.cut(parcel.segment.fitting(MAX_SEGMENT_MESSAGES, room, room))
        self.room = max(0, room - max(1, front.payload_bytes)) if self._apart else 0
        if rest:
            # What the front waits for, the rest waits for as well: it comes behind it.
            self.waiting.appendleft(Parcel(parcel.first and parcel.first + front.messages, rest, parcel.home))
        if rest or self._apart:
            return parcel._replace(segment=front)
        together = [parcel]
        messages, size = front.messages, front.payload_bytes
        while self.waiting:
            following = self.waiting[0]
            messages += following.segment.messages
            size += following.segment.payload_bytes
            follows = following.first == (parcel.first and together[-1].last + 1) and following.home == parcel.home
            if not follows or messages > MAX_SEGMENT_MESSAGES or size > room:
                break
            together.append(self.waiting.popleft())
        if len(together) == 1:
            return parcel
        return Parcel(
            parcel.first,
            join([each.segment for each in together]),
            parcel.home,
            {origin: seq for each in together for origin, seq in each.after.items()},
        )
