"""Adapters with one mistake each, such as people make. The suite has to catch each by the check meant for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.asyncio

from isthmus.adapters.redis import RedisLog
from isthmus.lab.brokers.redis import RedisTrial
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings, Position, Slice, Superseded


class _Broken(RedisLog):
    """A good adapter, and a plain client with which to do one thing badly."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings)
        self.stream = settings.streams[0]
        self.kept = f"{{{self.stream}}}:isthmus:{settings.state}"
        self.client: Any = redis.asyncio.Redis.from_url(settings.url)

    async def fields(self, *names: str) -> list[Any]:
        return list(await self.client.hmget(self.kept, *names))

    async def close(self) -> None:
        await self.client.aclose()
        await super().close()


class RecordLater(_Broken):
    """Writes the record behind the entries, in a step of its own."""

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        await super().append(entries, expected, expected)
        await super().append([], record, expected)


class RecordFirst(_Broken):
    """Writes the record before the entries, in a step of its own."""

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        await super().append([], record, expected)
        await super().append(entries, record, record)


class Unfenced(_Broken):
    """Looks at the record only, and at nobody's claim."""

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        (found,) = await self.fields("record")
        if (found or b"") != expected:
            raise Superseded
        async with self.client.pipeline() as step:
            for entry in entries:
                seq = {"isthmus-origin": entry.origin, "isthmus-seq": entry.seq, "isthmus-path": entry.path}
                step.xadd(self.stream, {b"body": entry.content.body, **seq})
            step.hset(self.kept, "record", record)
            await step.execute()


class ByTime(_Broken):
    """Reads by the time in the ids: what was written in the millisecond where a slice ends may be skipped."""

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        found = await self.client.execute_command("XRANGE", self.stream, after or "-", "+", "COUNT", min(entries, 50))
        if not found:
            await self.client.xread({self.stream: "$"}, block=1000)
            return Slice([], after)
        last = int(found[-1][0].partition(b"-")[0]) + 1
        return Slice([Entry(Content(fields.get(b"body", b""))) for _, fields in found], str(last))


class Trusting(_Broken):
    """Reads on behind the id that it knows, whatever became of the stream meanwhile."""

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        start = f"({after}" if after else "-"
        found = await self.client.xrange(self.stream, min=start, count=min(entries, 50))
        if not found:
            await self.client.xread({self.stream: after or "0-0"}, block=1000)
            return Slice([], after)
        return Slice([Entry(Content(fields.get(b"body", b""))) for _, fields in found], found[-1][0].decode())


class Greedy(_Broken):
    """Takes no notice of how much it may read at once."""

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        return await super().read(after, 10_000, 1 << 30)


class SoundTrial(RedisTrial):
    """What has no mistake, as somebody else would bring it along."""


class RecordLaterTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return RecordLater(settings)


class RecordFirstTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return RecordFirst(settings)


class UnfencedTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return Unfenced(settings)


class ByTimeTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return ByTime(settings)


class TrustingTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return Trusting(settings)


class GreedyTrial(RedisTrial):
    def make(self, settings: LogSettings) -> Log:
        return Greedy(settings)
