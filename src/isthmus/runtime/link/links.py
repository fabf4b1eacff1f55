"""All links of one gateway: it listens for some, dials others, and lets nobody in who is not the far end of one.

A caller is a stranger until TLS has seen its certificate and its hello has said which link it is for. What strangers
do can cost them their connection and us one line in the log. Dialling goes on for as long as the gateway lives.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Coroutine, Iterator
from ipaddress import ip_address
from itertools import cycle
from random import Random
from ssl import SSLContext
from typing import Any

from isthmus.core.ids import LinkId, ProcessId, ProcessName
from isthmus.core.wire.join import LinkPdu
from isthmus.runtime.link.connection import DEFAULT_LINK_LIMITS, LONGEST_REASON, LinkConnection, LinkLimits, where_is
from isthmus.runtime.link.link import LinkCallbacks, LinkEnds, LiveLink, NearEnd
from isthmus.runtime.link.wire import LinkError, LinkHello
from isthmus.runtime.metrics import LinkMetrics
from isthmus.runtime.transport.address import Address, address_of
from isthmus.runtime.transport.tls import LinkTls, reason_of

log = logging.getLogger(__name__)

_SHUTDOWN = 1.0
"""Seconds for TLS to say goodbye."""


class Links:
    """The links of the gateway `name`, which is `process`. `group` keeps runs apart (`hello.group_tag`).

    Without `tls` the network is trusted: for one machine, and for tests.
    """

    def __init__(
        self,
        process: ProcessId,
        name: ProcessName,
        callbacks: LinkCallbacks,
        *,
        group: int,
        listener: socket.socket | None = None,
        tls: LinkTls | None = None,
        limits: LinkLimits = DEFAULT_LINK_LIMITS,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self._me = NearEnd(group, process, secrets.randbits(62) | 1)
        self._callbacks = callbacks
        self._listener = listener
        self._tls = tls
        self._limits = limits
        self._random = random or Random()
        self._links: dict[LinkId, LiveLink] = {}
        self._dialled: dict[LinkId, tuple[Address, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers = 0
        self.refused = 0

    def add(self, link: LinkId, far: ProcessName, far_slot: int, *dial: Address) -> LiveLink:
        """One more link, before `open`. With `dial` this end calls, at one of these; without, it waits to be called."""
        if link in self._links:
            raise ValueError(f"link {link} is there already")
        if not dial and self._listener is None:
            raise ValueError(f"link {link} to {far} has no address to dial, and {self.name} does not listen")
        added = LiveLink(LinkEnds(link, self.name, far, far_slot), self._me, self._callbacks, self._limits)
        self._links[link] = added
        if dial:
            self._dialled[link] = dial
        return added

    def __getitem__(self, link: LinkId) -> LiveLink:
        return self._links[link]

    def __iter__(self) -> Iterator[LiveLink]:
        return iter(self._links.values())

    def open(self) -> None:
        """Begin to listen and to dial. Returns at once; `on_up` says what has come of it."""
        self._warn_of_plain_text()
        self._listen()
        for link, addresses in self._dialled.items():
            self._start(self._keep_dialling(self._links[link], addresses))

    def send(self, link: LinkId, pdu: LinkPdu) -> None:
        self._links[link].send(pdu)

    def metrics(self) -> list[LinkMetrics]:
        return [link.metrics for link in self._links.values()]

    # Dialling.

    async def _keep_dialling(self, link: LiveLink, addresses: tuple[Address, ...]) -> None:
        """Have a connection whenever possible. Trouble is logged once, and again only when it has become another.

        After each connection and each attempt it is the next address's turn: whoever was at the last one may be gone.
        """
        loop = asyncio.get_running_loop()
        pause = self._limits.first_pause
        last_trouble: dict[Address, str] = {}
        for address in cycle(addresses):
            try:
                connection = await self._dial(link, address)
            except (OSError, LinkError) as error:
                reason = reason_of(error)
                if reason != last_trouble.get(address):
                    # That nobody is there yet is no fault; everything else wants somebody to look at it.
                    level = logging.INFO if isinstance(error, ConnectionRefusedError) else logging.WARNING
                    log.log(level, "%s cannot be opened to %s yet: %s", link.label, address, reason)
                last_trouble[address] = reason
            else:
                last_trouble.clear()
                opened = loop.time()
                await asyncio.wait((connection.gone,))
                if loop.time() - opened > self._limits.longest_pause:
                    pause = self._limits.first_pause
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            pause = min(2 * pause, self._limits.longest_pause)

    async def _dial(self, link: LiveLink, address: Address) -> LinkConnection:
        """One attempt: TCP, TLS, our hello, the other end's."""
        loop = asyncio.get_running_loop()
        far = link.ends.far
        tls = self._tls

        def answered(connection: LinkConnection, hello: LinkHello) -> LiveLink:
            link.attach(connection, hello, answer=False)
            return link

        connection = LinkConnection(link.label, self._limits, answered)
        try:
            async with asyncio.timeout(self._limits.connect):
                options = self._tls_options(None if tls is None else tls.dialling())
                await loop.create_connection(lambda: connection, *address, **options)
                if tls is not None:
                    tls.check(connection.peer_certificate(), far)
                connection.say_hello(link.hello())
                await connection.introduced
        except BaseException:
            connection.abort()
            raise
        return connection

    # Listening.

    def _listen(self) -> None:
        if self._listener is not None and self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take a call. Nothing is awaited for it: whoever is cancelled just when a call has come would not close it."""
        try:
            caller, where = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("%s cannot take calls for its links right now: %s", self.name, error.strerror or error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(self._limits.longest_pause, self._listen)
            return
        if self._strangers >= self._limits.strangers:
            caller.close()
            self._refuse(where_is(where), "too many callers have not said who they are")
            return
        caller.setblocking(False)
        self._strangers += 1
        receiving = self._start(self._receive(caller, where_is(where)))

        def received(task: asyncio.Task[None]) -> None:
            self._strangers -= 1
            if task.cancelled():  # perhaps before its first step
                caller.close()

        receiving.add_done_callback(received)

    async def _receive(self, caller: socket.socket, where: str) -> None:
        """See a caller through TLS and its hello, or hang up."""
        loop = asyncio.get_running_loop()
        connection = LinkConnection(str(self.name), self._limits, self._called)
        try:
            async with asyncio.timeout(self._limits.connect):
                options = self._tls_options(None if self._tls is None else self._tls.listening())
                await loop.connect_accepted_socket(lambda: connection, caller, **options)
                await connection.introduced
        except (OSError, LinkError) as error:
            connection.abort()
            caller.close()
            self._refuse(where, reason_of(error))
        except BaseException:
            connection.abort()
            caller.close()
            raise

    def _called(self, connection: LinkConnection, hello: LinkHello) -> LiveLink:
        """Which link a caller is for; `LinkError` where it may not be."""
        link = self._links.get(hello.link)
        if link is None or hello.link in self._dialled:
            raise LinkError(f"it is for link {hello.link}, on which {self.name} takes no calls")
        if self._tls is not None:
            self._tls.check(connection.peer_certificate(), link.ends.far)
        link.attach(connection, hello, answer=True)
        return link

    def _refuse(self, where: str, reason: str) -> None:
        self.refused += 1
        log.warning("%s refused a call from %s: %s", self.name, where, reason[:LONGEST_REASON])

    def _tls_options(self, context: SSLContext | None) -> dict[str, Any]:
        if context is None:
            return {}
        return {
            "ssl": context,
            "ssl_handshake_timeout": self._limits.connect,
            "ssl_shutdown_timeout": _SHUTDOWN,
        }

    def _warn_of_plain_text(self) -> None:
        """Say that a link leaves the machine unprotected, once."""
        hosts = [address.host for addresses in self._dialled.values() for address in addresses]
        if self._listener is not None:
            hosts.append(address_of(self._listener).host)
        if self._tls is None and not all(map(_is_this_machine, hosts)):
            log.warning(
                "the links of %s leave this machine without TLS: anybody on the way can read and forge", self.name
            )

    # The end.

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, timeout: float = 1.0) -> None:
        """Let the far ends have what was sent to them, for at most `timeout` seconds, then hang up."""
        drains = [asyncio.ensure_future(link.drain()) for link in self._links.values()]
        if drains:
            _, late = await asyncio.wait(drains, timeout=timeout)
            for drain in late:
                drain.cancel()
        tasks = self._stop()
        closing = [link.close(abort=False) for link in self._links.values()]
        gone = [connection.gone for connection in closing if connection is not None]
        if gone:
            await asyncio.wait(gone, timeout=_SHUTDOWN)
        for connection in closing:
            if connection is not None:
                connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        """Cut everything off now, as a crash would."""
        self._stop()
        for link in self._links.values():
            link.close(abort=True)

    def _stop(self) -> list[asyncio.Task[None]]:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if self._listener is not None and self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        return tasks


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
