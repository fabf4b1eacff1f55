"""The smallest honest member: FIFO broadcast by flooding, with acknowledgements and go-back-n, in one fixed view.

It tests the driver, not an order: whatever it promises beyond "each stream arrives in order and complete" comes from
the code under test.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Self

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import MILLISECOND, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment, join, segments_of
from isthmus.core.wire.group import Ack, LeaveRequest
from isthmus.core.wire.pdu import Pdu

VIEW = 1


class FloodMember:
    def __init__(
        self, process: ProcessId, members: Sequence[ProcessId], window: int = 8192, retry: Nanos = 100 * MILLISECOND
    ) -> None:
        self.id = process
        self.window = window
        self.retry = retry
        self.peers = tuple(member for member in members if member != process)
        self.received = dict.fromkeys(members, 0)
        self.acked = dict.fromkeys(self.peers, 0)
        self.unstable: list[Batch] = []
        self.unstable_messages = 0
        self.sent = 0
        self.last_seq = 0
        self.retry_at: Nanos | None = None
        self.leaving = False
        self.steps = 0

    def broadcast(self, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        first = self.last_seq + 1
        self.last_seq += len(payloads)
        self.relay(segments_of(self.id, first, payloads), now, out)
        return first

    def relay(self, segments: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        self.steps += 1
        self.sent += 1
        batch = Batch(VIEW, self.id, self.sent, [], 0, join(segments))
        self.unstable.append(batch)
        self.unstable_messages += batch.segment.messages
        out.deliveries.append(batch)
        out.sends.append((self.peers, batch))
        self.retry_at = self.retry_at or now + self.retry

    def credit(self) -> int:
        return max(0, self.window - self.unstable_messages)

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        self.steps += 1
        received = self.received[source]
        for pdu in pdus:
            if type(pdu) is Batch:
                if pdu.number == received + 1:
                    received += 1
                    out.deliveries.append(pdu)
            elif type(pdu) is Ack:
                if source in self.acked and pdu.received > self.acked[source]:
                    self.acked[source] = pdu.received
                    self.retry_at = now + self.retry
            elif type(pdu) is LeaveRequest:
                self.peers = tuple(peer for peer in self.peers if peer != source)
                self.acked.pop(source, None)
        self.received[source] = received
        self._free(out)

    def _free(self, out: Outbox) -> None:
        unstable = self.unstable
        if unstable:
            stable = min(self.acked.values(), default=self.sent)
            while unstable and unstable[0].number <= stable:
                batch = unstable.pop(0)
                self.unstable_messages -= batch.segment.messages
                out.stable.append(batch)
        if not unstable:
            self.retry_at = None
            if self.leaving:
                out.sends.append((self.peers, LeaveRequest(VIEW)))
                out.stopped = "left"

    def confirm(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        if sender != self.id:
            out.sends.append(((sender,), Ack(VIEW, number, number)))

    def wake(self, now: Nanos, out: Outbox) -> None:
        if self.retry_at is not None and now >= self.retry_at:
            self.steps += 1
            self.retry_at = now + self.retry
            for peer, acked in self.acked.items():
                for batch in self.unstable[:8]:
                    if batch.number > acked:
                        out.sends.append(((peer,), batch))

    def deadline(self) -> Nanos | None:
        return self.retry_at

    def leave(self, now: Nanos, out: Outbox) -> None:
        self.leaving = True
        self._free(out)

    def invariants(self) -> None: ...

    def fork(self) -> Self:
        raise NotImplementedError

    def snapshot(self) -> Hashable:
        raise NotImplementedError
