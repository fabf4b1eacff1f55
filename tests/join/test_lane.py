"""What waits for a link: everything once, in order, in blocks that the link has room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Opened, Segment
from isthmus.join.lane import Lane

sizes = st.lists(st.integers(0, 30), min_size=1, max_size=5)


def segment_of(first: int, lengths: list[int]) -> Segment:
    return Segment.pack([(1, first + place, bytes(length)) for place, length in enumerate(lengths)])


@given(st.lists(sizes, min_size=1, max_size=6), st.booleans(), st.lists(st.integers(1, 60), min_size=1))
def test_everything_goes_once_and_in_order_and_no_block_is_too_large(
    segments: list[list[int]], numbered: bool, rooms: list[int]
) -> None:
    lane = Lane()
    waiting: list[Opened] = []
    for lengths in segments:
        segment = segment_of(1 + len(waiting), lengths)
        lane.waiting.append((1 + len(waiting) if numbered else 0, segment))
        waiting += segment
    gone: list[Opened] = []
    for turn in range(len(waiting)):
        if not lane.waiting:
            break
        room = lane.room = rooms[turn % len(rooms)]
        first, block = lane.take()
        assert lane.room == 0, "a link says anew when it is ready"
        assert first == (1 + len(gone) if numbered else 0)
        assert block.messages == 1 or block.payload_bytes <= room
        gone += block
    assert gone == waiting


def test_blocks_that_are_apart_go_one_by_one_as_long_as_there_is_room() -> None:
    lane = Lane(apart=True)
    lane.waiting += [(number, segment_of(number, [4])) for number in (1, 2, 3)]
    lane.room = 7
    assert [lane.take(), lane.take()] == [(1, segment_of(1, [4])), (2, segment_of(2, [4]))]
    assert lane.room == 0


def test_numbers_that_do_not_follow_each_other_go_in_blocks_of_their_own() -> None:
    lane = Lane()
    lane.waiting += [(1, segment_of(1, [1])), (2, segment_of(2, [1])), (5, segment_of(3, [1]))]
    lane.room = 100
    assert lane.take() == (1, segment_of(1, [1, 1]))
    lane.room = 100
    assert lane.take() == (5, segment_of(3, [1]))


def test_a_block_has_no_more_messages_than_a_segment_may_have() -> None:
    lane = Lane()
    full = segment_of(1, [0] * MAX_SEGMENT_MESSAGES)
    lane.waiting += [(0, full), (0, segment_of(MAX_SEGMENT_MESSAGES + 1, [0]))]
    lane.room = 100
    assert lane.take()[1].messages == MAX_SEGMENT_MESSAGES
    assert lane.waiting
