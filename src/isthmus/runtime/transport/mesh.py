"""TCP between one process and its peers.

Each process dials the peers that it has something to say to and writes on those connections only (`peer.py`);
connections that it accepted are only read (`reception.py`). Frames that arise in one iteration of the event loop leave
together, one write per peer, at the end of it: batching that costs an idle process no delay.

**Neighbours** are processes of the same system in the same event loop. Unless they are to use sockets all the same,
they hand PDUs over as they are, since PDUs never change: a kernel would copy every byte twice. To whoever runs on top
it makes no difference: what one iteration gives to a neighbour it gets in the next, in one piece.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from random import Random
from weakref import WeakKeyDictionary

from isthmus.core.codec import FrameReader, buffers_of
from isthmus.core.endpoint import Destinations
from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.transport.acceptor import Acceptor
from isthmus.runtime.transport.address import Address, AddressBook
from isthmus.runtime.transport.carrier import Receive, nobody
from isthmus.runtime.transport.hello import Hello
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Limits, Me, Peer
from isthmus.runtime.transport.reception import Caller, Reception

_neighbours: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Hello, Address], Mesh]] = WeakKeyDictionary()
"""By event loop, who is there to be handed PDUs: by what their hello says, and where they are said to be."""


class Mesh(Reception):
    """All connections of one process. `group` and `process` are what its hello says.

    With `hand_over` neighbours are handed PDUs, instead of being sent them over a socket.
    """

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
        hand_over: bool = False,
    ) -> None:
        super().__init__(Me(Hello(group, process), label or f"process {process}"), limits)
        self._hand_over = hand_over
        self._neighbours: dict[tuple[Hello, Address], Mesh] = {}
        self._handed: list[tuple[ProcessId, Pdu]] = []
        self._addresses = addresses
        self._listener = listener
        self._random = random or Random()
        self._peers: dict[int, Peer] = {}
        self._routes: dict[ProcessId, Peer] = {}
        self._to_flush: list[Peer] = []
        self._acceptor: Acceptor | None = None
        self.receive: Receive = nobody
        self.unroutable = 0

    async def open(self) -> None:
        """Start listening. What arrives goes to `receive`, as soon as somebody has put a driver there."""
        self._loop = asyncio.get_running_loop()
        me = slot_of(self.me.hello.process)
        self._peers = {
            slot: Peer(self.me, address, self.limits, self._random, self.track)
            for slot, address in self._addresses.items()
            if slot != me
        }
        self._acceptor = Acceptor(self._listener, self.make_caller)
        self._acceptor.open()
        if self._hand_over:
            self._neighbours = _neighbours.setdefault(self._loop, {})
            self._neighbours[self._key(self.me.hello.process)] = self

    async def reach(self, processes: Iterable[ProcessId], timeout: float) -> list[ProcessId]:
        """Wait until each of these processes has answered our call. Returns those that did not in time."""
        wanted = {process: self._routes.get(process) or self._route(process) for process in processes}
        calls = {
            asyncio.ensure_future(self._reach(process, peer)): process
            for process, peer in wanted.items()
            if peer is not None
        }
        if not calls:
            return []
        try:
            _, unanswered = await asyncio.wait(calls, timeout=timeout)
        finally:
            for call in calls:
                call.cancel()
        return sorted(calls[call] for call in unanswered)

    async def _reach(self, process: ProcessId, peer: Peer) -> None:
        await asyncio.sleep(0)  # Neighbours that are started together have all come by then.
        if self._neighbour(process) is None:
            await peer.reach()

    @property
    def dropped(self) -> int:
        """Frames that were not sent: peers unreachable, or not reading, or no longer who they were."""
        return self.unroutable + sum(peer.dropped for peer in self._peers.values())

    # Sending.

    def send(self, destinations: Destinations, pdu: Pdu) -> None:
        """Have `pdu` written to each destination at the end of this iteration of the event loop."""
        routes, to_flush = self._routes, self._to_flush
        limit = self.limits.write_buffer
        frame: Sequence[bytes] = ()
        for process in destinations:
            if (neighbour := self._neighbour(process)) is not None:
                neighbour.hand(self.me.hello.process, pdu)
                continue
            frame = frame or buffers_of(pdu)
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
            peer.size += sum(map(len, frame))

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

    # Between neighbours.

    def _neighbour(self, process: ProcessId) -> Mesh | None:
        return self._neighbours.get(self._key(process)) if self._neighbours else None

    def _key(self, process: ProcessId) -> tuple[Hello, Address]:
        return Hello(self.me.hello.group, process), self._addresses[slot_of(process)]

    def hand(self, source: ProcessId, pdu: Pdu) -> None:
        """Take a PDU of a neighbour, for the next iteration of the event loop."""
        if not self._handed:
            self._loop.call_soon(self._take_handed)
        self._handed.append((source, pdu))

    def _take_handed(self) -> None:
        handed, self._handed = self._handed, []
        for source, pdus in groupby(handed, itemgetter(0)):
            if not self._closed:
                self.receive(source, [pdu for _, pdu in pdus])

    # Receiving.

    def expects(self, process: ProcessId) -> bool:
        return slot_of(process) in self._peers

    def make_caller(self) -> Caller:
        return _Accepted(self)

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
        if self._neighbours:
            self._neighbours.pop(self._key(self.me.hello.process), None)
            self._neighbours = {}
        self._routes.clear()
        if self._acceptor is not None:
            self._acceptor.close()
        self._listener.close()
        for peer in self._peers.values():
            peer.close(abort=abort)
        for connection in list(self.connections):
            if isinstance(connection, Caller):
                connection.transport.close()


class _Accepted(Caller):
    """A connection that a peer opened to us: frames come in."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh)
        self._mesh = mesh
        self._reader = FrameReader()

    def heard(self, data: bytes) -> None:
        pdus = self._reader.feed(data)
        if pdus:
            self._mesh.receive(self.process, pdus)

    @property
    def unread(self) -> int:
        return self._reader.pending
