"""How much may be under way on a link. Pure: time is an argument.

Bytes that wait for a line may lie in user space, in two kernels, in a proxy, in a router. Only the far end sees through all of
that: what it reports to have received is through. *Under way* is what we accepted minus what it reports, and the
line is full without a queue when that is rate × round trip. Both are measured, as BBR does (Cardwell et al., 2016):

- the round trip is the least that a ping took. A full line hides it, so when it has not been seen for a while the
  window stays shut until half of what is under way has gone, for one ping through empty queues;
- the rate is the greatest of the latest samples; a sample is what was reported between accepting a frame and its report. One
  that was taken while there was too little to fill the line says how fast the producer is, and counts only if it is greater.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from isthmus.core.ids import SECOND, Nanos
from isthmus.runtime.link_wire import LinkError

INITIAL = 128 << 10
LEAST = 64 << 10
MOST = 32 << 20
_GAIN = 1.25
"""Above 1, so that a line that has become faster is found out. What is too much stands in a queue: a quarter round trip."""
_SLACK = 32 << 10
"""Twice what may have arrived without having been reported."""
_ROUND_TRIP_EXPIRES: Nanos = 10 * SECOND
_SHORTEST_PERIOD: Nanos = SECOND // 2
"""The greatest sample is replaced after one to two such periods, or five to ten round trips if that is longer."""
_LONGEST_DRAIN: Nanos = SECOND


class _Accepted(NamedTuple):
    """A frame under way: where it ends in the stream, and what had been reported by when, when it was accepted."""

    end: int
    reported: int
    reported_at: Nanos
    starved: bool


class LinkWindow:
    """One connection's window. `accepted` and `reported` count bytes of data frames since it began."""

    __slots__ = (
        "_best_before",
        "_best_now",
        "_drain_until",
        "_frames",
        "_period_began",
        "_reported_at",
        "_round_trip_at",
        "accepted",
        "least_round_trip",
        "rate",
        "reported",
        "round_trip",
        "size",
    )

    def __init__(self, now: Nanos) -> None:
        self.accepted = 0
        self.reported = 0
        self.size = INITIAL
        self.rate = 0.0
        """Bytes per second, 0 while unknown."""
        self.round_trip: Nanos = 0
        """Smoothed, queues included; 0 while unknown."""
        self.least_round_trip: Nanos = 0
        self._round_trip_at = now
        self._reported_at = now
        self._frames: deque[_Accepted] = deque()
        self._best_before = 0.0
        self._best_now = 0.0
        self._period_began = now
        self._drain_until: Nanos = 0

    @property
    def under_way(self) -> int:
        return self.accepted - self.reported

    @property
    def _full(self) -> float:
        """Bytes under way that just fill the line."""
        return self.rate * self.least_round_trip / SECOND

    def is_open(self, now: Nanos) -> bool:
        """Whether the far end will soon have all that there is."""
        return self.under_way < self.size and not self._draining(now)

    def accept(self, size: int, now: Nanos) -> None:
        """One more frame is under way."""
        under_way = self.under_way
        if not under_way:
            self._reported_at = now
        self.accepted += size
        self._frames.append(_Accepted(self.accepted, self.reported, self._reported_at, under_way < self._full))

    def report(self, octets: int, now: Nanos) -> None:
        """The far end has received `octets`, or raise `LinkError` where it cannot have."""
        if not self.reported <= octets <= self.accepted:
            raise LinkError(f"it claims to have received {octets} bytes of {self.accepted}")
        if octets == self.reported:
            return
        self.reported = octets
        self._reported_at = now
        frames = self._frames
        frame = None
        while frames and frames[0].end <= octets:
            frame = frames.popleft()
        if frame is not None:
            elapsed = now - frame.reported_at
            if elapsed > 0 and elapsed >= self.least_round_trip:
                self._sample((octets - frame.reported) * SECOND / elapsed, frame.starved, now)

    def _sample(self, rate: float, starved: bool, now: Nanos) -> None:
        if starved and rate <= self.rate:
            return
        if now - self._period_began > max(5 * self.least_round_trip, _SHORTEST_PERIOD):
            self._best_before, self._best_now = self._best_now, 0.0
            self._period_began = now
        self._best_now = max(self._best_now, rate)
        self.rate = max(self._best_before, self._best_now)
        self._resize()

    def answered(self, sample: Nanos, now: Nanos) -> None:
        """A ping was answered after this long."""
        self.round_trip += (sample - self.round_trip) // 8 if self.round_trip else sample
        least = self.least_round_trip
        clean = self.under_way <= self._full
        if not least or sample <= least or (clean and now - self._round_trip_at > _ROUND_TRIP_EXPIRES):
            self.least_round_trip = sample
            self._round_trip_at = now
            self._resize()

    def _resize(self) -> None:
        if self.rate and self.least_round_trip:
            self.size = max(LEAST, min(MOST, int(_GAIN * self._full) + _SLACK))

    def wants_ping(self, now: Nanos) -> bool:
        """Whether the queues have just been emptied for a ping. Says so once."""
        if self._drain_until and self.under_way <= self._full / 2:
            self._drain_until = 0
            return True
        return False

    def _draining(self, now: Nanos) -> bool:
        if self._drain_until:
            return now < self._drain_until
        return False
