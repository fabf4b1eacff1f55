"""One connection that speaks the NATS protocol, as much of it as a gateway needs and nothing per message beyond that.

A client library that makes an object and wakes a task for every message costs 29 to 56 µs for each; this costs about
2 µs. A server says `INFO {…}` first, then, if it wants TLS, both go on in TLS; we say `CONNECT {…}`. From then on lines
and messages follow each other, and a message says its length before it comes. Everything the server sends is bounded:
lines, messages by what it said itself, and what it says itself by `MAX_MESSAGE`.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import Future
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from isthmus import __version__
from isthmus.adapters.nats.credentials import Identity
from isthmus.runtime.log.interface import LogProblem, Unavailable
from isthmus.runtime.transport.tls import reason_of

PATIENCE = 5.0
"""Seconds after which a server that does not answer counts as away."""

MAX_LINE = 64 << 10
MAX_MESSAGE = 64 << 20
"""The largest payload that a NATS server can be told to take."""

_WRITE_AHEAD = 4 << 20

Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes the subject, reply subject, header and body of a message."""


T = TypeVar("T")


class Reply(NamedTuple):
    header: bytes
    body: bytes


class Info(Struct):
    """What of a server's INFO matters here."""

    version: str = ""
    max_payload: int = 1 << 20
    tls_required: bool = False
    tls_available: bool = False
    nonce: str = ""
    jetstream: bool = False


class Address(NamedTuple):
    """Where to call, who we are, and whether nothing may be said without TLS. The context is made only if needed."""

    host: str
    port: int
    identity: Identity
    tls_only: bool
    tls: Callable[[], ssl.SSLContext]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ProtocolError(Exception):
    """The other end does not speak the protocol, or goes beyond its bounds."""


_info_decoder = msgspec.json.Decoder(Info)


class Connection(asyncio.Protocol):
    """Open from `open` on until the other end closes it, says something that it may not say, or `close`."""

    def __init__(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.info = Info()
        self.is_open = False
        self.inbox = f"_INBOX.{token_hex(11)}"
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._informed: Future[None] = loop.create_future()
        self._welcome: Future[None] = loop.create_future()
        self._closed: Future[None] = loop.create_future()
        self._why: Exception = Unavailable(f"{address}: the connection was closed")
        self._pieces: list[bytes] = []
        self._held = self._due = 0
        self._handlers: dict[bytes, Handler] = {}
        self._waiting: dict[bytes, Future[Reply]] = {}
        self._count = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.on_close: Callable[[], None] | None = None

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """A connection that the server has welcomed. Raises `LogProblem` where it would never welcome us."""
        connection = cls(address)
        try:
            async with asyncio.timeout(PATIENCE):
                await connection._begin()
        except TimeoutError:
            connection.close()
            raise Unavailable(f"{address} does not answer") from None
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise LogProblem(
                f"{address} shows a certificate that cannot be trusted: {error.verify_message}. Look at ca-file, and "
                "at the name in url"
            ) from None
        except ssl.SSLError as error:
            connection.close()
            raise LogProblem(
                f"{address} and we do not agree on TLS: {reason_of(error)}. Look at ca-file, certificate-file and "
                "key-file"
            ) from None
        except OSError as error:
            connection.close()
            raise Unavailable(f"{address}: {reason_of(error)}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def _begin(self) -> None:
        address = self.address
        await self._loop.create_connection(lambda: self, address.host, address.port)
        await self._informed
        info = self.info
        if address.tls_only or info.tls_required:
            if not (info.tls_required or info.tls_available):
                raise LogProblem(f'{address} has no TLS. Write url = "nats://…", or give the server a certificate')
            if self._held:
                # Whoever is in between could have added this before the server was known to be the server.
                raise Unavailable(f"{address} goes on talking before TLS")
            assert self._transport is not None
            transport = await self._loop.start_tls(self._transport, self, address.tls(), server_hostname=address.host)
            assert transport is not None
            self._transport = transport
            transport.set_write_buffer_limits(_WRITE_AHEAD)
        hello = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "isthmus",
            "version": __version__,
            "name": "isthmus",
            **address.identity.answer(info.nonce),
        }
        self._handlers[b"0"] = self._on_reply
        self.write(b"CONNECT %b\r\nSUB %b.* 0\r\nPING\r\n" % (msgspec.json.encode(hello), self.inbox.encode()))
        await self._welcome
        self.is_open = True

    def close(self, why: Exception | None = None) -> None:
        self._end(why or self._why)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, why: Exception) -> None:
        self.is_open = False
        self._why = why
        waiting: list[Future[Any]] = [self._informed, self._welcome, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(why)
                future.exception()  # Whoever waits gets it; nobody has to.
        self._waiting.clear()
        self._may_write.set()
        if not self._closed.done():
            self._closed.set_result(None)
            if self.on_close is not None:
                self.on_close()

    # Calling

    def write(self, data: bytes) -> None:
        if self._transport is None or self._closed.done():
            raise self._why
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the other end has taken most of what was written."""
        await self._in_time(self._may_write.wait())
        if self._closed.done():
            raise self._why

    def expect(self) -> tuple[bytes, Future[Reply]]:
        """A reply subject of its own, and what will come there."""
        self._count += 1
        name = b"%d" % self._count
        future: Future[Reply] = self._loop.create_future()
        self._waiting[name] = future
        return b"%b.%b" % (self.inbox.encode(), name), future

    async def request(self, subject: str, body: bytes = b"", header: bytes = b"") -> Reply:
        """One answer to one message. `NoResponders` is for whoever calls to see in the header."""
        reply, future = self.expect()
        self.write(message(subject.encode(), reply, header, body))
        return await self.answer(future)

    async def answer(self, future: Future[Reply]) -> Reply:
        await self.drain()
        return await self._in_time(future)

    async def _in_time(self, what: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE):
                return await what
        except TimeoutError:
            self.close(Unavailable(f"{self.address} has not answered for {PATIENCE:.0f} s"))
            raise self._why from None

    def subscribe(self, subject: str, handler: Handler) -> bytes:
        self._count += 1
        number = b"%d" % self._count
        self._handlers[number] = handler
        self.write(b"SUB %b %b\r\n" % (subject.encode(), number))
        return number

    def unsubscribe(self, number: bytes) -> None:
        self._handlers.pop(number, None)
        if self.is_open:
            self.write(b"UNSUB %b\r\n" % number)

    def _on_reply(self, subject: bytes, _reply: bytes, header: bytes, body: bytes) -> None:
        future = self._waiting.pop(subject.rpartition(b".")[2], None)
        if future is not None and not future.done():
            future.set_result(Reply(header, body))

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(_WRITE_AHEAD)
        if self._closed.done():
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed.done():
            lost = Unavailable(f"{self.address}: the connection was lost" + (f", {reason_of(error)}" if error else ""))
            refused = isinstance(error, ssl.SSLError) and not self.is_open
            self._end(error if refused and error else lost)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._held += len(data)
        if self._pieces:
            self._pieces.append(data)
            if self._held < self._due:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        try:
            done = self._take(data)
        except (ProtocolError, ValueError, IndexError) as error:
            self.close(Unavailable(f"{self.address} does not speak the protocol of NATS: {str(error)[:200]}"))
            return
        self._held = len(data) - done
        if self._held:
            self._pieces.append(data[done:] if done else data)

    def _take(self, data: bytes) -> int:
        """Hand on what is complete, and say where it ends. `_due` is how much there has to be before it is worth
        looking again."""
        at, end = 0, len(data)
        self._due = 0
        handlers = self._handlers
        find = data.find
        while at < end:
            line_end = find(b"\r\n", at)
            if line_end < 0:
                if end - at > MAX_LINE:
                    raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
                break
            kind = data[at : at + 4]
            if kind in (b"HMSG", b"MSG "):
                words = data[at:line_end].split(b" ")
                length = int(words[-1])
                start = line_end + 2
                if not 0 <= length <= MAX_MESSAGE or length > self.info.max_payload + MAX_LINE:
                    raise ProtocolError(f"a message of {length:,} bytes, more than the server said")
                if start + length + 2 > end:
                    self._due = start + length + 2 - at
                    break
                head = 0
                if kind == b"HMSG":
                    head = int(words[-2])
                    if not 0 <= head <= length:
                        raise ProtocolError("a header longer than its message")
                    reply = words[3] if len(words) == 6 else b""
                else:
                    reply = words[3] if len(words) == 5 else b""
                at = start + length + 2
                handler = handlers.get(words[2])
                if handler is not None:
                    body = start + head
                    handler(words[1], reply, data[start:body], data[body : start + length])
            else:
                self._line(data[at:line_end])
                at = line_end + 2
                if self._closed.done():
                    break
        return at

    def _line(self, line: bytes) -> None:
        word = line[:4].upper()
        if word == b"INFO":
            try:
                self.info = _info_decoder.decode(line[5:])
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"INFO: {error}") from None
            if not self._informed.done():
                self._informed.set_result(None)
        elif word == b"PING":
            # Who asks and never reads gets no answer.
            if self._may_write.is_set():
                self.write(b"PONG\r\n")
        elif word == b"PONG":
            if not self._welcome.done():
                self._welcome.set_result(None)
        elif word == b"-ERR":
            self._refused(line[5:].decode(errors="replace").strip().strip("'")[:300])
        elif word[:3] != b"+OK":
            raise ProtocolError(repr(line[:50]))

    def _refused(self, reason: str) -> None:
        low = reason.lower()
        if low.startswith(("authorization", "user authentication", "account authentication")):
            way = (
                "Look at username, password-file, token-file or credentials-file, and whether all of it is still valid"
            )
            self.close(LogProblem(f"{self.address} does not let us in: {reason}. {way}"))
        elif low.startswith("permissions violation"):
            denied = LogProblem(f"{self.address} does not permit what isthmus has to do: {reason}")
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(denied)
                    future.exception()
            self._waiting.clear()
        elif low.startswith("secure connection"):
            self.close(LogProblem(f"{self.address} wants a certificate of us. Write certificate-file and key-file"))
        else:
            self.close(Unavailable(f"{self.address}: {reason}"))


def message(subject: bytes, reply: bytes, header: bytes, body: bytes) -> bytes:
    if reply:
        subject = b"%b %b" % (subject, reply)
    if header:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(header), len(header) + len(body), header, body)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body)
