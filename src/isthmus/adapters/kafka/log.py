"""One log of Kafka: what is called from the event loop, and the threads in which it is done.

Clients of librdkafka block. Reading has one thread, everything else another, and nothing is called in the event loop
but what hands a call over. A call that is cancelled is still done to its end, and the next one comes behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from isthmus.adapters.kafka import parked, places
from isthmus.adapters.kafka.connection import Connection
from isthmus.adapters.kafka.reader import Offsets, Reader
from isthmus.adapters.kafka.setup import look_at
from isthmus.adapters.kafka.state import StateTopic
from isthmus.adapters.kafka.writer import Writer
from isthmus.runtime.log.interface import BEGINNING, Entry, LogSettings, Parked, Position, Slice, State

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class KafkaLog:
    """See `Log`. docs/brokers.md says how each part of it is done with what Kafka has."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._parts = places.parts_of(settings.streams)
        self._reading = ThreadPoolExecutor(1, "kafka-read")
        self._working = ThreadPoolExecutor(1, "kafka-write")
        self._connection: Connection
        self._offsets: Offsets
        self._reader: Reader
        self._state: StateTopic
        self._writer: Writer
        self._opened = False

    async def open(self) -> Sequence[str]:
        return await self._work(self._open)

    def _open(self) -> Sequence[str]:
        self._connection = Connection(self._settings)
        self._offsets = Offsets(self._connection)
        layout, warnings = look_at(self._connection, self._offsets, self._parts)
        self._reader = Reader(self._connection, self._offsets, self._parts)
        self._state = StateTopic(self._connection, self._offsets, self._connection.name)
        self._writer = Writer(self._connection, self._state, layout)
        self._writer.watch()
        self._opened = True
        return warnings

    async def claim(self, holder: str, lease: float) -> State | None:
        return await self._work(self._writer.claim, holder, lease)

    async def renew(self, lease: float) -> None:
        await self._work(self._writer.renew, lease)

    async def release(self) -> None:
        await self._work(self._writer.release)

    async def state(self) -> State:
        return await self._work(self._writer.state)

    async def find(self, start: str) -> Position:
        return await self._work(self._reader.find, start)

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        return await self._in(self._reading, self._reader.read, after, entries, size)

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        await self._work(self._writer.append, entries, record, expected)

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        key, value = parked.written(entry, reason)
        await self._work(self._writer.park, key, value, record, expected)

    async def parked(self, limit: int) -> Sequence[Parked]:
        return await self._work(parked.listed, self._connection, self._offsets, limit)

    async def unpark(self, id: str) -> None:
        await self._work(parked.removed, self._connection, id)

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        await self._work(self._writer.note, checkpoint)

    async def durable(self) -> None:
        """What was appended is committed, and so all replicas in sync have it: Kafka knows no more than that."""

    async def close(self) -> None:
        if self._opened:
            self._opened = False
            await asyncio.gather(self._work(self._close), self._in(self._reading, self._reader.close))
        self._reading.shutdown(wait=False)
        self._working.shutdown(wait=False)

    def _close(self) -> None:
        self._writer.close()
        self._state.close()

    async def _work(
        self, call: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result:
        return await self._in(self._working, call, *arguments, **named)

    async def _in(
        self,
        thread: ThreadPoolExecutor,
        call: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(thread, partial(call, *arguments, **named))
