"""What waits for a link: everything once, in order, in blocks that the link has room for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Opened, Segment
from isthmus.join.parcel import Lane, Parcel

Piece = tuple[list[int], int, int | None, dict[int, int]]
"""A parcel as drawn: sizes of its messages, how many numbers it leaves out before it, home, `after`."""

marks = st.dictionaries(st.sampled_from([90, 91]), st.integers(1, 9), max_size=2)
pieces = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), min_size=1, max_size=5),
        st.sampled_from([0, 0, 0, 2]),
        st.sampled_from([None, None, 20, 21]),
        marks,
    ),
    min_size=1,
    max_size=6,
)
rooms = st.lists(st.integers(1, 60), min_size=1)


def segment_of(first: int, lengths: list[int]) -> Segment:
    return Segment.pack([(1, first + place, bytes(length)) for place, length in enumerate(lengths)])


def parcels_of(drawn: list[Piece], *, numbered: bool) -> list[Parcel]:
    """The messages of all are numbered from 1 on by their origin; by the join too, unless a parcel leaves some out."""
    parcels: list[Parcel] = []
    seq = number = 1
    for lengths, gap, home, after in drawn:
        number += gap
        parcels.append(Parcel(number if numbered else 0, segment_of(seq, lengths), home, after))
        seq += len(lengths)
        number += len(lengths)
    return parcels


def all_blocks(lane: Lane, rooms: list[int]) -> list[tuple[int, Parcel]]:
    """Everything that waits, taken by a link with these rooms in turn: each block with the room that there was."""
    blocks = []
    turn = 0
    while lane.waiting:
        if not lane.room:
            lane.room = rooms[turn % len(rooms)]
            turn += 1
        blocks.append((lane.room, lane.take()))
    return blocks


def of_messages(parcels: list[Parcel]) -> list[tuple[Opened, int, int | None]]:
    """Each message with its number and its home, in order."""
    return [
        (message, parcel.first and parcel.first + place, parcel.home)
        for parcel in parcels
        for place, message in enumerate(parcel.segment)
    ]


@given(pieces, st.booleans(), rooms, st.booleans())
def test_everything_goes_once_and_in_order_and_no_block_is_too_large(
    drawn: list[Piece], numbered: bool, rooms: list[int], apart: bool
) -> None:
    waiting = parcels_of(drawn, numbered=numbered)
    lane = Lane(apart=apart)
    lane.waiting += waiting
    blocks = all_blocks(lane, rooms)
    assert of_messages([block for _, block in blocks]) == of_messages(waiting), "number, home or order is another one"
    for room, block in blocks:
        assert block.segment
        assert block.segment.messages == 1 or block.segment.payload_bytes <= room


@given(pieces, st.booleans(), rooms)
def test_a_block_is_as_large_as_it_can_be(drawn: list[Piece], numbered: bool, rooms: list[int]) -> None:
    """Whatever a link gets in two blocks did not fit into one, or is a parcel that could not be joined to the other."""
    waiting = parcels_of(drawn, numbered=numbered)
    lane = Lane()
    lane.waiting += waiting
    begins = {next(iter(parcel.segment))[1]: parcel.segment for parcel in waiting}
    for (room, block), (_, following) in pairwise(all_blocks(lane, rooms)):
        next_seq = next(iter(following.segment))[1]
        follows = following.first == (block.first and block.last + 1) and following.home == block.home
        # A parcel that begins here would have been joined as a whole; the rest of one that was cut, by one message.
        least = begins.get(next_seq, following.segment.cut(1)[0])
        size = block.segment.payload_bytes
        assert not follows or size >= room or size + least.payload_bytes > room


@given(pieces, st.booleans(), rooms, st.booleans())
def test_what_a_message_waits_for_is_named_by_its_block_or_by_one_before(
    drawn: list[Piece], numbered: bool, rooms: list[int], apart: bool
) -> None:
    """Marks rise from parcel to parcel, as those of what came in do."""
    waiting = [
        parcel._replace(after={origin: 10 * place + seq for origin, seq in parcel.after.items()})
        for place, parcel in enumerate(parcels_of(drawn, numbered=numbered))
    ]
    due = {
        seq: (parcel.after, seq == next(iter(parcel.segment))[1])
        for parcel in waiting
        for _, seq in parcel.segment.ids()
    }
    lane = Lane(apart=apart)
    lane.waiting += waiting
    named: dict[int, int] = {}
    for _, block in all_blocks(lane, rooms):
        begun = [due[seq][0] for _, seq in block.segment.ids() if due[seq][1]]
        assert block.after == {o: s for marks in begun for o, s in marks.items()}, "not of the parcels that begin"
        named.update(block.after)
        for _, seq in block.segment.ids():
            assert all(named[origin] >= mark for origin, mark in due[seq][0].items())


def test_what_is_cut_keeps_its_numbers_and_its_home_and_the_front_has_the_marks() -> None:
    lane = Lane()
    lane.waiting.append(Parcel(5, segment_of(1, [4, 4, 4]), 21, {90: 3}))
    lane.room = 8
    assert lane.take() == Parcel(5, segment_of(1, [4, 4]), 21, {90: 3})
    assert lane.room == 0, "a link says anew when it is ready"
    lane.room = 8
    assert lane.take() == Parcel(7, segment_of(3, [4]), 21)
    assert not lane.waiting


def test_what_is_cut_stays_without_a_number_where_there_are_none() -> None:
    lane = Lane()
    lane.waiting.append(Parcel(0, segment_of(1, [4, 4])))
    lane.room = 4
    assert [lane.take().first, lane.waiting[0].first] == [0, 0]


def test_blocks_that_are_apart_go_one_by_one_as_long_as_there_is_room() -> None:
    lane = Lane(apart=True)
    parcels = [Parcel(number, segment_of(number, [4]), 20, {90: number}) for number in (1, 2, 3)]
    lane.waiting += parcels
    lane.room = 7
    assert [lane.take(), lane.take()] == parcels[:2]
    assert lane.room == 0
    assert list(lane.waiting) == parcels[2:]


def test_blocks_that_are_apart_use_room_up_though_they_are_empty() -> None:
    """Else a link that is ready once takes messages without an end."""
    lane = Lane(apart=True)
    lane.waiting += [Parcel(number, segment_of(number, [0])) for number in (1, 2, 3)]
    lane.room = 2
    lane.take()
    lane.take()
    assert lane.room == 0


def test_numbers_that_do_not_follow_each_other_go_in_blocks_of_their_own() -> None:
    """What a lost link had goes behind what waits, with lower numbers."""
    lane = Lane()
    lane.waiting += [Parcel(5, segment_of(5, [1])), Parcel(6, segment_of(6, [1])), Parcel(1, segment_of(1, [1]))]
    lane.room = 100
    assert lane.take() == Parcel(5, segment_of(5, [1, 1]))
    lane.room = 100
    assert lane.take() == Parcel(1, segment_of(1, [1]))


def test_messages_with_different_homes_go_in_blocks_of_their_own() -> None:
    lane = Lane()
    lane.waiting += [Parcel(0, segment_of(1, [1]), 20), Parcel(0, segment_of(2, [1]), 21)]
    lane.room = 100
    assert lane.take() == Parcel(0, segment_of(1, [1]), 20)
    lane.room = 100
    assert lane.take() == Parcel(0, segment_of(2, [1]), 21)


def test_what_goes_together_waits_for_all_that_any_of_it_waits_for() -> None:
    lane = Lane()
    lane.waiting += [
        Parcel(1, segment_of(1, [1]), None, {90: 3, 91: 1}),
        Parcel(2, segment_of(2, [1]), None, {90: 4}),
    ]
    lane.room = 100
    assert lane.take() == Parcel(1, segment_of(1, [1, 1]), None, {90: 4, 91: 1})


def test_a_block_has_no_more_messages_than_a_segment_may_have() -> None:
    lane = Lane()
    full = segment_of(1, [0] * MAX_SEGMENT_MESSAGES)
    lane.waiting += [Parcel(0, full), Parcel(0, segment_of(MAX_SEGMENT_MESSAGES + 1, [0]))]
    lane.room = 100
    assert lane.take().segment.messages == MAX_SEGMENT_MESSAGES
    assert lane.waiting
