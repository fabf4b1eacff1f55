"""One connection through an emulated line: two sockets, and a `Line` in each direction between them.

A socket is read only as far as its line has room, so the sender's own TCP feels a narrow or blocked line. What has
arrived is written as fast as the receiver takes it; what it does not take still counts as held by the line. Ends of
streams and resets travel behind the last byte, like everything else.

There is one timer per direction, not per chunk, and it waits for whole milliseconds, rounded up: libuv has no finer
ones. So nothing is early, and what is late on an idle machine is so by less than a millisecond.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import cast

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.runtime.transport.address import Address
from isthmus.runtime.wan.line import SEGMENT, Conditions, Ending, Line

log = logging.getLogger(__name__)

READ = 256 << 10
"""Bytes that are read at once."""
_BATCH = 1 << 20
"""Bytes that are written at once."""
_BREATH = 16 << 10
"""Reading goes on when there is room for this much, or a quarter of the capacity: not for single bytes."""
_KERNEL_BUFFER = 128 << 10
"""Of each socket, each way. The kernel's own choice is megabytes, which are seconds of a narrow line."""


class DirectionStatistics(Struct, frozen=True):
    """Bytes. `held` is what waits, is under way or is not taken by the receiver; `capacity` is the most it can be."""

    arrived: int
    held: int
    peak_held: int
    capacity: int


class ConnectionStatistics(Struct, frozen=True):
    """One connection; `there` is from the caller to the target."""

    caller: str
    open: bool
    there: DirectionStatistics
    back: DirectionStatistics


class Relay:
    """A caller, the target, and the two directions between them."""

    def __init__(
        self,
        accepted: socket.socket,
        caller: Address,
        target: Address,
        lines: tuple[Line, Line],
        read_buffer: memoryview,
        on_gone: Callable[[Relay], None],
    ) -> None:
        self._where = caller
        self._target_address = target
        self._on_gone = on_gone
        self._caller, self._target = _End(self, read_buffer), _End(self, read_buffer)
        there, back = lines
        self.directions = (
            Direction(there, self._caller, self._target, self._direction_closed),
            Direction(back, self._target, self._caller, self._direction_closed),
        )
        self._caller.outgoing, self._caller.incoming = self.directions
        self._target.incoming, self._target.outgoing = self.directions
        loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = loop.create_future()
        _reset_on_close(accepted, True)  # Until it is carried.
        self._opening = loop.create_task(self._open(loop, accepted))
        self._opening.add_done_callback(lambda _: self._opened(accepted))

    async def _open(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
        """Dial the target. What the caller says meanwhile is already on its way."""
        try:
            await loop.connect_accepted_socket(lambda: self._caller, accepted)
            dialled = await _dial(loop, self._target_address)
            await loop.create_connection(lambda: self._target, sock=dialled)
        except (OSError, UnicodeError, OverflowError) as error:
            number = getattr(error, "errno", None) or 0
            reason = os.strerror(number) if number > 0 else str(error)
            log.warning("no connection to %s for %s: %s", self._target_address, self._where, reason)
            self._caller.reset()

    def _opened(self, accepted: socket.socket) -> None:
        """Whichever end is not connected by now never will be, and is not told if it was cancelled."""
        if self._caller.transport is None:
            accepted.close()
        for end in (self._caller, self._target):
            if end.transport is None or self._opening.cancelled():
                end.connection_lost(None)

    def reset(self) -> None:
        """Cut both ends off, now."""
        self._opening.cancel()
        for end in (self._caller, self._target):
            end.reset()

    def _direction_closed(self) -> None:
        """When both streams have ended, and the ends have arrived, the connection is over."""
        if all(direction.closed for direction in self.directions):
            for end in (self._caller, self._target):
                end.close()

    def end_lost(self) -> None:
        if self._caller.lost and self._target.lost and not self.gone.done():
            self.gone.set_result(None)
            self._on_gone(self)

    def statistics(self) -> ConnectionStatistics:
        there, back = (direction.statistics() for direction in self.directions)
        return ConnectionStatistics(str(self._where), not self.gone.done(), there, back)


def tune(connection: socket.socket) -> None:
    """Make a socket, before it is connected, behave like one on a WAN and not like one on loopback.

    Loopback has segments of 64 KiB, and kernels that see those keep megabytes for each connection: 2.8 MiB waited
    before a line of 20 Mbit/s, 1.3 MiB with this.
    """
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _KERNEL_BUFFER)
    # What has arrived must not wait for an acknowledgement of what arrived before.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
    except OSError:
        pass  # Not all systems let one choose.


async def _dial(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """A connection to the first address of this name that takes one."""
    problem = OSError("no address found")
    for family, _, _, _, where in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        dialled = socket.socket(family, socket.SOCK_STREAM)
        try:
            dialled.setblocking(False)
            tune(dialled)
            _reset_on_close(dialled, True)  # Until it carries.
            await loop.sock_connect(dialled, where)
        except OSError as error:
            dialled.close()
            problem = error
        except BaseException:
            dialled.close()
            raise
        else:
            return dialled
    raise problem


def _reset_on_close(connection: socket.socket, reset: bool) -> None:
    """Whether the peer gets a reset when this socket is closed, and not an end of the stream."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))


class _End(asyncio.BufferedProtocol):
    """The socket at one end: what it says goes out on one line, what it hears comes in on the other.

    It reads into a buffer no larger than the room that is left, so a line never holds more than its capacity.
    """

    incoming: Direction
    outgoing: Direction

    def __init__(self, relay: Relay, read_buffer: memoryview) -> None:
        self._relay = relay
        self._read_buffer = read_buffer
        self._let_go = False
        self.transport: asyncio.Transport | None = None
        self.full = True
        """Whether writing has to wait: until it is connected, and while it does not take what it was given."""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._let_go or self.lost:
            self.reset()
            return
        _reset_on_close(transport.get_extra_info("socket"), False)
        # Whatever the kernel does not take is held by the line, and we have to hear as soon as it is gone.
        self.transport.set_write_buffer_limits(high=0)
        self.full = False
        self.outgoing.wake()
        self.incoming.wake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer[: self.outgoing.room()]

    def buffer_updated(self, size: int) -> None:
        self.outgoing.put(bytes(self._read_buffer[:size]))

    def eof_received(self) -> bool:
        self.outgoing.end(Ending.CLOSE)
        return True

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = self._let_go
        self.incoming.wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = self.full = True
        self.incoming.stop()
        if not self._let_go:
            # It went by itself: the other end hears of it in its turn.
            self.outgoing.end(Ending.RESET)
        self._relay.end_lost()

    def close(self) -> None:
        self._let_go = True
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Cut it off, at once or as soon as it is made. The peer gets a reset, not an end of the stream."""
        self._let_go = self.full = True
        if self.transport is not None and not self.transport.is_closing():
            _reset_on_close(self.transport.get_extra_info("socket"), True)
        if self.transport is not None:
            self.transport.abort()


class Direction:
    """Moves bytes from `source` onto the line, and from the line to `sink` when they have arrived."""

    def __init__(self, line: Line, source: _End, sink: _End, on_closed: Callable[[], None]) -> None:
        self._line = line
        self._source = source
        self._sink = sink
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = 0
        self._reading = True
        self._source_ended = False
        self._stopped = False
        self._arrived = 0
        self._peak_held = 0
        self.closed = False
        """Whether the end of the stream has reached the sink."""

    # What the source does.

    def room(self) -> int:
        """How many bytes may be read now. Reading is off when there is no room, so there is always some."""
        return max(1, min(READ, self._line.capacity - self._held()))

    def put(self, data: bytes) -> None:
        if self._stopped:
            return
        self._line.put(data, time.monotonic_ns())
        self._peak_held = max(self._peak_held, self._held())
        self.wake()

    def end(self, ending: Ending) -> None:
        self._source_ended = True
        if not self._stopped:
            self._line.end(ending, time.monotonic_ns())
            self.wake()

    # What others do to the line.

    def set(self, conditions: Conditions) -> None:
        self._line.set(conditions, time.monotonic_ns())
        self.wake()

    def cut(self) -> None:
        self._line.cut = True
        self.wake()

    def mend(self) -> None:
        self._line.mend(time.monotonic_ns())
        self.wake()

    def stop(self) -> None:
        """The sink is gone. The source is not read any more; it will be told in the other direction."""
        self._stopped = True
        self._line.clear()
        self.wake()

    # What happens then.

    def wake(self) -> None:
        """Write what has arrived, read if there is room, and see to it that this is called again in time."""
        now = time.monotonic_ns()
        line, sink = self._line, self._sink
        line.advance(now)
        while not sink.full and (pieces := line.take(now, _BATCH)):
            self._arrived += sum(map(len, pieces))
            assert sink.transport is not None
            sink.transport.writelines(pieces)
        if not sink.full and (ending := line.take_ending(now)):
            self._deliver(ending)
        self._read_or_wait()
        self._set_timer(now)

    def _deliver(self, ending: Ending) -> None:
        if ending is Ending.RESET:
            self._sink.reset()
        elif self._sink.transport is not None and not self._sink.transport.is_closing():
            self._sink.transport.write_eof()
            self.closed = True
            self._on_closed()

    def _read_or_wait(self) -> None:
        transport = self._source.transport
        if transport is None or self._source_ended or transport.is_closing():
            return
        line = self._line
        room = 0 if self._stopped or line.cut or line.crowded else line.capacity - self._held()
        if self._reading:
            if room <= 0:
                self._reading = False
                transport.pause_reading()
        elif room >= min(_BREATH, max(1, line.capacity // 4)):
            self._reading = True
            transport.resume_reading()

    def _set_timer(self, now: Nanos) -> None:
        at = None if self._stopped else self._line.next_event(arrivals=not self._sink.full)
        if self._timer is not None:
            if at is not None and self._timer_at <= at:
                return  # It may come early; then it looks again.
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer_at = at
            milliseconds = -((now - at) // MILLISECOND)
            self._timer = self._loop.call_later(milliseconds / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    def _held(self) -> int:
        transport = self._sink.transport
        return self._line.in_flight + (transport.get_write_buffer_size() if transport is not None else 0)

    def statistics(self) -> DirectionStatistics:
        return DirectionStatistics(self._arrived, self._held(), self._peak_held, self._line.capacity)
