"""The sender's window: what was accepted and is not sent yet, and what was sent and is not stable yet.

A message counts against the window from the moment it is sent until every live member has finished with it, so a sender
cannot run further ahead of the slowest member than the window allows, and memory stays bounded everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY, Segment, take, total
from isthmus.ordering.group.patience import FRAME_BYTES

ALL_SPEAK = 9
"""Members of the largest group in which everybody speaks to everybody in its heartbeats."""
WATCHERS = 3
"""How many others each member of a larger group speaks to. With three, 128 members say 19,200 heartbeats a second;
a single OS process that has to carry 51,200 of them over TCP, to eight watchers each, has no time for much else."""


class Seat(Struct, frozen=True):
    """One join of a system: the slots of its gateways here, and of the origins whose messages go out by it."""

    gateways: frozenset[int]
    exported: frozenset[int]


class GroupSettings(Struct, frozen=True):
    """The knobs of a group. Times in nanoseconds.

    `uniform` off is the `fast` delivery of the design note. `auto_confirm` counts a batch as confirmed as soon as it is
    delivered, for applications that are done with a message when they have been called with it. `keepers` are the slots
    of members that keep a journal: nothing is delivered anywhere before all of them in the view hold it. `start_within`
    is how long a quorum of the founders waits for the others; with 0 all of them are there from the beginning. The
    window is that of everybody who sends messages of its own; a member that is `unlimited` has none itself.
    In a group of more than `all_speak` a member speaks to only `watchers` others in its heartbeats. `seats` are
    the joins of the system: nothing is stable while one of them has no gateway in the view.
    """

    heartbeat: Nanos = 20 * MILLISECOND
    suspect_after: Nanos = 200 * MILLISECOND
    retry_after: Nanos = 40 * MILLISECOND
    window_messages: int = 16_384
    window_bytes: int = 8 << 20
    batch_messages: int = 1_024
    batch_bytes: int = 256 << 10
    uniform: bool = True
    auto_confirm: bool = True
    keepers: frozenset[int] = frozenset()
    start_within: Nanos = 0
    unlimited: bool = False
    all_speak: int = ALL_SPEAK
    watchers: int = WATCHERS
    seats: tuple[Seat, ...] = ()


_WITHOUT_END = 1 << 60

EARLY_REPORT = 8
"""What part of a sender's window a member may have finished with, in messages or bytes, before it says so at once.

Senders wait for stability, not for delivery. In a prototype of this way to move messages 4 MiB of window let 169,000 of
1 KiB a second through a join with reports after a quarter of the messages, and none of gateways before their heartbeat;
with an eighth, of messages or bytes, and gateways too, 371,000."""


class SendWindow:
    """`pending` waits to be sent; `unstable` messages and bytes are on their way.

    A batch is at most as large as what the slowest line has carried in a heartbeat, or `FRAME_BYTES`: nobody can speak
    on a line while a batch takes its time there. `_under_way` are the sizes of batches that somebody lacks.
    """

    __slots__ = (
        "_batch_bytes",
        "_bytes",
        "_messages",
        "_settings",
        "_under_way",
        "pending",
        "pending_bytes",
        "pending_messages",
        "unstable_bytes",
        "unstable_messages",
    )

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._batch_bytes = min(settings.batch_bytes, FRAME_BYTES)
        self._under_way: deque[tuple[int, int]] = deque()
        self._messages = _WITHOUT_END if settings.unlimited else settings.window_messages
        self._bytes = _WITHOUT_END if settings.unlimited else settings.window_bytes
        self.pending: deque[Segment] = deque()
        self.pending_messages = 0
        self.pending_bytes = 0
        self.unstable_messages = 0
        self.unstable_bytes = 0

    def accept(self, segments: Sequence[Segment]) -> None:
        self.pending.extend(segments)
        for segment in segments:
            self.pending_messages += segment.messages
            self.pending_bytes += segment.payload_bytes

    def credit(self) -> int:
        """How many more messages may be accepted now."""
        if self.unstable_bytes + self.pending_bytes >= self._bytes:
            return 0
        return max(0, self._messages - self.unfinished())

    def unfinished(self) -> int:
        """Messages accepted that are not stable yet."""
        return self.unstable_messages + self.pending_messages

    def take(self) -> Segment:
        """The messages of the next batch: as many as wait, up to the size of a batch and the window."""
        settings = self._settings
        room = min(settings.batch_messages, self._messages - self.unstable_messages)
        room_bytes = min(self._batch_bytes, self._bytes - self.unstable_bytes)
        if room <= 0 or room_bytes <= 0:
            return EMPTY
        segment = take(self.pending, room, room_bytes, self._batch_bytes)
        self.pending_messages -= segment.messages
        self.pending_bytes -= segment.payload_bytes
        self.unstable_messages += segment.messages
        self.unstable_bytes += segment.payload_bytes
        return segment

    def sent(self, batch: Batch) -> None:
        """A batch goes out to everybody."""
        self._under_way.append((batch.number, batch.segment.payload_bytes))

    def arrived(self, everywhere: int) -> None:
        """A heartbeat: everybody has the batches up to this number."""
        carried = 0
        while self._under_way and self._under_way[0][0] <= everywhere:
            carried += self._under_way.popleft()[1]
        at_least = max(FRAME_BYTES, self._batch_bytes // 2)
        self._batch_bytes = min(max(carried, at_least), self._settings.batch_bytes)

    def free(self, batch: Batch) -> None:
        """An own batch has become stable."""
        self.unstable_messages -= batch.segment.messages
        self.unstable_bytes -= batch.segment.payload_bytes

    def invariants(self) -> None:
        assert 0 <= self.unstable_messages <= self._messages, f"{self.unstable_messages} under way"
        assert (self.pending_messages, self.pending_bytes) == total(self.pending)
