"""What stands beside a join in `isthmus bench brokers`: programs that carry entries from one broker to another.

A **bare** pair has the client code of our adapters and nothing between: one process reads, sends what it read over one
TCP connection, and another appends it with a record, in one atomic step each. It goes on after nothing: no numbers, no
windows, no second connection. A **copier** is what people write: one process with redis-py, which reads here and adds
there, many batches under way on one connection.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import Any

import msgspec
from msgspec import Struct

from isthmus.adapters.table import make_log
from isthmus.runtime.log.content import Content, decode, encode
from isthmus.runtime.log.driver import SLICE_BYTES, SLICE_MESSAGES
from isthmus.runtime.log.interface import Entry, LogSettings, Unavailable
from isthmus.runtime.loop import run
from isthmus.runtime.transport.address import LOOPBACK

_LENGTH = struct.Struct(">I")
_HERE = b"."
_UNDER_WAY = 32
"""Batches of a copier that have not been answered."""
_BATCH = 500


class Orders(Struct, frozen=True, kw_only=True):
    """What a child does: `read` and send to `port`, listen there and `append`, or `copy` from one server to another."""

    does: str
    port: int
    settings: LogSettings | None = None
    source: int = 0
    stream: str = ""


async def read(orders: Orders) -> None:
    """Read from the start, and send what was read."""
    assert orders.settings is not None
    log = make_log(orders.settings)
    await log.open()
    _, writer = await _call(orders.port)
    pack = msgspec.msgpack.Encoder().encode
    position = await log.find("start")
    while True:
        entries, position = await log.read(position, SLICE_MESSAGES, SLICE_BYTES)
        if entries:
            body = pack([encode(entry.content) for entry in entries])
            writer.write(_LENGTH.pack(len(body)) + body)
            await writer.drain()


async def _call(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Until the other one has said something: a line takes calls for whoever is not there yet."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            await reader.readexactly(len(_HERE))
            return reader, writer
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.05)


async def append(orders: Orders) -> None:
    """Append what arrives; what is durable is found out beside that, as a join does."""
    assert orders.settings is not None
    log = make_log(orders.settings)
    await log.open()
    state = await log.claim("bare", 3600)
    assert state is not None
    record, appended, fresh = state.record, 0, asyncio.Event()

    async def settle() -> None:
        while True:
            await fresh.wait()
            fresh.clear()
            await log.durable()

    async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal record, appended
        writer.write(_HERE)
        unpack = msgspec.msgpack.Decoder(list[bytes]).decode
        try:
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                contents: list[Content] = [decode(each) for each in unpack(await reader.readexactly(size))]
                entries = [
                    Entry(content, "madrid/orders", appended + number, "madrid,oslo")
                    for number, content in enumerate(contents, 1)
                ]
                appended += len(entries)
                after = msgspec.json.encode({"marks": [("madrid/orders", appended)]})
                await log.append(entries, after, record)
                record = after
                fresh.set()
        except asyncio.IncompleteReadError:
            """The other one has ended."""

    server = await asyncio.start_server(arrived, LOOPBACK, orders.port, limit=1 << 24)
    await asyncio.gather(server.serve_forever(), settle())


async def copy(orders: Orders) -> None:
    """redis-py on both sides: XREAD here; XADD of a batch, and the place behind it, there."""
    import redis.asyncio

    source: Any = redis.asyncio.Redis(host=LOOPBACK, port=orders.source)
    source.set_response_callback("XREAD", lambda response, **_: response)
    there: Any = redis.asyncio.Connection(host=LOOPBACK, port=orders.port)
    await there.connect()
    waiting: asyncio.Queue[int] = asyncio.Queue(_UNDER_WAY)

    async def answers() -> None:
        while True:
            for _ in range(await waiting.get()):
                await there.read_response()

    async def send() -> None:
        place: Any = "0-0"
        while True:
            words = ("XREAD", "COUNT", _BATCH, "BLOCK", 1000, "STREAMS", orders.stream, place)
            found = await source.execute_command(*words)
            if not found:
                continue
            ((_, entries),) = found.items() if isinstance(found, dict) else found
            place = entries[-1][0]
            commands: list[tuple[Any, ...]] = [("XADD", orders.stream, "*", *fields) for _, fields in entries]
            commands.append(("SET", "copied", place))
            await there.send_packed_command(there.pack_commands(commands))
            await waiting.put(len(commands))

    await asyncio.gather(answers(), send())


def main() -> int:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    work = {"read": read, "append": append, "copy": copy}[orders.does]
    try:
        run(work(orders))
    except (OSError, Unavailable):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
