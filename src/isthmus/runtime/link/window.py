"""How much may be under way on a link. Pure: time is an argument.

Bytes that wait for a line may lie in user space, in two kernels, in a proxy, in a router. Only the far end sees
through all of that: what it reports to have received is through. *Under way* is what we accepted minus what it
reports; the line is full, and no queue stands before it, when that is rate × trip:

- **trip** is the time of an answered ping without what it waited on the way there. The answer carries the far end's
  clock. Nobody knows what the two clocks have to do with each other, but the least difference that was seen is the way
  there with empty queues, and what exceeds it is waiting. (What the answer waits on the way back is not ours to
  avoid, and as reports wait there too it has to be allowed for.) Clocks drift and ways change, so the least difference
  is measured anew when it is old: the window stays shut until the queues must be empty, for one ping.
- **rate** is the greatest of the latest samples; a sample is what arrived at the far end, by its clock, between the
  report before a frame was accepted and the report of that frame. One that was taken while too little was under way
  says how fast the producer is, and counts only if it is greater.

That is BBR's model of a path (Cardwell et al., 2016), with one-way delays as in LEDBAT (RFC 6817): with data in both
directions, round trips alone blame either for the other's queue, and both windows kept growing. The window opens at a
pace, a quarter above the rate: reports that come in a clump behind data of the other direction would release a clump
of blocks, which holds up reports in its turn. Without that, 20 Mbit/s with 50 ms were used to 90 % when full both
ways, with it to 99 %.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.core.wire.join import Line
from isthmus.runtime.link.wire import LinkError

INITIAL = 128 << 10
LEAST = 32 << 10
MOST = 32 << 20
_GAIN = 1.25
"""Above 1, so that a line that has become faster is found out. What is too much waits for a quarter of a trip."""
_FIRST_GAIN = 2.0
"""Until three rounds in a row (a round: what was under way has been reported) have found no quarter more."""
_SLACK = 32 << 10
"""Twice what may have arrived without having been reported."""
_TURNS: Nanos = 2 * MILLISECOND
"""What two event loops under load take to turn, which no ping through empty queues has seen: a shorter trip would leave
them waiting for each other."""
_BLOCK_TIME: Nanos = 4 * MILLISECOND
_LEAST_BLOCK = 8 << 10
_QUEUED: Nanos = 12 * MILLISECOND
"""A frame that took so much longer than an empty line takes has waited for it: reports are up to 5 ms late."""
_LARGEST_BLOCK = 256 << 10
_EXPIRES: Nanos = 10 * SECOND
_EXPIRES_TRIPS = 100
"""Age at which the least way there is measured anew: that much, or so many trips, since each time costs half a trip."""
_LONGEST_DRAIN: Nanos = SECOND
_SHORTEST_PERIOD: Nanos = SECOND // 2
"""The greatest sample is replaced after one to two such periods, or five to ten trips if that is longer."""


_FINEST_PACE: Nanos = MILLISECOND
"""What an event loop can wait for. Less is not waited for at all."""
_PACE_CREDIT: Nanos = 10 * MILLISECOND
"""Lateness that is made up for. Timers are late by a millisecond, which is half a block at 100 Mbit/s."""


class _Accepted(NamedTuple):
    """A frame under way: where it ends in the stream, when it was accepted, and the latest report at that time."""

    end: int
    at: Nanos
    reported: int
    clock: int
    starved: bool


class _Ping(NamedTuple):
    sent_at: Nanos
    through_empty_queues: bool


class LinkWindow:
    """One connection's window. `accepted` and `reported` count bytes of data frames since it began."""

    __slots__ = (
        "_best_before",
        "_best_now",
        "_clock",
        "_drain_until",
        "_found",
        "_frames",
        "_has_waited",
        "_least_there",
        "_least_there_at",
        "_paced_until",
        "_period_began",
        "_pings",
        "_round_ends",
        "_searching",
        "_through_at",
        "accepted",
        "queued",
        "rate",
        "reported",
        "round_trip",
        "size",
        "trip",
    )

    def __init__(self, now: Nanos) -> None:
        self.accepted = 0
        self.reported = 0
        self.size = INITIAL
        self.rate = 0.0
        """Bytes per second; 0 while unknown."""
        self.trip: Nanos = 0
        self.round_trip: Nanos = 0
        """The latest, with all its waiting; 0 while unknown."""
        self.queued: Nanos = 0
        """How long the latest ping waited on the way there."""
        self._least_there = 0
        self._least_there_at = now
        self._pings: dict[int, _Ping] = {}
        self._drain_until: Nanos = 0
        self._paced_until: Nanos = 0
        self._frames: deque[_Accepted] = deque()
        self._clock = 0
        self._best_before = 0.0
        self._best_now = 0.0
        self._found = 0.0
        self._round_ends = 0
        self._searching = 3
        self._period_began = now
        self._through_at: Nanos = now
        self._has_waited = False

    @property
    def under_way(self) -> int:
        return self.accepted - self.reported

    @property
    def _full(self) -> float:
        """Bytes under way that just fill the line."""
        return self.rate * self.trip / SECOND

    @property
    def _empty(self) -> bool:
        """Whether so little is under way that none of it can be waiting, even if we think the line twice as long."""
        return self.under_way <= self._full / 2

    @property
    def _hungry(self) -> bool:
        """Whether there is no point in any pace. Where only a few words, or a slow producer's blocks, have gone over a
        line, their rate says little of it: at their pace, a first block kept 20 Mbit/s shut for 20 s.
        """
        return self._empty or self.under_way < LEAST

    # Bytes.

    def accept(self, size: int, now: Nanos) -> None:
        """One more frame is under way."""
        starved = self.under_way < self._full
        if self.rate:
            begins = max(now - _PACE_CREDIT, min(now, self._paced_until) if self._hungry else self._paced_until)
            self._paced_until = begins + int(size * SECOND / (self._gain * self.rate))
            self._through_at = max(now, self._through_at) + int(size * SECOND / self.rate)
        self.accepted += size
        self._frames.append(_Accepted(self.accepted, now, self.reported, self._clock, starved))

    def report(self, octets: int, clock: int, now: Nanos) -> None:
        """The far end had received `octets` when its clock stood at `clock`; `LinkError` where it cannot have."""
        if not self.reported <= octets <= self.accepted:
            raise LinkError(f"it claims to have received {octets} bytes after {self.reported}, of {self.accepted}")
        self.reported = octets
        self._clock = clock
        frames = self._frames
        latest = None
        while frames and frames[0].end <= octets:
            latest = frames.popleft()
        if latest is not None and latest.clock:
            self._has_waited = self._has_waited or (self.trip > 0 and clock - latest.at > self._least_there + _QUEUED)
            elapsed = clock - latest.clock
            # Much less than a trip tells of bursts, not of the line.
            if elapsed > self.trip // 2:
                self._sample((octets - latest.reported) * SECOND / elapsed, latest.starved, now)

    def _sample(self, rate: float, starved: bool, now: Nanos) -> None:
        if starved and rate <= self.rate:
            return
        if now - self._period_began > max(5 * self.trip, _SHORTEST_PERIOD):
            self._best_before, self._best_now = self._best_now, 0.0
            self._period_began = now
        self._best_now = max(self._best_now, rate)
        self.rate = max(self._best_before, self._best_now)
        if self._searching and self.reported >= self._round_ends:
            self._round_over()
        self._resize()

    def _round_over(self) -> None:
        self._round_ends = self.accepted
        if self.rate >= _GAIN * self._found:
            self._found = self.rate
            self._searching = 3
        else:
            self._searching -= 1

    @property
    def _gain(self) -> float:
        return _FIRST_GAIN if self._searching else _GAIN

    def _resize(self) -> None:
        if self.rate and self.trip:
            filled = self._gain * self.rate * max(self.trip, _TURNS) / SECOND
            self.size = max(LEAST, min(MOST, int(filled) + _SLACK))

    def opens_at(self, now: Nanos) -> Nanos | None:
        """When a block that is put on will go out soon: now, or later; none if only the far end's reports can tell."""
        if self._drain_until or self.under_way >= self.size:
            return None
        stale = now - self._least_there_at > max(_EXPIRES, _EXPIRES_TRIPS * self.trip)
        if stale and self._full and not self._empty:
            self._drain_until = now + _LONGEST_DRAIN
            return None
        if self._hungry:
            return now
        return self._paced_until if self._paced_until - now > _FINEST_PACE else now

    def line(self, now: Nanos) -> Line:
        """What is known of the line, for whoever chooses between several.

        A block arrives with its last byte, so a slow line needs small ones: what it carries in 4 ms. How fast a line
        is shows only when something had to wait for it; before, `rate` is what was asked of it, and is not told: lines
        that had little to do looked slow, got even less, and two of eight lines carried nearly all of a quarter load.
        """
        room = max(_LEAST_BLOCK, min(_LARGEST_BLOCK, int(self.rate * _BLOCK_TIME / SECOND)))
        if not (self._has_waited and self.rate):
            return Line(room, 0, self.trip // 2)
        # By what was given to it, and by what is missing: a rate that is taken for 3 % too much would hide any queue.
        wait = max(0, self._through_at - now, int(self.under_way * SECOND / self.rate) - self.trip)
        return Line(room, wait, self.trip // 2, int(self.rate))

    # Pings.

    @property
    def unanswered(self) -> int:
        """Pings that are not answered yet."""
        return len(self._pings)

    def wants_ping(self, now: Nanos) -> bool:
        """Whether a ping should go out now, because the queues have been emptied for it, or will not be."""
        return self._drain_until > 0 and (self._empty or now >= self._drain_until)

    def ask(self, token: int, now: Nanos) -> None:
        """A ping goes out, with a token above all before it. Whether it meets empty queues is known only now."""
        wanted = self.wants_ping(now)
        if wanted:
            self._drain_until = 0
            self._least_there_at = now
        self._pings[token] = _Ping(now, wanted)

    def answer(self, token: int, clock: int, now: Nanos) -> None:
        """That ping reached the far end when its clock stood at `clock`; `LinkError` where there was none."""
        pings = self._pings
        if token not in pings:
            raise LinkError("it answers a ping that nobody sent")
        ping = pings.pop(token)
        # Answers come in order, so those before it will never come.
        while pings and (oldest := next(iter(pings))) < token:
            del pings[oldest]
        there = clock - ping.sent_at
        if ping.through_empty_queues or not self.trip or there <= self._least_there:
            self._least_there = there
            self._least_there_at = now
        self.round_trip = now - ping.sent_at
        self.queued = min(there - self._least_there, self.round_trip)
        trip = self.round_trip - self.queued
        self.trip += (trip - self.trip) // 4 if self.trip else trip
        self._resize()
