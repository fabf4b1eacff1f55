"""One connection to a server: commands out, replies in, and what each error of the server means to a log.

Written on hiredis and asyncio alone. In slices of 1,000, an entry of 100 bytes with four fields takes 0.5 µs of our
time to fetch, and 1.2 by redis-py, which looks at every element of a reply in Python. With `Entry` and all it takes
2.7 µs to read one and 2.0 to append one; on two cores shared with the server that is 248,000 and 111,000 a second.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import hiredis

from isthmus.runtime.log.interface import LogProblem, Unavailable
from isthmus.runtime.transport.tls import reason_of

PATIENCE = 5.0
"""Seconds that a server may take to answer, apart from what a command itself waits for."""

MAX_REPLY = 64 << 20
"""Bytes of one reply. Memory of ours is bounded by it, whatever clients have written."""

_CHUNK = 1 << 18

Word: TypeAlias = bytes | str | int
Command: TypeAlias = Sequence[Word]

_FOR_NOW = {
    "ASK": "moves these keys to another node",
    "BUSY": "is busy with a script of somebody else",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "LOADING": "is still loading what it has on disk",
    "MASTERDOWN": "is a replica that has lost its primary",
    "MISCONF": "cannot write to its disk",
    "NOREPLICAS": "has too few replicas to take writes (min-replicas-to-write)",
    "OOM": "has no memory left (maxmemory)",
    "READONLY": "is a replica, which takes no writes",
    "TRYAGAIN": "moves these keys to another node",
    "UNBLOCKED": "ended the wait",
}
_FOR_GOOD = {
    "CROSSSLOT": "the streams are in several slots of the cluster: give them one hash tag, or make each a system",
    "DENIED": "the server is in protected mode: set a password there, or let it listen on loopback only",
    "NOAUTH": "the server wants a password: write password-file or password-env, and username if it has users",
    "NOPERM": "this user may not do what a join needs: it takes +@stream +@hash +@scripting +@transaction +@connection "
    "and +info +config|get +time +type +pttl +waitaof on the stream and on isthmus's own keys",
    "WRONGPASS": "the server refuses this username and password: look at username and password-file or password-env",
}


class ServerError(Exception):
    """An error reply. `code` is its first word."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class Moved(Exception):
    """In a cluster, another node has the keys."""


class UnknownScript(Exception):
    """The server was started anew, or told to forget its scripts."""


class TooMuch(LogProblem):
    """A reply is longer than we take."""


class Address(NamedTuple):
    """Where a server is, and as whom we call it."""

    host: str
    port: int
    database: int
    username: str
    password: str
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Address({self})"


class Connection:
    """Calls in order, one reply for each. After any trouble it is closed: what would come next belongs to nobody."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader(replyError=ServerError)
        self.received = 0
        """Bytes of the replies to the latest calls."""

    @classmethod
    async def open(cls, address: Address) -> Connection:
        try:
            async with asyncio.timeout(PATIENCE):
                streams = await asyncio.open_connection(address.host, address.port, ssl=address.tls, limit=_CHUNK)
        except (ConnectionError, TimeoutError, ssl.SSLEOFError) as error:
            how = " by TLS" if address.tls else ""
            raise Unavailable(f"{address} cannot be reached{how}: {reason_of(error)}") from None
        except ssl.SSLError as error:
            reason = f"{address}: TLS does not come about: {reason_of(error)}"
            raise LogProblem(f"{reason}. Look at ca-file, certificate-file, key-file, and the name in url") from None
        except OSError as error:
            raise Unavailable(f"{address} cannot be reached: {reason_of(error)}") from None
        connection = cls(address, *streams)
        try:
            await connection._greet()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _greet(self) -> None:
        address = self._address
        if address.password:
            words = (address.username, address.password) if address.username else (address.password,)
            (reply,) = await self.calls([("AUTH", *words)])
            if isinstance(reply, ServerError):
                if reply.code in _FOR_NOW:
                    raise self.meaning_of(reply)
                # Its text may quote the command.
                raise LogProblem(f"{address}: {_FOR_GOOD['WRONGPASS']}")
        commands: list[Command] = [("CLIENT", "SETNAME", "isthmus")]
        if address.database:
            commands.append(("SELECT", address.database))
        for reply in (await self.calls(commands))[1:]:
            if isinstance(reply, ServerError):
                if reply.code in _FOR_NOW or reply.code in _FOR_GOOD:
                    raise self.meaning_of(reply)
                raise LogProblem(f"{address} has no database {address.database}: {reply}. Change the path of url")

    async def call(self, *words: Word, wait: float = 0) -> Any:
        """The reply to one command, which may take `wait` seconds on purpose."""
        (reply,) = await self.calls([words], wait)
        if isinstance(reply, ServerError):
            raise self.meaning_of(reply)
        return reply

    async def calls(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        """One reply for each of these commands, of which some may be a `ServerError`."""
        pack = hiredis.pack_command
        try:
            async with asyncio.timeout(PATIENCE + wait):
                self._writer.write(b"".join([pack(tuple(words)) for words in commands]))  # type: ignore[arg-type]
                await self._writer.drain()
                return await self._replies(len(commands))
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"{self._address} does not answer") from None
            if isinstance(error, OSError):
                raise Unavailable(f"{self._address} has gone: {reason_of(error)}") from None
            if isinstance(error, hiredis.ProtocolError):
                raise LogProblem(f"{self._address} does not speak the protocol of Redis. Look at url") from None
            raise

    async def _replies(self, count: int) -> list[Any]:
        replies: list[Any] = []
        self.received = 0
        while len(replies) < count:
            reply = self._parser.gets()
            if reply is not False:
                replies.append(reply)
                continue
            data = await self._reader.read(_CHUNK)
            if not data:
                raise ConnectionResetError
            self.received += len(data)
            if self.received > MAX_REPLY:
                raise TooMuch(f"{self._address} sends more than {MAX_REPLY:,} bytes at once: an entry is far too large")
            self._parser.feed(data)
        return replies

    def meaning_of(self, error: ServerError) -> Exception:
        """What an error reply means to whoever uses the log."""
        code, text = error.code, str(error)[:500]
        if code in _FOR_NOW:
            return Unavailable(f"{self._address} {_FOR_NOW[code]}: {text}")
        if code == "ERR" and "max number of clients" in text:
            return Unavailable(f"{self._address} takes no more connections: {text}")
        if code in _FOR_GOOD:
            return LogProblem(f"{self._address}: {_FOR_GOOD[code]} ({text})")
        if code == "MOVED":
            return Moved(text.rpartition(" ")[2])
        if code == "NOSCRIPT":
            return UnknownScript()
        return LogProblem(f"{self._address} refuses what a join needs: {text}")

    @property
    def is_open(self) -> bool:
        return not self._writer.transport.is_closing() and not self._reader.at_eof()

    def close(self) -> None:
        # Not in good order: nobody waits for what would still come.
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Close it, and return when that is done."""
        self.close()
        with suppress(OSError):
            await self._writer.wait_closed()
