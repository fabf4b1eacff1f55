"""One direction of an emulated line: when does which byte arrive? No clock, no socket; time is an argument.

The line has two stages, as a real one. *Serialisation*: bytes are clocked out at the rate, one segment after the
other, and wait for their turn before. *Propagation*: a segment arrives `delay` (and a random part of `jitter`) after
its last bit has been sent, but never before its predecessor: TCP keeps order, so a late segment holds up the rest.

What waits is not scheduled before it is its turn. So a new rate applies to all that has not been sent yet, and times
are computed from when the line became free, not from when somebody looked: a late look costs no bandwidth.

The promises, the invariants and the figures are in docs/design/wan.md.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeAlias

from isthmus.core.ids import MILLISECOND, SECOND, Nanos

QUEUE = 64 << 10
"""Bytes that may wait for their turn where nothing else is said."""
QUEUE_TIME = 20 * MILLISECOND
"""A faster line may have this much of its time waiting: for so long a busy machine may leave the emulator standing."""
UNLIMITED = 10_000_000_000
"""A line without a rate has room for what this rate (bit/s) would have under way: more than the emulator can carry."""
UNLIMITED_ROOM = 64 << 20
"""… but for no more bytes than this, however long the line is."""
UNLIMITED_QUEUE = 1 << 20
"""Nothing waits for its turn on such a line, but what is read at once has to fit."""
SEGMENT = 1448
"""Bytes of a TCP segment on an Ethernet: what slow lines clock out at a time."""
SEGMENT_TIME = MILLISECOND
"""Fast lines clock out this much of their time at once; finer than the event loop looks would be in vain."""
MOST_PIECES = 1 << 18
"""A line full of single bytes must not take hundreds of times their number in bookkeeping."""


class Ending(StrEnum):
    """How a stream ends. It travels behind the stream's last byte."""

    CLOSE = "close"
    RESET = "reset"


Piece: TypeAlias = memoryview | Ending


class Conditions(NamedTuple):
    """What one direction of a line is like. Times in nanoseconds, rates in bits of payload per second."""

    delay: Nanos = 0
    jitter: Nanos = 0
    rate: int | None = None
    """Of each connection; none: unlimited."""
    queue: int | None = None
    """Bytes that may wait for their turn; none: `QUEUE`, or `QUEUE_TIME` of a fast line."""

    def check(self) -> Conditions:
        """These conditions, if they make sense; otherwise `ValueError`."""
        check_rate(self.rate)
        for name, value, least in (("delay", self.delay, 0), ("jitter", self.jitter, 0), ("queue", self.queue, 1)):
            if value is not None and value < least:
                raise ValueError(f"a {name} of {value} makes no sense; it is at least {least}")
        return self


def check_rate(rate: int | None) -> int | None:
    """The rate, or `ValueError`."""
    if rate is not None and rate < 1:
        raise ValueError("nothing would ever arrive at a rate of nothing; cut the line instead")
    return rate


class Trunk:
    """What all connections of a line share in one direction: together they get at most `rate` bits per second.

    A connection offers its next segment when the last one has left the trunk, and segments pass in the order in which
    they are offered. So connections that have enough to send get equal shares.
    """

    __slots__ = ("_free_at", "rate")

    def __init__(self, rate: int | None = None) -> None:
        self.rate = rate
        self._free_at: Nanos = 0

    def set(self, rate: int | None, now: Nanos) -> None:
        self.rate = rate
        self._free_at = now

    def carry(self, size: int, offered: Nanos) -> Nanos:
        """When the last bit of a segment has left that is offered at this time."""
        if self.rate is None:
            return offered
        self._free_at = max(offered, self._free_at) + size * 8 * SECOND // self.rate
        return self._free_at


class Line:
    """One direction of one connection.

    Invariants: `_flying`, then `_waiting`, hold all that has not arrived, in the order in which it came; `in_flight` is
    its size. Nothing is taken before it is due, or before its predecessors, or while the line is cut.
    """

    __slots__ = (
        "_conditions",
        "_flying",
        "_free_at",
        "_random",
        "_segment",
        "_trunk",
        "_waiting",
        "capacity",
        "cut",
        "in_flight",
    )

    def __init__(self, conditions: Conditions, trunk: Trunk, random: Random) -> None:
        self._trunk = trunk
        self._random = random
        self._waiting: deque[tuple[Nanos, Piece]] = deque()
        """When each piece came, and the piece."""
        self._flying: deque[tuple[Nanos, Piece]] = deque()
        """When each piece is due if nothing before it is later, and the piece."""
        self._free_at: Nanos = 0
        self.in_flight = 0
        self.cut = False
        self.set(conditions, now=0)

    def set(self, conditions: Conditions, now: Nanos) -> None:
        """New conditions for all that has not been sent yet; what is under way arrives as it would have."""
        if self._free_at > now and self._flying:
            # Only the last one sent can be half sent. It starts over, lest it occupy the line at a rate of the past.
            self._waiting.appendleft((now, self._flying.pop()[1]))
            self._free_at = now
        self._conditions = conditions
        rates = [rate for rate in (conditions.rate, self._trunk.rate) if rate is not None]
        bottleneck = min(rates, default=UNLIMITED)
        product = bottleneck * (conditions.delay + conditions.jitter) // (8 * SECOND)
        if rates:
            self._segment = max(SEGMENT, bottleneck * SEGMENT_TIME // (8 * SECOND))
            queue = max(QUEUE, bottleneck * QUEUE_TIME // (8 * SECOND))
        else:
            self._segment, queue = UNLIMITED_ROOM, UNLIMITED_QUEUE
            product = min(product, UNLIMITED_ROOM)
        self.capacity = product + (conditions.queue or queue)

    @property
    def crowded(self) -> bool:
        """Whether there are too many pieces, however small they are."""
        return len(self._waiting) + len(self._flying) >= MOST_PIECES

    def put(self, data: bytes, now: Nanos) -> None:
        """Bytes come to the beginning of the line. Whoever puts them has looked at `capacity` before."""
        self._waiting.append((now, memoryview(data)))
        self.in_flight += len(data)

    def end(self, ending: Ending, now: Nanos) -> None:
        """The stream ends here."""
        self._waiting.append((now, ending))

    def advance(self, now: Nanos) -> None:
        """Clock out what can begin by now."""
        if self.cut:
            return
        waiting, conditions = self._waiting, self._conditions
        while waiting:
            came, piece = waiting[0]
            begin = max(came, self._free_at)
            if begin > now:
                return
            if isinstance(piece, memoryview) and len(piece) > self._segment:
                waiting[0] = (came, piece[self._segment :])
                piece = piece[: self._segment]
            else:
                waiting.popleft()
            size = 0 if isinstance(piece, Ending) else len(piece)
            # Bit by bit through both, so the slower one counts, not their sum.
            left = self._trunk.carry(size, begin)
            if conditions.rate is not None:
                left = max(left, begin + size * 8 * SECOND // conditions.rate)
            self._free_at = left
            due = left + conditions.delay
            if conditions.jitter:
                due += self._random.randrange(conditions.jitter + 1)
            self._flying.append((due, piece))

    def take(self, now: Nanos, at_most: int) -> list[memoryview]:
        """What has arrived by now, about `at_most` bytes of it and nothing beyond an ending."""
        taken: list[memoryview] = []
        if self.cut:
            return taken
        flying, size = self._flying, 0
        while flying and size < at_most:
            due, piece = flying[0]
            if due > now or isinstance(piece, Ending):
                break
            flying.popleft()
            taken.append(piece)
            size += len(piece)
        self.in_flight -= size
        return taken

    def take_ending(self, now: Nanos) -> Ending | None:
        """The ending, if it has arrived and nothing before it is left."""
        if self._flying and not self.cut:
            due, piece = self._flying[0]
            if due <= now and isinstance(piece, Ending):
                self._flying.popleft()
                return piece
        return None

    def next_event(self, *, arrivals: bool) -> Nanos | None:
        """When to look again: the line becomes free for what waits, or (with `arrivals`) something arrives."""
        if self.cut:
            return None
        sending = self._free_at if self._waiting else None
        arriving = self._flying[0][0] if arrivals and self._flying else None
        if sending is None or arriving is None:
            return sending if arriving is None else arriving
        return min(sending, arriving)

    def mend(self, now: Nanos) -> None:
        """Make a cut line whole. What was on it is lost, as on any cable, and TCP sends it again from the beginning."""
        self.cut = False
        again = [piece for _, piece in (*self._flying, *self._waiting)]
        self._flying.clear()
        self._waiting = deque((now, piece) for piece in again)
        self._free_at = now

    def clear(self) -> None:
        """Drop all that is on the line: nobody is there any more to whom it could arrive."""
        self._waiting.clear()
        self._flying.clear()
        self.in_flight = 0
