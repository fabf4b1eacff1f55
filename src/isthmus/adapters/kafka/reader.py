"""Reads the partitions of a log, by blocking calls: whoever uses this does so in a thread.

Only what is committed is read. Offsets have gaps, where transactions end or were aborted, so a gap says nothing; what
says that entries are gone is where the log begins. That the topic is still the same is looked up behind every slice:
a client of Kafka takes a topic that was made anew for the old one, and reads on in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from isthmus.adapters.kafka import places
from isthmus.adapters.kafka.connection import PATIENCE, Connection, first_result, poll
from isthmus.adapters.kafka.messages import entry_of
from isthmus.adapters.kafka.places import Part, Place, Places
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    Position,
    Recreated,
    Slice,
    Trimmed,
    Unavailable,
)

WAIT = 1.0
"""Seconds that a read waits for an entry."""
_AHEAD = 16 << 10
"""KiB that librdkafka may fetch ahead of us."""
_AT_ONCE = 1000
"""Messages that are taken from librdkafka at a time: what is beyond a slice waits here for the next."""
_AROUND = 16
"""Bytes that a message counts beside its value."""
_MAKING = 0.3
"""Seconds that `now` waits for transactions that are about to end."""


class Offsets:
    """Where partitions begin and end, and of which topics they are."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.admin = connection.admin()

    def described(self, topic: str) -> Any:
        """What the broker says of a topic; `LogProblem` if there is none."""
        admin = self.admin
        future = first_result(admin.describe_topics(TopicCollection([topic]), request_timeout=PATIENCE))
        try:
            return future.result(PATIENCE + 1)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise LogProblem(
                    f"there is no topic {topic} at {self.connection.where}: create it, or correct stream"
                ) from None
            raise self._trouble(admin, error) from None

    def topic_id(self, topic: str) -> str:
        return str(self.described(topic).topic_id)

    def first(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def end(self, topic: str, partition: int) -> int:
        """Behind everything, transactions that are under way included."""
        return self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def committed(self, topic: str, partition: int) -> int:
        """Behind everything that cannot change any more: before the first transaction that is under way."""
        return self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def since(self, topic: str, partition: int, milliseconds: int) -> int:
        """Before the first message of that time or later; the end if there is none."""
        spec = OffsetSpec.for_timestamp(milliseconds)
        found = self._offset(topic, partition, spec, IsolationLevel.READ_COMMITTED)
        return found if found >= 0 else self.committed(topic, partition)

    def settled(self, topic: str, partition: int, patience: float) -> bool:
        """Wait until every transaction is over that has written there by now, so long at most."""
        end = self.end(topic, partition)
        give_up = time.monotonic() + patience
        pause = 0.001
        while self.committed(topic, partition) < end:
            if time.monotonic() > give_up:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True

    def _offset(self, topic: str, partition: int, spec: Any, level: Any) -> int:
        asked = {TopicPartition(topic, partition): spec}
        admin = self.admin
        future = first_result(admin.list_offsets(asked, isolation_level=level, request_timeout=PATIENCE))
        try:
            found: int = future.result(PATIENCE + 1).offset
        except (KafkaException, TimeoutError) as error:
            raise self._trouble(admin, error) from None
        return found

    def _trouble(self, admin: Any, error: Exception) -> Exception:
        # It would go on for minutes to ask whoever led the partition before, in the epoch of that time.
        self.admin = self.connection.admin()
        poll(admin)
        return self.connection.trouble(error)


class Reader:
    """Reads on from wherever it is told. Everything here is for one thread, but for `find`."""

    def __init__(self, connection: Connection, offsets: Offsets, parts: Sequence[Part]) -> None:
        self._connection = connection
        self._offsets = offsets
        self._parts = parts
        self._part_of = {(part.topic, part.partition): index for index, part in enumerate(parts)}
        self._consumer: Any = None
        self._places: Places = []
        self._given: Position | None = None
        self._gathered: list[Any] = []

    def find(self, start: str) -> Position:
        """See `Log.find`. In the broker's own words a position is an offset, or one for each partition."""
        if start == "now":
            # What we appended ourselves is committed by now, but where it stands that may not be written yet.
            for part in self._parts:
                self._offsets.settled(part.topic, part.partition, _MAKING)
            return self._everywhere(lambda part: self._offsets.committed(part.topic, part.partition))
        if start == "start":
            return self._everywhere(lambda part: self._offsets.first(part.topic, part.partition))
        numbers = start.split(",")
        if len(numbers) == len(self._parts) and all(number.isdecimal() and len(number) < 19 for number in numbers):
            offsets = {part: int(number) for part, number in zip(self._parts, numbers, strict=True)}
            return self._everywhere(offsets.__getitem__)
        if ":" in start and len(start) > len("2001-01-01T00:00:00.000000+00:00"):
            return places.written(places.read(start, len(self._parts)))
        try:
            moment = datetime.fromisoformat(start)
        except ValueError:
            raise LogProblem(
                f"nothing begins at {start[:80]!r}; write start, now, a time such as 2001-01-31T12:00:00Z, or an offset"
            ) from None
        at = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        return self._everywhere(lambda part: self._offsets.since(part.topic, part.partition, at))

    def _everywhere(self, offset: Callable[[Part], int]) -> Position:
        return places.written([Place(self._offsets.topic_id(part.topic), offset(part)) for part in self._parts])

    def read(self, after: Position, entries: int, size: int) -> Slice:
        """See `Log.read`."""
        if after != self._given or self._consumer is None:
            self._begin(after)
        try:
            self._gather(entries)
            found = self._slice(entries, size)
            self._check_topics()
        except Exception:
            # What was taken from the consumer by then will be fetched again.
            self.close()
            raise
        self._given = found.position
        return found

    def close(self) -> None:
        consumer, self._consumer, self._given = self._consumer, None, None
        self._gathered = []
        if consumer is not None:
            consumer.close()

    def _begin(self, after: Position) -> None:
        self.close()
        begin = places.read(self.find("start") if after == BEGINNING else after, len(self._parts))
        self._places = begin
        self._check_topics()
        assigned = []
        for part, place in zip(self._parts, begin, strict=True):
            passed = place.offset + place.passed
            first = self._offsets.first(part.topic, part.partition)
            if first > passed:
                raise Trimmed(
                    f"{first - passed:,} offsets of {_named(part)} at {self._connection.where} are gone that were not "
                    f"read: it begins at {first}, and was read up to {passed}"
                )
            end = self._offsets.end(part.topic, part.partition)
            if end < passed:
                raise self._set_back(part, f"it ends at {end}, and was read up to {passed}")
            # With the epoch of what was read last, librdkafka asks the broker whether that is still there.
            position = TopicPartition(part.topic, part.partition, place.offset, leader_epoch=place.epoch)
            if first > place.offset or place.epoch < 0:
                position = TopicPartition(part.topic, part.partition, max(first, place.offset))
            assigned.append(position)
        self._consumer = self._connection.consumer(
            queued_max_messages_kbytes=_AHEAD, queued_min_messages=100_000, fetch_message_max_bytes=4 << 20
        )
        self._consumer.assign(assigned)
        self._given = after

    def _gather(self, entries: int) -> None:
        """Wait until there is a message, and take what has come."""
        give_up = time.monotonic() + WAIT
        while not self._gathered or all(_is_end(message) for message in self._gathered):
            left = give_up - time.monotonic()
            if left <= 0 or not (came := self._consumer.consume(1, left)):
                return
            self._gathered += came
            self._gathered += self._consumer.consume(max(entries, _AT_ONCE), 0)

    def _slice(self, most: int, size: int) -> Slice:
        """What of that goes into one slice. The rest stays for the next."""
        entries: list[Entry] = []
        used = taken = 0
        last: dict[int, Any] = {}
        ends: dict[int, int] = {}
        for message in self._gathered:
            part = self._part_of.get((message.topic(), message.partition()), 0)
            error = message.error()
            if error is None:
                length = len(message) + _AROUND
                if entries and (len(entries) >= most or used + length > size):
                    break
                entries.append(entry_of(message, part))
                used += length
                last[part] = message
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[part] = message.offset()
            elif entries:
                break
            else:
                raise self._trouble(error, part)
            taken += 1
        del self._gathered[:taken]
        for part, message in last.items():
            self._places[part] = self._places[part]._replace(
                offset=message.offset() + 1, epoch=_epoch(message), passed=0
            )
        for part, end in ends.items():
            place = self._places[part]
            self._places[part] = place._replace(passed=max(place.passed, end - place.offset))
        return Slice(entries, places.written(self._places))

    def _trouble(self, error: KafkaError, number: int) -> Exception:
        part = self._parts[number]
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            # The words alone tell it from an offset that is not there.
            if "truncation" in error.str().lower():
                return self._set_back(part, "what was read last is not there any more")
            # Trimmed, or made anew: the next call finds out which.
            return Unavailable(f"{_named(part)} at {self._connection.where}: {error.str()}")
        return self._connection.trouble(KafkaException(error))

    def _check_topics(self) -> None:
        for topic in {part.topic for part in self._parts}:
            self._check_topic(topic)

    def _check_topic(self, topic: str) -> None:
        known = next(
            place.topic_id for part, place in zip(self._parts, self._places, strict=True) if part.topic == topic
        )
        if self._offsets.topic_id(topic) != known:
            raise Recreated(
                f"the topic {topic} at {self._connection.where} is not the one that was read: it was deleted and made "
                "anew, and what was in it is gone"
            )

    def _set_back(self, part: Part, why: str) -> Recreated:
        return Recreated(f"{_named(part)} at {self._connection.where} has lost entries that were read: {why}")


def _is_end(message: Any) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _named(part: Part) -> str:
    return f"partition {part.partition} of {part.topic}"
