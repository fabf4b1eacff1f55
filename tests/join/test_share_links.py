"""Which link a share chooses, what it sends again, and when: one share by itself, in plain runs.

That nothing is lost, whatever happens, is in `test_share.py`.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from share_support import BLOCK_MESSAGES, STRIPE, WINDOW, plan_of, small_bounds

from isthmus.core.codec import encode
from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import MAX_PAYLOAD, Opened, Segment
from isthmus.core.wire.join import BLOCK_BYTES, Block, Line, first_epoch
from isthmus.join import share
from isthmus.join.outgoing import Outstanding
from isthmus.join.parcel import Lane, Parcel
from isthmus.join.plan import Share as Kind
from isthmus.join.share import FIRST_PATIENCE, LEAST_PATIENCE, SHARES, Share, Start, way


class Alone:
    """The share of one gateway. The system has the links of `layout`, and this gateway, the first, leads."""

    def __init__(self, kind: Kind, layout: tuple[int, ...], came_in: dict[int, int] | None = None) -> None:
        self.plan = plan_of(kind, layout)
        self.outstanding = Outstanding()
        self.links = [end.link for end in self.plan.links]
        self.mine = [end.link for end in self.plan.links if end.near == layout[0]]
        self.share: Share = SHARES[kind](self.plan, self.outstanding, self.mine)
        self.share.begin(Start((), came_in or {}, self.links, leading=True), 0)

    def deliver(self, *messages: Opened, now: Nanos = 0) -> None:
        self.share.add(self.outstanding.add(Segment.pack(messages)), now)

    def deliver_some(self, count: int, *, size: int = 1, now: Nanos = 0, origin: int = 0) -> None:
        """So many more messages of one origin."""
        first = self.outstanding.last.get(origin, 0) + 1
        self.deliver(*((origin, first + place, bytes(size)) for place in range(count)), now=now)

    def relink(self, *links: LinkId, now: Nanos = 0) -> None:
        self.share.relink(links, now)

    def placed(self) -> list[tuple[LinkId, int, int]]:
        """What has been placed since: by which link, the first number, how many messages."""
        return [(link, parcel.first, parcel.segment.messages) for link, parcel in self.parcels()]

    def parcels(self) -> list[tuple[LinkId, Parcel]]:
        placed = list(self.share.placed)
        self.share.placed.clear()
        return placed

    def ids(self) -> list[tuple[LinkId, list[tuple[int, int]]]]:
        return [(link, list(parcel.segment.ids())) for link, parcel in self.parcels()]


KIB = 1 << 10
SLOW, FAST = 10 * KIB, 1000 * KIB
"""Bytes per second."""


def line(*, rate: int = 0, wait: Nanos = 0, delay: Nanos = 0, room: int = BLOCK_BYTES) -> Line:
    return Line(room, wait, delay, rate)


# Where a block goes


@pytest.mark.parametrize(
    ("lines", "size", "best"),
    [
        ((line(rate=SLOW), line(rate=FAST)), 1000, 1),
        ((line(rate=FAST), line(rate=SLOW)), 1000, 0),
        ((line(rate=FAST, wait=SECOND), line(rate=FAST)), 1000, 1),
        ((line(rate=FAST, delay=SECOND), line(rate=FAST, delay=MILLISECOND)), 1000, 1),
        ((line(rate=FAST, delay=SECOND), line(rate=SLOW, delay=MILLISECOND)), 100, 1),
        ((line(rate=FAST, delay=SECOND), line(rate=SLOW, delay=MILLISECOND)), 40 * KIB, 0),
        ((line(rate=FAST, wait=SECOND), line(rate=SLOW, wait=MILLISECOND)), 40 * KIB, 0),
    ],
)
def test_a_block_goes_where_it_arrives_first(lines: tuple[Line, Line], size: int, best: LinkId) -> None:
    """How long the line is busy, how long the block takes through it, and how long the way is, together."""
    alone = Alone("striped", (10, 11))
    for link, each in enumerate(lines):
        alone.share.ready(link, each, 0)
    alone.deliver((0, 1, bytes(size)))
    assert alone.placed() == [(best, 1, 1)]


def test_a_line_is_busy_with_what_it_was_given_until_that_is_through() -> None:
    alone = Alone("striped", (10, 11))
    quick, other = line(rate=10 * KIB), line(rate=9 * KIB)
    alone.share.ready(0, quick, 0)
    alone.share.ready(1, other, 0)
    alone.deliver((0, 1, bytes(10 * KIB)))
    alone.share.ready(0, quick, 0)
    alone.deliver((0, 2, bytes(10 * KIB)))
    assert alone.placed() == [(0, 1, 1), (1, 2, 1)], "the quicker line asked again, but has not sent the first one yet"
    alone.share.ready(0, quick, 3 * SECOND)
    alone.share.ready(1, other, 3 * SECOND)
    alone.deliver((0, 3, bytes(10 * KIB)), now=3 * SECOND)
    assert alone.placed() == [(0, 3, 1)]


@pytest.mark.parametrize("unknown", [0, 1])
def test_a_line_of_which_nothing_is_known_is_taken_for_the_fastest(unknown: LinkId) -> None:
    """Else nobody would ever learn how fast it is."""
    alone = Alone("striped", (10, 11))
    alone.share.ready(1 - unknown, line(rate=FAST, wait=1), 0)
    alone.share.ready(unknown, line(), 0)
    alone.deliver((0, 1, bytes(1000)))
    assert alone.placed() == [(unknown, 1, 1)]
    alone.deliver((0, 2, bytes(1000)))
    assert alone.placed() == [(1 - unknown, 2, 1)]


@pytest.mark.parametrize("mine", [0, 1])
def test_among_equal_links_the_own_one_goes_first(mine: LinkId) -> None:
    """parallel, 8.2: 6n - 2 messages inside the systems instead of 6n - 1 when the sequencer itself forwards."""
    plan = plan_of("striped", (10, 11))
    outstanding = Outstanding()
    sequencer = SHARES["striped"](plan, outstanding, [mine])
    sequencer.begin(Start((), {}, (0, 1), leading=True), 0)
    for link in (0, 1):
        sequencer.ready(link, line(rate=FAST, delay=MILLISECOND), 0)
    sequencer.add(outstanding.add(Segment.of(0, 1, [b"one"])), 0)
    assert [link for link, _ in sequencer.placed] == [mine]


def test_an_idle_link_takes_what_there_is_and_a_busy_one_lets_it_gather() -> None:
    alone = Alone("striped", (10,))
    alone.share.ready(0, line(), 0)
    alone.deliver_some(1)
    assert alone.placed() == [(0, 1, 1)]
    for _ in range(3):
        alone.deliver_some(1)
    assert alone.placed() == [], "the link has not asked for more"
    alone.share.ready(0, line(), 0)
    assert alone.placed() == [(0, 2, 3)]


def test_a_link_that_asked_once_is_given_one_block() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(1, line(), 0)
    alone.deliver_some(1)
    alone.deliver_some(1)
    assert alone.placed() == [(1, 1, 1)]


def test_a_block_is_as_large_as_its_link_has_room() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(1, line(room=40), 0)
    alone.deliver_some(20, size=10)
    alone.share.ready(0, line(room=70), 0)
    alone.share.ready(0, line(room=5), 0)
    assert alone.placed() == [(1, 1, 4), (0, 5, 7), (0, 12, 1)]


def test_a_link_that_does_not_work_is_given_nothing() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(1, line(rate=FAST), 0)
    alone.relink(0)
    alone.share.ready(1, line(rate=FAST), 0)
    alone.deliver_some(1)
    assert alone.placed() == []
    alone.relink(0, 1)
    assert alone.placed() == [], "it has to say anew that it is ready"
    alone.share.ready(1, line(rate=FAST), 0)
    assert alone.placed() == [(1, 1, 1)]


def test_who_does_not_lead_numbers_nothing() -> None:
    plan = plan_of("striped", (10, 11))
    outstanding = Outstanding()
    fellow = SHARES["striped"](plan, outstanding, [1])
    fellow.begin(Start((), {}, (0, 1), leading=False), 0)
    fellow.add(outstanding.add(Segment.of(0, 1, [b"one"])), 0)
    fellow.ready(1, line(), 0)
    fellow.relink((1,), 0)
    assert fellow.placed == []


# What may be lost


def test_what_was_under_way_on_a_lost_link_goes_by_another_with_the_same_numbers_lowest_first() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.came_in({90: 4})
    for link in (0, 1, 0, 0):
        alone.share.ready(link, line(), 0)
        alone.deliver_some(1)
    sent = alone.parcels()
    assert [(link, parcel.first) for link, parcel in sent] == [(0, 1), (1, 2), (0, 3), (0, 4)]
    alone.relink(1)
    for _ in range(5):
        alone.share.ready(1, line(), 0)
    assert alone.parcels() == [(1, parcel) for link, parcel in sent if link == 0], "once each, and as it was"


def test_what_is_known_to_have_arrived_is_not_sent_again() -> None:
    alone = Alone("striped", (10, 11))
    for _ in range(3):
        alone.share.ready(0, line(), 0)
        alone.deliver_some(1)
    alone.placed()
    alone.share.progress(1, 0)
    alone.relink(1)
    alone.share.progress(2, 0)
    for _ in range(3):
        alone.share.ready(1, line(), 0)
    assert alone.placed() == [(1, 3, 1)]


def test_what_is_lost_goes_before_what_has_no_number_yet() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, line(), 0)
    alone.deliver_some(1)
    alone.placed()
    alone.relink(1)
    alone.deliver_some(1)
    alone.share.ready(1, line(), 0)
    alone.share.ready(1, line(), 0)
    assert alone.placed() == [(1, 1, 1), (1, 2, 1)]


def test_what_was_lost_with_the_last_link_goes_when_one_comes_back() -> None:
    for kind in ("striped", "sets", "counted", "by-origin"):
        alone = Alone(kind, (10,))
        alone.share.ready(0, line(), 0)
        alone.deliver_some(2)
        before = alone.parcels()
        assert [link for link, _ in before] == [0]
        alone.relink()
        alone.share.ready(0, line(), 0)
        assert alone.parcels() == []
        alone.relink(0)
        alone.share.ready(0, line(), 0)
        assert alone.parcels() == before, kind


def test_what_goes_by_a_second_link_goes_by_a_third_when_that_is_lost_too() -> None:
    alone = Alone("striped", (10, 11, 12))
    alone.share.ready(0, line(), 0)
    alone.deliver_some(1)
    alone.share.ready(1, line(), 0)
    alone.relink(1, 2)
    alone.share.ready(2, line(), 0)
    alone.relink(2)
    assert alone.placed() == [(0, 1, 1), (1, 1, 1), (2, 1, 1)]


def test_what_was_lost_with_a_link_may_go_by_it_when_it_is_back() -> None:
    """The other one may never become ready."""
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, line(), 0)
    alone.deliver_some(1)
    alone.relink(1)
    alone.relink(0, 1)
    alone.share.ready(0, line(), 0)
    assert alone.placed() == [(0, 1, 1), (0, 1, 1)]


# What is overdue

DELAY = 10 * MILLISECOND
KNOWN = line(rate=1000 * KIB, delay=DELAY)
THROUGH = 1 * SECOND // 1000
"""What the line of `KNOWN` takes for 1 KiB, and word of it comes back after twice the delay."""


def one_under_way(*others: LinkId) -> Alone:
    """Two links; 1 KiB went by link 0 at time 0, expected there and word of it back after `THROUGH` and two ways."""
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, KNOWN, 0)
    alone.deliver((0, 1, bytes(KIB)))
    assert alone.placed() == [(0, 1, 1)]
    for link in others:
        alone.share.ready(link, KNOWN, 0)
    return alone


def test_a_number_that_is_overdue_goes_by_another_link_as_well() -> None:
    alone = one_under_way(0, 1)
    due = THROUGH + 2 * DELAY + FIRST_PATIENCE
    assert alone.share.deadline() == due
    alone.share.wake(due - 1)
    assert alone.placed() == []
    alone.share.wake(due)
    assert alone.placed() == [(1, 1, 1)]


def test_all_that_went_by_the_link_of_the_overdue_number_goes_by_another() -> None:
    alone = one_under_way(0)
    alone.deliver_some(1)
    alone.share.ready(1, KNOWN, 0)
    alone.deliver_some(1)
    assert alone.placed() == [(0, 2, 1), (1, 3, 1)]
    alone.share.wake(alone.share.deadline() or 0)
    assert alone.share.deadline() is None, "nothing to wait for but the other link"
    for _ in range(3):
        alone.share.ready(1, KNOWN, SECOND)
    assert alone.placed() == [(1, 1, 1), (1, 2, 1)]


def test_what_is_overdue_and_then_lost_goes_by_another_link_once() -> None:
    alone = one_under_way()
    alone.share.wake(alone.share.deadline() or 0)
    alone.relink(1)
    for _ in range(3):
        alone.share.ready(1, KNOWN, SECOND)
    assert alone.placed() == [(1, 1, 1)]


def test_patience_doubles_each_time_and_is_back_when_something_arrives() -> None:
    alone = one_under_way(1)
    patience = FIRST_PATIENCE
    for link in (1, 0, 1):
        due = alone.share.deadline()
        assert due is not None
        alone.share.wake(due)
        assert alone.placed() == [(link, 1, 1)]
        patience *= 2
        assert alone.share.deadline() == due + THROUGH + 2 * DELAY + patience
        alone.share.ready(1 - link, KNOWN, due)
    now = 100 * SECOND
    alone.share.progress(1, now)
    assert alone.share.deadline() is None, "nothing is under way"
    alone.share.ready(0, KNOWN, now)
    alone.deliver((0, 2, bytes(KIB)), now=now)
    due = alone.share.deadline()
    assert due is not None
    assert due <= now + THROUGH + 2 * DELAY + FIRST_PATIENCE


def test_patience_is_what_blocks_are_usually_late_but_never_too_little() -> None:
    def patience_after(late: Nanos) -> Nanos:
        alone = Alone("striped", (10, 11))
        now = 0
        for number in range(1, 40):
            alone.share.ready(0, KNOWN, now)
            alone.deliver((0, number, bytes(KIB)), now=now)
            now += THROUGH + 2 * DELAY + late
            alone.share.progress(number, now)
            now += SECOND
        alone.share.ready(0, KNOWN, now)
        alone.deliver((0, 40, bytes(KIB)), now=now)
        return (alone.share.deadline() or 0) - (now + THROUGH + 2 * DELAY)

    assert patience_after(0) == LEAST_PATIENCE
    assert patience_after(-DELAY) == LEAST_PATIENCE
    assert 3 * SECOND - 100 * MILLISECOND < patience_after(3 * SECOND) < 4 * SECOND


@pytest.mark.parametrize("known", [line(rate=FAST), KNOWN])
def test_patience_stays_as_at_first_while_nobody_knows_how_late_blocks_are(known: Line) -> None:
    """The far side has half of a block, or one whose line had said nothing of its delay."""
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, known, 0)
    alone.deliver_some(2 if known.delay else 1)
    alone.share.progress(1, DELAY)
    if not known.delay:
        alone.share.ready(0, KNOWN, 0)
        alone.deliver_some(1)
    due = alone.share.deadline()
    assert due is not None
    assert due >= 2 * DELAY + FIRST_PATIENCE


def test_one_link_is_never_given_up() -> None:
    alone = Alone("striped", (10,))
    alone.share.ready(0, KNOWN, 0)
    alone.deliver_some(1)
    assert alone.share.deadline() is None
    alone.share.wake(1000 * SECOND)
    alone.share.ready(0, KNOWN, 1000 * SECOND)
    assert alone.placed() == [(0, 1, 1)]


def test_the_last_link_that_works_is_never_given_up() -> None:
    alone = one_under_way(0, 1)
    alone.relink(0)
    assert alone.share.deadline() is None
    alone.share.wake(1000 * SECOND)
    assert alone.placed() == []


def test_nothing_is_overdue_on_a_line_whose_delay_nobody_knows() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, line(rate=FAST), 0)
    alone.share.ready(1, KNOWN, 0)
    alone.deliver_some(1)
    assert alone.placed() == [(0, 1, 1)]
    assert alone.share.deadline() is None
    alone.share.wake(1000 * SECOND)
    assert alone.placed() == []


@pytest.mark.parametrize("kind", ["by-origin", "sets", "counted"])
def test_only_stripes_of_a_sequencer_can_be_overdue(kind: Kind) -> None:
    alone = Alone(kind, (10, 11))
    alone.share.ready(0, KNOWN, 0)
    alone.deliver_some(1)
    alone.placed()
    assert alone.share.deadline() is None
    alone.share.wake(1000 * SECOND)
    assert alone.placed() == []


# Who carries what


def test_the_messages_of_an_origin_go_by_its_own_link_while_that_works() -> None:
    assert [way(own, (0, 1, 2)) for own in (0, 1, 2)] == [0, 1, 2]
    assert way(1, (0, 2)) in (0, 2)
    assert [way(own, (0, 2)) for own in (0, 2)] == [0, 2], "nobody else is moved"
    assert way(1, ()) is None


@pytest.mark.parametrize("kind", ["by-origin", "sets"])
def test_an_origin_without_its_link_goes_by_another_and_keeps_its_home(kind: Kind) -> None:
    alone = Alone(kind, (10, 10))
    alone.deliver((1, 1, b"one"))
    assert [(link, parcel.home) for link, parcel in alone.parcels()] == [(1, 21)]
    alone.relink(0)
    assert [(link, parcel.home) for link, parcel in alone.parcels()] == [(0, 21)], "what may be lost goes again"
    alone.deliver((1, 2, b"two"))
    assert [(link, parcel.home) for link, parcel in alone.parcels()] == [(0, 21)]
    alone.relink(0, 1)
    alone.parcels()
    alone.deliver((1, 3, b"three"))
    assert [(link, parcel.home) for link, parcel in alone.parcels()] == [(1, 21)]


@pytest.mark.parametrize("kind", ["by-origin", "sets"])
def test_a_process_that_came_back_goes_by_the_link_of_its_place(kind: Kind) -> None:
    later_life = 5 << 16 | 1
    assert slot_of(later_life) == 1
    alone = Alone(kind, (10, 10))
    alone.deliver((later_life, 1, b"again"))
    assert [(link, parcel.home) for link, parcel in alone.parcels()] == [(1, 21)]


def test_sets_number_along_the_order_and_cut_where_the_link_changes() -> None:
    alone = Alone("sets", (10, 11))
    alone.deliver((0, 1, b""), (0, 2, b""), (1, 1, b""), (0, 3, b""), (2, 1, b""))
    assert alone.placed() == [(0, 1, 2), (1, 3, 1), (0, 4, 2)]


def test_with_sets_what_went_by_a_lost_link_goes_by_another_before_what_follows() -> None:
    alone = Alone("sets", (10, 11))
    alone.deliver((0, 1, b""), (1, 1, b""))
    alone.placed()
    alone.relink(0)
    alone.deliver((1, 2, b""))
    assert alone.placed() == [(0, 2, 1), (0, 3, 1)]
    alone.relink(0, 1)
    assert alone.placed() == [], "a link that comes has lost nothing"


def test_by_origin_only_the_own_origins_go() -> None:
    alone = Alone("by-origin", (10, 11))
    alone.deliver((0, 1, b""), (1, 1, b""), (2, 1, b""))
    assert alone.ids() == [(0, [(0, 1), (2, 1)])]


def test_whoever_comes_to_carry_an_origin_sends_all_that_nobody_has_confirmed() -> None:
    alone = Alone("by-origin", (10, 11))
    alone.deliver((0, 1, b""), (1, 1, b""), (1, 2, b""))
    alone.deliver((1, 3, b""))
    alone.outstanding.confirm([(1, 1), (0, 1)])
    alone.parcels()
    alone.relink(0)
    taken_over = alone.parcels()
    assert [(link, list(parcel.segment.ids())) for link, parcel in taken_over] == [(0, [(1, 2)]), (0, [(1, 3)])]
    assert [parcel.home for _, parcel in taken_over] == [21, 21]
    alone.relink(0, 1)
    assert alone.parcels() == [], "its own link is back, and its gateway sees to it"


def test_whoever_keeps_an_origin_sends_nothing_again_when_other_links_change() -> None:
    alone = Alone("by-origin", (10, 11, 12))
    alone.deliver((0, 1, b""))
    alone.parcels()
    alone.relink(0, 2)
    alone.relink(0)
    alone.relink(0, 1, 2)
    assert all((0, 1) not in ids for _, ids in alone.ids())


def test_out_of_a_log_each_stripe_goes_by_its_link_and_everybody_carries_his_own() -> None:
    with small_bounds():
        alone = Alone("counted", (10, 11))
        alone.deliver_some(3 * STRIPE - 1)
        assert alone.placed() == [(0, 1, STRIPE), (0, 2 * STRIPE + 1, STRIPE - 1)]
        alone.relink(0)
        assert alone.placed() == [(0, STRIPE + 1, STRIPE)], "what its fellow's link may have lost"
        alone.relink(0, 1)
        assert alone.placed() == []


def test_out_of_a_log_what_falls_to_another_link_names_all_that_came_in() -> None:
    """Whoever carried it before may have named it with another number."""
    with small_bounds():
        alone = Alone("counted", (10, 11), {90: 1})
        alone.deliver_some(STRIPE)
        alone.share.came_in({91: 5})
        alone.deliver_some(STRIPE)
        assert [(link, parcel.first, parcel.after) for link, parcel in alone.parcels()] == [(0, 1, {90: 1})]
        alone.relink(0)
        assert [(p.first, p.after) for _, p in alone.parcels()] == [(STRIPE + 1, {90: 1, 91: 5})]


@pytest.mark.parametrize("kind", ["striped", "sets", "counted"])
def test_what_came_in_is_named_once_by_the_next_number(kind: Kind) -> None:
    alone = Alone(kind, (10,), {90: 2})
    after = []
    for came_in in ({}, {90: 3, 91: 1}, {}, {91: 2}):
        alone.share.came_in(came_in)
        alone.deliver_some(1)
        alone.share.ready(0, line(), 0)
        after += [dict(parcel.after) for _, parcel in alone.parcels()]
    assert after == [{90: 2}, {90: 3, 91: 1}, {}, {91: 2}]


# The window


@pytest.mark.parametrize("kind", ["striped", "sets", "counted"])
def test_the_window_closes_and_opens_again(kind: Kind) -> None:
    def messages_after() -> int:
        for _ in range(4 * WINDOW):
            alone.share.ready(0, line(), 0)
        return sum(parcel.segment.messages for _, parcel in alone.parcels())

    with small_bounds():
        alone = Alone(kind, (10,))
        for _ in range(4 * WINDOW):
            alone.deliver_some(1)
            alone.share.ready(0, line(), 0)
        under_way = messages_after()
        assert WINDOW <= under_way < WINDOW + BLOCK_MESSAGES
        alone.share.progress(WINDOW, 0)
        assert 2 * WINDOW <= under_way + messages_after() < 2 * WINDOW + BLOCK_MESSAGES


@pytest.mark.parametrize("kind", ["striped", "sets", "counted"])
def test_old_news_of_progress_does_not_close_the_window(kind: Kind) -> None:
    with small_bounds():
        alone = Alone(kind, (10,))
        alone.share.progress(WINDOW, 0)
        alone.share.progress(1, 0)
        for _ in range(2 * WINDOW):
            alone.deliver_some(1)
            alone.share.ready(0, line(), 0)
        assert sum(parcel.segment.messages for _, parcel in alone.parcels()) == 2 * WINDOW


@pytest.mark.parametrize("kind", ["striped", "sets"])
def test_there_is_a_window_in_bytes_too(kind: Kind) -> None:
    with patch.object(share.Sequenced, "window_bytes", 100):
        alone = Alone(kind, (10,))
        for _ in range(10):
            alone.deliver_some(1, size=40)
            alone.share.ready(0, line(), 0)
        assert alone.placed() == [(0, 1, 1), (0, 2, 1), (0, 3, 1)]
        alone.relink()
        alone.relink(0)
        alone.share.ready(0, line(room=40), 0)
        alone.parcels()
        alone.share.progress(2, 0)
        for _ in range(10):
            alone.share.ready(0, line(room=40), 0)
        fresh = [first for _, first, _ in alone.placed() if first > 3]
        assert fresh[:1] == [4]
        assert len(fresh) <= 2, "what goes again counts once"


def test_a_new_epoch_numbers_anew_and_has_the_whole_window() -> None:
    with small_bounds():
        for kind in ("striped", "sets", "counted"):
            alone = Alone(kind, (10,))
            for _ in range(2 * WINDOW):
                alone.deliver_some(1)
                alone.share.ready(0, line(), 0)
            alone.parcels()
            waiting = list(alone.outstanding.after(SlotMarks()))
            alone.share.begin(Start(waiting, {90: 7}, (0,), leading=True), 0)
            for _ in range(2 * WINDOW):
                alone.share.ready(0, line(), 0)
            parcels = [parcel for _, parcel in alone.parcels()]
            assert parcels[0].first == 1
            assert parcels[0].after == {90: 7}, "whoever is over there now may not have been told"
            assert WINDOW <= sum(parcel.segment.messages for parcel in parcels) < WINDOW + BLOCK_MESSAGES


def test_a_new_epoch_has_nothing_to_do_with_what_the_old_one_lost() -> None:
    alone = Alone("striped", (10, 11))
    alone.share.ready(0, line(), 0)
    alone.deliver_some(1)
    alone.relink(1)
    alone.parcels()
    alone.share.begin(Start((), {}, (1,), leading=True), 0)
    alone.share.ready(1, line(), 0)
    assert alone.parcels() == []


def test_a_new_epoch_out_of_a_log_places_nothing_twice_when_its_first_link_comes() -> None:
    with small_bounds():
        alone = Alone("counted", (10,))
        alone.deliver_some(2 * WINDOW)
        alone.share.progress(WINDOW, 0)
        alone.parcels()
        alone.share.begin(Start((), {}, (), leading=True), 0)
        alone.relink(0)
        assert [first for _, first, _ in alone.placed()] == list(range(1, WINDOW + 1, STRIPE))


# Blocks


@pytest.mark.parametrize("kind", ["by-origin", "sets", "striped", "counted"])
def test_a_block_of_the_largest_messages_fits_a_frame(kind: Kind) -> None:
    """What waits while an epoch is opened goes out at once; it must be possible to encode it."""
    alone = Alone(kind, (10,))
    alone.outstanding.add(Segment.of(0, 1, [bytes(MAX_PAYLOAD)] * 40))
    alone.share.begin(Start(list(alone.outstanding.after(SlotMarks())), {}, (0,), leading=True), 0)
    lane = Lane(apart=kind == "sets")
    gone = 0
    for _ in range(40):
        alone.share.ready(0, line(), 0)
        lane.room = BLOCK_BYTES
        lane.waiting += [parcel for _, parcel in alone.parcels()]
        while lane.room and lane.waiting:
            block = lane.take()
            gone += block.segment.messages
            encode(Block(first_epoch(), block.first, block.segment, block.home))
    assert gone == 40
