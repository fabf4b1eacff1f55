"""One peer, and the connection on which we write to it.

We dial when there is something to say, and dial again, with pauses, while something waits. Frames go only to the
process that they are addressed to: the connection is open once the other end has answered our hello as exactly
that process. What cannot be sent is dropped and counted; the endpoints' own protocol sends it again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple, cast

from isthmus.core.ids import ProcessId
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.hello import SIZE, Hello, HelloError, decode_hello, encode_hello

log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """Bounds of one process's connections. Times are in seconds."""

    write_buffer: int = 8 << 20
    """Bytes that may wait for one peer; beyond, its frames are dropped until it has read half of them."""
    connect: float = 5.0
    """Time for dialling and being answered."""
    hello: float = 5.0
    """Time for a caller to say who it is."""
    strangers: int = 64
    """Callers that may be connected without having said who they are."""
    first_pause: float = 0.02
    longest_pause: float = 1.0
    """The longest pause between two attempts to reach a peer."""
    silence: float = 10.0
    """Silence after which a connection is given up whose other end does not even acknowledge."""


DEFAULT_LIMITS = Limits()


class Me(NamedTuple):
    """Who the local end of a connection is: what it says in its hello, and what logs call it."""

    hello: Hello
    label: str


class Peer:
    """The writing side towards one slot of the topology.

    `frames` are all addressed to `process`, the latest process that we were given frames for in that slot.
    """

    __slots__ = (
        "_address",
        "_connection",
        "_dialling",
        "_eager",
        "_limits",
        "_loop",
        "_me",
        "_on_connection",
        "_opened_at",
        "_random",
        "_turned",
        "dropped",
        "frames",
        "full",
        "process",
        "size",
    )

    def __init__(
        self, me: Me, address: Address, limits: Limits, random: Random, on_connection: Callable[[Connection], None]
    ) -> None:
        self._me = me
        self._address = address
        self._limits = limits
        self._random = random
        self._on_connection = on_connection
        self._loop = asyncio.get_running_loop()
        self._connection: _Dialled | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._opened_at = float("-inf")
        self._eager = False
        self._turned = asyncio.Event()
        self.process: ProcessId = -1
        self.frames: list[Sequence[bytes]] = []
        self.size = 0
        self.full = False
        self.dropped = 0

    def turn_to(self, process: ProcessId) -> None:
        """A new process lives in the slot: what waits for the former one is void, and so are its connection, and the
        pause after a call that it did not take: whoever has just come takes silence for a sign of death."""
        self.process = process
        self._turned.set()
        self._drop_frames()
        if self._connection is not None:
            self._connection.close("a new process has taken its place", abort=True)

    def flush(self) -> None:
        """Write what waits, or see to it that there will be a connection to write it on."""
        connection = self._connection
        if connection is None:
            if self._dialling is None:
                self._dialling = self._loop.create_task(self._dial())
        elif not connection.transport.is_closing():
            connection.transport.writelines(chain.from_iterable(self.frames))
            self.frames.clear()
            self.size = 0

    async def reach(self) -> None:
        """Dial until somebody answers, even with nothing to say."""
        self._eager = True
        try:
            while self._connection is None:
                self.flush()
                if self._dialling is not None:
                    await asyncio.wait((self._dialling,))
        finally:
            self._eager = False

    def call_with_something_to_say(self) -> asyncio.Task[None] | None:
        """The call under way, if frames wait for it to be answered."""
        return self._dialling if self.frames else None

    def close(self, *, abort: bool) -> None:
        """No more dialling. What waits is still written if there is a connection, unless it is aborted."""
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            if self.frames and not abort:
                self.flush()
            self._connection.close("", abort=abort)
        self._drop_frames()

    async def _dial(self) -> None:
        """Try until somebody answers, as long as there is something to say or somebody waits in `reach`."""
        pause = self._limits.first_pause
        try:
            if self._loop.time() - self._opened_at < self._limits.longest_pause:
                # A peer that hangs up as soon as we speak must not keep us busy.
                await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            while self.frames or self._eager:
                self._turned.clear()
                try:
                    self._connection = await self._connect()
                except (OSError, HelloError) as error:
                    reason = str(error) or type(error).__name__
                else:
                    self._opened_at = self._loop.time()
                    if self.frames:
                        self.flush()
                    return
                if pause == self._limits.first_pause:
                    log.info("%s cannot reach %s yet: %s", self._me.label, self._address, reason)
                if pause == self._limits.longest_pause:
                    self._drop_frames()
                if await self._pause(pause * self._random.uniform(0.5, 1.5)):
                    pause = self._limits.first_pause
                else:
                    pause = min(2 * pause, self._limits.longest_pause)
        finally:
            self._dialling = None

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt, unless a new process has taken the slot. Says whether one has."""
        try:
            async with asyncio.timeout(seconds):
                await self._turned.wait()
        except TimeoutError:
            return False
        return True

    async def _connect(self) -> _Dialled:
        connection = _Dialled(self)
        try:
            async with asyncio.timeout(self._limits.connect):
                await self._loop.create_connection(lambda: connection, *self._address)
                answer = await connection.answer
            if answer.group != self._me.hello.group:
                raise HelloError("a process of another run or system listens there")
            if answer.process != self.process:
                raise HelloError(f"process {answer.process} listens there, not {self.process}")
            if connection.gone.done():
                raise ConnectionResetError("closed at once by the other side")
        except BaseException:
            connection.abort()
            # uvloop does not tell a connection that it is lost when the call was cancelled while it was being made.
            connection.connection_lost(None)
            raise
        return connection

    def _drop_frames(self) -> None:
        self.dropped += len(self.frames)
        self.frames.clear()
        self.size = 0

    # What a connection tells us. One that has been replaced has no say any more.

    def connected(self, connection: _Dialled) -> bytes:
        self._on_connection(connection)
        connection.transport.set_write_buffer_limits(self._limits.write_buffer, self._limits.write_buffer // 2)
        tune(connection.transport, self._limits.silence)
        return encode_hello(self._me.hello)

    def paused(self, connection: _Dialled, paused: bool) -> None:
        if connection is self._connection:
            self.full = paused

    def lost(self, connection: _Dialled, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
            self.full = False
            if reason:
                log.debug("%s lost its connection to %s: %s", self._me.label, self._address, reason)
            if self.frames:
                self.flush()


class Connection(asyncio.Protocol):
    """What both kinds of connection share: a transport, and a future that says that it is gone."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self.transport.abort()

    def abort(self) -> None:
        """Cut it off, at once or as soon as it is made."""
        self._aborted = True
        if hasattr(self, "transport"):
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


class _Dialled(Connection):
    """A connection that we opened: one hello comes in, then never anything else."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self._received = b""
        self._reason = ""
        self.answer: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._peer.connected(self))

    def data_received(self, data: bytes) -> None:
        self._received += data[: SIZE + 1]
        if len(self._received) > SIZE:
            self.close("it sent more than a hello", abort=True)
        elif len(self._received) == SIZE and not self.answer.done():
            try:
                self.answer.set_result(decode_hello(self._received))
            except HelloError as error:
                self.answer.set_exception(error)

    def pause_writing(self) -> None:
        self._peer.paused(self, True)

    def resume_writing(self) -> None:
        self._peer.paused(self, False)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        reason = self._reason or (str(error) if error else "closed by the other side")
        if not self.answer.done():
            self.answer.set_exception(HelloError(f"no answer to our hello ({reason})"))
            self.answer.exception()  # Nobody waits for it when dialling was cancelled: that is no error.
        self._peer.lost(self, reason)

    def close(self, reason: str, *, abort: bool) -> None:
        self._reason = reason
        if abort:
            self.abort()
        else:
            self.transport.close()


def tune(transport: asyncio.Transport, silence: float) -> None:
    """Let the kernel notice within `silence` seconds that the other end is gone without a word."""
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, round(silence / 2))
    for option, value in (
        ("TCP_USER_TIMEOUT", round(silence * 1000)),
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_KEEPCNT", 1),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
