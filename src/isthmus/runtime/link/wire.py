"""The bytes of a link: the hello that opens a connection, and the frames that follow it.

    hello      ISLK | version | 0 0 0 | group | link | process | life | known | received      integers of 8 bytes
    frame      kind (1) | 0 0 0 | length of the rest (4) | number (8) | rest
    DATA       number: counts from 1 in a session; rest: one PDU in the frame of `core/codec.py`
    REPORT     rest: frames received in this session (8), bytes of data received on this connection (8), clock (8)
    PING       number: for the answer; no rest
    PONG       number: that of the ping; rest: clock (8)

Clocks are in nanoseconds, since whenever: only differences between readings of one clock mean anything.

Whatever the bytes, reading them gives PDUs of links in the order of their numbers, or one `LinkError`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, cast, get_args

from isthmus.core.codec import MAX_FRAME, VERSION, FrameError, decode_body
from isthmus.core.ids import LinkId, ProcessId
from isthmus.core.segment import MAX_CARRIED
from isthmus.core.wire.join import Block, LinkPdu

_HELLO = struct.Struct(">4sB3sQQQQQQ")
_MAGIC = b"ISLK"
_HELLO_VERSION = 1
_PADDING = bytes(3)
_MAX_NUMBER = 1 << 62

_FRAME = struct.Struct(">BxxxIQ")
_REPORT = struct.Struct(">BxxxIQQQQ")
_PONG = struct.Struct(">BxxxIQQ")
_CODEC = struct.Struct(">IB")
_LINK_PDUS = frozenset(get_args(LinkPdu))

HELLO_SIZE = _HELLO.size
HEADER_SIZE = _FRAME.size

DATA, REPORT, PING, PONG = 1, 2, 3, 4
_REST = {REPORT: _REPORT.size - HEADER_SIZE, PING: 0, PONG: _PONG.size - HEADER_SIZE}
"""How long the rest of each kind has to be; of data it differs."""


class LinkError(ValueError):
    """The other end is not who it should be, or breaks the rules of a link. Its connection is to be closed."""


class LinkHello(NamedTuple):
    """Who opens or answers a connection, for which link, and how far its session with the other end has come.

    `life` tells two processes apart even where they claim the same id. `known` is the life of the other end that the
    session is with, 0 where there is none, and `received` counts the frames that came from it.
    """

    group: int
    link: LinkId
    process: ProcessId
    life: int
    known: int
    received: int


def encode_hello(hello: LinkHello) -> bytes:
    return _HELLO.pack(_MAGIC, _HELLO_VERSION, _PADDING, *hello)


def decode_hello(data: bytes | bytearray) -> LinkHello:
    """The hello in exactly `HELLO_SIZE` bytes, or `LinkError`."""
    magic, version, padding, *numbers = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise LinkError("it does not begin with the hello of a link")
    if version != _HELLO_VERSION or padding != _PADDING:
        raise LinkError(f"version {version} of links is not understood (this is {_HELLO_VERSION})")
    hello = LinkHello(*numbers)
    if max(hello.link, hello.process, hello.received) > _MAX_NUMBER or not hello.life:
        raise LinkError("a number in its hello is out of bounds")
    return hello


def data_header(number: int, size: int) -> bytes:
    """What goes before an encoded PDU of so many bytes, so that the PDU itself need not be copied."""
    return _FRAME.pack(DATA, size, number)


def encode_report(received: int, octets: int, clock: int) -> bytes:
    return _REPORT.pack(REPORT, _REST[REPORT], 0, received, octets, clock)


def encode_ping(token: int) -> bytes:
    return _FRAME.pack(PING, 0, token)


def encode_pong(token: int, clock: int) -> bytes:
    return _PONG.pack(PONG, _REST[PONG], token, clock)


class Arrivals:
    """What the bytes of one read contained.

    `report` is the latest that came, if any: (frames, octets, clock); `pongs` are (token, clock). After a `failure`
    nothing else will ever come.
    """

    __slots__ = ("failure", "pdus", "pings", "pongs", "report")

    def __init__(self) -> None:
        self.pdus: list[LinkPdu] = []
        self.pings: list[int] = []
        self.pongs: list[tuple[int, int]] = []
        self.report: tuple[int, int, int] | None = None
        self.failure: LinkError | None = None


class LinkReader:
    """Cuts the bytes behind a hello into frames. Memory held is at most one unfinished frame.

    `received` counts data frames of the session, `octets` bytes of data frames on this connection, those of an
    unfinished one included.
    """

    __slots__ = ("_buffer", "_complete", "_failure", "_largest", "octets", "received")

    def __init__(self, received: int = 0, largest: int = MAX_FRAME) -> None:
        self.received = received
        self.octets = 0
        self._complete = 0
        self._largest = largest + _CODEC.size
        self._buffer = bytearray()
        self._failure: LinkError | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Arrivals:
        """Everything that these bytes complete. What stood before a failure is still good."""
        arrivals = Arrivals()
        arrivals.failure = self._failure
        if self._failure is not None:
            return arrivals
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        try:
            offset = self._frames(source, arrivals)
        except LinkError as error:
            # A new buffer: the traceback of the error may hold on to the old one, which then cannot be resized.
            self._failure = arrivals.failure = error
            self._buffer = bytearray()
            return arrivals
        if source is buffer:
            del buffer[:offset]
        elif offset < len(data):
            buffer += memoryview(data)[offset:]
        self.octets = self._complete
        if len(buffer) >= HEADER_SIZE and buffer[0] == DATA:
            self.octets += len(buffer)
        return arrivals

    def _frames(self, source: bytes | bytearray, arrivals: Arrivals) -> int:
        """Read all complete frames. Returns where the first incomplete one begins."""
        offset, size = 0, len(source)
        with memoryview(source) as view:
            while size - offset >= HEADER_SIZE:
                kind, length, number = _FRAME.unpack_from(source, offset)
                start = offset + HEADER_SIZE
                end = start + length
                # The header is judged before its frame is complete: nothing is gathered for a frame that will not do.
                self._judge(kind, length, number)
                if end > size:
                    break
                if kind == DATA:
                    arrivals.pdus.append(_decode_pdu(view[start:end]))
                    self.received = number
                    self._complete += HEADER_SIZE + length
                elif kind == REPORT:
                    arrivals.report = _REPORT.unpack_from(source, offset)[3:]
                elif kind == PING:
                    arrivals.pings.append(number)
                else:
                    arrivals.pongs.append(_PONG.unpack_from(source, offset)[2:])
                offset = end
        return offset

    def _judge(self, kind: int, length: int, number: int) -> None:
        if kind == DATA:
            if number != self.received + 1:
                raise LinkError(f"frame {number} came where {self.received + 1} was due")
            if not _CODEC.size < length <= self._largest:
                raise LinkError(f"a frame of {length} bytes is out of bounds ({_CODEC.size + 1} to {self._largest})")
        elif kind not in _REST:
            raise LinkError(f"there is no frame of kind {kind}")
        elif length != _REST[kind]:
            raise LinkError(f"a frame of kind {kind} has {_REST[kind]} bytes, not {length}")


def _decode_pdu(frame: memoryview) -> LinkPdu:
    length, version = _CODEC.unpack_from(frame)
    if length != len(frame) - 4:
        raise LinkError("the frame inside a data frame is not one of ours")
    if version != VERSION:
        raise LinkError(f"it speaks version {version} of the wire format, not {VERSION}: all sites need one version")
    try:
        pdu = decode_body(frame[_CODEC.size :])
    except FrameError as error:
        raise LinkError(str(error)) from None
    if type(pdu) not in _LINK_PDUS:
        raise LinkError(f"a {type(pdu).__name__} has no business on a link")
    # The system here may have to put an envelope around it yet. Most frames are too short to break this.
    if len(frame) > MAX_CARRIED and type(pdu) is Block:
        largest = pdu.segment.largest
        if largest > MAX_CARRIED:
            raise LinkError(f"a payload of {largest} bytes is larger than {MAX_CARRIED}")
    return cast(LinkPdu, pdu)
