"""The listening side of a connection: strangers come, say who they are, and are heard from then on.

Whoever connects is a stranger until its hello says which process of this group it is. What strangers or callers send
is hostile until decoded: the worst that it can do is to have its own connection closed, with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from isthmus.core.codec import FrameError
from isthmus.core.ids import ProcessId
from isthmus.runtime.transport.hello import SIZE, Hello, HelloError, decode_hello, encode_hello
from isthmus.runtime.transport.peer import Connection, Limits, Me, tune

log = logging.getLogger(__name__)

_LONGEST_REASON = 200
_STRANGER: ProcessId = -1


class Reception(ABC):
    """Takes calls, and keeps those who called. A subclass says whom it expects, and what becomes of what they say."""

    def __init__(self, me: Me, limits: Limits) -> None:
        self.me = me
        self.limits = limits
        self.connections: set[Connection] = set()
        self.refused = 0
        self._callers: dict[ProcessId, Caller] = {}
        self._strangers = 0
        self._closed = False

    @abstractmethod
    def expects(self, process: ProcessId) -> bool:
        """Whether this process may call here."""

    @abstractmethod
    def make_caller(self) -> Caller:
        """The protocol of a connection that somebody has opened to us."""

    def track(self, connection: Connection) -> None:
        if self._closed:
            connection.abort()
        self.connections.add(connection)
        connection.gone.add_done_callback(lambda _: self.connections.discard(connection))

    def admit(self, stranger: Caller) -> bool:
        """Whether one more caller may be connected before saying who it is."""
        self.track(stranger)
        self._strangers += 1
        return self._strangers <= self.limits.strangers

    def introduced(self) -> None:
        self._strangers -= 1

    def welcome(self, caller: Caller, hello: Hello) -> None:
        """Accept who the caller says it is, or raise `HelloError`."""
        if hello.group != self.me.hello.group:
            raise HelloError("it belongs to another run or system")
        if not self.expects(hello.process):
            raise HelloError(f"process {hello.process} is not a peer of this one")
        earlier = self._callers.get(hello.process)
        if earlier is not None:
            # It would not call again if that connection still worked.
            earlier.abort()
        self._callers[hello.process] = caller

    def farewell(self, caller: Caller) -> None:
        if self._callers.get(caller.process) is caller:
            del self._callers[caller.process]

    def refuse(self, caller: Caller, reason: str) -> None:
        """Close a connection whose bytes made no sense. The only trace of it is this line."""
        self.refused += 1
        caller.refused = True
        log.warning("%s closed the connection from %s: %s", self.me.label, caller.where, reason[:_LONGEST_REASON])
        caller.abort()


class Caller(Connection, ABC):
    """A connection that somebody opened to us: one hello, answered with ours, then what `heard` makes of it."""

    def __init__(self, reception: Reception) -> None:
        super().__init__()
        self._reception = reception
        self._received = b""
        self._patience: asyncio.TimerHandle | None = None
        self.process = _STRANGER
        self.refused = False
        self.where = "?"

    @abstractmethod
    def heard(self, data: bytes) -> None:
        """Bytes that follow the hello. Raises `FrameError` where they make no sense."""

    @property
    def unread(self) -> int:
        """Bytes of something unfinished."""
        return 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.where = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", "?"))[:2])
        self._patience = asyncio.get_running_loop().call_later(
            self._reception.limits.hello, self._reception.refuse, self, "it did not say who it is in time"
        )
        if self._reception.admit(self):
            tune(self.transport, self._reception.limits.silence)
        else:
            self._reception.refuse(self, "too many callers have not said who they are")

    def data_received(self, data: bytes) -> None:
        if self._patience is not None:
            data = self._hello(data)
        try:
            self.heard(data)
        except FrameError as error:
            self._reception.refuse(self, str(error))

    def _hello(self, data: bytes) -> bytes:
        """Take the hello off the stream. Returns what follows it, which is nothing while it is incomplete."""
        received = self._received + data
        if len(received) < SIZE:
            self._received = received
            return b""
        self._introduced()
        try:
            hello = decode_hello(received[:SIZE])
            self._reception.welcome(self, hello)
        except HelloError as error:
            self._reception.refuse(self, str(error))
            return b""
        self.process = hello.process
        self.transport.write(encode_hello(self._reception.me.hello))
        return received[SIZE:]

    def _introduced(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
            self._reception.introduced()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._introduced()
        self._reception.farewell(self)
        unread = self.unread if self.process != _STRANGER else len(self._received)
        if unread and not self.refused:
            label = self._reception.me.label
            log.warning("%s: the connection from %s was cut %d bytes into a frame", label, self.where, unread)
