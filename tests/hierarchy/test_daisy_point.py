"""A local group that sends to recipients only: who gets a parcel, when it is safe, and what a view begins with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import EMPTY, Segment
from isthmus.core.wire.daisy import DaisyFrame, Parcel, PointPdu, Receipt, Standing
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.parcels import Parcels
from isthmus.hierarchy.daisy.point import Flush, FlushEntry, PointGroup, pack_end, pack_entry
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import pack
from isthmus.hierarchy.daisy.tree import tree_of

RETRY: Nanos = 40


def parcels(size: int, resilience: int) -> list[Parcels]:
    view = View(1, tuple(range(size)))
    return [Parcels(each, view, resilience, RETRY, 0) for each in view.members]


def carry(members: Sequence[Parcels], lost: tuple[ProcessId, ...] = ()) -> list[tuple[ProcessId, bytes]]:
    """Until nobody has anything to say; nothing gets to the lost. Returns deliveries of messages, in order."""
    delivered: list[tuple[ProcessId, bytes]] = []
    moved = True
    while moved:
        moved = False
        for member in members:
            delivered += [(member.id, payload) for batch in member.take() for payload in batch.segment.payloads()]
            member.end_step()
            member.invariants()
            sends = list(member.sends)
            member.sends.clear()
            for destinations, pdu in sends:
                for each in destinations:
                    moved = True
                    if each not in lost:
                        members[each].receive(member.id, pdu, 0)
    return delivered


# Parcels


@pytest.mark.parametrize(
    ("resilience", "receivers", "expected"),
    [(1, (3,), []), (1, (), [2]), (2, (3,), [2]), (2, (), [2, 3]), (3, (0,), [2, 3]), (9, (3,), [2, 4, 0])],
)
def test_witnesses_are_the_next_in_the_view_and_no_more_than_are_needed(
    resilience: int, receivers: tuple[int, ...], expected: list[int]
) -> None:
    """ "at least k more processes, in order to be able to survive k failures" (daisy, Sect. 3.4)"""
    assert list(parcels(5, resilience)[1].witnesses(receivers)) == expected


def test_a_parcel_goes_to_its_receivers_alone() -> None:
    members = parcels(4, 1)
    members[0].send(Segment.of(0, 1, [b"x"]), {2}, 0)
    (((receiver,), parcel),) = members[0].sends
    assert (receiver, type(parcel)) == (2, Parcel)
    assert carry(members) == [(2, b"x"), (0, b"x")]


@pytest.mark.parametrize(("resilience", "holders"), [(1, 1), (2, 2), (3, 3)])
def test_a_message_is_delivered_when_enough_are_known_to_hold_it(resilience: int, holders: int) -> None:
    """ "messages cannot be delivered until it is known that they were received by at least k more processes" """
    members = parcels(5, resilience)
    everybody = (1, 2, 3, 4)
    members[0].send(Segment.of(0, 1, [b"x"]), everybody, 0)
    too_few = everybody[holders - 1 :]
    assert carry(members, lost=too_few) == []
    assert [hold.reason for hold in members[0].order.waiting()] == ["safe"]
    members[0].tick(RETRY)
    delivered = carry(members, lost=everybody[holders:])
    assert sorted(delivered) == [(each, b"x") for each in range(holders + 1)]


def test_a_parcel_is_not_safe_before_the_earlier_ones_of_its_sender() -> None:
    """Otherwise an effect could survive whose cause is lost: both from one sender, to different members."""
    members = parcels(3, 1)
    members[0].send(Segment.of(0, 1, [b"cause"]), {1}, 0)
    members[0].send(Segment.of(0, 2, [b"effect"]), {2}, 0)
    assert carry(members, lost=(1,)) == []
    members[0].tick(RETRY)
    assert carry(members) == [(1, b"cause"), (0, b"cause"), (0, b"effect"), (2, b"effect")]


def test_what_all_have_is_held_no_longer_and_nobody_speaks_any_more() -> None:
    members = parcels(4, 2)
    members[3].send(Segment.of(3, 1, [b"x"]), {0, 1}, 0)
    carry(members)
    assert not members[0].is_quiet  # it has not heard yet that all have it
    for now in (RETRY, 2 * RETRY):
        for member in members:
            member.tick(now)
        carry(members)
    assert all(member.is_quiet for member in members)
    assert [batch.number for batch in members[0].finished] == [1]
    for member in members:
        member.tick(9 * RETRY)
        assert not member.sends


@pytest.mark.parametrize(
    "word",
    [
        Parcel(Batch(1, 1, 1, [], 0, EMPTY), 0),
        Parcel(Batch(1, 1, 1, [0] * 9, 0, EMPTY), 0),
        Parcel(Batch(1, 1, 0, [1] * 9, 0, EMPTY), 0),
        Parcel(Batch(2, 1, 1, [1] * 9, 0, EMPTY), 0),
        Parcel(Batch(1, 2, 1, [1] * 9, 0, EMPTY), 0),
        Receipt(1, 9, 9, 9, 9),
        Receipt(2, 1, 1, 1, 1),
        Standing(2, 5, 5),
        Standing(1, 1 << 60, 1 << 60),
    ],
)
def test_words_that_make_no_sense_are_passed_over(word: PointPdu) -> None:
    members = parcels(3, 1)
    frame = decode_body(body_of(DaisyFrame(0, 0, word)))
    assert isinstance(frame, DaisyFrame)
    assert isinstance(frame.pdu, PointPdu)
    members[0].receive(1, frame.pdu, 0)
    members[0].receive(77, frame.pdu, 0)
    members[0].invariants()
    members[2].send(Segment.of(2, 1, [b"sound"]), {0}, 0)
    assert (0, b"sound") in carry(members)


# The flush


def entry(origin: int, seq: int, clock: int, number: int, *, kept: bool = False) -> FlushEntry:
    return FlushEntry(origin, number, kept, Clocked(origin, seq, b"", (0, 1, 2), clock))


def flush(*lists: Sequence[FlushEntry], done: dict[int, int] | None = None) -> list[tuple[int, int]]:
    """What a view of as many members as there are lists begins with."""
    view = View(2, tuple(range(len(lists))))
    state = Flush(view)
    for member, each in enumerate(lists):
        assert not state.is_complete
        state.take(
            Batch(2, member, 7, [], 0, Segment.pack([*map(pack_entry, each), pack_end(member, view, done or {})]))
        )
    assert state.is_complete
    return [(run.origin, run.last) for run in state.agreed()]


def test_a_view_begins_with_what_anybody_holds_in_the_order_of_the_clocks() -> None:
    assert flush([entry(8, 1, 5, 1)], [entry(9, 1, 3, 1)], [entry(8, 1, 5, 1), entry(8, 2, 6, 2)]) == [
        (9, 1),
        (8, 1),
        (8, 2),
    ]


def test_behind_a_parcel_that_nobody_has_nothing_was_delivered() -> None:
    assert flush([entry(8, 1, 5, 1)], [entry(8, 3, 7, 3)]) == [(8, 1)]


def test_what_is_done_is_no_gap_and_comes_again_only_if_it_is_kept() -> None:
    lists = [entry(8, 2, 6, 2), entry(8, 3, 7, 3)], [entry(8, 1, 5, 1, kept=True)]
    assert flush(*lists, done={8: 2}) == [(8, 1), (8, 3)]


def test_what_was_told_for_another_view_does_not_count() -> None:
    state = Flush(View(3, (0,)))
    state.take(Batch(3, 0, 1, [], 0, Segment.pack([pack_entry(entry(8, 1, 5, 1)), pack_end(0, View(2, (0,)), {})])))
    assert not state.ends
    state.take(Batch(3, 0, 2, [], 0, Segment.pack([pack_end(0, View(3, (0,)), {})])))
    assert state.is_complete
    assert not state.agreed()


@pytest.mark.parametrize("payload", [b"", b"\xc0", b"\x96\xff", b"\x91" * 5000])
def test_words_in_a_flush_that_make_no_sense_are_passed_over(payload: bytes) -> None:
    state = Flush(View(2, (0,)))
    state.take(Batch(2, 0, 1, [], 0, Segment.pack([(5, 1, payload), (0, 0, payload)])))
    assert not state.is_complete
    assert not state.everything()


@given(st.data())
def test_all_members_begin_a_view_alike_whatever_they_hold(data: st.DataObject) -> None:
    """Equal lists in any order give one answer; it has no gap, and all that was safe is in it."""
    stream = [entry(8, seq, 3 * seq, seq) for seq in range(1, 8)]
    held = [data.draw(st.lists(st.sampled_from(stream), unique=True)) for _ in range(3)]
    done = data.draw(st.integers(0, 3))
    found = flush(*held, done={8: done})
    assert flush(*map(reversed, reversed(held)), done={8: done}) == found  # type: ignore[arg-type]
    numbers = [seq for _, seq in found]
    assert numbers == list(range(done + 1, done + 1 + len(numbers)))
    everywhere = {each.number for each in stream if sum(each in some for some in held) == len(held)}
    safe = next(number for number in range(done + 1, 9) if number not in everywhere)
    assert set(range(done + 1, safe)) <= set(numbers)


# A whole group

NAMES = ("a", "b", "c", "d")
POINT = DaisyOptions(inside="recipients", resilience=1)
ONE_GROUP = tree_of(DaisyTable(processes=NAMES, options=POINT), NAMES.index)
TWO_GROUPS = tree_of(
    DaisyTable(
        parts=(DaisyTable(name="x", processes=NAMES[:2]), DaisyTable(name="y", processes=NAMES[2:])), options=POINT
    ),
    NAMES.index,
)


def test_a_message_goes_to_the_server_if_it_is_for_somebody_outside() -> None:
    process = DaisyProcess(1, TWO_GROUPS)
    group = process.local
    assert isinstance(group, PointGroup)
    assert group.receivers(Clocked(1, 1, b"", (3,), 1)) == {0}
    assert group.receivers(Clocked(3, 1, b"", (1,), 1)) == {0, 1}  # from above, with a witness


def test_members_that_a_message_is_not_for_never_see_it() -> None:
    """ "send messages inside a group only to their intended recipients" (daisy, Sect. 3.4)"""
    processes = [DaisyProcess(each, ONE_GROUP) for each in range(4)]
    out = Outbox()
    processes[0].send((2,), [b"for c"], 0, out)
    under_way: list[tuple[int, int, Pdu]] = [(0, each, pdu) for to, pdu in out.sends for each in to]
    heard: set[int] = set()
    delivered = []
    while under_way:
        source, target, pdu = under_way.pop()
        heard.add(target)
        answer = Outbox()
        processes[target].receive(source, [decode_body(body_of(pdu))], 0, answer)
        delivered += [(target, payload) for each in answer.addressed for payload in each.run.segment.payloads()]
        under_way += [(target, each, word) for to, word in answer.sends for each in to]
    assert delivered == [(2, b"for c")]
    assert heard == {0, 2}


def test_words_of_parcels_mean_nothing_where_messages_go_to_everybody() -> None:
    plain = DaisyProcess(0, tree_of(DaisyTable(processes=NAMES), NAMES.index))
    out = Outbox()
    word = Parcel(Batch(1, 1, 1, [1] * 16, 0, Segment.pack([pack(Clocked(1, 1, b"", (0,), 1))])), 0)
    plain.receive(1, [DaisyFrame(0, 0, word), DaisyFrame(0, 0, Standing(1, 1, 1))], 0, out)
    assert not out.addressed
    assert not out.sends
