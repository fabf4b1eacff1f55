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

    `room` is how many bytes the next block may have; 0: the link is not ready for any.
    """

    __slots__ = ("room", "waiting")

    def __init__(self) -> None:
        self.room = 0
        self.waiting: deque[tuple[int, Segment]] = deque()

    def take(self) -> tuple[int, Segment]:
        """The next block, and the number of its first message: as much of what waits as there is room for."""
        room, self.room = self.room, 0
        first, segment = self.waiting.popleft()
        front, rest = segment.cut(segment.fitting(MAX_SEGMENT_MESSAGES, room, room))
        if rest:
            self.waiting.appendleft((first and first + front.messages, rest))
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
