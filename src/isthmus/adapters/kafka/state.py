"""What the broker keeps for us: a topic of ours, whose last committed message is the whole state.

Every write of it is part of a transaction. It is compacted, and has one key, so it stays small; but nobody reads it
from the beginning: the last message stands near the end.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from isthmus.adapters.kafka.connection import PATIENCE, Connection
from isthmus.adapters.kafka.reader import Offsets
from isthmus.runtime.log.interface import LogProblem, Recreated, Unavailable

KEY = b"state"
MOST_BYTES = 16 << 20
"""Of a message in a topic of ours."""
_BACK = (4, 256, 1 << 62)
"""How far before the end to begin looking: behind a message stands the end of its transaction, and what was aborted."""
_SETTLE = 1.0
"""Seconds in which a transaction ends in whose middle nobody has died."""


class Kept(Struct, frozen=True, array_like=True):
    """Who holds the claim, for how long behind this message, the record, and the checkpoint.

    Two who claimed the log at once may have thought of the same token, and one of them may not know that it was too
    late: `claim` is which of them it was, by chance.
    """

    token: int = 0
    claim: bytes = b""
    holder: str = ""
    lease: float = 0.0
    record: bytes = b""
    checkpoint: bytes = b""


class Seen(Struct, frozen=True):
    """What is kept, and in which message."""

    kept: Kept
    offset: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Kept)


class StateTopic:
    """Reads it. By blocking calls, in one thread."""

    def __init__(self, connection: Connection, offsets: Offsets, topic: str) -> None:
        self.topic = topic
        self._connection = connection
        self._offsets = offsets
        self._consumer: Any = None
        self._highest = 0

    def message(self, kept: Kept) -> bytes:
        return _encoder.encode(kept)

    def written(self, kept: Kept) -> None:
        """This was committed."""
        self._highest = kept.token

    def last(self, *, settled: bool) -> Seen:
        """What is kept now. With `settled` no transaction that had written by now can change it any more.

        Without, a transaction in whose middle somebody has died may still be under way, and what it wrote does not
        count.
        """
        if not self._offsets.settled(self.topic, 0, PATIENCE if settled else _SETTLE) and settled:
            raise Unavailable(f"{self.topic} at {self._connection.where}: a transaction has not come to an end")
        first, end = self._offsets.first(self.topic, 0), self._offsets.committed(self.topic, 0)
        for back in _BACK:
            begin = max(first, end - back)
            try:
                found = self._read(begin, end)
            except Exception:
                self.close()
                raise
            if found is not None:
                return found
            if begin == first:
                break
        if self._highest:
            raise self._lost()
        return Seen(Kept(), -1)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _read(self, begin: int, end: int) -> Seen | None:
        if begin >= end:
            return None
        if self._consumer is None:
            # It learns that it is at the end when a fetch has waited in vain.
            self._consumer = self._connection.consumer(fetch_wait_max_ms=10)
        self._consumer.assign([TopicPartition(self.topic, 0, begin)])
        found: Any = None
        give_up = time.monotonic() + PATIENCE
        at_end = False
        while not at_end:
            left = give_up - time.monotonic()
            if left <= 0:
                raise Unavailable(f"{self.topic} at {self._connection.where}: no answer for {PATIENCE:.0f} s")
            for message in self._consumer.consume(1, left) + self._consumer.consume(1000, 0):
                error = message.error()
                if error is None:
                    found = message if message.key() == KEY else found
                    at_end |= message.offset() >= end - 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end = True
                else:
                    raise self._connection.trouble(KafkaException(error))
        self._consumer.unassign()
        return None if found is None else self._seen(found)

    def _seen(self, message: Any) -> Seen:
        try:
            kept = _decoder.decode(message.value() or b"")
        except msgspec.MsgspecError:
            raise LogProblem(
                f"{self.topic} at {self._connection.where} holds something that isthmus has not written: "
                "find out who writes there, and give the system another name"
            ) from None
        if kept.token < self._highest:
            raise self._lost()
        self._highest = kept.token
        return Seen(kept, message.offset())

    def _lost(self) -> Recreated:
        return Recreated(
            f"{self.topic} at {self._connection.where} has lost what isthmus kept there, so nobody knows any more what "
            "was brought in"
        )
