"""TCP between one process and its peers.

Each process dials the peers that it has something to say to and writes on those connections only (`peer.py`);
connections that it accepted are only read. Frames that arise in one iteration of the event loop leave together, one
write per peer, at the end of it: batching that costs an idle process no delay.

Whoever connects is a stranger until its hello says which process of this group it is. What strangers or peers send
is hostile until decoded: the worst that it can do is to have its own connection closed, with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias

from isthmus.core.codec import FrameError, FrameReader
from isthmus.core.endpoint import Destinations
from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.pdu import Pdu
from isthmus.runtime.address import Address, AddressBook
from isthmus.runtime.hello import SIZE, Hello, HelloError, decode_hello, encode_hello
from isthmus.runtime.peer import DEFAULT_LIMITS, Connection, Limits, Me, Peer, tune

log = logging.getLogger(__name__)

Receive: TypeAlias = Callable[[ProcessId, Sequence[Pdu]], None]
"""Takes the PDUs that arrived together from one process."""

_LONGEST_REASON = 200
_STRANGER: ProcessId = -1


def _nobody(process: ProcessId, pdus: Sequence[Pdu]) -> None:
    """Takes what arrives before there is a driver: it is lost, as on any network."""


class Mesh:
    """All connections of one process. `group` and `process` are what its hello says."""

    def __init__(
        self,
        process: ProcessId,
        addresses: AddressBook,
        listener: socket.socket,
        *,
        group: int,
        label: str = "",
        limits: Limits = DEFAULT_LIMITS,
        random: Random | None = None,
    ) -> None:
        self.me = Me(Hello(group, process), label or f"process {process}")
        self.limits = limits
        self._addresses = addresses
        self._listener = listener
        self._random = random or Random()
        self._peers: dict[int, Peer] = {}
        self._routes: dict[ProcessId, Peer] = {}
        self._to_flush: list[Peer] = []
        self.connections: set[Connection] = set()
        self._callers: dict[ProcessId, _Accepted] = {}
        self._strangers = 0
        self._server: asyncio.Server | None = None
        self._closed = False
        self.receive: Receive = _nobody
        self.unroutable = 0
        self.refused = 0

    async def open(self) -> None:
        """Start listening. What arrives goes to `receive`, as soon as somebody has put a driver there."""
        self._loop = asyncio.get_running_loop()
        me = slot_of(self.me.hello.process)
        self._peers = {
            slot: Peer(self.me, address, self.limits, self._random, self._track)
            for slot, address in self._addresses.items()
            if slot != me
        }
        self._server = await self._loop.create_server(lambda: _Accepted(self), sock=self._listener)

    async def reach(self, processes: Iterable[ProcessId], timeout: float) -> list[Address]:
        """Wait until each of these processes has answered our call. Returns where nobody did in time."""
        wanted = {process: self._routes.get(process) or self._route(process) for process in processes}
        calls = {
            asyncio.ensure_future(peer.reach()): self._addresses[slot_of(process)]
            for process, peer in wanted.items()
            if peer is not None
        }
        if not calls:
            return []
        _, unanswered = await asyncio.wait(calls, timeout=timeout)
        for call in unanswered:
            call.cancel()
        return sorted(calls[call] for call in unanswered)

    @property
    def dropped(self) -> int:
        """Frames that were not sent: peers unreachable, or not reading, or no longer who they were."""
        return self.unroutable + sum(peer.dropped for peer in self._peers.values())

    # Sending.

    def send(self, destinations: Destinations, frame: bytes) -> None:
        """Have `frame` written to each destination at the end of this iteration of the event loop."""
        routes, to_flush = self._routes, self._to_flush
        limit = self.limits.write_buffer
        for process in destinations:
            peer = routes.get(process) or self._route(process)
            if peer is None:
                self.unroutable += 1
                continue
            if peer.full or peer.size > limit:
                peer.dropped += 1
                continue
            if not peer.frames:
                if not to_flush:
                    self._loop.call_soon(self._flush)
                to_flush.append(peer)
            peer.frames.append(frame)
            peer.size += len(frame)

    def _route(self, process: ProcessId) -> Peer | None:
        """The peer of a process that we have not sent to before; none for one that was replaced by a later life."""
        peer = self._peers.get(slot_of(process))
        if peer is None or process < peer.process or self._closed:
            return None
        self._routes.pop(peer.process, None)
        self._routes[process] = peer
        peer.turn_to(process)
        return peer

    def _flush(self) -> None:
        peers, self._to_flush = self._to_flush, []
        for peer in peers:
            if peer.frames:
                peer.flush()

    # Receiving.

    def _track(self, connection: Connection) -> None:
        if self._closed:
            connection.abort()
        self.connections.add(connection)
        connection.gone.add_done_callback(lambda _: self.connections.discard(connection))

    def admit(self, stranger: _Accepted) -> bool:
        """Whether one more caller may be connected before saying who it is."""
        self._track(stranger)
        self._strangers += 1
        return self._strangers <= self.limits.strangers

    def introduced(self) -> None:
        self._strangers -= 1

    def welcome(self, caller: _Accepted, hello: Hello) -> None:
        """Accept who the caller says it is, or raise `HelloError`."""
        mine = self.me.hello
        if hello.group != mine.group:
            raise HelloError("it belongs to another run or system")
        if slot_of(hello.process) not in self._peers:
            raise HelloError(f"process {hello.process} is not a peer of this one")
        earlier = self._callers.get(hello.process)
        if earlier is not None:
            # It would not call again if that connection still worked.
            earlier.abort()
        self._callers[hello.process] = caller

    def farewell(self, caller: _Accepted) -> None:
        if self._callers.get(caller.process) is caller:
            del self._callers[caller.process]

    def refuse(self, caller: _Accepted, reason: str) -> None:
        """Close a connection whose bytes made no sense. The only trace of it is this line."""
        self.refused += 1
        caller.refused = True
        log.warning("%s closed the connection from %s: %s", self.me.label, caller.where, reason[:_LONGEST_REASON])
        caller.abort()

    # Closing.

    async def close(self, timeout: float = 1.0) -> None:
        """Write out what waits, then close everything; peers that do not take it within `timeout` miss it."""
        deadline = self._loop.time() + timeout
        self._flush()
        calls = [call for peer in self._peers.values() if (call := peer.call_with_something_to_say())]
        if calls:
            await asyncio.wait(calls, timeout=timeout / 2)
        self._shut(abort=False)
        gone = [connection.gone for connection in self.connections]
        if gone:
            await asyncio.wait(gone, timeout=deadline - self._loop.time())
        self.abort()

    def abort(self) -> None:
        """Cut everything off now, as a crash would."""
        self._shut(abort=True)
        for connection in list(self.connections):
            connection.abort()

    def _shut(self, *, abort: bool) -> None:
        self._closed = True
        self._routes.clear()
        if self._server is not None:
            self._server.close()
        self._listener.close()
        for peer in self._peers.values():
            peer.close(abort=abort)
        for connection in list(self.connections):
            if isinstance(connection, _Accepted):
                connection.transport.close()


class _Accepted(Connection):
    """A connection that somebody opened to us: one hello, answered with ours, then frames."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self._mesh = mesh
        self._reader = FrameReader()
        self._received = b""
        self._patience: asyncio.TimerHandle | None = None
        self.process = _STRANGER
        self.refused = False
        self.where = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.where = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", "?"))[:2])
        self._patience = asyncio.get_running_loop().call_later(
            self._mesh.limits.hello, self._mesh.refuse, self, "it did not say who it is in time"
        )
        if self._mesh.admit(self):
            tune(self.transport, self._mesh.limits.silence)
        else:
            self._mesh.refuse(self, "too many callers have not said who they are")

    def data_received(self, data: bytes) -> None:
        if self._patience is not None:
            data = self._hello(data)
        try:
            pdus = self._reader.feed(data)
        except FrameError as error:
            self._mesh.refuse(self, str(error))
            return
        if pdus:
            self._mesh.receive(self.process, pdus)

    def _hello(self, data: bytes) -> bytes:
        """Take the hello off the stream. Returns what follows it, which is nothing while it is incomplete."""
        received = self._received + data
        if len(received) < SIZE:
            self._received = received
            return b""
        self._introduced()
        try:
            hello = decode_hello(received[:SIZE])
            self._mesh.welcome(self, hello)
        except HelloError as error:
            self._mesh.refuse(self, str(error))
            return b""
        self.process = hello.process
        self.transport.write(encode_hello(self._mesh.me.hello))
        return received[SIZE:]

    def _introduced(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
            self._mesh.introduced()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._introduced()
        self._mesh.farewell(self)
        unread = self._reader.pending if self.process != _STRANGER else len(self._received)
        if unread and not self.refused:
            label = self._mesh.me.label
            log.warning("%s: the connection from %s was cut %d bytes into a frame", label, self.where, unread)
