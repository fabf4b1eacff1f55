"""A stream comes out whole and in order, whatever a network does to it that it does not do for ever."""

from __future__ import annotations

from itertools import pairwise
from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY
from isthmus.ordering.group.channel import MAX_BACKOFF, MAX_EARLY, RESEND_AT_ONCE, Incoming, Outgoing, StreamLog

RETRY = 100
SENDER = 9
RECEIVERS = (1, 2)


def batch(number: int) -> Batch:
    return Batch(1, SENDER, number, [], 0, EMPTY)


def numbers(batches: list[Batch]) -> list[int]:
    return [each.number for each in batches]


class LossyNetwork(RuleBasedStateMachine):
    """One sender, two receivers, and a network that loses, doubles and reorders batches and acknowledgements alike."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.outgoing: Outgoing[Batch] = Outgoing(RECEIVERS, RETRY, 0)
        self.incoming: dict[int, Incoming[Batch]] = {receiver: Incoming() for receiver in RECEIVERS}
        self.came_out: dict[int, list[int]] = {receiver: [] for receiver in RECEIVERS}
        self.batches_under_way: list[tuple[int, Batch]] = []
        self.acks_under_way: list[tuple[int, int, int]] = []

    @rule()
    def send(self) -> None:
        new = batch(self.outgoing.sent + 1)
        self.outgoing.append(new, self.now)
        self.batches_under_way += [(receiver, new) for receiver in RECEIVERS]

    @rule(time=st.integers(0, 3 * RETRY))
    def let_time_pass(self, time: int) -> None:
        self.now += time
        for receiver, again in self.outgoing.overdue(self.now):
            self.batches_under_way += [(receiver, each) for each in again]

    @precondition(lambda self: self.batches_under_way)
    @rule(data=st.data(), lost=st.booleans(), twice=st.booleans())
    def one_batch_moves(self, data: st.DataObject, lost: bool, twice: bool) -> None:
        index = data.draw(st.integers(0, len(self.batches_under_way) - 1))
        receiver, moved = self.batches_under_way[index]
        if not twice:
            del self.batches_under_way[index]
        if not lost:
            self._arrives(receiver, moved)

    @precondition(lambda self: self.acks_under_way)
    @rule(data=st.data(), lost=st.booleans(), twice=st.booleans())
    def one_acknowledgement_moves(self, data: st.DataObject, lost: bool, twice: bool) -> None:
        index = data.draw(st.integers(0, len(self.acks_under_way) - 1))
        acknowledgement = self.acks_under_way[index]
        if not twice:
            del self.acks_under_way[index]
        if not lost:
            self._acknowledged(*acknowledgement)

    def _arrives(self, receiver: int, arrived: Batch) -> None:
        stream = self.incoming[receiver]
        self.came_out[receiver] += numbers(stream.accept(arrived))
        self.acks_under_way.append((receiver, stream.received, stream.seen))

    def _acknowledged(self, receiver: int, received: int, seen: int) -> None:
        again = self.outgoing.acknowledge(receiver, received, seen, self.now)
        assert len(again) <= RESEND_AT_ONCE
        self.batches_under_way += [(receiver, each) for each in again]

    @invariant()
    def every_batch_comes_out_once_and_in_order(self) -> None:
        for receiver, stream in self.incoming.items():
            assert self.came_out[receiver] == list(range(1, stream.received + 1))
            assert self.outgoing.peers[receiver].acked <= stream.received <= self.outgoing.sent
            assert numbers(stream.log.span(1, stream.received)) == self.came_out[receiver]

    def teardown(self) -> None:
        """The network is fair from here on: everything arrives, and nothing is left to do in the end."""
        for _ in range(self.outgoing.sent + 2):
            self.let_time_pass(MAX_BACKOFF * RETRY)
            while self.batches_under_way or self.acks_under_way:
                for receiver, moved in self._taken(self.batches_under_way):
                    self._arrives(receiver, moved)
                for acknowledgement in self._taken(self.acks_under_way):
                    self._acknowledged(*acknowledgement)
        everything = list(range(1, self.outgoing.sent + 1))
        assert all(numbers_out == everything for numbers_out in self.came_out.values())
        assert all(peer.acked == self.outgoing.sent for peer in self.outgoing.peers.values())
        assert self.outgoing.overdue(self.now + 99 * RETRY) == []

    @staticmethod
    def _taken(queue: list) -> list:  # type: ignore[type-arg]
        taken = queue[:]
        queue.clear()
        return taken


TestLossyNetwork = LossyNetwork.TestCase


# The sender's half


def sent(count: int, now: int = 0) -> Outgoing[Batch]:
    outgoing: Outgoing[Batch] = Outgoing(RECEIVERS, RETRY, now)
    for number in range(1, count + 1):
        outgoing.append(batch(number), now)
    return outgoing


def test_a_gap_that_shows_is_filled_at_once_and_not_again_at_every_sign_of_it() -> None:
    outgoing = sent(5)
    now = RETRY // 2
    assert numbers(outgoing.acknowledge(1, 2, 5, now)) == [3, 4], "5 was seen, 3 and 4 are missing"
    assert outgoing.acknowledge(1, 2, 5, now + 1) == []
    assert outgoing.acknowledge(1, 2, 5, now + RETRY - 1) == []
    assert numbers(dict(outgoing.overdue(now + RETRY))[1]) == [3, 4, 5], "there was no news for too long"


def test_what_was_sent_again_is_sent_again_only_when_something_has_come_that_left_after_it() -> None:
    outgoing = sent(5)
    assert numbers(outgoing.acknowledge(1, 2, 5, RETRY)) == [3, 4]
    assert outgoing.rounds == 1, "what the next heartbeat says"
    now = RETRY + RETRY // 2
    assert outgoing.acknowledge(1, 2, 6, now, 0) == [], "this answers an earlier heartbeat: the copies may be queued"
    assert numbers(outgoing.acknowledge(1, 2, 6, now, 1)) == [3, 4, 5], "this one a later heartbeat: they are lost"
    for number in (6, 7):
        outgoing.append(batch(number), now)
    now += RETRY // 2
    assert outgoing.acknowledge(1, 2, 6, now, 1) == []
    assert numbers(outgoing.acknowledge(1, 2, 7, now)) == [3, 4, 5, 6], "a batch has come that left after them"


def test_a_gap_behind_what_was_sent_again_is_filled_at_once() -> None:
    outgoing = sent(9)
    assert numbers(outgoing.acknowledge(1, 0, 2, RETRY)) == [1]
    assert numbers(outgoing.acknowledge(1, 4, 6, RETRY + RETRY // 4)) == [5]


@given(st.integers(1, 60), st.integers(1, 8 * RETRY))
def test_a_slow_line_is_never_swamped(count: int, time_of_one: int) -> None:
    """A FIFO line that loses nothing and takes its time for each batch: hardly any goes over it twice."""
    outgoing: Outgoing[Batch] = Outgoing((1,), RETRY, 0)
    incoming: Incoming[Batch] = Incoming()
    line = [batch(number) for number in range(1, count + 1)]
    for each in line:
        outgoing.append(each, 0)
    now = carried = 0
    leaves_at = time_of_one
    while line:
        now = min(leaves_at, now + RETRY // 2)
        if now == leaves_at:
            incoming.accept(line.pop(0))
            carried += 1
            line += outgoing.acknowledge(1, incoming.received, incoming.seen, now)
            leaves_at = now + time_of_one
        line += [each for _, again in outgoing.overdue(now) for each in again]
    assert incoming.received == count
    assert carried <= count + 6 * RESEND_AT_ONCE


def test_a_receiver_that_lacks_much_gets_it_bit_by_bit() -> None:
    outgoing = sent(3 * RESEND_AT_ONCE)
    bit = list(range(1, RESEND_AT_ONCE + 1))
    assert numbers(outgoing.acknowledge(1, 0, 3 * RESEND_AT_ONCE, RETRY)) == bit
    assert numbers(dict(outgoing.overdue(2 * RETRY))[2]) == bit


def test_a_lost_last_batch_is_sent_again_after_a_while_and_only_to_who_lacks_it() -> None:
    outgoing = sent(2)
    outgoing.acknowledge(1, 2, 2, 1)
    assert outgoing.overdue(RETRY - 1) == []
    assert [(receiver, numbers(again)) for receiver, again in outgoing.overdue(RETRY)] == [(2, [1, 2])]


def test_retries_to_a_silent_receiver_become_rare_but_never_stop() -> None:
    outgoing = sent(1)
    outgoing.acknowledge(1, 1, 1, 0)
    tries = [now for now in range(0, 200 * RETRY, RETRY // 2) if outgoing.overdue(now)]
    pauses = [(later - earlier) // RETRY for earlier, later in pairwise(tries)]
    assert pauses[:4] == [2, 4, 8, 16]
    assert set(pauses[4:]) == {MAX_BACKOFF}
    assert outgoing.acknowledge(2, 0, 0, 200 * RETRY) == []


def test_signs_of_life_make_retries_quicker_again() -> None:
    outgoing = sent(2)
    outgoing.acknowledge(1, 2, 2, 0)
    for now in (RETRY, 3 * RETRY, 7 * RETRY):
        assert outgoing.overdue(now)
    for number in (3, 4):
        outgoing.append(batch(number), 8 * RETRY)
    for received, now, pause in ((1, 8 * RETRY, 8), (2, 9 * RETRY, 4), (3, 10 * RETRY, 2)):
        outgoing.acknowledge(2, received, received, now)
        assert outgoing.due(outgoing.peers[2]) == now + pause * RETRY
    assert numbers(dict(outgoing.overdue(12 * RETRY))[2]) == [4]


def test_an_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    outgoing = sent(2)
    assert outgoing.acknowledge(1, 3, 3, 0) == []
    assert outgoing.peers[1].acked == 0
    assert outgoing.acknowledge(77, 1, 2, RETRY) == []


def test_an_old_acknowledgement_takes_nothing_back() -> None:
    outgoing = sent(3)
    outgoing.acknowledge(1, 3, 3, 0)
    outgoing.acknowledge(1, 1, 1, 0)
    assert outgoing.peers[1].acked == 3


# The receiver's half


@given(st.lists(st.integers(1, 8), max_size=40))
def test_a_receiver_hands_out_the_longest_gapless_beginning(arrivals: list[int]) -> None:
    stream: Incoming[Batch] = Incoming()
    out: list[int] = []
    for number in arrivals:
        out += numbers(stream.accept(batch(number)))
    gapless = next(number for number in range(1, 10) if number not in arrivals) - 1
    assert out == list(range(1, gapless + 1))
    assert stream.received == gapless
    assert stream.seen == max(arrivals, default=0)
    assert sorted(stream.early) == sorted({number for number in arrivals if number > gapless})


def test_what_waits_behind_a_gap_is_bounded() -> None:
    stream: Incoming[Batch] = Incoming()
    for number in range(2, 2 * MAX_EARLY):
        stream.accept(batch(number))
    assert len(stream.early) == MAX_EARLY - 1
    assert len(stream.accept(batch(1))) == MAX_EARLY


def test_numbers_beyond_the_bound_do_not_keep_the_next_ones_out() -> None:
    """Otherwise a sender whose numbers make no sense would fill the place of those that do."""
    stream: Incoming[Batch] = Incoming()
    for number in range(10 * MAX_EARLY, 11 * MAX_EARLY):
        stream.accept(batch(number))
    stream.accept(batch(2))
    assert numbers(stream.accept(batch(1))) == [1, 2]


def test_gaps_are_what_is_missing_between_two_numbers_and_nothing_else() -> None:
    stream: Incoming[Batch] = Incoming()
    for number in (1, 4, 5, 8):
        stream.accept(batch(number))
    assert list(stream.gaps(0, 10)) == [(2, 3), (6, 7), (9, 10)]
    assert list(stream.gaps(2, 6)) == [(3, 3), (6, 6)]
    assert list(stream.gaps(5, 5)) == []


def test_a_stream_begins_behind_what_came_before() -> None:
    stream: Incoming[Batch] = Incoming(after=7)
    assert stream.accept(batch(7)) == []
    assert numbers(stream.accept(batch(8))) == [8]
    assert stream.log.first == 8


def test_nothing_beyond_the_end_of_a_view_ever_counted() -> None:
    stream: Incoming[Batch] = Incoming()
    for number in (1, 2, 3, 5):
        stream.accept(batch(number))
    stream.end_at(2)
    assert (stream.received, stream.seen, stream.early) == (2, 2, {})
    assert numbers(stream.log.span(1, 9)) == [1, 2]
    assert numbers(stream.accept(batch(3))) == [3]


# The log


class LogAgainstADictionary(RuleBasedStateMachine):
    """A log is a dictionary of consecutive numbers from which both ends may be cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.log: StreamLog[Batch] = StreamLog(after=4)
        self.plain: dict[int, Batch] = {}
        self.first, self.next = 5, 5

    @rule()
    def append(self) -> None:
        new = batch(self.next)
        self.log.append(new)
        self.plain[self.next] = new
        self.next += 1

    @rule(number=st.integers(0, 30))
    def drop_through(self, number: int) -> None:
        dropped = [self.plain.pop(each) for each in sorted(self.plain) if each <= number]
        assert self.log.drop_through(number) == dropped
        self.first = max(self.first, min(number + 1, self.next))

    @rule(back=st.integers(0, 5))
    def drop_after(self, back: int) -> None:
        number = max(self.first - 1, self.next - 1 - back)
        self.log.drop_after(number)
        self.plain = {each: kept for each, kept in self.plain.items() if each <= number}
        self.next = number + 1

    @rule(first=st.integers(0, 30), last=st.integers(0, 30))
    def span(self, first: int, last: int) -> None:
        assert self.log.span(first, last) == [self.plain[each] for each in sorted(self.plain) if first <= each <= last]

    @invariant()
    def has_the_same_ends(self) -> None:
        assert (self.log.first, self.log.last) == (self.first, self.next - 1)
        assert len(self.log) == len(self.plain)


TestLogAgainstADictionary = LogAgainstADictionary.TestCase


def test_a_log_does_not_keep_what_was_dropped() -> None:
    class Item:
        """Goes away when nobody has it any more."""

    log: StreamLog[Item] = StreamLog()
    alive: WeakSet[Item] = WeakSet()
    for number in range(1, 1001):
        item = Item()
        alive.add(item)
        log.append(item)
        log.drop_through(number - 5)
    assert len(log) == 5
    assert len(alive) <= 10
