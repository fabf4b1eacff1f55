"""One direction of an emulated line, in virtual time: what arrives when, through changes and cuts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.runtime.wan.line import QUEUE, SEGMENT, Conditions, Ending, Line, Trunk

MBIT = 1_000_000


def run_line(line: Line, now: Nanos, until: Nanos) -> list[tuple[Nanos, bytes]]:
    """Look whenever something is due, until a moment. Returns what arrived when."""
    arrivals = []
    while True:
        line.advance(now)
        if taken := line.take(now, 1 << 30):
            arrivals.append((now, b"".join(taken)))
        line.take_ending(now)
        next_event = line.next_event(arrivals=True)
        if next_event is None or next_event > until:
            return arrivals
        assert next_event > now
        now = next_event


conditions = st.builds(
    Conditions,
    delay=st.sampled_from([0, MILLISECOND, 25 * MILLISECOND]),
    jitter=st.sampled_from([0, 1, 5 * MILLISECOND]),
    rate=st.sampled_from([None, 8_000, MBIT, 999_999_937]),
)
puts = st.lists(st.tuples(st.integers(0, 20 * MILLISECOND), st.integers(1, 5000)), min_size=1, max_size=20)


@given(conditions, puts, st.integers(0, 99))
def test_bytes_arrive_in_order_after_the_time_that_the_line_takes(
    conditions: Conditions, puts: list[tuple[Nanos, int]], seed: int
) -> None:
    line = Line(conditions, Trunk(), Random(seed))
    data = Random(seed).randbytes(sum(size for _, size in puts))
    now = sent = free_at = 0
    arrivals: list[tuple[Nanos, bytes]] = []
    sent_by: list[tuple[int, Nanos]] = []
    for pause, size in puts:
        arrivals += run_line(line, now, now + pause)
        now += pause
        line.put(data[sent : sent + size], now)
        sent += size
        free_at = max(free_at, now) + (size * 8 * SECOND // conditions.rate if conditions.rate else 0)
        sent_by.append((sent, free_at))
    arrivals += run_line(line, now, 1 << 62)
    assert b"".join(chunk for _, chunk in arrivals) == data
    assert line.in_flight == 0
    # The last byte of each put: not before its last bit is sent and has come over, and not long after.
    position, rounding = 0, sum(-(-size // SEGMENT) for _, size in puts)
    ends = iter(sent_by)
    end, left = next(ends)
    for at, chunk in arrivals:
        position += len(chunk)
        while end <= position:
            assert left - rounding <= at - conditions.delay
            assert at - conditions.delay <= left + conditions.jitter
            end, left = next(ends, (1 << 62, 0))


@given(conditions, st.lists(conditions, min_size=1, max_size=4), st.integers(0, 99))
def test_changes_and_cuts_in_service_neither_lose_nor_reorder(
    first: Conditions, later: list[Conditions], seed: int
) -> None:
    random = Random(seed)
    line = Line(first, Trunk(), random)
    data = random.randbytes(4000 * len(later))
    now, arrived = 0, b""
    for index, conditions in enumerate(later):
        line.put(data[4000 * index : 4000 * (index + 1)], now)
        pause = random.randrange(30 * MILLISECOND)
        arrived += b"".join(chunk for _, chunk in run_line(line, now, now + pause))
        now += pause
        if random.random() < 0.5:
            line.cut = True
            now += SECOND
            assert run_line(line, now, now + SECOND) == []
            line.mend(now)
            assert line.next_event(arrivals=True) in (None, now)
        line.set(conditions, now)
    line.end(Ending.CLOSE, now)
    arrived += b"".join(chunk for _, chunk in run_line(line, now, 1 << 62))
    assert arrived == data


def test_what_was_on_a_cut_line_sets_out_again() -> None:
    line = Line(Conditions(delay=10 * MILLISECOND), Trunk(), Random(0))
    line.put(b"x", 0)
    line.advance(0)
    line.cut = True
    line.mend(9 * MILLISECOND)
    assert run_line(line, 9 * MILLISECOND, SECOND) == [(19 * MILLISECOND, b"x")]


def test_a_new_rate_does_not_wait_for_the_old_one() -> None:
    line = Line(Conditions(rate=1), Trunk(), Random(0))
    line.put(bytes(2 * SEGMENT), 0)
    line.advance(0)
    line.set(Conditions(rate=8 * SEGMENT), SECOND)
    assert [at for at, _ in run_line(line, SECOND, 1 << 62)] == [2 * SECOND, 3 * SECOND]


def test_an_ending_arrives_behind_the_last_byte() -> None:
    line = Line(Conditions(delay=MILLISECOND, rate=8000), Trunk(), Random(0))
    line.put(b"xy", 0)
    line.end(Ending.CLOSE, 0)
    line.advance(2 * MILLISECOND)
    assert line.take_ending(3 * MILLISECOND) is None
    assert b"".join(line.take(3 * MILLISECOND, 10)) == b"xy"
    assert line.take_ending(3 * MILLISECOND - 1) is None
    assert line.take_ending(3 * MILLISECOND) is Ending.CLOSE


def test_connections_share_a_trunk_equally() -> None:
    trunk = Trunk(12 * MBIT)
    fast, slow, narrow = (
        Line(Conditions(rate=rate), trunk, Random(0)) for rate in (None, 20 * MBIT, MBIT)
    )  # What the narrow one leaves of its third, the others share.
    lines = {fast: 0, slow: 0, narrow: 0}
    for line in lines:
        line.put(bytes(10 * MBIT), 0)
    now = 0
    while now < SECOND:
        for line in lines:
            line.advance(now)
            lines[line] += sum(map(len, line.take(now, 1 << 30)))
        now = min(event for line in lines if (event := line.next_event(arrivals=True)) is not None)
    assert [8 * arrived / MBIT for arrived in lines.values()] == pytest.approx([5.5, 5.5, 1], rel=0.02)


@pytest.mark.parametrize(
    ("conditions", "capacity"),
    [
        (Conditions(delay=100 * MILLISECOND, rate=8 * MBIT), 100_000 + QUEUE),
        (Conditions(delay=SECOND, jitter=SECOND, rate=80, queue=7), 27),
        (Conditions(rate=800 * MBIT), 2_000_000),
        (Conditions(delay=MILLISECOND), 1_250_000 + (1 << 20)),
        (Conditions(delay=60 * SECOND), (64 << 20) + (1 << 20)),
    ],
)
def test_a_line_has_room_for_what_is_under_way_and_a_queue(conditions: Conditions, capacity: int) -> None:
    assert Line(conditions, Trunk(), Random(0)).capacity == capacity


@pytest.mark.parametrize("bad", [{"delay": -1}, {"jitter": -1}, {"rate": 0}, {"queue": 0}])
def test_conditions_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"makes no sense|rate of nothing"):
        Conditions(**bad).check()
