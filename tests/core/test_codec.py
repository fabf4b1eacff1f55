"""The wire format: what goes in comes out, and whatever else comes in ends in a `FrameError` and nothing else."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pdu_strategies import KINDS, pdus

from isthmus.core.codec import MAX_FRAME, VERSION, FrameError, FrameReader, body_of, decode_all, decode_body, encode
from isthmus.core.message import MAX_MEMBERS, Batch
from isthmus.core.segment import MAX_ENVELOPE, MAX_PAYLOAD, MAX_SEGMENT_MESSAGES, Segment
from isthmus.core.wire.group import Ack, JoinRequest, Status
from isthmus.core.wire.pdu import Pdu

MAX_NUMBER = 1 << 62
BATCH = Batch(1, 2, 3, [4, 5], 6, Segment.of(7, 8, [b"nine"]))

TOO_LONG = MAX_PAYLOAD + MAX_ENVELOPE + 1
NO_MESSAGES = (b"", b"", b"", 0, b"", b"")


def one_run(messages: int, size: int = 0) -> tuple[int, int, int, int, bytes, bytes]:
    """A segment as it stands on the wire: these messages of origin 1, right or wrong."""
    return 1, messages + 1, messages, size, b"", bytes(messages * size)


def frame(body: bytes, version: int = VERSION, length: int | None = None) -> bytes:
    """A frame made by hand, right or wrong."""
    return (len(body) + 1 if length is None else length).to_bytes(4, "big") + bytes((version,)) + body


def decode_or_refuse(data: bytes) -> list[Pdu] | None:
    """What a hostile stream comes to. Anything but PDUs or `FrameError` fails the test that asks."""
    try:
        return decode_all(data)
    except FrameError:
        return None


# Round trips


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_pdu_survives_the_wire(kind: type) -> None:
    @given(KINDS[kind])
    def survives(pdu: Pdu) -> None:
        (decoded,) = decode_all(encode(pdu))
        assert type(decoded) is kind
        assert decoded == pdu

    survives()


@given(st.lists(pdus, max_size=6))
def test_a_stream_of_frames_gives_the_same_pdus_in_order(sent: list[Pdu]) -> None:
    assert decode_all(b"".join(map(encode, sent))) == sent


@given(st.lists(pdus, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_the_borders_of_chunks_do_not_matter(sent: list[Pdu], sizes: list[int]) -> None:
    data = b"".join(map(encode, sent))
    reader = FrameReader()
    received: list[Pdu] = []
    offset = turn = 0
    while offset < len(data):
        size = sizes[turn % len(sizes)]
        received += reader.feed(data[offset : offset + size])
        offset, turn = offset + size, turn + 1
    reader.finish()
    assert received == sent
    assert reader.pending == 0


def test_a_frame_says_its_length_and_version_first() -> None:
    data = encode(BATCH)
    assert data == frame(body_of(BATCH))
    assert data[4] == VERSION


def test_the_largest_values_pass() -> None:
    largest = Segment.of(MAX_NUMBER, MAX_NUMBER, [bytes(MAX_PAYLOAD + MAX_ENVELOPE)])
    batch = Batch(MAX_NUMBER, MAX_NUMBER, MAX_NUMBER, [MAX_NUMBER] * (2 * MAX_MEMBERS), MAX_NUMBER, largest)
    assert decode_all(encode(batch)) == [batch]
    many = Batch(1, 2, 3, [], 4, Segment.of(1, 0, [b""] * MAX_SEGMENT_MESSAGES))
    assert decode_all(encode(many)) == [many]
    runs = [(origin, MAX_NUMBER, bytes(origin % 2)) for origin in range(MAX_SEGMENT_MESSAGES)]
    scattered = Batch(1, 2, 3, [], 4, Segment.pack(runs))
    assert decode_all(encode(scattered)) == [scattered]


def test_what_does_not_fit_a_frame_is_not_encoded() -> None:
    payload = bytes(MAX_PAYLOAD)
    batch = Batch(1, 2, 3, [], 4, Segment.of(1, 0, [payload] * (MAX_FRAME // MAX_PAYLOAD)))
    with pytest.raises(FrameError, match="larger than a frame"):
        encode(batch)


# Bounds of fields


@pytest.mark.parametrize(
    "body",
    [
        msgspec.msgpack.encode(("ack", -1, 0, 0)),
        msgspec.msgpack.encode(("ack", MAX_NUMBER + 1, 0, 0)),
        msgspec.msgpack.encode(("ack", 1, 2)),
        msgspec.msgpack.encode(("ack", 1, 2, 3, 4, 5)),
        msgspec.msgpack.encode(("ack", 1.5, 2, 3)),
        msgspec.msgpack.encode(("ack", "1", 2, 3)),
        msgspec.msgpack.encode(("nonsense", 1)),
        msgspec.msgpack.encode({"type": "ack", "view": 1, "received": 2, "seen": 3}),
        msgspec.msgpack.encode(("join", None)),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [0] * (2 * MAX_MEMBERS + 1), 0, NO_MESSAGES)),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, one_run(MAX_SEGMENT_MESSAGES + 1))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, one_run(1, MAX_PAYLOAD + MAX_ENVELOPE + 1))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (*one_run(1, 4)[:5], "text"))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, [(1, 1, b"")])),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, [])),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, NO_MESSAGES[:5])),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (*NO_MESSAGES, b""))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, None)),
        msgspec.msgpack.encode(("status", 1, 2, 3, [], [(1, 2)] * (MAX_MEMBERS + 1), [], 0)),
        msgspec.msgpack.encode(("status", 1, 2, 3, [], [(1, 2, 3)], [], 0)),
        msgspec.msgpack.encode(("install", 1, ("proposal", [1] * (MAX_MEMBERS + 1), [], []))),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (1, 2, (2, b"abc"), (0,)))])),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (1, 2, (4, b"abcd"), (0,)))])),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (1, 2, (b"\1\0\0\0\1", b"ab"), (0,)))])),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (1, 2, (b"\1\0\0\0\2\0\0\0", b"ab"), (0,)))])),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (1, 2, (2, bytes(2 * TOO_LONG)), (0,)))])),
        msgspec.msgpack.encode(("hops", 1, [(0, 1, [], (MAX_NUMBER + 1, 2, b"", (0,)))])),
        body_of(BATCH) + b"\x00",
        b"\xc1",
    ],
)
def test_a_field_out_of_bounds_is_a_malformed_frame(body: bytes) -> None:
    with pytest.raises(FrameError, match="malformed"):
        decode_all(frame(body))


# Hostile bytes


@given(st.binary(max_size=200))
def test_arbitrary_bytes_end_in_pdus_or_a_frame_error(data: bytes) -> None:
    decode_or_refuse(data)


@given(st.binary(max_size=100))
def test_arbitrary_bodies_end_in_a_pdu_or_a_frame_error(body: bytes) -> None:
    try:
        decode_body(body)
    except FrameError:
        return


@given(pdus, st.data())
def test_a_mutated_frame_ends_in_pdus_or_a_frame_error(pdu: Pdu, data: st.DataObject) -> None:
    mutated = bytearray(encode(pdu))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(mutated) - 1))
        mutated[position] = data.draw(st.integers(0, 255))
    decoded = decode_or_refuse(bytes(mutated))
    # Whatever got through is a PDU within all bounds: it can be sent on.
    assert decoded is None or decode_all(b"".join(map(encode, decoded))) == decoded


@given(pdus, st.data())
def test_a_stream_cut_inside_a_frame_is_told_from_a_whole_one(pdu: Pdu, data: st.DataObject) -> None:
    whole = encode(pdu)
    reader = FrameReader()
    cut = data.draw(st.integers(1, len(whole) - 1))
    assert reader.feed(whole[:cut]) == []
    assert reader.pending == cut
    with pytest.raises(FrameError, match="truncated"):
        reader.finish()


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, 255])
def test_another_version_is_refused_before_its_body_is_read(version: int) -> None:
    with pytest.raises(FrameError, match=f"version {version} "):
        FrameReader().feed(frame(b"whatever", version, length=MAX_FRAME)[:5])


@pytest.mark.parametrize("length", [0, 1, MAX_FRAME + 1, 2**32 - 1])
def test_a_declared_length_out_of_bounds_is_refused_from_the_header(length: int) -> None:
    with pytest.raises(FrameError, match="out of bounds"):
        FrameReader().feed(frame(b"", length=length))


def test_frames_before_a_bad_one_do_not_hide_it() -> None:
    with pytest.raises(FrameError):
        decode_all(encode(BATCH) + frame(b"\xc1") + encode(BATCH))


def test_a_reader_that_met_a_bad_frame_reads_no_further() -> None:
    reader = FrameReader()
    good = encode(JoinRequest(1))
    reader.feed(good[:3])
    with pytest.raises(FrameError, match="malformed") as first:
        reader.feed(good[3:] + frame(b"\xc1") + good)
    # The first error is still alive, as it is while somebody logs it.
    for data in (good, b"", b"\x00"):
        with pytest.raises(FrameError):
            reader.feed(data)
    assert reader.pending == 0
    assert first.value is not None


# Memory


def peak_of_refusing(data: bytes) -> int:
    """The most memory, beyond the bytes themselves, that it takes to find out that they are not ours."""
    tracemalloc.start()
    try:
        assert decode_or_refuse(data) is None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


ENDLESS_ARRAY = b"\xdd\xff\xff\xff\xff"
ENDLESS_BYTES = b"\xc6\xff\xff\xff\xff"
ENDLESS_MAP = b"\xdf\xff\xff\xff\xff"


@pytest.mark.parametrize(
    "body",
    [
        ENDLESS_ARRAY,
        ENDLESS_ARRAY + b"\xa5batch",
        ENDLESS_BYTES,
        ENDLESS_MAP,
        b"\x97\xa5batch\x01\x01\x01" + ENDLESS_ARRAY,
        b"\x97\xa5batch\x01\x01\x01" + ENDLESS_MAP,
        b"\x97\xa5batch\x01\x01\x01\x90\x00" + ENDLESS_ARRAY,
        b"\x97\xa5batch\x01\x01\x01\x90\x00\x96" + ENDLESS_BYTES,
        b"\x97\xa5batch\x01\x01\x01\x90\x00\x96\xc4\x00\xc4\x00" + ENDLESS_BYTES,
        b"\x97\xa5batch\x01\x01\x01\x90\x00\x96\xc4\x00\xc4\x00\xc4\x00\x00" + ENDLESS_BYTES,
        b"\x97\xa5batch\x01\x01\x01\x90\x00\x96\xc4\x00\xc4\x00\xc4\x00\x00\xc4\x00" + ENDLESS_BYTES,
        b"\x97\xa5batch\x01\x01\x01\x90\x00\x96" + ENDLESS_ARRAY,
        # Columns that would say of more messages than memory holds: nobody makes objects of them.
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (0, MAX_NUMBER, MAX_NUMBER, 0, b"", b""))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (0, MAX_NUMBER, MAX_SEGMENT_MESSAGES + 1, 0, b"", b""))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (bytes(80), b"\x00\x3f" * 40, b"\xff" * 20, 0, b"", b""))),
        msgspec.msgpack.encode(("batch", 1, 2, 3, [], 0, (0, 1, 1, 1 << 20, b"", b""))),
        b"\x98\xa6status\x01\x01\x01\x90" + ENDLESS_ARRAY,
        b"\x98\xa6status\x01\x01\x01\x90\x91" + ENDLESS_ARRAY,
        b"\x93\xa7install\x01\x94\xa8proposal" + ENDLESS_ARRAY,
    ],
)
def test_a_declared_size_is_not_believed(body: bytes) -> None:
    assert peak_of_refusing(frame(body)) < 20_000


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x00", b"\x97\xa5batch", b"\x93\xa7install\x01\x94\xa8proposal"])
def test_deep_nesting_is_refused_and_costs_nothing(opening: bytes) -> None:
    data = frame(opening * 50_000)
    assert peak_of_refusing(data) < len(data) + 20_000


def test_a_reader_holds_no_more_than_one_unfinished_frame() -> None:
    reader = FrameReader(limit=100)
    good = encode(Ack(1, 2, 3))
    for _ in range(1000):
        reader.feed(good + good[:7])
        assert reader.pending == 7
        reader.feed(good[7:])
        assert reader.pending == 0
    with pytest.raises(FrameError, match="out of bounds"):
        reader.feed(frame(bytes(100)))


def test_payloads_do_not_keep_the_bytes_that_they_came_in_alive() -> None:
    several = Batch(1, 2, 3, [4, 5], 6, Segment.pack([(7, 8, b"nine"), (10, 11, b"twelve")]))
    (batch,) = FrameReader().feed(encode(several))
    assert isinstance(batch, Batch)
    assert type(batch.segment.data) is bytes
    assert all(type(column) is bytes for column in (batch.segment.origins, batch.segment.lasts, batch.segment.counts))
    assert type(batch.segment.lengths) is bytes
    assert [type(payload) for _, _, payload in batch.segment] == [bytes, bytes]


def test_an_unfinished_status_is_not_mistaken_for_another_kind() -> None:
    status = Status(1, 2, 3, [4], [(5, 6)], [7], 8)
    for other in ("ack", "safe", "busy", "accept"):
        body = msgspec.msgpack.encode((other, *msgspec.to_builtins(status)[1:]))
        assert decode_or_refuse(frame(body)) is None
