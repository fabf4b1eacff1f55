"""The window over a modelled line, in virtual time: full without a queue, whatever the line becomes."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.runtime.link.window import INITIAL, LEAST, MOST, LinkWindow
from isthmus.runtime.link.wire import LinkError

REPORT_BYTES = 16 << 10
TICK = 250 * MILLISECOND
OFFSET = 123_456 * SECOND
"""The far end's clock is not ours."""


class Line:
    """One way with a queue without bounds before it, the worst that a window can meet."""

    def __init__(self, rate: float, delay: Nanos) -> None:
        self.rate = rate
        self.delay = delay
        self.free_at: Nanos = 0
        self.idle: Nanos = 0

    def carry(self, size: int, now: Nanos) -> Nanos:
        """When it has arrived."""
        self.idle += max(0, now - self.free_at)
        self.free_at = max(now, self.free_at) + int(size * SECOND / self.rate)
        return self.free_at + self.delay

    def waiting(self, now: Nanos) -> Nanos:
        return max(0, self.free_at - now)


class World:
    """A sender with a window, who puts a block on the line whenever it is open, and who may have less to send."""

    def __init__(self, rate: float, delay: Nanos, *, block: int = 32 << 10, drift: float = 0.0) -> None:
        self.now: Nanos = 0
        self.there, self.back = Line(rate, delay), Line(rate, delay)
        self.window = LinkWindow(0)
        self.block = block
        self.drift = drift
        self.octets = self.reported = 0
        self.events: list[tuple[Nanos, int, Callable[[], None]]] = []
        self.order = 0
        self.token = 0
        self.produce_every: Nanos = 0
        self.next_block: Nanos = 0
        self.waits: list[Nanos] = []
        self.pace_at: Nanos = 0
        self.tick()

    def at(self, when: Nanos, do: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, do))

    def clock(self) -> int:
        return OFFSET + self.now + int(self.now * self.drift)

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while self.events and self.events[0][0] <= end:
            self.now, _, do = heapq.heappop(self.events)
            do()
            self.look()
        self.now = end

    def tick(self) -> None:
        self.at(self.now + TICK, self.tick)
        self.ping()

    def ping(self) -> None:
        self.token += 1
        token = self.token
        self.window.ask(token, self.now)

        def arrives() -> None:
            clock = self.clock()
            self.at(self.back.carry(24, self.now), lambda: self.window.answer(token, clock, self.now))

        self.at(self.there.carry(16, self.now), arrives)

    def look(self) -> None:
        if self.window.wants_ping(self.now):
            self.ping()
        opens_at = self.window.opens_at(self.now)
        if opens_at is None or self.now < self.next_block:
            return
        if opens_at > self.now:
            if self.pace_at <= self.now:
                self.pace_at = opens_at
                self.at(opens_at, lambda: None)
            return
        self.next_block = self.now + self.produce_every
        if self.produce_every:
            self.at(self.next_block, lambda: None)
        self.waits.append(self.there.waiting(self.now))
        self.window.accept(self.block, self.now)
        for _ in range(self.block // 4096):
            self.at(self.there.carry(4096, self.now), self.arrives)
        self.at(self.now, lambda: None)

    def arrives(self) -> None:
        self.octets += 4096
        if self.octets - self.reported >= REPORT_BYTES:
            self.report()
        else:
            self.at(self.now + 5 * MILLISECOND, self.report)

    def report(self) -> None:
        if self.octets > self.reported:
            self.reported = self.octets
            octets, clock = self.octets, self.clock()
            self.at(self.back.carry(40, self.now), lambda: self.window.report(octets, clock, self.now))

    def utilisation(self, seconds: float) -> float:
        idle = self.there.idle
        self.run(seconds)
        return 1 - (self.there.idle - idle) / (seconds * SECOND)

    def median_wait(self) -> Nanos:
        return sorted(self.waits)[len(self.waits) // 2]


@pytest.mark.parametrize(
    ("megabits", "milliseconds", "block", "warm", "seconds"),
    [
        (20, 25, 8 << 10, 3, 22),
        (20, 25, 32 << 10, 3, 22),
        (20, 25, 64 << 10, 3, 22),
        (100, 25, 32 << 10, 3, 11),
        (100, 100, 32 << 10, 4, 11),
        (50, 300, 32 << 10, 15, 62),
        (1, 10, 32 << 10, 10, 60),
        (5, 1, 32 << 10, 5, 22),
        (300, 0.1, 32 << 10, 1, 2),
    ],
)
def test_a_line_is_full_and_its_queue_short(
    megabits: int, milliseconds: float, block: int, warm: int, seconds: int
) -> None:
    rate, delay = megabits * 125_000, int(milliseconds * MILLISECOND)
    world = World(rate, delay, block=block)
    world.run(warm)
    world.waits.clear()
    assert world.utilisation(seconds) > 0.98
    # A quarter of the round trip, the slack, and a block: docs/design/links.md.
    assert world.median_wait() < 0.25 * 2 * delay + (48 * 1024 + 2 * block) * SECOND / rate + 3 * MILLISECOND
    assert LEAST <= world.window.size <= MOST


def test_a_line_that_becomes_faster_is_found_out_and_one_that_becomes_slower_too() -> None:
    world = World(2_500_000, 25 * MILLISECOND)
    world.run(3)
    world.there.rate = world.back.rate = 12_500_000
    world.run(3)
    assert world.utilisation(3) > 0.98
    world.there.rate = world.back.rate = 625_000
    world.run(4)
    world.waits.clear()
    assert world.utilisation(5) > 0.98
    assert world.median_wait() < 200 * MILLISECOND


def test_a_way_that_becomes_longer_is_found_out() -> None:
    world = World(2_500_000, 10 * MILLISECOND)
    world.run(3)
    world.there.delay = world.back.delay = 60 * MILLISECOND
    world.run(14)
    assert world.utilisation(5) > 0.98


@pytest.mark.parametrize("drift", [-2e-4, 2e-4])
def test_clocks_that_drift_apart_do_no_harm(drift: float) -> None:
    world = World(2_500_000, 25 * MILLISECOND, drift=drift)
    world.run(60)
    world.waits.clear()
    assert world.utilisation(60) > 0.98
    assert world.median_wait() < 60 * MILLISECOND


def test_a_slow_producer_does_not_make_the_line_look_slow() -> None:
    world = World(2_500_000, 25 * MILLISECOND)
    world.run(3)
    before = world.window.rate
    world.produce_every = 100 * MILLISECOND
    world.run(20)
    assert world.window.rate == pytest.approx(before, rel=0.15)
    world.produce_every = 0
    assert world.utilisation(2) > 0.95


def test_nothing_is_accepted_while_nothing_is_reported() -> None:
    world = World(2_500_000, 25 * MILLISECOND)
    world.there.delay = 3600 * SECOND
    world.run(60)
    assert INITIAL <= world.window.under_way < INITIAL + world.block


def test_what_the_far_end_cannot_have_seen_is_refused() -> None:
    window = LinkWindow(0)
    window.accept(100, 0)
    window.report(60, 1, 1)
    for octets in (59, 101):
        with pytest.raises(LinkError, match="claims to have received"):
            window.report(octets, 2, 2)
    with pytest.raises(LinkError, match="nobody sent"):
        window.answer(1, 5, 2)


@pytest.mark.parametrize("clock", [0, 1 << 63, (1 << 64) - 1])
def test_a_clock_out_of_its_mind_only_hurts_its_own_link(clock: int) -> None:
    window = LinkWindow(0)
    for now in range(1, 40):
        window.accept(1000, now * MILLISECOND)
        window.ask(now, now * MILLISECOND)
        window.report(now * 500, clock if now % 2 else now, now * MILLISECOND)
        window.answer(now, clock if now % 3 else now, (now + 1) * MILLISECOND)
        assert LEAST <= window.size <= MOST


def test_a_frame_that_waited_before_any_rate_is_known_says_nothing_of_the_rate() -> None:
    """Found over real lines that were cut in turn: what is known of the line was asked for in between."""
    window = LinkWindow(0)
    window.ask(1, 0)
    window.answer(1, 125 * MILLISECOND, 50 * MILLISECOND)
    window.report(0, 180 * MILLISECOND, 59 * MILLISECOND)
    window.accept(1000, 60 * MILLISECOND)
    window.report(1000, 200 * MILLISECOND, 130 * MILLISECOND)
    line = window.line(131 * MILLISECOND)
    assert (line.rate, line.wait) == (0, 0)
