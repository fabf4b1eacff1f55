"""Two joined streams of one real Valkey, filled by hand: as clients, as gateways, and as whoever damages them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from isthmus.adapters.redis import RedisLog
from isthmus.lab.brokers.redis import ValkeyServer
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log
from isthmus.runtime.log.ledger import Record, encode
from isthmus.runtime.log.settings import settings_of
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.topology.file import load

SYSTEM = '[systems.{name}]\nkind = "redis"\nurl = "{url}"\nstream = "{stream}"\ngateways = 1\n{more}'
JOIN = '[[joins]]\nbetween = ["{near}", "{far}"]\norder = "causal"\nlinks = 1\n{more}'


class Joined:
    """Systems of a topology file whose gateways are this object: it appends what they would, or something wrong."""

    def __init__(self, server: ValkeyServer, file: Path, names: str, join: str = "") -> None:
        self.file = file
        self.client = redis.Redis(host=LOOPBACK, port=server.port)
        self.streams = {name: f"{file.parent.name}-{name}" for name in names}
        text = "".join(
            SYSTEM.format(name=name, url=server.url, stream=self.streams[name], more='on-refusal = "park"\n')
            for name in names
        )
        joins = [JOIN.format(near=near, far=far, more=join) for near, far in pairwise(names)]
        file.write_text(text + "".join(joins))
        self.topology = load(file)
        self._records: dict[str, Record] = {}
        for name in names:
            self.append(name, [])

    def write(self, name: str, *bodies: bytes, **headers: bytes | str) -> list[bytes]:
        """As a client of this system; the ids of what it wrote."""
        return [self.client.xadd(self.streams[name], {"body": body, **headers}) for body in bodies]  # type: ignore[dict-item,misc]

    def log(self, name: str) -> RedisLog:
        return RedisLog(settings_of(self.topology, self.topology.system(name), self.file.stem))

    def append(
        self, name: str, entries: Sequence[Entry], marks: Iterable[tuple[str, int]] | None = None, **record: Any
    ) -> None:
        """As its gateway, with the record that says so: of each origin as far as its entries go, if nothing else."""

        async def with_claim(log: Log) -> None:
            state = await log.claim("by hand", 30)
            assert state is not None
            before = dict(self._records.get(name, Record()).marks)
            for entry in entries:
                before[entry.origin] = max(before.get(entry.origin, 0), entry.seq)
            self._records[name] = after = Record(marks=list(before.items() if marks is None else marks), **record)
            await log.append(entries, encode(after), state.record)
            await log.release()

        self.with_log(name, with_claim)

    def park(self, name: str, entry: Entry, reason: str) -> None:
        async def with_claim(log: Log) -> None:
            state = await log.claim("by hand", 30)
            assert state is not None
            marks = dict(self._records[name].marks) | {entry.origin: entry.seq}
            self._records[name] = after = Record(marks=list(marks.items()), parked=[(entry.origin, entry.seq)])
            await log.park(entry, reason, encode(after), state.record)
            await log.release()

        self.with_log(name, with_claim)

    def with_log(self, name: str, work: Callable[[Log], Awaitable[None]]) -> None:
        async def run() -> None:
            log = self.log(name)
            await log.open()
            try:
                await work(log)
            finally:
                await log.close()

        asyncio.run(run())

    def bodies(self, name: str) -> list[bytes]:
        return [fields[b"body"] for _, fields in self.client.xrange(self.streams[name])]  # type: ignore[union-attr]


def brought(origin: str, seq: int, body: bytes, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Entry:
    return Entry(Content(body=body, headers=list(headers)), origin, seq, path)


@contextmanager
def valkey(directory: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(directory) as server:
        yield server
