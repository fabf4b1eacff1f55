"""What waits for one link: blocks go onto it one at a time, when it has little left to send.

So what a link cannot take waits here, where it is one with what the export keeps anyhow, and not in the link: a new
epoch finds at most one block in its way, and no load is too much for a link. How much there is altogether the windows
of the origins say, in messages and bytes (docs/design/joins.md, Window).
"""

from __future__ import annotations

from collections import deque

from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Segment, join


class Lane:
    """`waiting` are segments with the number of their first message, 0 where nothing is numbered.

    `room` is how many bytes may go onto the link now; 0: it is not ready for any. Where blocks are `apart`, each
    segment is one, as in Fig. 5, where every message goes by itself; else all that fits goes as one block.
    """

    __slots__ = ("_apart", "room", "waiting")

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self.room = 0
        self.waiting: deque[tuple[int, Segment]] = deque()

    def take(self) -> tuple[int, Segment]:
        """The next block, and the number of its first message: as much of what waits as there is room for."""
        room = self.room
        first, segment = self.waiting.popleft()
        front, rest = segment.cut(segment.fitting(MAX_SEGMENT_MESSAGES, room, room))
        self.room = max(0, room - max(1, front.payload_bytes)) if self._apart else 0
        if rest:
            self.waiting.appendleft((first and first + front.messages, rest))
        if rest or self._apart:
            return first, front
        parts, messages, size = [front], front.messages, front.payload_bytes
        while self.waiting:
            number, segment = self.waiting[0]
            messages += segment.messages
            size += segment.payload_bytes
            follows = not first or number == first + messages - segment.messages
            if not follows or messages > MAX_SEGMENT_MESSAGES or size > room:
                break
            parts.append(segment)
            self.waiting.popleft()
        return first, join(parts)
