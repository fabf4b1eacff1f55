"""One link: a FIFO channel to one gateway of another system, across connections.

What a sent PDU meets, in order: `send` gives it to the session, which keeps it (`runtime/link/session.py`); at the end
of this iteration of the event loop it is written, if there is a connection and the transport is not full; it is under
way (`runtime/link/window.py`) until the far end reports it. Whoever opens connections (`links.py`) attaches them here;
the latest has the say.

Design note: docs/design/links.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import NamedTuple

from isthmus.core.codec import buffers_of
from isthmus.core.ids import SECOND, LinkId, ProcessId, ProcessName, slot_of
from isthmus.core.wire.join import Block, Line, LinkPdu
from isthmus.runtime.link.connection import LinkConnection, LinkLimits
from isthmus.runtime.link.session import LinkSession
from isthmus.runtime.link.window import LinkWindow
from isthmus.runtime.link.wire import Arrivals, LinkError, LinkHello
from isthmus.runtime.metrics import LinkMetrics

log = logging.getLogger(__name__)

_TICKS = 8
"""Silent ticks that make a link dead. Each asks for a sign of life."""
_TICKS_WITHOUT_CONNECTION = 3
"""The same where the connection was closed: whoever did that is gone, or calls again at once."""
_MOST_PINGS = 64
"""Pings without an answer on a slow link; more would only add to the queue."""


class LinkCallbacks(NamedTuple):
    """What a link tells its owner. None of these may raise; all of them may call `send`."""

    on_pdus: Callable[[LinkId, Sequence[LinkPdu]], None]
    """These arrived together, in order."""
    on_up: Callable[[LinkId, ProcessId], None]
    """The link works, and this is the process at its other end; perhaps a new one."""
    on_down: Callable[[LinkId], None]
    """Nothing has come over the link for `dead_after`."""
    on_ready: Callable[[LinkId, Line], None]
    """The link has little left to send. Said once after `on_up`, and once for every `Block` that was sent, with what is
    known of its line."""


class LinkEnds(NamedTuple):
    """A link as its near end sees it. `far_slot` is the far gateway's place in the topology."""

    link: LinkId
    near: ProcessName
    far: ProcessName
    far_slot: int


class NearEnd(NamedTuple):
    """What the near end says of itself in every hello: run, process, and the life of this very process."""

    group: int
    process: ProcessId
    life: int


class LiveLink:
    """The near end of one link. Made by `Links.add`."""

    def __init__(self, ends: LinkEnds, me: NearEnd, callbacks: LinkCallbacks, limits: LinkLimits) -> None:
        self.ends = ends
        self.id = ends.link
        self.up = False
        self.label = f"{ends.near}, link {ends.link} to {ends.far},"
        self._me = me
        self._callbacks = callbacks
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._session: LinkSession | None = None
        self._connection: LinkConnection | None = None
        self._window = LinkWindow(monotonic_ns())
        self._metrics = LinkMetrics(ends.link, str(ends.near), str(ends.far))
        self._ready_reported = False
        self._flush_due = False
        self._pace_timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._silent_ticks = 0
        self._tick_seconds = limits.dead_after / _TICKS
        self._ticker = self._loop.call_later(self._tick_seconds, self._tick)
        self._drained: asyncio.Future[None] | None = None

    @property
    def peer(self) -> ProcessId | None:
        """The process at the other end, as far as we know."""
        return None if self._session is None else self._session.peer

    # Sending.

    def send(self, pdu: LinkPdu) -> None:
        """Have `pdu` reach the process at the other end, or raise `LinkOverflow`."""
        session = self._session
        if session is None:
            self._metrics.dropped += 1
            return
        is_block = type(pdu) is Block
        size = session.add(*buffers_of(pdu), word=not is_block)
        if self._connection is not None:
            self._window.accept(size, monotonic_ns())
            if not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self._flush)
        if is_block:
            self._ready_reported = False

    def _flush(self) -> None:
        """Write what has gathered, as far as the transport takes it, and ask for more if there is room."""
        self._flush_due = False
        connection, session = self._connection, self._session
        if connection is None or session is None:
            return
        metrics = self._metrics
        while session.unwritten and not connection.paused:
            buffers, frames, size = session.take(self._limits.write_buffer)
            connection.write(buffers, size)
            metrics.frames_out += frames
        self._tell_ready(monotonic_ns())

    def writable(self, connection: LinkConnection) -> None:
        if connection is self._connection:
            self._flush()

    def _tell_ready(self, now: int) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self._ready_reported:
            opens_at = self._window.opens_at(now)
            if opens_at is not None and opens_at <= now:
                self._ready_reported = True
                self._callbacks.on_ready(self.id, self._window.line(now))
            elif opens_at is not None and self._pace_timer is None:
                self._pace_timer = self._loop.call_later((opens_at - now) / SECOND, self._pace_over)
        if self._window.wants_ping(now):
            self._ping(connection, now)

    def _pace_over(self) -> None:
        self._pace_timer = None
        self._tell_ready(monotonic_ns())

    # Receiving.

    def arrived(self, connection: LinkConnection, arrivals: Arrivals) -> None:
        session = self._session
        if connection is not self._connection or session is None:
            return
        self._heard = True
        pdus = arrivals.pdus
        if pdus:
            session.received += len(pdus)
            self._metrics.frames_in += len(pdus)
            self._callbacks.on_pdus(self.id, pdus)
        if arrivals.report is not None or arrivals.pongs:
            now = monotonic_ns()
            if arrivals.report is not None:
                received, octets, clock = arrivals.report
                session.acknowledge(received)
                self._window.report(octets, clock, now)
                if self._drained is not None and not session.kept:
                    self._drained.set_result(None)
                    self._drained = None
            for token, clock in arrivals.pongs:
                self._window.answer(token, clock, now)
            self._tell_ready(now)

    # Connections.

    def hello(self) -> LinkHello:
        session = self._session
        known, received = (0, 0) if session is None else (session.life, session.received)
        return LinkHello(self._me.group, self.id, self._me.process, self._me.life, known, received)

    def attach(self, connection: LinkConnection, hello: LinkHello, *, answer: bool) -> None:
        """Go on over this connection, whose other end has introduced itself; or raise `LinkError`.

        Nothing is given up before everything has been checked: a stranger or a liar must not cost a working connection.
        """
        session = self._judge(hello)
        received = session.check(hello, self._me.life)
        now = monotonic_ns()
        earlier, self._connection = self._connection, connection
        if earlier is not None:
            # It would not call again if that connection still worked.
            self._count(earlier)
            earlier.abort()
        new_peer = session is not self._session
        if new_peer:
            self._metrics.dropped += 0 if self._session is None else self._session.kept
            self._session = session
        self._metrics.frames_again += session.resume(received)
        self._metrics.connections += 1
        self._window = LinkWindow(now)
        connection.start(session.received, self.hello() if answer else None)
        # Ahead of all data: how long the way there is with empty queues is known from the first answer on.
        self._ping(connection, now)
        if session.kept:
            self._window.accept(session.kept_bytes, now)
        self._heard = True
        self._silent_ticks = 0
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if new_peer or not self.up:
            self._ready_reported = False
            self._came_up(session.peer)

    def _judge(self, hello: LinkHello) -> LinkSession:
        """The session with whoever says hello: the present one, or a new one."""
        far = self.ends.far
        if hello.group != self._me.group:
            raise LinkError("it belongs to another run")
        if hello.link != self.id:
            raise LinkError(f"it is for link {hello.link}")
        if slot_of(hello.process) != self.ends.far_slot:
            raise LinkError(f"process {hello.process} is not a life of {far}")
        session = self._session
        if session is None or hello.process > session.peer:
            return LinkSession(self.id, hello.process, hello.life, self._limits.keep)
        if hello.process < session.peer:
            raise LinkError(f"a later life of {far} has taken its place")
        if hello.life != session.life:
            raise LinkError(f"{far} has come back under the id of its former life; it needs a new one (+1, +2, …)")
        return session

    def lost(self, connection: LinkConnection, reason: str) -> None:
        if connection is self._connection:
            log.debug("%s lost its connection: %s", self.label, reason)
            self._count(connection)
            self._connection = None

    # Signs of life.

    def _ping(self, connection: LinkConnection, now: int) -> None:
        if self._window.unanswered < _MOST_PINGS:
            self._window.ask(now, now)
            connection.ping(now)

    def _tick(self) -> None:
        """Ask for a sign of life, after looking whether there was one since the last time.

        Ticks are counted, not seconds: when we did not run for a while, what the other end said meanwhile is still
        to be read.
        """
        self._ticker = self._loop.call_later(self._tick_seconds, self._tick)
        connection = self._connection
        if self._heard or (connection is not None and connection.still_hears(self._tick_seconds)):
            self._silent_ticks = 0
        else:
            self._silent_ticks += 1
        self._heard = False
        if self._silent_ticks >= (_TICKS_WITHOUT_CONNECTION if connection is None else _TICKS):
            if connection is not None:
                self._connection = None
                self._count(connection)
                connection.abort()
            if self.up:
                self._went_down("its connection was closed" if connection is None else "it is silent")
        elif connection is not None:
            now = monotonic_ns()
            self._ping(connection, now)
            self._tell_ready(now)

    def _came_up(self, peer: ProcessId) -> None:
        if not self.up:
            self._metrics.ups += 1
            self._metrics.changed_at = monotonic_ns()
        self.up = True
        log.info("%s is up: process %d is there", self.label, peer)
        self._callbacks.on_up(self.id, peer)

    def _went_down(self, why: str) -> None:
        self.up = False
        self._metrics.downs += 1
        self._metrics.changed_at = monotonic_ns()
        silence = self._silent_ticks * self._tick_seconds
        log.warning("%s is down: %s, and nothing has come for %.2g s", self.label, why, silence)
        self._callbacks.on_down(self.id)

    # Numbers.

    @property
    def metrics(self) -> LinkMetrics:
        """The link's counters, up to date. The same object every time."""
        metrics, window, session = self._metrics, self._window, self._session
        if self._connection is not None:
            self._count(self._connection)
        metrics.up = self.up
        metrics.kept_frames, metrics.kept_bytes = (0, 0) if session is None else (session.kept, session.kept_bytes)
        metrics.under_way = window.under_way if self._connection is not None else 0
        metrics.window = window.size
        metrics.round_trip = window.round_trip
        metrics.queued = window.queued
        metrics.rate = window.rate
        return metrics

    def _count(self, connection: LinkConnection) -> None:
        self._metrics.bytes_in += connection.bytes_in
        self._metrics.bytes_out += connection.bytes_out
        connection.bytes_in = connection.bytes_out = 0

    # The end.

    async def drain(self) -> None:
        """Wait until the far end has everything that was sent to it."""
        if self._session is not None and self._session.kept:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def close(self, *, abort: bool) -> LinkConnection | None:
        """End without a word to the owner. Returns the connection that is being closed."""
        self._ticker.cancel()
        if self._pace_timer is not None:
            self._pace_timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._count(connection)
            if abort:
                connection.abort()
            else:
                connection.close()
        return connection
