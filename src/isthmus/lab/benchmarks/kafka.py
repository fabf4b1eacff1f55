"""What the Kafka adapter costs beside a producer without transactions, and a consumer that only counts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec import Struct

from isthmus.adapters.kafka import KafkaLog
from isthmus.adapters.kafka.messages import headers_of
from isthmus.lab.brokers.kafka import KafkaServer, create
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, LogSettings, Unavailable
from isthmus.runtime.loop import run

SIZES = (100, 1024)
MOST_MESSAGES, MOST_BYTES = 4096, 1 << 20
"""What the driver appends at once."""
_SLICE_MESSAGES = 2048
"""What it reads at once."""
_PATIENCE = 60.0


class Figure(Struct, frozen=True):
    """Messages per second, and µs of the client's CPU for each: of the adapter, and of the bare loop."""

    what: str
    size: int
    messages: int
    batch: int
    per_second: float
    microseconds: float
    bare_per_second: float
    bare_microseconds: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.bare_per_second


def measure(megabytes: int) -> Iterator[Figure]:
    """So much of each size in and out, adapter and bare loop in turns on one server."""
    for size in SIZES:
        yield from run(_measure(size, megabytes << 20))


async def _measure(size: int, volume: int) -> Sequence[Figure]:
    batch = min(MOST_MESSAGES, MOST_BYTES // size)
    count = max(volume // size // batch, 1)
    total = batch * count
    body = b"x" * size
    parts = [
        [Entry(Content(body), "far/orders", each + 1, "far,here") for each in range(first, first + batch)]
        for first in range(0, total, batch)
    ]
    with tempfile.TemporaryDirectory() as directory, KafkaServer(Path(directory)) as server:
        for topic in ("ours", "bare"):
            create(server, topic)
        log = KafkaLog(
            LogSettings(system="here", provider="kafka", url=server.url, streams=("ours",), state="benchmark")
        )
        await _claimed(log)
        figures = []
        for what, one, two in (
            ("append", _append(log, parts), _produce(server, parts)),
            ("read", _read(log, total), _consume(server, total)),
        ):
            ours, bare = await _timed(one, total), await _timed(two, total)
            figures.append(Figure(what, size, total, batch, *ours, *bare))
        await log.close()
        return figures


async def _claimed(log: KafkaLog) -> None:
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            await log.open()
            await log.claim("benchmark", 3600)
            return
        except Unavailable:
            # The coordinator of transactions makes its topic when somebody asks for it first.
            if time.monotonic() > give_up:
                raise


async def _timed(work: Awaitable[None], messages: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return messages / (time.perf_counter() - wall), (time.process_time() - cpu) / messages * 1e6


async def _append(log: KafkaLog, parts: Sequence[Sequence[Entry]]) -> None:
    record = b""
    for part in parts:
        after = b"%d" % part[-1].seq
        await log.append(part, after, record)
        record = after


async def _produce(server: KafkaServer, parts: Sequence[Sequence[Entry]]) -> None:
    """The same messages with the same headers, flushed after each batch, without transactions."""
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 20})
    for part in parts:
        for entry in part:
            producer.produce("bare", entry.content.body, partition=0, headers=headers_of(entry))
        producer.flush(_PATIENCE)


async def _read(log: KafkaLog, total: int) -> None:
    position, found = await log.find("start"), 0
    while found < total:
        entries, position = await log.read(position, _SLICE_MESSAGES, MOST_BYTES)
        found += len(entries)


async def _consume(server: KafkaServer, total: int) -> None:
    """Count messages, and look into none."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bare",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition("bare", 0, 0)])
    found = 0
    while found < total:
        found += len(consumer.consume(1, 1.0)) + len(consumer.consume(_SLICE_MESSAGES, 0))
    consumer.close()
