"""The bytes of links: they survive any way of being cut into pieces, and nothing but `LinkError` comes of bad ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from link_support import block

from isthmus.core.codec import encode
from isthmus.core.segment import MAX_CARRIED
from isthmus.core.wire.join import Confirm, LinkPdu, Open, Progress, first_epoch
from isthmus.runtime.link.wire import (
    HEADER_SIZE,
    HELLO_SIZE,
    LinkError,
    LinkHello,
    LinkReader,
    data_header,
    decode_hello,
    encode_hello,
    encode_ping,
    encode_pong,
    encode_report,
)

NUMBERS = st.integers(0, 1 << 62)
PDUS: list[LinkPdu] = [block(1, 300), Progress(first_epoch(), 2), Confirm([(1, 2)]), Open(first_epoch())]


def data(number: int, pdu: LinkPdu) -> bytes:
    frame = encode(pdu)
    return data_header(number, len(frame)) + frame


@given(st.builds(LinkHello, NUMBERS, NUMBERS, NUMBERS, st.integers(1, 1 << 62), NUMBERS, NUMBERS))
def test_a_hello_says_what_it_was_made_of(hello: LinkHello) -> None:
    encoded = encode_hello(hello)
    assert len(encoded) == HELLO_SIZE == 56
    assert decode_hello(encoded) == hello


@given(st.binary(min_size=HELLO_SIZE, max_size=HELLO_SIZE))
def test_other_bytes_are_no_hello(noise: bytes) -> None:
    with pytest.raises(LinkError):
        decode_hello(noise)


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_frames_survive_any_way_of_being_cut_into_pieces(cuts: list[int]) -> None:
    stream = (
        data(6, PDUS[0])
        + encode_ping(7)
        + data(7, PDUS[1])
        + encode_report(3, 400, 11)
        + data(8, PDUS[2])
        + encode_pong(9, 12)
        + encode_report(4, 500, 13)
        + data(9, PDUS[3])
    )
    reader = LinkReader(received=5)
    pdus: list[LinkPdu] = []
    pings: list[int] = []
    pongs: list[tuple[int, int]] = []
    reports: list[tuple[int, int, int]] = []
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    for start, end in pairwise(edges):
        arrivals = reader.feed(stream[start:end])
        assert arrivals.failure is None
        pdus += arrivals.pdus
        pings += arrivals.pings
        pongs += arrivals.pongs
        reports += [arrivals.report] if arrivals.report else []
        assert reader.octets <= sum(HEADER_SIZE + len(encode(pdu)) for pdu in PDUS)
    assert (pdus, pings, pongs) == (PDUS, [7], [(9, 12)])
    assert reports[-1] == (4, 500, 13)
    assert reader.received == 9
    assert reader.pending == 0
    assert reader.octets == sum(HEADER_SIZE + len(encode(pdu)) for pdu in PDUS)


def test_bytes_of_an_unfinished_frame_are_counted() -> None:
    reader = LinkReader()
    frame = data(1, PDUS[0])
    reader.feed(frame[: HEADER_SIZE - 1])
    assert reader.octets == 0
    reader.feed(frame[HEADER_SIZE - 1 : 100])
    assert reader.octets == reader.pending == 100


@given(st.binary(max_size=300), st.booleans())
def test_noise_gives_an_error_or_nothing(noise: bytes, behind_a_frame: bool) -> None:
    reader = LinkReader()
    arrivals = reader.feed(data(1, PDUS[1]) + noise if behind_a_frame else noise)
    assert not behind_a_frame or arrivals.pdus[0] == PDUS[1]
    assert arrivals.failure is None or isinstance(arrivals.failure, LinkError)
    if arrivals.failure is not None:
        assert reader.pending == 0
        assert reader.feed(data(1, PDUS[1])).failure is arrivals.failure


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_wrong_byte_never_passes_for_another_number(position: int, value: int) -> None:
    stream = bytearray(data(1, PDUS[1]) + data(2, PDUS[3]))
    stream[position % len(stream)] = value
    arrivals = LinkReader().feed(bytes(stream))
    assert len(arrivals.pdus) <= 2
    assert arrivals.failure is None or isinstance(arrivals.failure, LinkError)


def test_a_frame_that_will_be_too_long_is_refused_by_its_header() -> None:
    reader = LinkReader(largest=1000)
    big = encode(block(1, 2000))
    arrivals = reader.feed(data_header(1, len(big)))
    assert arrivals.failure is not None
    assert "out of bounds" in str(arrivals.failure)
    assert reader.pending == 0


def test_between_systems_a_payload_leaves_room_for_the_envelope_of_the_next_system() -> None:
    """Inside a system it may have one, so that the frame as such is well formed; the next system has to add its own."""
    for size, is_fine in ((MAX_CARRIED, True), (MAX_CARRIED + 1, False)):
        arrivals = LinkReader().feed(data(1, block(1, size)))
        assert (arrivals.failure is None) is is_fine
        assert len(arrivals.pdus) == is_fine
