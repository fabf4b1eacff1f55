"""Runs: what one process sent some others back to back, as one value that nobody on the way opens."""

from __future__ import annotations

from copy import copy, deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.message import MAX_RUN_BYTES, Addressed, Clocked, Several, runs_of
from isthmus.core.segment import MAX_PAYLOAD, MAX_SEGMENT_MESSAGES

payload_lists = st.lists(st.binary(max_size=5), max_size=20)


@given(st.integers(0, 9), payload_lists)
def test_a_run_has_the_messages_that_were_sent(first: int, payloads: list[bytes]) -> None:
    runs = [Addressed(7, last, content, (1, 2)) for last, content in runs_of(first, payloads)]
    assert [message for run in runs for message in run.segment] == [
        (7, seq, payload) for seq, payload in enumerate(payloads, first)
    ]
    assert len(runs) == bool(payloads)
    for run in runs:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(run), type=Addressed)
        assert (again, again.segment, again.id) == (run, run.segment, (7, first + len(payloads) - 1))


@pytest.mark.parametrize(
    "payloads",
    [
        [b""] * (MAX_SEGMENT_MESSAGES + 1),
        [bytes(MAX_RUN_BYTES // 2 + 1)] * 3,
        [bytes(MAX_PAYLOAD), b"x", bytes(MAX_PAYLOAD)],
        [b"x", bytes(MAX_RUN_BYTES), b"y"],
    ],
)
def test_what_is_too_much_for_one_run_is_cut(payloads: list[bytes]) -> None:
    segments = [Addressed(7, last, content, (1,)).segment for last, content in runs_of(1, payloads)]
    assert len(segments) > 1
    assert [message for segment in segments for message in segment] == [
        (7, seq, payload) for seq, payload in enumerate(payloads, 1)
    ]
    assert all(segment.payload_bytes <= MAX_RUN_BYTES or segment.messages == 1 for segment in segments)


def test_a_run_of_one_message_takes_as_much_as_the_message() -> None:
    run = Clocked(7, 8, b"nine", (1, 2), 3)
    assert msgspec.msgpack.encode(run) == msgspec.msgpack.encode((7, 8, b"nine", (1, 2), 3))
    many = Clocked(7, 72, Several(64, bytes(6400)), (1, 2), 3)
    assert len(msgspec.msgpack.encode(many)) == 6400 + 12


@pytest.mark.parametrize(
    "content", [Several(2, b"abc"), Several(9, bytes(9)), Several(b"\1\0\0\0", b"ab"), Several(b"", b"")]
)
def test_what_is_no_run_is_not_made(content: Several) -> None:
    with pytest.raises(ValueError, match=r"run|payloads|lengths"):
        Addressed(7, 3, content, (1,))


def test_a_copy_is_itself() -> None:
    run = Clocked(7, 8, b"nine", (1, 2), 3)
    assert copy(run) is run
    assert deepcopy([run])[0] is run
