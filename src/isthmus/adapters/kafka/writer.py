"""Holds the claim of a log and appends to it, by blocking calls: whoever uses this does so in one thread.

Who holds the claim is what the state topic says. What keeps everybody else from writing is the epoch of our
transactional id: to begin with it (`init_transactions`) ends every transaction that was under way with it, and shuts
out whoever began before. So whoever has begun, *and then* read in the state topic that the claim is its own, knows that
each transaction that it can commit stands directly behind the state that it knows: nobody else can have committed one
in between without shutting it out. That is all there is to the comparison with the expected record, too.

A commit whose outcome is not known is found out in the same way: begin anew, which ends it one way or the other, and
read. Whoever reads another claim then has lost its own; it may have shut out the new holder by beginning anew, which
reads its own claim, begins anew in turn, and goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace

from isthmus.adapters.kafka.connection import FENCED, PATIENCE, Connection, poll
from isthmus.adapters.kafka.messages import headers_of, size_of
from isthmus.adapters.kafka.places import Part
from isthmus.adapters.kafka.state import KEY, MOST_BYTES, Kept, Seen, StateTopic
from isthmus.runtime.log.interface import Entry, Refused, State, Superseded

TRANSACTION_TIMEOUT = 10.0
"""Seconds after which the broker ends a transaction in whose middle somebody has died. Till then nobody who reads what
is committed gets past it, unless a successor claims the log, which ends it at once."""

_REFUSALS = {
    KafkaError.INVALID_RECORD: "the broker calls it invalid: a compacted topic takes no message without a key",
    KafkaError.INVALID_MSG: "the broker calls it invalid",
    KafkaError.INVALID_TIMESTAMP: "the topic takes no such time (message.timestamp.before.max.ms and after.max.ms)",
    KafkaError.POLICY_VIOLATION: "a policy of the broker forbids it",
}


class Layout(msgspec.Struct, frozen=True):
    """What writing has to know of the topics: the partitions that are ours, and of each topic the largest batch."""

    parts: Sequence[Part]
    limits: dict[str, int]
    parked: str


class Writer:
    """The holder of a claim, or somebody who would be."""

    def __init__(self, connection: Connection, state: StateTopic, layout: Layout) -> None:
        self._connection = connection
        self._state = state
        self._layout = layout
        self._producer: Any = None
        self._claim = b""
        """Which claim is ours, as far as we know."""
        self._kept = Kept()
        self._watched = Seen(Kept(), -1)
        self._watched_since = time.monotonic()

    def watch(self) -> Seen:
        """Look who holds the claim. Its lease is over when we have seen nothing new from it for so long."""
        seen = self._state.last(settled=False)
        if seen.offset != self._watched.offset:
            self._watched, self._watched_since = seen, time.monotonic()
        return seen

    def claim(self, holder: str, lease: float) -> State | None:
        seen = self.watch()
        ours = self._claim and seen.kept.claim == self._claim
        if not ours and time.monotonic() < self._watched_since + seen.kept.lease:
            return None
        self._begin()
        now = self._state.last(settled=True)
        if now.offset != seen.offset and not ours:
            # It is alive after all, and will see that we have done nothing.
            self._let_go()
            return None
        self._claim, self._kept = os.urandom(16), now.kept
        try:
            self._write((), replace(now.kept, token=now.kept.token + 1, claim=self._claim, holder=holder, lease=lease))
        except Superseded:
            return None
        return State(self._kept.token, self._kept.record, self._kept.checkpoint)

    def state(self) -> State:
        if self._claim and self._producer is None:
            try:
                self._find_out()
            except Superseded:
                pass
        kept = self._state.last(settled=True).kept
        return State(kept.token, kept.record, kept.checkpoint)

    def renew(self, lease: float) -> None:
        self._ready()
        self._write((), replace(self._kept, lease=lease))

    def release(self) -> None:
        try:
            self._ready()
            self._write((), replace(self._kept, lease=0.0))
        except Superseded:
            pass
        self._claim = b""
        self._let_go()

    def note(self, checkpoint: bytes) -> None:
        self._ready()
        self._write((), replace(self._kept, checkpoint=checkpoint))

    def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        self._expect(expected)
        self._write([self._message(index, entry) for index, entry in enumerate(entries)], self._with(record))

    def park(self, key: bytes, value: bytes, record: bytes, expected: bytes) -> None:
        self._expect(expected)
        self._write([{"topic": self._layout.parked, "partition": 0, "key": key, "value": value}], self._with(record))

    def close(self) -> None:
        self._claim = b""
        self._let_go()

    # How it is done ---------------------------------------------------------------------------------------------------

    def _expect(self, expected: bytes) -> None:
        self._ready()
        if self._kept.record != expected:
            raise Superseded

    def _with(self, record: bytes) -> Kept:
        return replace(self._kept, record=record)

    def _message(self, index: int, entry: Entry) -> dict[str, Any]:
        content = entry.content
        try:
            headers = headers_of(entry)
        except UnicodeDecodeError:
            raise Refused(index, "the name of a header is no UTF-8, and Kafka has no others") from None
        part = self._layout.parts[entry.part]
        value = content.body if content.place >= 0 else None
        size, limit = size_of(value, content.key, headers), self._layout.limits[part.topic]
        if size > limit:
            raise Refused(index, f"with {size:,} bytes it is larger than max.message.bytes of {part.topic}, {limit:,}")
        message = {"topic": part.topic, "partition": part.partition, "value": value, "key": content.key}
        message["headers"] = headers
        if content.time > 0:
            message["timestamp"] = content.time
        return message

    def _ready(self) -> None:
        """The claim is ours as far as we know, and how our last transaction ended is known."""
        if not self._claim:
            raise Superseded
        if self._producer is None:
            self._find_out()

    def _find_out(self) -> None:
        """Begin anew, and see whether the claim is still ours."""
        if self._state.last(settled=False).kept.claim == self._claim:
            self._begin()
            kept = self._state.last(settled=True).kept
            if kept.claim == self._claim:
                self._kept = kept
                return
        self._claim = b""
        self._let_go()
        raise Superseded

    def _begin(self) -> None:
        """Shut out whoever writes by our transactional id, and end what it had under way."""
        self._let_go()
        producer = self._connection.producer(
            transactional_id=self._connection.name,
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT * 1000),
            # Of a batch of several messages the broker measures the whole.
            batch_size=min(1_000_000, *self._layout.limits.values()),
            message_max_bytes=MOST_BYTES,
            # A commit waits for no linger.
            linger_ms=20,
            queue_buffering_max_kbytes=64 << 10,
            delivery_report_only_error=True,
        )
        try:
            producer.init_transactions(PATIENCE)
        except KafkaException as error:
            poll(producer)
            raise self._connection.trouble(error) from None
        self._producer = producer

    def _let_go(self) -> None:
        """Forget the producer. What it had under way is found out by whoever begins next."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _write(self, messages: Sequence[dict[str, Any]], kept: Kept) -> None:
        """One transaction: these messages, and what is kept from now on."""
        producer = self._producer
        failed: list[tuple[int, KafkaError]] = []
        try:
            producer.begin_transaction()
            for index, message in enumerate(messages):
                self._produce(message, partial(_note_failure, failed, index))
            self._produce(
                {"topic": self._state.topic, "partition": 0, "key": KEY, "value": self._state.message(kept)},
                partial(_note_failure, failed, -1),
            )
            producer.commit_transaction(PATIENCE)
        except (KafkaException, BufferError) as error:
            raise self._meaning(error, failed, messages) from None
        except BaseException:
            self._let_go()
            raise
        self._kept = kept
        self._state.written(kept)

    def _produce(self, message: dict[str, Any], on_delivery: Any) -> None:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                self._producer.produce(**message, on_delivery=on_delivery)
                return
            except BufferError:
                if time.monotonic() > give_up:
                    raise
                self._producer.poll(0.05)

    def _meaning(
        self, error: Exception, failed: Sequence[tuple[int, KafkaError]], messages: Sequence[dict[str, Any]]
    ) -> Exception:
        """What it means that a transaction did not come to its end."""
        poll(self._producer)
        reason = next((reason for index, reason in failed if reason.code() in _REFUSALS and index >= 0), None)
        if reason is not None:
            try:
                index = self._first_refused(messages)
                return Refused(index, f"{_REFUSALS[reason.code()]} ({reason.str()})")
            except (KafkaException, BufferError) as other:
                error = other
            finally:
                # What is tried is tried without asking again whether the claim is ours.
                self._let_go()
        self._let_go()
        reasons = [each for _, each in failed]
        if isinstance(error, KafkaException):
            reasons.append(error.args[0])
        if any(each.code() in FENCED for each in reasons):
            # Somebody has begun anew: a new holder, or a former one that has lost its way and will find out.
            if self._state.last(settled=True).kept.claim != self._claim:
                self._claim = b""
                return Superseded()
        return self._connection.trouble(error)

    def _first_refused(self, messages: Sequence[dict[str, Any]]) -> int:
        """Which is the first that the broker does not take: it refuses whole batches, and does not say for which.

        Halves are tried in transactions that are aborted.
        """
        begin, end = 0, len(messages)
        while end - begin > 1:
            middle = (begin + end) // 2
            if self._is_refused(messages[begin:middle]):
                end = middle
            else:
                begin = middle
        return begin

    def _is_refused(self, messages: Sequence[dict[str, Any]]) -> bool:
        failed: list[tuple[int, KafkaError]] = []
        # A producer that was refused something sent nothing for 5 s after its abort; a new one sends at once.
        self._begin()
        self._producer.begin_transaction()
        for index, message in enumerate(messages):
            self._produce(message, partial(_note_failure, failed, index))
        self._producer.flush(PATIENCE)
        self._producer.abort_transaction(PATIENCE)
        if any(reason.code() in _REFUSALS for _, reason in failed):
            return True
        if failed:
            raise KafkaException(failed[0][1])
        return False


def _note_failure(failed: list[tuple[int, KafkaError]], index: int, error: KafkaError | None, _: object) -> None:
    if error is not None:
        failed.append((index, error))
