"""One TCP or TLS connection of a link: hello first, then frames, reports of what arrived, pings.

A connection does not know which link it is for until the other end has said so; `welcome` decides, and gives it a
user. What it reports and answers needs no decision of the link, so it does that by itself, and ahead of data that
still waits in the session: the transport is given only little data at a time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import NamedTuple, Protocol, TypeAlias, cast

from isthmus.core.codec import MAX_FRAME
from isthmus.runtime.link.wire import (
    HELLO_SIZE,
    Arrivals,
    LinkError,
    LinkHello,
    LinkReader,
    decode_hello,
    encode_hello,
    encode_ping,
    encode_pong,
    encode_report,
)
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.tls import reason_of

log = logging.getLogger(__name__)

LONGEST_REASON = 200
"""Characters of a reason that go into a log."""
_REPORT_BYTES = 16 << 10
_REPORT_AFTER = 0.005
_REPORT_PART_AFTER = 0.025
"""What arrived is reported at once when it is that many bytes, else after that many seconds. Parts of frames, which
trickle in on slow lines, may wait longer: reports every 5 ms would be 6 % of the way back at 1 Mbit/s."""
_UNSENT = 16 << 10
"""Bytes beyond what TCP has under way that the kernel takes. What waits in user space can be overtaken by a ping."""
_MOST_PONGS = 64
"""Answers that wait for an end that asks more than it reads. The oldest are not given."""
_LAST_DATA_RECEIVED = struct.Struct("=I")
_LAST_DATA_RECEIVED_AT = 52
"""Where `tcpi_last_data_recv` stands in Linux's `struct tcp_info`: milliseconds."""


class LinkLimits(NamedTuple):
    """Bounds of links. Times are in seconds."""

    dead_after: float = 2.0
    """Silence after which a link is down."""
    connect: float = 5.0
    """Time for a connection to be made, secured and answered with a hello."""
    first_pause: float = 0.02
    longest_pause: float = 1.0
    """The longest pause between two attempts to dial."""
    strangers: int = 64
    """Callers that may be connected without having said who they are."""
    keep: int = 64 << 20
    """Bytes kept for a far end that has not acknowledged them."""
    largest_frame: int = MAX_FRAME
    write_buffer: int = 64 << 10
    """Bytes given to the transport before it has written them."""


DEFAULT_LINK_LIMITS = LinkLimits()


class ConnectionUser(Protocol):
    """The link that a connection turned out to be for. One that has been replaced is told nothing more."""

    def arrived(self, connection: LinkConnection, arrivals: Arrivals) -> None: ...

    def writable(self, connection: LinkConnection) -> None: ...

    def lost(self, connection: LinkConnection, reason: str) -> None: ...


Welcome: TypeAlias = "Callable[[LinkConnection, LinkHello], ConnectionUser]"
"""Takes the hello of the other end; starts the connection, or raises `LinkError`."""


class LinkConnection(asyncio.Protocol):
    """One connection, from its hello to its end. `label` is what logs call our end."""

    transport: asyncio.Transport

    def __init__(self, label: str, limits: LinkLimits, welcome: Welcome) -> None:
        self.loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.introduced: asyncio.Future[None] = self.loop.create_future()
        """Done when the other end is known and welcome; fails when it is not."""
        self.introduced.add_done_callback(_look)
        self.where = "?"
        self.paused = False
        self.bytes_in = 0
        self.bytes_out = 0
        self._label = label
        self._limits = limits
        self._welcome = welcome
        self._user: ConnectionUser | None = None
        self._reader = LinkReader()
        self._hello = bytearray()
        self._reported = 0
        self._report_timer: asyncio.TimerHandle | None = None
        self._pongs: deque[bytes] = deque(maxlen=_MOST_PONGS)
        self._aborted = False

    # Opening.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.where = where_is(transport.get_extra_info("peername"))
        if self._aborted:
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(self._limits.write_buffer, self._limits.write_buffer // 2)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            connection: socket.socket = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)

    def peer_certificate(self) -> dict[str, object] | None:
        """What TLS has found out about the other end."""
        return cast("dict[str, object] | None", self.transport.get_extra_info("peercert"))

    def say_hello(self, hello: LinkHello) -> None:
        self.say(encode_hello(hello))

    def start(self, received: int, answer: LinkHello | None) -> None:
        """Frames follow, of which `received` came on earlier connections. `answer` is said before ours."""
        self._reader = LinkReader(received, self._limits.largest_frame)
        if answer is not None:
            self.say_hello(answer)

    # Receiving.

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        if self._aborted:
            return
        user = self._user
        if user is None:
            self._introduce(data)
            return
        arrivals = self._reader.feed(data)
        if arrivals.pings:
            now = monotonic_ns()
            self._pongs.extend([encode_pong(token, now) for token in arrivals.pings])
            self._answer()
        try:
            user.arrived(self, arrivals)
        except LinkError as error:
            arrivals.failure = error
        if arrivals.failure is not None:
            self.refuse(str(arrivals.failure))
        elif self._reader.octets != self._reported:
            self._report_soon(_REPORT_AFTER if arrivals.pdus else _REPORT_PART_AFTER)

    def _introduce(self, data: bytes) -> None:
        """Take the hello off the stream. What follows it belongs to a link, if it is a good one."""
        hello = self._hello
        missing = HELLO_SIZE - len(hello)
        hello += data[:missing]
        if len(hello) < HELLO_SIZE:
            return
        try:
            self._user = self._welcome(self, decode_hello(hello))
        except LinkError as error:
            self.refuse(str(error))
            return
        if not self.introduced.done():
            self.introduced.set_result(None)
        if len(data) > missing:
            self.bytes_in -= len(data) - missing
            self.data_received(data[missing:])

    def _report_soon(self, seconds: float) -> None:
        if self._reader.octets - self._reported >= _REPORT_BYTES:
            self._report()
        elif self._report_timer is None:
            self._report_timer = self.loop.call_later(seconds, self._report)

    def _answer(self) -> None:
        """Answer pings, unless the other end does not read what it has been sent already: see `resume_writing`."""
        if not self.paused:
            while self._pongs:
                self.say(self._pongs.popleft())

    def _report(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        if self.paused:
            return
        self._reported = self._reader.octets
        self.say(encode_report(self._reader.received, self._reader.octets, monotonic_ns()))

    def still_hears(self, seconds: float) -> bool:
        """Whether bytes came in within that time that are not ours to see yet: TLS hands up whole records only."""
        connection = self.transport.get_extra_info("socket")
        if not hasattr(socket, "TCP_INFO") or self.transport.is_closing() or connection is None:
            return False
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        except OSError:
            return False
        milliseconds: int = _LAST_DATA_RECEIVED.unpack_from(info, _LAST_DATA_RECEIVED_AT)[0]
        return milliseconds < seconds * 1000

    # Sending.

    def say(self, frame: bytes) -> None:
        """Write a few bytes, ahead of all data that has not been given to the transport."""
        if not self.transport.is_closing():
            self.bytes_out += len(frame)
            self.transport.write(frame)

    def ping(self, token: int) -> None:
        self.say(encode_ping(token))

    def write(self, buffers: list[bytes], size: int) -> None:
        if not self.transport.is_closing():
            self.bytes_out += size
            self.transport.writelines(buffers)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        """There is room again. What was held back meanwhile goes first; later it would not have arrived earlier."""
        self.paused = False
        self._answer()
        if self._reader.octets != self._reported:
            self._report()
        if self._user is not None:
            self._user.writable(self)

    # Closing.

    def refuse(self, reason: str) -> None:
        """Hang up on an end that breaks the rules. Whoever waits for it to be introduced says why; else we do."""
        if not self.introduced.done():
            self.introduced.set_exception(LinkError(reason))
        elif not self._aborted:
            log.warning("%s closed the connection with %s: %s", self._label, self.where, reason[:LONGEST_REASON])
        self.abort()

    def close(self) -> None:
        """Write out what the transport has, then hang up."""
        self.transport.close()

    def abort(self) -> None:
        """Cut it off, at once or as soon as it is made."""
        self._aborted = True
        if self._report_timer is not None:
            self._report_timer.cancel()
        if hasattr(self, "transport"):
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._aborted = True
        if self._report_timer is not None:
            self._report_timer.cancel()
        reason = reason_of(error) if error else "it hung up"
        if not self.introduced.done():
            self.introduced.set_exception(LinkError(f"{reason} before it had said who it is"))
        if not self.gone.done():
            self.gone.set_result(None)
        if self._user is not None:
            self._user.lost(self, reason)


def where_is(peername: tuple[str, int] | None) -> str:
    return str(Address(*peername[:2])) if peername else "?"


def _look(introduced: asyncio.Future[None]) -> None:
    """Look at a future's failure, so that asyncio does not complain when nobody waits for it any more."""
    if not introduced.cancelled():
        introduced.exception()
