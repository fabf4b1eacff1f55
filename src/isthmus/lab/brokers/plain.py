"""Plain clients of brokers: what an application does that has never heard of isthmus, with the broker's usual client.

One line per kind in `KINDS`: which server there is for it, what an operator sets up before, how entries are written and
read. Nothing here imports code that joins.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from isthmus.adapters.table import make_log
from isthmus.lab.brokers.nats import NatsServer
from isthmus.lab.brokers.postgres import PostgresServer
from isthmus.lab.brokers.redis import RedisServer, ValkeyServer
from isthmus.lab.brokers.server import Server
from isthmus.runtime.log.interface import LogSettings
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.transport.address import LOOPBACK

STREAM, SUBJECT = "orders", "orders.>"
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


class Nothing(Away):
    """There was nothing to read."""


class Client(Protocol):
    """One connection, which is made anew after any trouble."""

    async def prepare(self) -> None:
        """What an operator does before: make the stream, where that is not made by writing."""

    async def watch(self) -> None:
        """Before the first `read`, where what is read has to be asked for beforehand."""

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

    def __init__(self, server: Server, state: str = "", stream: str = STREAM, port: int = 0) -> None:
        self._server = server
        self._port = port or server.port
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
            self._made = redis.asyncio.Redis(host=LOOPBACK, port=self._port, password=password, retry=once)
            # As lists of words: redis-py would make a dict of each entry, which takes longer than all the rest.
            self._made.set_response_callback("XREAD", lambda response, **_: response)
        return self._made

    async def watch(self) -> None:
        """All of a stream can be read at any time."""

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


class NatsClient:
    """nats-py, asyncio: a stream that takes `orders.>`, read by an ordered pull consumer."""

    def __init__(self, server: Server, state: str) -> None:
        self._server = server
        self._record = f"isthmus.record.{state}"
        self._connection: Any = None
        self._consumer: Any = None

    async def prepare(self) -> None:
        """As docs/brokers.md asks for it: with atomic batches, and one more subject."""
        await self._ask(f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=[SUBJECT, self._record], allow_atomic=True)

    async def _ask(self, what: str, **body: object) -> Any:
        connection = await self._connected()
        reply = await self._answer(connection.request(f"$JS.API.{what}", json.dumps(body).encode(), timeout=10))
        answer = json.loads(reply.data)
        if "error" in answer:
            raise Away(answer["error"].get("description", "it refused"))
        return answer

    async def _connected(self) -> Any:
        if self._connection is not None and not self._connection.is_connected:
            await self.close()
        if self._connection is None:
            import nats

            connecting = nats.connect(self._server.url, allow_reconnect=False, connect_timeout=2, error_cb=_nothing)
            self._connection = await self._answer(connecting)
        return self._connection

    async def watch(self) -> None:
        """All of a stream can be read at any time."""

    async def write(self, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), BATCH):
            stream = (await self._connected()).jetstream(timeout=10, publish_async_max_pending=2 * BATCH)

            async def all_of_them(stream: Any = stream, some: Sequence[bytes] = bodies[first : first + BATCH]) -> None:
                answers = [await stream.publish_async(f"{STREAM}.new", body) for body in some]
                await asyncio.wait_for(asyncio.gather(*answers), 10)

            await self._answer(all_of_them())

    async def read(self, after: Any, wait: float = 0.0) -> tuple[list[Seen], Any]:
        if self._consumer is None or self._consumer[0] != after:
            self._consumer = after, await self._answer(self._subscribe(after))
        try:
            found = await self._answer(self._consumer[1].fetch(BATCH, timeout=max(wait, 0.05)))
        except Nothing:
            told = await self._answer(self._consumer[1].consumer_info())
            if told.num_pending or told.delivered.stream_seq > (after or 0):
                return await self.read(after, 1.0)  # more is on its way to us
            return [], after
        self._consumer = found[-1].metadata.sequence.stream, self._consumer[1]
        seen = [_seen_by_headers(each.data, each.headers or {}) for each in found]
        return seen, self._consumer[0]

    async def _subscribe(self, after: int | None) -> Any:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        stream = (await self._connected()).jetstream()
        policy = DeliverPolicy.BY_START_SEQUENCE if after else DeliverPolicy.ALL
        start = after + 1 if after else None
        config = ConsumerConfig(deliver_policy=policy, opt_start_seq=start, ack_policy=AckPolicy.NONE)
        return await stream.pull_subscribe(SUBJECT, stream=STREAM, config=config)

    async def fill(self, count: int, size: int) -> None:
        for first in range(0, count, BATCH):
            numbers = range(first, min(count, first + BATCH))
            await self.write([(b"%d-" % number).ljust(size, b".") for number in numbers])

    async def count(self) -> int:
        found = await self._ask(f"STREAM.INFO.{STREAM}", subjects_filter=SUBJECT)
        return sum((found["state"].get("subjects") or {}).values())

    async def _answer(self, asked: Any) -> Any:
        import nats.errors

        try:
            return await asked
        except nats.errors.TimeoutError as error:
            if self._connection is not None and self._connection.is_connected:
                raise Nothing(str(error)) from error
            await self.close()
            raise Away(str(error)) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self.close()
            raise Away(str(error)) from error

    async def close(self) -> None:
        connection, self._connection, self._consumer = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()


async def _nothing(_: Exception) -> None:
    """What nats-py would print of a connection that is lost; whoever waits hears of it anyway."""


def _seen_by_headers(body: bytes, headers: Mapping[str, str]) -> Seen:
    return Seen(body, headers.get("isthmus-origin", ""), int(headers.get("isthmus-seq", 0)))


class PostgresClient:
    """psycopg, asyncio: a table, whose rows are seen in the order of commits by a slot of `test_decoding`.

    A slot is read once. What it has told is kept here, and places are counted in it. A server that was killed may have
    forgotten how far the slot has been read, and tells the same rows again.
    """

    def __init__(self, server: Server, state: str) -> None:
        self._server = server
        self._slot = f"reader_{id(self)}"
        self._made: Any = None
        self._told: list[Seen] = []
        self._ids: set[int] = set()

    async def prepare(self) -> None:
        await self._execute(
            f"CREATE TABLE {STREAM} (id bigserial PRIMARY KEY, body bytea, headers jsonb, isthmus_origin text, "
            "isthmus_seq bigint, isthmus_path text)"
        )

    async def _execute(self, statement: str, *values: Any) -> Any:
        import psycopg

        try:
            if self._made is None:
                self._made = await psycopg.AsyncConnection.connect(
                    self._server.url.replace("postgres:", "postgresql:"), autocommit=True, connect_timeout=5
                )
            return await self._made.execute(statement, values or None)
        except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
            await self.close()
            raise Away(str(error)) from error

    async def write(self, bodies: Sequence[bytes]) -> None:
        await self._execute(f"INSERT INTO {STREAM} (body) SELECT unnest(%s::bytea[])", list(bodies))

    async def watch(self) -> None:
        """From now on."""
        await self._execute(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'test_decoding')")

    async def read(self, after: Any, wait: float = 0.0) -> tuple[list[Seen], Any]:
        place = after or 0
        if place == len(self._told):
            # Peeked at first: what a slot has told and the connection has lost would be gone.
            asked = f"SELECT lsn, data FROM pg_logical_slot_peek_changes('{self._slot}', NULL, {BATCH})"
            rows = await (await self._execute(asked)).fetchall()
            if rows:
                await self._execute(f"SELECT pg_replication_slot_advance('{self._slot}', %s::pg_lsn)", rows[-1][0])
                for _, data in rows:
                    if data.startswith(_INSERT):
                        id, seen = _seen_by_decoding(data)
                        if id not in self._ids:
                            self._ids.add(id)
                            self._told.append(seen)
        found = self._told[place : place + BATCH]
        return found, place + len(found)

    async def fill(self, count: int, size: int) -> None:
        await self._execute(
            f"INSERT INTO {STREAM} (body) SELECT rpad(n || '-', %s, '.')::bytea FROM generate_series(0, %s) AS n",
            *(size, count - 1),
        )

    async def count(self) -> int:
        return int((await (await self._execute(f"SELECT count(*) FROM {STREAM}")).fetchone())[0])

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            with suppress(Exception):
                await made.close()


_INSERT = f"table public.{STREAM}: INSERT: "
_ID = re.compile(r"INSERT: id\[bigint\]:(\d+)")
_BODY = re.compile(r"body\[bytea\]:'\\x([0-9a-f]*)'")
_ORIGIN = re.compile(r"isthmus_origin\[text\]:'([^']*)' isthmus_seq\[bigint\]:(\d+)")


def _seen_by_decoding(data: str) -> tuple[int, Seen]:
    """The row's own number, and what is in it."""
    id, body, origin = _ID.search(data), _BODY.search(data), _ORIGIN.search(data)
    assert id is not None, data
    seen = Seen(bytes.fromhex(body[1]) if body else b"", *((origin[1], int(origin[2])) if origin else ()))
    return int(id[1]), seen


class BrokerKind(NamedTuple):
    """How one kind of broker is had and used. `provider` is its word in a topology file, `table` more lines of it.

    A client is made for a server and the name under which isthmus keeps its state there.
    """

    provider: str
    server: Callable[[Path], Server]
    client: Callable[[Server, str], Client]
    table: str = ""
    package: str = ""


KINDS: dict[str, BrokerKind] = {
    "valkey": BrokerKind("redis", ValkeyServer, RedisClient, package="redis"),
    "redis": BrokerKind("redis", RedisServer, RedisClient, package="redis"),
    "nats": BrokerKind("nats", NatsServer, NatsClient, f'default-subject = "{STREAM}.other"\n', package="nats"),
    "postgres": BrokerKind("postgres", PostgresServer, PostgresClient, package="postgres"),
}


class Installed(NamedTuple):
    """Kinds whose servers can be started here, and for the others what to install."""

    kinds: tuple[str, ...]
    missing: tuple[str, ...]


def installed() -> Installed:
    """Of Redis and Valkey, which are one to us, the first that is there."""
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, kind in KINDS.items():
        with TemporaryDirectory(prefix="isthmus-") as directory:
            try:
                make_log(LogSettings(system=name, provider=kind.provider, url="", streams=(STREAM,), state=name))
                server = kind.server(Path(directory))
                try:
                    server.prepare()
                finally:
                    server.stop()
                found.setdefault(kind.provider, name)
            except (RuntimeProblem, ImportError) as problem:
                missing.setdefault(kind.provider, str(problem))
    return Installed(tuple(found.values()), tuple(text for name, text in missing.items() if name not in found))
