"""Plain clients of brokers: what an application does that has never heard of isthmus, with the broker's usual client.

One line per kind in `KINDS`: which server there is for it, what an operator sets up before, how entries are written and
read. Nothing here imports code that joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from isthmus.lab.brokers.redis import RedisServer, ValkeyServer
from isthmus.lab.brokers.server import Server
from isthmus.runtime.transport.address import LOOPBACK

STREAM = "orders"
BATCH = 1000
"""Entries of one read, and of one pipelined write."""


_FILL = """
for number = ARGV[1], ARGV[2] - 1 do
  local body = string.format('%d-', number)
  redis.call('XADD', KEYS[1], '*', 'body', body .. string.rep('.', ARGV[3] - #body))
end
"""


class Seen(NamedTuple):
    """What a reader sees of an entry: its body, and whose it was, if it says so."""

    body: bytes
    origin: str = ""
    seq: int = 0


class Away(Exception):
    """The broker does not answer. Of what was being written nobody knows whether it is there."""


class Client(Protocol):
    """One connection, which is made anew after any trouble."""

    async def prepare(self) -> None:
        """What an operator does before: make the stream, where that is not made by writing."""

    async def write(self, bodies: Sequence[bytes]) -> None:
        """Append these in this order, and wait until the broker has said that it has them. Raises `Away`."""

    async def read(self, after: Any, wait: float = 0.0) -> tuple[list[Seen], Any]:
        """The next entries behind this place, None for the beginning, and the place behind them. Raises `Away`."""

    async def fill(self, count: int, size: int) -> None:
        """Append so many numbered bodies of this size, as quickly as can be."""

    async def count(self) -> int:
        """How many entries there are."""

    async def close(self) -> None: ...


class RedisClient:
    """redis-py, asyncio."""

    def __init__(self, server: Server, stream: str = STREAM) -> None:
        self._server = server
        self._stream = stream
        self._made: Any = None

    async def prepare(self) -> None:
        """A stream is made by the first XADD."""

    @property
    def _client(self) -> Any:
        if self._made is None:
            import redis.asyncio

            assert isinstance(self._server, RedisServer)
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            password = self._server.password or None
            once = Retry(NoBackoff(), 0)  # a write that is said again may be there twice
            self._made = redis.asyncio.Redis(host=LOOPBACK, port=self._server.port, password=password, retry=once)
            # As lists of words: redis-py would make a dict of each entry, which takes longer than all the rest.
            self._made.set_response_callback("XREAD", lambda response, **_: response)
        return self._made

    async def write(self, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), BATCH):
            pipe = self._client.pipeline(transaction=False)
            for body in bodies[first : first + BATCH]:
                pipe.execute_command("XADD", self._stream, "*", "body", body)
            await self._answer(pipe.execute())

    async def read(self, after: Any, wait: float = 0.0) -> tuple[list[Seen], Any]:
        words: list[Any] = ["XREAD", "COUNT", BATCH]
        if wait:
            words += ["BLOCK", int(wait * 1000)]
        found = await self._answer(self._client.execute_command(*words, "STREAMS", self._stream, after or "0-0"))
        if not found:
            return [], after
        ((_, entries),) = found.items() if isinstance(found, dict) else found
        return [_seen(fields) for _, fields in entries], entries[-1][0]

    async def fill(self, count: int, size: int) -> None:
        for first in range(0, count, 10_000):
            await self._client.eval(_FILL, 1, self._stream, first, min(count, first + 10_000), size)

    async def count(self) -> int:
        return int(await self._answer(self._client.xlen(self._stream)))

    async def _answer(self, asked: Any) -> Any:
        import redis.exceptions

        try:
            return await asked
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            await self.close()
            raise Away(str(error)) from error

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            with suppress(Exception):
                await made.aclose()


def _seen(fields: Sequence[bytes]) -> Seen:
    if len(fields) == 2:
        return Seen(fields[1])
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return Seen(pairs.get(b"body", b""), pairs.get(b"isthmus-origin", b"").decode(), int(pairs.get(b"isthmus-seq", 0)))


class BrokerKind(NamedTuple):
    """How one kind of broker is had and used. `provider` is its word in a topology file."""

    provider: str
    server: Callable[[Path], Server]
    client: Callable[[Server], Client]


KINDS: dict[str, BrokerKind] = {
    "valkey": BrokerKind("redis", ValkeyServer, RedisClient),
    "redis": BrokerKind("redis", RedisServer, RedisClient),
}


async def follow(client: Client, seen: list[Seen], after: Any, until: Callable[[], bool], pause: float = 0.05) -> Any:
    """Read on behind `after` into `seen`, until the condition holds; the place that was reached."""
    while not until():
        try:
            found, after = await client.read(after)
        except Away:
            found = []
        seen += found
        if not found:
            await asyncio.sleep(pause)
    return after
