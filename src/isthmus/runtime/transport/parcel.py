"""What travels on a broadcast medium: a PDU, and whom it is from and for (docs/design/to-po.md, "For real").

    4 bytes   length of the rest, big-endian, at most MAX_PARCEL
    8 bytes   process id of the sender
    2 bytes   how many destinations
    8 bytes   process id of each destination
    n bytes   one frame (`core/codec.py`); without destinations it is a hail: one byte, ? or !

Everybody on the medium gets every parcel and takes what is for it. What comes off the medium is hostile until it has
passed through here: whatever the bytes, there come parcels within their bounds, or `FrameError` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus.core.codec import MAX_FRAME, FrameError, decode_all
from isthmus.core.ids import ProcessId
from isthmus.core.message import MAX_MEMBERS
from isthmus.core.wire.pdu import Pdu

_HEADER = struct.Struct(">IQH")
_LENGTH = 4
MAX_PARCEL = MAX_FRAME + _HEADER.size + 8 * MAX_MEMBERS

HAIL = b"?"
"""The body of a hail that asks who is there."""
HERE = b"!"
"""The body of the answer to a hail."""


class MediumParcel(NamedTuple):
    """A PDU on the medium, from whom and for whom. `body` is not decoded yet: not everybody who gets it needs it."""

    source: ProcessId
    destinations: tuple[ProcessId, ...]
    body: bytes

    def pdu(self) -> Pdu:
        pdus = decode_all(self.body)
        if len(pdus) != 1:
            raise FrameError(f"a parcel with {len(pdus)} PDUs in it")
        return pdus[0]


def pack(source: ProcessId, destinations: Sequence[ProcessId], body: bytes) -> bytes:
    count = len(destinations)
    length = _HEADER.size - _LENGTH + 8 * count + len(body)
    return _HEADER.pack(length, source, count) + struct.pack(f">{count}Q", *destinations) + body


def unpack(data: bytes) -> Iterator[MediumParcel]:
    """The parcels in bytes that hold whole ones and nothing else."""
    offset, size = 0, len(data)
    while offset < size:
        end = _end_of(data, offset, size)
        if end > size:
            raise FrameError(f"truncated parcel: {size - offset} bytes are there, it has {end - offset}")
        _, source, count = _HEADER.unpack_from(data, offset)
        body = offset + _HEADER.size + 8 * count
        if count > MAX_MEMBERS or body >= end:
            raise FrameError(f"a parcel of {end - offset} bytes with {count} destinations")
        yield MediumParcel(source, struct.unpack_from(f">{count}Q", data, offset + _HEADER.size), data[body:end])
        offset = end


def _end_of(data: bytes | bytearray, offset: int, size: int) -> int:
    """Where the parcel at `offset` ends, be it behind what is there."""
    if size - offset < _HEADER.size:
        return offset + _HEADER.size + 1
    length = _HEADER.unpack_from(data, offset)[0]
    if not _HEADER.size - _LENGTH < length <= MAX_PARCEL:
        raise FrameError(f"a parcel of {length} bytes is out of bounds ({_HEADER.size - _LENGTH + 1} to {MAX_PARCEL})")
    return offset + _LENGTH + int(length)


class ParcelReader:
    """Cuts a byte stream behind whole parcels. One per connection; after a `FrameError` it is to be closed."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        """All parcels completed by these bytes, in one piece. Memory held is at most one unfinished parcel."""
        buffer = self._buffer
        if buffer:
            buffer += data
            source: bytes | bytearray = buffer
        else:
            source = data
        offset, size = 0, len(source)
        while offset < size and (end := _end_of(source, offset, size)) <= size:
            offset = end
        if source is buffer:
            whole = bytes(memoryview(buffer)[:offset])
            del buffer[:offset]
            return whole
        if offset == size:
            return data
        buffer += memoryview(data)[offset:]
        return data[:offset]

    @property
    def pending(self) -> int:
        return len(self._buffer)


def sources(data: bytes) -> set[ProcessId]:
    """Who the senders of whole parcels say that they are, without a look inside."""
    found: set[ProcessId] = set()
    offset, size = 0, len(data)
    while offset < size:
        length, source, _ = _HEADER.unpack_from(data, offset)
        found.add(source)
        offset += _LENGTH + int(length)
    return found
