"""The wire format: one PDU per frame, length-prefixed MessagePack, versioned, bounded.

    4 bytes   length of the rest, big-endian, at most MAX_FRAME
    1 byte    version of the format
    n bytes   the PDU as a tagged MessagePack array

Everything from a socket or a file is hostile until it has passed through here. Whatever the bytes, decoding
gives PDUs whose every field is within its bounds, or raises `FrameError` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.clusters import Hop
from isthmus.core.wire.join import Block
from isthmus.core.wire.pdu import Pdu

VERSION = 5
MAX_FRAME = 32 << 20
"""Bytes of one frame after its length. Senders split batches long before (`BatchLimits`)."""

LARGE = 8 << 10
"""Bytes of payload that are worth a buffer of their own."""

_HEADER = struct.Struct(">IB")
_ARRAY = 0x90
_BYTES_TAG = 0xC6
_BYTES = struct.Struct(">BI")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Pdu] = msgspec.msgpack.Decoder(Pdu)


class FrameError(ValueError):
    """The bytes are not a frame of ours. After it, the stream that they came from cannot be read any further."""


def encode(pdu: Pdu) -> bytes:
    """One whole frame."""
    return b"".join(buffers_of(pdu))


def buffers_of(pdu: Pdu) -> Sequence[bytes]:
    """One whole frame, to be written buffer by buffer. A multicast is encoded once and goes to every peer.

    The payloads of a large batch or block are not copied.
    """
    if isinstance(pdu, Batch) and pdu.segment.payload_bytes >= LARGE:
        before = ("batch", pdu.view, pdu.sender, pdu.number, pdu.stamp, pdu.safe)
        body = _around(before, pdu.segment)
    elif isinstance(pdu, Block) and pdu.segment.payload_bytes >= LARGE:
        body = _around(("block", pdu.epoch, pdu.first), pdu.segment, pdu.home, pdu.after)
    else:
        body = [_encoder.encode(pdu)]
    size = sum(map(len, body))
    if size >= MAX_FRAME:
        raise FrameError(f"a {type(pdu).__name__} of {size} bytes is larger than a frame may be ({MAX_FRAME})")
    body[0] = _HEADER.pack(size + 1, VERSION) + body[0]
    return body


def _around(before: tuple[object, ...], segment: Segment, *after: object) -> list[bytes]:
    """A PDU as MessagePack, around the payloads of the segment in it. Arrays this short have a header of one byte."""
    columns = segment.origins, segment.lasts, segment.counts, segment.size, segment.lengths
    head = [
        bytes((_ARRAY | len(before) + 1 + len(after),)),
        _encoder.encode(before)[1:],
        bytes((_ARRAY | len(columns) + 1,)),
        _encoder.encode(columns)[1:],
        _BYTES.pack(_BYTES_TAG, segment.payload_bytes),
    ]
    tail = [b"".join(map(_encoder.encode, after))] if after else []
    return [b"".join(head), segment.data, *tail]


def body_of(pdu: Pdu | Hop) -> bytes:
    """The PDU without the frame around it; what the ordering costs is counted in bytes of this."""
    return _encoder.encode(pdu)


def decode_body(body: bytes | memoryview) -> Pdu:
    """The PDU in the body of a frame (what follows the version byte)."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise FrameError(f"malformed PDU: {error}") from None


class FrameReader:
    """Cuts a byte stream into PDUs. One per connection; after a `FrameError` the connection is to be closed."""

    __slots__ = ("_broken", "_buffer", "_limit")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._broken = ""
        self._limit = limit

    def feed(self, data: bytes) -> list[Pdu]:
        """All PDUs completed by these bytes. Memory held is at most one unfinished frame."""
        if self._broken:
            raise FrameError(self._broken)
        buffer = self._buffer
        # Most reads start and end on a frame boundary: then the bytes are decoded where they are, uncopied.
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        pdus: list[Pdu] = []
        offset = 0
        try:
            with memoryview(source) as view:
                for start, end in self._frames(source):
                    pdus.append(decode_body(view[start:end]))
                    offset = end
        except FrameError as error:
            # A new buffer: the traceback of this error may hold on to the old one, which then cannot be resized.
            self._broken, self._buffer = str(error), bytearray()
            raise
        if source is buffer:
            del buffer[:offset]
        elif offset < len(data):
            buffer += memoryview(data)[offset:]
        return pdus

    def _frames(self, source: bytes | bytearray) -> Iterator[tuple[int, int]]:
        """Where the bodies of the complete frames start and end."""
        offset, size = 0, len(source)
        while size - offset >= _HEADER.size:
            length, version = _HEADER.unpack_from(source, offset)
            if version != VERSION:
                raise FrameError(f"version {version} of the wire format is not understood (this is {VERSION})")
            if not 2 <= length <= self._limit:
                raise FrameError(f"a frame of {length} bytes is out of bounds (2 to {self._limit})")
            end = offset + 4 + length
            if end > size:
                return
            yield offset + _HEADER.size, end
            offset = end

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame. Not 0 when a stream ends: it was cut in the middle."""
        return len(self._buffer)

    def finish(self) -> None:
        """The stream has ended. Raises where it ended inside a frame."""
        if self._buffer:
            raise FrameError(f"truncated frame: the stream ended {len(self._buffer)} bytes into it")


def decode_all(data: bytes) -> list[Pdu]:
    """All PDUs in a complete capture."""
    reader = FrameReader()
    pdus = reader.feed(data)
    reader.finish()
    return pdus
