"""Segments do to columns what anybody would do to a plain list of messages, and refuse columns that are not sound."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from itertools import accumulate, groupby, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pdu_strategies import segments

from isthmus.core import segment as segment_module
from isthmus.core.codec import FrameError, body_of, decode_body
from isthmus.core.message import Batch
from isthmus.core.segment import (
    EMPTY,
    MAX_ENVELOPE,
    MAX_PAYLOAD,
    MAX_SEGMENT_MESSAGES,
    Marks,
    Opened,
    Segment,
    join,
    pack_all,
    segments_of,
    take,
    total,
)

MAX_NUMBER = 1 << 62
MAX_LENGTH = MAX_PAYLOAD + MAX_ENVELOPE
WIDTHS = (1, 2, 4, 8)

near = segments(st.integers(0, 3), st.integers(0, 9))
"""Few origins and small numbers: runs overlap, come twice, follow on each other and leave gaps."""

anything = near | segments()
lists = st.lists(
    st.tuples(st.integers(0, 3) | st.just(MAX_NUMBER), st.integers(0, 9) | st.just(MAX_NUMBER), st.binary(max_size=3)),
    max_size=10,
)
marks = st.dictionaries(st.integers(0, 4), st.integers(0, 12))
limits = st.integers(-2, 40)
narrow_or_wide = st.integers(0, 9) | st.sampled_from([255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, MAX_NUMBER])


def made_afresh(segment: Segment) -> Segment:
    """The same columns in bytes of their own, as they come off a wire."""
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(segment), type=Segment)
    assert type(decoded.data) is bytes
    return decoded


def check(segment: Segment, expected: Sequence[Opened]) -> None:
    """A segment holds these messages, however it is asked, and is as good as one that was never cut from another."""
    messages = list(expected)
    assert list(segment) == messages
    assert list(segment.ids()) == [(origin, seq) for origin, seq, _ in messages]
    assert list(segment.payloads()) == [payload for _, _, payload in messages]
    assert {type(payload) for payload in segment.payloads()} <= {bytes}
    sizes = [len(payload) for _, _, payload in messages]
    assert list(segment.sizes()) == sizes
    assert segment.largest == max(sizes, default=segment.size)
    assert segment.payload_bytes == sum(sizes)
    assert segment.messages == len(segment) == len(messages)
    assert bool(segment) is bool(messages)
    assert segment.marks == {origin: seq for origin, seq, _ in messages}
    assert [(origin, seq) for origin, first, count in segment.runs() for seq in range(first, first + count)] == list(
        segment.ids()
    )
    assert all(count > 0 for _, _, count in segment.runs())
    assert segment.column_bytes == len(msgspec.msgpack.encode(segment)) - len(msgspec.msgpack.encode(segment.data))
    fresh = made_afresh(segment)
    assert segment == fresh
    assert hash(segment) == hash(fresh)
    assert msgspec.msgpack.encode(segment) == msgspec.msgpack.encode(fresh)
    assert list(fresh) == messages


# Making one, and opening it


@given(lists)
def test_what_is_packed_comes_out_again(messages: list[Opened]) -> None:
    packed = Segment.pack(messages)
    check(packed, messages)
    assert packed == Segment.pack(list(packed))


@given(lists)
def test_what_follows_on_each_other_is_packed_as_one_run(messages: list[Opened]) -> None:
    runs = list(Segment.pack(messages).runs())
    for (origin, first, count), (following, begin, _) in pairwise(runs):
        assert (origin, first + count) != (following, begin)


@given(st.integers(0, MAX_NUMBER), st.integers(0, MAX_NUMBER - 10), st.lists(st.binary(max_size=3), max_size=10))
def test_payloads_of_one_origin_are_numbered_in_a_row(origin: int, first: int, payloads: list[bytes]) -> None:
    messages = [(origin, seq, payload) for seq, payload in enumerate(payloads, first)]
    segment = Segment.of(origin, first, payloads)
    check(segment, messages)
    assert segment == Segment.pack(messages)
    assert len(list(segment.runs())) == bool(payloads)


@given(anything)
def test_whatever_the_wire_allows_is_read_as_it_stands(segment: Segment) -> None:
    ends = list(accumulate(segment.sizes(), initial=0))
    payloads = [segment.data[start:end] for start, end in pairwise(ends)]
    ids = [(origin, seq) for origin, first, count in segment.runs() for seq in range(first, first + count)]
    check(segment, [(*each, payload) for each, payload in zip(ids, payloads, strict=True)])


@given(st.integers(0, 5), st.integers(0, 9))
def test_payloads_of_one_size_take_no_lengths(size: int, count: int) -> None:
    segment = Segment.of(1, 1, [bytes((each,)) * size for each in range(count)])
    assert (segment.lengths, segment.size) == (b"", size if count else 0)
    check(segment, [(1, seq, bytes((seq - 1,)) * size) for seq in range(1, count + 1)])


def test_payloads_that_differ_have_their_lengths() -> None:
    segment = Segment.of(1, 1, [b"", b"abc", b""])
    assert (segment.lengths, segment.size) == (array("I", (0, 3, 0)).tobytes(), 0)
    check(segment, [(1, 1, b""), (1, 2, b"abc"), (1, 3, b"")])


def test_as_many_as_there_are_go_into_as_many_segments_as_it_takes() -> None:
    payloads = [b"%d" % number for number in range(2 * MAX_SEGMENT_MESSAGES + 1)]
    sizes = [MAX_SEGMENT_MESSAGES, MAX_SEGMENT_MESSAGES, 1]
    messages = [(7, seq, payload) for seq, payload in enumerate(payloads, 3)]
    for found in (segments_of(7, 3, payloads), pack_all(messages)):
        assert [each.messages for each in found] == sizes
        assert [message for each in found for message in each] == messages
        assert total(found) == (len(payloads), sum(map(len, payloads)))
    assert segments_of(7, 3, []) == pack_all([]) == []
    assert total([]) == (0, 0)


def test_a_segment_of_more_than_fit_is_not_made() -> None:
    payloads = [b""] * (MAX_SEGMENT_MESSAGES + 1)
    for make in (
        lambda: Segment.of(1, 1, payloads),
        lambda: Segment.pack([(1, 1, b"")] * len(payloads)),
        lambda: join([Segment.of(1, 1, payloads[1:]), Segment.of(2, 1, payloads[:1])]),
        lambda: Segment.of(1, MAX_NUMBER, [b"", b""]),
        lambda: Segment.of(MAX_NUMBER + 1, 1, [b""]),
        lambda: Segment.of(1, 1, [bytes(MAX_LENGTH + 1), b""]),
    ):
        with pytest.raises(ValueError, match=r"segment|payloads"):
            make()


@given(anything)
def test_a_copy_is_as_good(segment: Segment) -> None:
    messages = list(segment)
    for part in (segment, segment.cut(1)[1]):
        check(copy(part), messages[len(messages) - len(part) :])
        assert deepcopy([part])[0] is part


# Columns are as narrow as their numbers allow


@given(st.lists(st.tuples(narrow_or_wide, narrow_or_wide), min_size=1, max_size=10), st.integers(0, 3))
def test_whatever_is_joined_and_cut_columns_are_as_narrow_as_their_numbers(
    ids: list[tuple[int, int]], many: int
) -> None:
    """Also where there are too many runs to be looked at one by one."""
    parts = [Segment.pack([(*each, b"") for each in ids])] + [Segment.of(*ids[0], [b""])] * 30 * many
    joined = join(parts)
    for segment in (joined, *joined.cut(1), *joined.cut(joined.messages - 1), *joined.cut(joined.messages // 2)):
        runs = list(segment.runs())
        if len(runs) == 1:
            ((origin, first, count),) = runs
            assert (segment.origins, segment.lasts, segment.counts) == (origin, first + count - 1, count)
        elif runs:
            assert segment.origins == narrowest(origin for origin, _, _ in runs)
            assert segment.lasts == narrowest(first + count - 1 for _, first, count in runs)
            assert segment.counts == array("H", (count for _, _, count in runs)).tobytes()


def narrowest(numbers: Iterable[int]) -> bytes:
    found = list(numbers)
    width = next(width for width in WIDTHS if max(found) >> 8 * width == 0)
    return column(width, *found)


@pytest.mark.parametrize(
    ("messages", "origins", "most"), [(1, 1, 9), (4, 1, 9), (100, 1, 9), (4, 4, 29), (100, 100, 417)]
)
def test_what_is_around_payloads_is_small(messages: int, origins: int, most: int) -> None:
    """Numbers of one run take as many bytes as they need, those of several the same each."""
    ids = [(place % origins, 1 + place // origins) for place in range(messages)]
    around = Segment.pack([(*each, bytes(100)) for each in ids]).column_bytes
    assert around <= most


# Joining


@given(st.lists(anything, max_size=5))
@example([Segment.of(1, 1, [b"a"]), EMPTY, Segment.of(1, 2, [b"b"])])
def test_to_join_is_to_concatenate(parts: list[Segment]) -> None:
    check(join(parts), [message for part in parts for message in part])


@given(st.integers(1, 9), st.integers(1, 9))
def test_what_follows_on_what_was_joined_before_becomes_one_run(one: int, other: int) -> None:
    joined = join([Segment.of(1, 1, [b"a"] * one), EMPTY, Segment.of(1, one + 1, [b"b"] * other)])
    assert joined == Segment.of(1, 1, [b"a"] * one + [b"b"] * other)


@given(st.lists(near, min_size=2, max_size=3))
def test_many_runs_are_joined_as_well(parts: list[Segment]) -> None:
    """However many runs there are; where there are many, they are not looked at one by one."""
    many = [*parts, *(Segment.of(origin % 3, origin, [b"x"]) for origin in range(70)), *parts]
    check(join(many), [message for part in many for message in part])


# Cutting


@given(anything)
def test_it_can_be_cut_at_every_place(segment: Segment) -> None:
    messages = list(segment)
    for place in range(-1, len(messages) + 2):
        front, back = segment.cut(place)
        check(front, messages[: max(0, place)])
        check(back, messages[max(0, place) :])
        check(join([front, back]), messages)


@given(anything, st.data())
def test_what_was_cut_can_be_cut_again(segment: Segment, data: st.DataObject) -> None:
    messages = list(segment)
    start = data.draw(st.integers(0, len(messages)))
    end = data.draw(st.integers(start, len(messages)))
    check(segment.cut(end)[0].cut(start)[1], messages[start:end])
    check(segment.cut(start)[1].cut(end - start)[0], messages[start:end])


@given(st.integers(0, 3), st.lists(st.tuples(narrow_or_wide, narrow_or_wide), max_size=10), st.data())
def test_a_part_is_the_segment_that_its_messages_make(
    size: int, ids: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Of one size. Where sizes differ, a part has lengths, and one made of its messages may do without."""
    messages = [(*each, bytes((place,)) * size) for place, each in enumerate(ids)]
    place = data.draw(st.integers(0, len(messages)))
    for part, expected in zip(Segment.pack(messages).cut(place), (messages[:place], messages[place:]), strict=True):
        fresh = Segment.pack(expected)
        assert part == fresh
        assert hash(part) == hash(fresh)
        assert body_of(Batch(1, 2, 3, [], 4, part)) == body_of(Batch(1, 2, 3, [], 4, fresh))
        assert {part: "found"}[fresh] == "found"


def test_what_was_cut_is_not_copied() -> None:
    whole = Segment.of(1, 1, [b"ab", b"cd", b"ef"])
    front, back = whole.cut(1)
    for part in (front, back):
        assert isinstance(part.data, memoryview)
        assert part.data.obj is whole.data
    assert whole.cut(0)[1] is whole.cut(3)[0] is whole


# As many as fit


def naive_fitting(lengths: Iterable[int], messages: int, size: int, at_most: int) -> int:
    """One message after the other, until there are so many of them, or so many bytes."""
    taken = total = 0
    for length in lengths:
        if taken >= messages or total >= size or (taken and total + length > at_most):
            break
        taken += 1
        total += length
    return taken


@given(anything, limits, limits, st.integers(0, 40))
@example(Segment.of(1, 1, [b"ab", b""]), 9, 2, 9)
@example(Segment.of(1, 1, [b"", b""]), 9, 0, 9)
def test_as_many_fit_as_one_by_one(segment: Segment, messages: int, size: int, at_most: int) -> None:
    assert segment.fitting(messages, size, at_most) == naive_fitting(segment.sizes(), messages, size, at_most)


@given(st.lists(anything, max_size=5), limits, limits, limits)
@example([EMPTY, Segment.of(1, 1, [b"abc"])], 9, 2, 2)
@example([Segment.of(1, 1, [b"ab"]), Segment.of(1, 2, [b""])], 9, 2, 2)
@example([Segment.of(1, 1, [b"ab"]), Segment.of(2, 1, [b"", b"", b""])], 3, 2, 9)
def test_as_many_are_taken_from_a_queue_as_one_by_one(
    parts: list[Segment], messages: int, size: int, more: int
) -> None:
    """However they lie in the queue. What is taken may be more than `size`, and never is more than `at_most`."""
    at_most = size + max(0, more)
    queued = [message for part in parts for message in part]
    waiting = deque(parts)
    taken = take(waiting, messages, size, at_most)
    count = naive_fitting((len(payload) for _, _, payload in queued), messages, size, at_most)
    check(taken, queued[:count])
    assert [message for part in waiting for message in part] == queued[count:]


@given(st.lists(anything, max_size=5), st.integers(1, 4), st.integers(1, 12), st.integers(0, 12))
def test_a_queue_is_emptied_whatever_the_limits(parts: list[Segment], messages: int, size: int, more: int) -> None:
    waiting = deque(parts)
    found: list[Opened] = []
    while waiting:
        taken = list(take(waiting, messages, size, size + more))
        assert taken or not any(waiting)
        found += taken
    assert found == [message for part in parts for message in part]


# Choosing


@given(near, st.sets(st.integers(0, 3)))
def test_only_some_origins(segment: Segment, origins: set[int]) -> None:
    check(segment.only(origins.__contains__), [message for message in segment if message[0] in origins])


@given(near, marks)
@example(Segment.pack([(0, 0, b"a"), (1, 0, b"b"), (1, 6, b"c")]), {1: 5})
def test_beyond_marks(segment: Segment, marks: Marks) -> None:
    expected = [(origin, seq, payload) for origin, seq, payload in segment if seq > marks.get(origin, -1)]
    check(segment.beyond(marks), expected)


def naive_following(messages: Iterable[Opened], marks: Marks) -> list[Opened]:
    """Of each origin only the number that is due; one without a mark begins with its first message."""
    last = dict(marks)
    found = []
    for origin, seq, payload in messages:
        if seq == last.get(origin, seq - 1) + 1:
            last[origin] = seq
            found.append((origin, seq, payload))
    return found


@given(near, marks)
@example(Segment.pack([(1, 1, b"a"), (1, 2, b"b"), (1, 3, b"c"), (1, 2, b"d"), (1, 3, b"e"), (1, 4, b"f")]), {1: 1})
@example(Segment.pack([(1, 5, b"a"), (1, 7, b"b"), (1, 6, b"c"), (1, 7, b"d")]), {})
def test_following_marks_without_a_gap(segment: Segment, marks: Marks) -> None:
    check(segment.following(marks), naive_following(segment, marks))


@given(near)
def test_all_of_it_follows_when_nothing_is_missing(segment: Segment) -> None:
    whole = Segment.pack(naive_following(segment, {}))
    assert whole.following({}) is whole
    assert not whole.following(whole.marks)


@given(near, st.integers(0, 3), st.integers(0, 12), st.integers(0, 12))
def test_a_stretch_of_one_origin(segment: Segment, origin: int, first: int, last: int) -> None:
    expected = [message for message in segment if message[0] == origin and first <= message[1] <= last]
    check(segment.stretch(origin, first, last), expected)


@pytest.mark.parametrize("key", [lambda origin: origin, lambda origin: origin // 2, lambda origin: None])
@given(near)
def test_cut_along_a_key(key: Callable[[int], object], segment: Segment) -> None:
    parts = segment.along(key)
    expected = [list(group) for _, group in groupby(segment, key=lambda message: key(message[0]))]
    assert [list(part) for part in parts] == expected
    for part, messages in zip(parts, expected, strict=True):
        check(part, messages)


# Hostile columns


def column(width: int, *numbers: int) -> bytes:
    """Numbers of so many bytes each."""
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def counts(*numbers: int) -> bytes:
    return column(2, *numbers)


def lengths(*numbers: int) -> bytes:
    return column(4, *numbers)


def on_the_wire(columns: tuple[Any, ...]) -> bytes:
    return msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, columns))


ONE = (1, 5, 2, 1, b"", b"ab")
"""Messages 4 and 5 of origin 1."""
TWO = (column(1, 1, 2), column(1, 5, 6), counts(2, 1), 0, lengths(1, 0, 2), b"abc")
"""The same of origin 1, and 6 of origin 2."""

TOO_MANY = MAX_SEGMENT_MESSAGES + 1
BEYOND_U64 = (1 << 64) - 1


def hostile_at(width: int) -> dict[str, tuple[Any, ...]]:
    """What may be wrong with columns of a width. Of three runs: half of a column of two is one of half the width."""
    origins, lasts, rest = column(width, 1, 2, 3), column(width, 5, 6, 7), (counts(2, 1, 1), 1, b"", b"abcd")
    return {
        "an origin too few": (column(width, 1, 2), lasts, *rest),
        "an origin too many": (column(width, 1, 2, 3, 4), lasts, *rest),
        "no origins": (b"", lasts, *rest),
        "a last number too few": (origins, column(width, 5, 6), *rest),
        "a last number too many": (origins, column(width, 5, 6, 7, 8), *rest),
        "no last numbers": (origins, b"", *rest),
        "a byte too few in origins": (origins[:-1], lasts, *rest),
        "a byte too many in last numbers": (origins, lasts + b"a", *rest),
        "a count too few": (origins, lasts, counts(3, 1), *rest[1:]),
        "a count too many": (origins, lasts, counts(1, 1, 1, 1), *rest[1:]),
        "no counts": (origins, lasts, b"", *rest[1:]),
        "half a count": (origins, lasts, counts(2, 1, 1)[:5], *rest[1:]),
        "one run in columns": (column(width, 1), column(width, 5), counts(2), *ONE[3:]),
        "an origin for a column": (1, lasts, *rest),
        "a last number for a column": (origins, 7, *rest),
        "a count for a column": (origins, lasts, 4, *rest[1:]),
        "a run of nothing": (origins, lasts, counts(3, 0, 1), *rest[1:]),
        "only runs of nothing": (origins, lasts, counts(0, 0, 0), 0, b"", b""),
        "a run before number 0": (origins, column(width, 0, 6, 7), *rest),
        "a long run before number 0": (origins, column(width, 5, 254, 7), counts(1, 256, 1), 0, b"", b""),
    }


HOSTILE: dict[str, tuple[Any, ...]] = {
    **{f"{what}, {width} bytes wide": columns for width in WIDTHS for what, columns in hostile_at(width).items()},
    **{
        f"numbers of {width} bytes": (column(width, 1, 2), column(width, 5, 6), *TWO[2:])
        for width in (3, 5, 6, 7, 9, 16)
    },
    "counts of one byte": (*TWO[:2], column(1, 2, 1), *TWO[3:]),
    "counts of four bytes": (*TWO[:2], column(4, 2, 1), *TWO[3:]),
    "no runs, and payloads": (b"", b"", b"", 0, lengths(1), b"a"),
    "no runs, and bytes": (b"", b"", b"", 0, b"", b"a"),
    "a run of nothing": (*ONE[:2], 0, 0, b"", b""),
    "a run of less than nothing": (*ONE[:2], -1, 0, b"", b""),
    "a run before number 0": (1, 1, 3, 1, b"", b"abc"),
    "an origin below 0": (-1, *ONE[1:]),
    "a number below 0": (1, -1, 1, 0, b"", b""),
    "a column for an origin": (column(1, 1), *ONE[1:]),
    "a column for a number": (1, column(1, 5), *ONE[2:]),
    "a column for a count": (1, 5, counts(2), *ONE[3:]),
    "no column for an origin": (b"", *ONE[1:]),
    "bytes too few for one size": (*ONE[:3], 2, b"", b"abc"),
    "bytes too many for one size": (*ONE[:3], 2, b"", b"abcde"),
    "bytes, and a size of 0": (*ONE[:3], 0, b"", b"abcd"),
    "a size, and no bytes": (*ONE[:3], 2, b"", b""),
    "a size, and lengths as well": (*TWO[:3], 1, *TWO[4:]),
    "a length too few": (*TWO[:4], lengths(1, 2), TWO[5]),
    "a length too many": (*TWO[:4], lengths(1, 0, 2, 0), TWO[5]),
    "half a length": (*TWO[:4], lengths(1, 0, 2)[:10], TWO[5]),
    "lengths of more bytes than there are": (*TWO[:4], lengths(1, 0, 3), TWO[5]),
    "lengths of fewer bytes than there are": (*TWO[:4], lengths(1, 0, 1), TWO[5]),
    "lengths that wrap around": (*TWO[:4], lengths((1 << 32) - 1, 2, 2), TWO[5]),
    "a payload too large": (1, 5, 1, MAX_LENGTH + 1, b"", bytes(MAX_LENGTH + 1)),
    "a length too large": (1, 5, 2, 0, lengths(MAX_LENGTH + 1, 0), bytes(MAX_LENGTH + 1)),
    "a size beyond all bounds": (1, 5, 1, BEYOND_U64, b"", b""),
    "a size below 0": (1, 5, 1, -1, b"", b""),
    "too many messages in one run": (1, TOO_MANY, TOO_MANY, 0, b"", b""),
    "too many messages in two runs": (TWO[0], column(2, 5000, 5000), counts(TOO_MANY - 1, 1), 0, b"", b""),
    "too many runs": (column(1, 1) * TOO_MANY, column(1, 5) * TOO_MANY, counts(1) * TOO_MANY, 0, b"", b""),
    "more messages than memory holds": (TWO[0], column(8, 1 << 40, 1 << 40), counts(65535, 65535), 0, b"", b""),
    "an origin too large": (MAX_NUMBER + 1, *ONE[1:]),
    "an origin too large among others": (column(8, 1, MAX_NUMBER + 1), *TWO[1:]),
    "a number too large": (1, MAX_NUMBER + 1, *ONE[2:]),
    "a number too large among others": (TWO[0], column(8, 5, MAX_NUMBER + 1), *TWO[2:]),
    "the largest origin there is": (BEYOND_U64, *ONE[1:]),
    "the largest number there is": (1, BEYOND_U64, *ONE[2:]),
    "the largest number there is among others": (TWO[0], column(8, 5, BEYOND_U64), *TWO[2:]),
    "text for a column": ("12", *TWO[1:]),
    "text for a number": ("1", *ONE[1:]),
    "text for bytes": (*ONE[:3], 2, b"", "text"),
    "a list for a column": ([1, 2], [5, 6], [2, 1], *TWO[3:]),
    "a fraction for a number": (1, 5.0, *ONE[2:]),
    "a fraction for a size": (1, 5, 1, 0.5, b"", b""),
    "yes for a number": (True, *ONE[1:]),
    "nothing for a number": (1, None, *ONE[2:]),
    "nothing for bytes": (*ONE[:5], None),
    "a column too few": TWO[:5],
    "a column too many": (*TWO, b""),
    "nothing": (),
}


def test_sound_columns_pass() -> None:
    """Those that the hostile ones differ from in one thing, and those at the bounds."""
    sound = [
        ONE,
        (b"", b"", b"", 0, b"", b""),
        (1, 0, 1, 0, b"", b""),
        (MAX_NUMBER, MAX_NUMBER, 1, MAX_LENGTH, b"", bytes(MAX_LENGTH)),
        (1, MAX_SEGMENT_MESSAGES - 1, MAX_SEGMENT_MESSAGES, 0, b"", b""),
        (column(8, 1, MAX_NUMBER), column(8, MAX_NUMBER, 0), counts(1, 1), 0, b"", b""),
        tuple(each * MAX_SEGMENT_MESSAGES for each in (column(1, 1), column(8, 5), counts(1), 0, lengths(1), b"a")),
    ]
    for each in sound:
        batch = decode_body(on_the_wire(each))
        assert isinstance(batch, Batch)
        assert decode_body(body_of(batch)) == batch


@pytest.mark.parametrize("origins", WIDTHS)
@pytest.mark.parametrize("lasts", WIDTHS)
def test_columns_of_any_width_pass(origins: int, lasts: int) -> None:
    batch = decode_body(on_the_wire((column(origins, 1, 2), column(lasts, 5, 6), *TWO[2:])))
    assert isinstance(batch, Batch)
    check(batch.segment, [(1, 4, b"a"), (1, 5, b""), (2, 6, b"bc")])


@pytest.mark.parametrize("what", HOSTILE)
def test_columns_that_are_not_sound_are_a_malformed_frame(what: str) -> None:
    with pytest.raises(FrameError, match="malformed"):
        decode_body(on_the_wire(HOSTILE[what]))


bits = st.sampled_from([3, 8, 9, 16, 17, 32, 33, 62, 63, 64])
integers = bits.flatmap(lambda most: st.integers(0, (1 << most) - 1))
columns = st.one_of(
    st.binary(max_size=24),
    integers,
    *(
        st.lists(st.integers(0, 6) | st.integers(0, (1 << 8 * width) - 1), max_size=3).map(
            lambda numbers, width=width: column(width, *numbers)
        )
        for width in WIDTHS
    ),
)


@given(st.tuples(columns, columns, columns, st.integers(0, 3) | st.integers(0, 1 << 63), columns, columns))
@example(ONE)
@example(TWO)
def test_any_columns_end_in_a_sound_segment_or_a_malformed_frame(drawn: tuple[Any, ...]) -> None:
    try:
        batch = decode_body(on_the_wire(drawn))
    except FrameError:
        return
    assert isinstance(batch, Batch)
    check(batch.segment, list(batch.segment))


@given(segments(), st.sampled_from([0, 1, 2, 4, 5]), st.data())
def test_a_byte_changed_in_a_column_ends_in_a_sound_segment_or_a_malformed_frame(
    segment: Segment, which: int, data: st.DataObject
) -> None:
    found: list[Any] = list(msgspec.to_builtins(segment, builtin_types=(bytes,)))
    if isinstance(found[which], int):
        found[which] = data.draw(columns)
    elif found[which]:
        changed = bytearray(found[which])
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        found[which] = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    try:
        batch = decode_body(on_the_wire(tuple(found)))
    except FrameError:
        return
    assert isinstance(batch, Batch)
    messages = list(batch.segment)
    check(batch.segment, messages)
    for place in range(len(messages) + 1):
        check(batch.segment.cut(place)[1], messages[place:])


def test_only_few_runs_are_looked_at_one_by_one() -> None:
    """The bound that `test_many_runs_are_joined_as_well` goes beyond."""
    assert segment_module.FEW_RUNS < 70
