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

near = segments(st.integers(0, 3), st.integers(0, 9))
"""Few origins and small numbers: runs overlap, come twice, follow on each other and leave gaps."""

anything = near | segments()
lists = st.lists(
    st.tuples(st.integers(0, 3) | st.just(MAX_NUMBER), st.integers(0, 9) | st.just(MAX_NUMBER), st.binary(max_size=3)),
    max_size=10,
)
marks = st.dictionaries(st.integers(0, 4), st.integers(0, 12))
limits = st.integers(-2, 40)


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
    columns = segment.origins, segment.lasts, segment.counts, segment.lengths
    assert segment.column_bytes == sum(map(len, columns))
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


@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=10), st.data())
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


def wide(*numbers: int) -> bytes:
    return array("Q", numbers).tobytes()


def narrow(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


def on_the_wire(columns: tuple[Any, ...]) -> bytes:
    return msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, columns))


SOUND = (wide(1, 2), wide(5, 6), narrow(2, 1), 0, narrow(1, 0, 2), b"abc")
"""Messages 4 and 5 of origin 1, and 6 of origin 2."""

TOO_MANY = MAX_SEGMENT_MESSAGES + 1

HOSTILE: dict[str, tuple[Any, ...]] = {
    "an origin too few": (wide(1), *SOUND[1:]),
    "an origin too many": (wide(1, 2, 3), *SOUND[1:]),
    "a last number too few": (SOUND[0], wide(5), *SOUND[2:]),
    "a last number too many": (SOUND[0], wide(5, 6, 7), *SOUND[2:]),
    "a count too few": (*SOUND[:2], narrow(3), *SOUND[3:]),
    "a count too many": (*SOUND[:2], narrow(1, 1, 1), *SOUND[3:]),
    "counts as wide as numbers": (*SOUND[:2], wide(2, 1), *SOUND[3:]),
    "no runs, and payloads": (b"", b"", b"", 0, narrow(1), b"a"),
    "no runs, and bytes": (b"", b"", b"", 0, b"", b"a"),
    "half a number": (wide(1, 2)[:12], wide(5, 6)[:12], narrow(2, 1)[:6], *SOUND[3:]),
    "half a number of one": (wide(1)[:4], wide(5)[:4], narrow(1)[:2], 0, b"", b""),
    "one byte of each": (b"a", b"a", b"a", 0, b"", b""),
    "a run of nothing": (wide(1), wide(5), narrow(0), 0, b"", b""),
    "a run of nothing among others": (*SOUND[:2], narrow(3, 0), *SOUND[3:]),
    "only runs of nothing": (wide(1, 2), wide(5, 6), narrow(0, 0), 0, b"", b""),
    "a run before number 0": (wide(1), wide(1), narrow(3), 1, b"", b"abc"),
    "a run before number 0 among others": (SOUND[0], wide(0, 6), *SOUND[2:]),
    "bytes too few for one size": (wide(1), wide(5), narrow(2), 2, b"", b"abc"),
    "bytes too many for one size": (wide(1), wide(5), narrow(2), 2, b"", b"abcde"),
    "bytes, and a size of 0": (wide(1), wide(5), narrow(2), 0, b"", b"abcd"),
    "a size, and no bytes": (wide(1), wide(5), narrow(2), 2, b"", b""),
    "a size, and lengths as well": (*SOUND[:3], 1, *SOUND[4:]),
    "a length too few": (*SOUND[:4], narrow(1, 2), SOUND[5]),
    "a length too many": (*SOUND[:4], narrow(1, 0, 2, 0), SOUND[5]),
    "half a length": (*SOUND[:4], narrow(1, 0, 2)[:10], SOUND[5]),
    "lengths of more bytes than there are": (*SOUND[:4], narrow(1, 0, 3), SOUND[5]),
    "lengths of fewer bytes than there are": (*SOUND[:4], narrow(1, 0, 1), SOUND[5]),
    "lengths that wrap around": (*SOUND[:4], narrow((1 << 32) - 1, 2, 2), SOUND[5]),
    "a payload too large": (wide(1), wide(5), narrow(1), MAX_LENGTH + 1, b"", bytes(MAX_LENGTH + 1)),
    "a length too large": (wide(1), wide(5), narrow(2), 0, narrow(MAX_LENGTH + 1, 0), bytes(MAX_LENGTH + 1)),
    "a size beyond all bounds": (wide(1), wide(5), narrow(1), (1 << 64) - 1, b"", b""),
    "a size below 0": (wide(1), wide(5), narrow(1), -1, b"", b""),
    "too many messages in one run": (wide(1), wide(TOO_MANY), narrow(TOO_MANY), 0, b"", b""),
    "too many messages in two runs": (wide(1, 2), wide(5000, 5000), narrow(TOO_MANY - 1, 1), 0, b"", b""),
    "too many runs": (wide(1) * TOO_MANY, wide(5) * TOO_MANY, narrow(1) * TOO_MANY, 0, b"", b""),
    "more messages than a count holds": (wide(1, 2), wide(1 << 40, 1 << 40), narrow(1 << 31, 1 << 31), 0, b"", b""),
    "an origin too large": (wide(MAX_NUMBER + 1), wide(5), narrow(1), 0, b"", b""),
    "an origin too large among others": (wide(1, (1 << 64) - 1), *SOUND[1:]),
    "a number too large": (wide(1), wide(MAX_NUMBER + 1), narrow(1), 0, b"", b""),
    "a number too large among others": (SOUND[0], wide(5, (1 << 64) - 1), *SOUND[2:]),
    "the largest number there is": (wide(1), wide((1 << 64) - 1), narrow(1), 0, b"", b""),
    "text for a column": ("12345678", wide(5), narrow(1), 0, b"", b""),
    "text for bytes": (wide(1), wide(5), narrow(1), 4, b"", "text"),
    "a number for a column": (1, wide(5), narrow(1), 0, b"", b""),
    "a list for a column": ([1], [5], [1], 0, b"", b""),
    "a fraction for a size": (wide(1), wide(5), narrow(1), 0.5, b"", b""),
    "nothing for bytes": (wide(1), wide(5), narrow(1), 0, b"", None),
    "a column too few": SOUND[:5],
    "a column too many": (*SOUND, b""),
    "nothing": (),
}


def test_sound_columns_pass() -> None:
    """Those that the hostile ones differ from in one thing, and those at the bounds."""
    columns = [
        SOUND,
        (b"", b"", b"", 0, b"", b""),
        (wide(1), wide(0), narrow(1), 0, b"", b""),
        (wide(MAX_NUMBER), wide(MAX_NUMBER), narrow(1), MAX_LENGTH, b"", bytes(MAX_LENGTH)),
        (wide(1), wide(MAX_SEGMENT_MESSAGES - 1), narrow(MAX_SEGMENT_MESSAGES), 0, b"", b""),
        tuple(column * MAX_SEGMENT_MESSAGES for column in (wide(1), wide(5), narrow(1), 0, narrow(1), b"a")),
    ]
    for each in columns:
        batch = decode_body(on_the_wire(each))
        assert isinstance(batch, Batch)
        assert decode_body(body_of(batch)) == batch
    batch = decode_body(on_the_wire(SOUND))
    assert isinstance(batch, Batch)
    check(batch.segment, [(1, 4, b"a"), (1, 5, b""), (2, 6, b"bc")])


@pytest.mark.parametrize("what", HOSTILE)
def test_columns_that_are_not_sound_are_a_malformed_frame(what: str) -> None:
    with pytest.raises(FrameError, match="malformed"):
        decode_body(on_the_wire(HOSTILE[what]))


columns = st.one_of(
    st.binary(max_size=24),
    st.lists(st.integers(0, 6) | st.integers(0, (1 << 64) - 1), max_size=3).map(lambda numbers: wide(*numbers)),
    st.lists(st.integers(0, 6) | st.integers(0, (1 << 32) - 1), max_size=3).map(lambda numbers: narrow(*numbers)),
)


@given(st.tuples(columns, columns, columns, st.integers(0, 3) | st.integers(0, 1 << 63), columns, columns))
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
    if found[which]:
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
