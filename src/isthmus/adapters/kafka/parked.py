"""What was put aside: a compacted topic of ours, whose keys are the ids. Written in one transaction with the record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from isthmus.adapters.kafka.connection import PATIENCE, Connection
from isthmus.adapters.kafka.reader import Offsets
from isthmus.runtime.log.interface import Entry, Parked, Unavailable

_LONGEST_READ = 60.0
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, Entry])


def topic_of(connection: Connection) -> str:
    return f"{connection.name}.parked"


def written(entry: Entry, reason: str) -> tuple[bytes, bytes]:
    """Key and value of the message that keeps it."""
    return f"{entry.origin}/{entry.seq}".encode(), _encoder.encode((reason, entry))


def listed(connection: Connection, offsets: Offsets, limit: int) -> Sequence[Parked]:
    """What is there, oldest first, so many at most."""
    topic = topic_of(connection)
    offsets.settled(topic, 0, PATIENCE)
    begin, end = offsets.first(topic, 0), offsets.committed(topic, 0)
    if begin >= end:
        return []
    found: dict[bytes, bytes] = {}
    consumer = connection.consumer(fetch_wait_max_ms=10)
    try:
        consumer.assign([TopicPartition(topic, 0, begin)])
        give_up = time.monotonic() + _LONGEST_READ
        while (left := give_up - time.monotonic()) > 0:
            for message in consumer.consume(1, left) + consumer.consume(1000, 0):
                if _keep(connection, message, found):
                    return _decoded(found, limit)
    finally:
        consumer.close()
    raise Unavailable(f"{topic} at {connection.where} could not be read to its end in {_LONGEST_READ:.0f} s")


def removed(connection: Connection, id: str) -> None:
    """Have it gone; a message without a value does that in a compacted topic."""
    producer = connection.producer()
    failed: list[KafkaError] = []
    producer.produce(
        topic_of(connection),
        key=id.encode(),
        value=None,
        partition=0,
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    left = producer.flush(PATIENCE)
    if failed:
        raise connection.trouble(KafkaException(failed[0]))
    if left:
        producer.purge()
        raise Unavailable(f"{connection.where}: no answer for {PATIENCE:.0f} s")


def _keep(connection: Connection, message: Any, found: dict[bytes, bytes]) -> bool:
    """Take in one message; says whether it is the end."""
    error = message.error()
    if error is None:
        key, value = message.key() or b"", message.value()
        found.pop(key, None)
        if value is not None:
            found[key] = value
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise connection.trouble(KafkaException(error))


def _decoded(found: dict[bytes, bytes], limit: int) -> Sequence[Parked]:
    entries: list[Parked] = []
    for key, value in found.items():
        if len(entries) >= limit:
            break
        try:
            reason, entry = _decoder.decode(value)
        except msgspec.MsgspecError:
            continue
        entries.append(Parked(key.decode(errors="replace"), reason, entry))
    return entries
