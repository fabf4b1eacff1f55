"""What the PostgreSQL adapter costs beside the quickest that a client can do: COPY, and a slot that is only drained."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

import psycopg
from msgspec import Struct

from isthmus.adapters.postgres import PostgresLog
from isthmus.adapters.postgres.changes import stream
from isthmus.adapters.postgres.position import place_of
from isthmus.adapters.postgres.session import address_of
from isthmus.adapters.postgres.setup import name_of
from isthmus.lab.brokers.postgres import PostgresServer
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, LogSettings
from isthmus.runtime.loop import run

SIZES = (100, 1024)
MOST_ROWS, MOST_BYTES = 4096, 1 << 20
"""What the driver appends at once."""
_SLICE_ROWS, _SLICE_BYTES = 2048, 1 << 20
"""What it reads at once."""
_COLUMNS = "id bigserial PRIMARY KEY, body bytea, isthmus_origin text, isthmus_seq bigint, isthmus_path text"


class Figure(Struct, frozen=True):
    """Rows per second, and µs of the client's CPU for each: of the adapter, and of the bare loop."""

    what: str
    size: int
    rows: int
    batch: int
    per_second: float
    microseconds: float
    bare_per_second: float
    bare_microseconds: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.bare_per_second


def measure(megabytes: int) -> Iterator[Figure]:
    """So much of each size in and out, adapter and bare loop in turns on one server that flushes every commit."""
    for size in SIZES:
        yield from run(_measure(size, megabytes << 20))


async def _measure(size: int, volume: int) -> Sequence[Figure]:
    batch = min(MOST_ROWS, MOST_BYTES // size)
    count = max(volume // size // batch, 1)
    rows = batch * count
    body = b"x" * size
    parts = [
        [Entry(Content(body), "far/orders", each + 1, "far,here") for each in range(first, first + batch)]
        for first in range(0, rows, batch)
    ]
    with tempfile.TemporaryDirectory() as directory, PostgresServer(Path(directory)) as server:
        with server.connect() as plain:
            for table in ("ours", "bare"):
                plain.execute(f"CREATE TABLE {table} ({_COLUMNS})")
        ours, bare = (
            LogSettings(system="here", provider="postgres", url=server.url, streams=(table,), state=table)
            for table in ("ours", "bare")
        )
        log, other = PostgresLog(ours), PostgresLog(bare)
        await log.open()
        await other.open()
        await log.claim("benchmark", 3600)
        figures = []
        for what, one, two in (
            ("append", _append(log, parts), _copy(server.url, parts)),
            ("read", _read(log, rows), _stream(other, bare, rows)),
        ):
            left, right = await _timed(one, rows), await _timed(two, rows)
            figures.append(Figure(what, size, rows, batch, *left, *right))
        await log.close()
        await other.close()
        return figures


async def _timed(work: Awaitable[None], rows: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return rows / (time.perf_counter() - wall), (time.process_time() - cpu) / rows * 1e6


async def _append(log: PostgresLog, parts: Sequence[Sequence[Entry]]) -> None:
    record = b""
    for part in parts:
        after = b"%d" % part[-1].seq
        await log.append(part, after, record)
        record = after


async def _copy(url: str, parts: Sequence[Sequence[Entry]]) -> None:
    """The same rows, a commit for each batch, and no record."""
    columns = "(body, isthmus_origin, isthmus_seq, isthmus_path)"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for part in parts:
            async with cursor.copy(f"COPY bare {columns} FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["bytea", "text", "bigint", "text"])
                for entry in part:
                    await copy.write_row((entry.content.body, entry.origin, entry.seq, entry.path))


async def _read(log: PostgresLog, rows: int) -> None:
    position, found = await log.find("start"), 0
    while found < rows:
        entries, position = await log.read(position, _SLICE_ROWS, _SLICE_BYTES)
        found += len(entries)


async def _stream(log: PostgresLog, settings: LogSettings, rows: int) -> None:
    """Take the rows off the same slot, and make nothing of them."""
    place = place_of(await log.find("start"))

    async def never(*_: object) -> int:
        return 0

    changes = await stream(address_of(settings), "bare", name_of(settings.state), place, lambda *_: None, never)
    while changes.rows < rows:
        await changes.read(_SLICE_ROWS, _SLICE_BYTES, 1.0)
    await changes.close()
