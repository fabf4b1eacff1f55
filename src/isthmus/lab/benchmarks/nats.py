"""What the NATS adapter costs beside the same protocol code without claim, record, positions and contents."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from isthmus.adapters.nats import NatsLog
from isthmus.adapters.nats.credentials import Identity
from isthmus.adapters.nats.jetstream import Published, answer_of
from isthmus.adapters.nats.messages import VERSION, header_of
from isthmus.adapters.nats.reader import create
from isthmus.adapters.nats.wire import Address, Connection
from isthmus.lab.brokers.nats import NatsServer, NatsTrial
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import BEGINNING, Entry, LogSettings
from isthmus.runtime.loop import run
from isthmus.runtime.transport.address import LOOPBACK

BATCH = 999
"""As many as fit a batch of 1,000 with the record."""
SIZES = (100, 1024)
_PULL = 4096
_SLICE = 1 << 20


class Figure(Struct, frozen=True):
    """Messages per second, and µs of the client's CPU for each: of the adapter, and of the bare loop."""

    what: str
    size: int
    messages: int
    per_second: float
    microseconds: float
    bare_per_second: float
    bare_microseconds: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.bare_per_second


class _Took:
    """Messages per second, and µs of CPU of this process for each."""

    def __init__(self, messages: int, wall: float, cpu: float) -> None:
        self.per_second = messages / wall
        self.microseconds = cpu / messages * 1e6


def measure(batches: int) -> Iterator[Figure]:
    """So many batches of each size in and out, adapter and bare loop in turns on one server."""
    for size in SIZES:
        yield from run(_measure(size, batches))


async def _measure(size: int, batches: int) -> Sequence[Figure]:
    with tempfile.TemporaryDirectory() as directory, NatsServer(Path(directory)) as server:
        trial = NatsTrial(server)
        settings, bare_settings = await trial.fresh(), await trial.fresh()
        parts = [
            [Entry(Content(b"x" * size), "far/orders", number * BATCH + each + 1, "far,here") for each in range(BATCH)]
            for number in range(batches)
        ]
        log = NatsLog(settings)
        connection = await Connection.open(
            Address(LOOPBACK, server.port, Identity({}), False, NotImplemented)  # No TLS here.
        )
        await log.open()
        await log.claim("benchmark", 3600)
        total = batches * BATCH
        ours, bare = (
            await _timed(_append(log, parts), total),
            await _timed(_bare_append(connection, bare_settings, parts), total),
        )
        figures = [_figure("append", size, total, ours, bare)]
        ours, bare = (
            await _timed(_read(log, total), total),
            await _timed(_bare_read(connection, bare_settings, total), total),
        )
        figures.append(_figure("read", size, total, ours, bare))
        await log.close()
        connection.close()
        return figures


def _figure(what: str, size: int, messages: int, ours: _Took, bare: _Took) -> Figure:
    return Figure(what, size, messages, ours.per_second, ours.microseconds, bare.per_second, bare.microseconds)


async def _timed(work: Awaitable[None], messages: int) -> _Took:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return _Took(messages, time.perf_counter() - wall, time.process_time() - cpu)


async def _append(log: NatsLog, parts: Sequence[Sequence[Entry]]) -> None:
    record = b""
    for part in parts:
        after = b"%d" % part[-1].seq
        await log.append(part, after, record)
        record = after


async def _bare_append(connection: Connection, settings: LogSettings, parts: Sequence[Sequence[Entry]]) -> None:
    subject = settings.options["default-subject"].encode()
    for number, part in enumerate(parts):
        out: list[bytes] = []
        reply, future = connection.expect()
        for place, entry in enumerate(part, start=1):
            last = place == len(part)
            lines = b"Nats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n" % (number, place)
            head = b"%b%b%b%b\r\n" % (VERSION, lines, b"Nats-Batch-Commit: 1\r\n" if last else b"", header_of(entry))
            body = entry.content.body
            out.append(
                b"HPUB %b %b%d %d\r\n" % (subject, reply + b" " if last else b"", len(head), len(head) + len(body))
            )
            out += (head, body, b"\r\n")
        connection.write(b"".join(out))
        answer_of(await connection.answer(future), Published, "batch")


async def _read(log: NatsLog, total: int) -> None:
    place, found = BEGINNING, 0
    while found < total:
        entries, place = await log.read(place, _PULL, _SLICE)
        found += len(entries)


async def _bare_read(connection: Connection, settings: LogSettings, total: int) -> None:
    """Counts messages, and looks into none."""
    stream = settings.streams[0]
    name = (await create(connection, stream, {"ack_policy": "none", "mem_storage": True, "num_replicas": 1})).name
    inbox = f"{connection.inbox}-bare"
    asking = msgspec.json.encode({"batch": _PULL, "max_bytes": 4 << 20, "expires": 5_000_000_000})
    found = due = 0
    done = asyncio.Event()

    def ask() -> None:
        nonlocal due
        due += _PULL
        connection.write(
            f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{name} {inbox} {len(asking)}\r\n".encode() + asking + b"\r\n"
        )

    def on_message(_subject: bytes, reply: bytes, _header: bytes, _body: bytes) -> None:
        nonlocal found, due
        if reply:
            found += 1
            due -= 1
        else:
            due = 0
        if due <= _PULL // 2 and found < total:
            ask()
        if found == total:
            done.set()

    number = connection.subscribe(inbox, on_message)
    ask()
    await done.wait()
    connection.unsubscribe(number)
