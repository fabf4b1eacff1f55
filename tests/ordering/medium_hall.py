"""A few entities on a medium that a test works by hand: it says which PDU is carried next, and who misses it."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import SECOND, Nanos
from isthmus.core.message import Batch
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.acknowledged.member import AcknowledgingMember, Protocol, make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings
from isthmus.ordering.group.window import GroupSettings

HEARTBEAT: Nanos = SECOND


class Hall:
    """Entities 1 to n. On 1C all PDUs are in one queue, on MC those of each sender in its own."""

    def __init__(self, protocol: Protocol, size: int, acknowledged: AcknowledgedSettings | None = None) -> None:
        self.protocol = protocol
        settings = GroupSettings(heartbeat=HEARTBEAT, suspect_after=10 * HEARTBEAT, retry_after=2 * HEARTBEAT)
        acknowledged = acknowledged or replace(AcknowledgedSettings(), answer_after=0)
        ids = range(1, size + 1)
        self.now: Nanos = 0
        self.members: dict[int, AcknowledgingMember] = {
            each: make_member(protocol, each, ids, acknowledged, settings) for each in ids
        }
        self.waiting: dict[int, deque[tuple[int, tuple[int, ...], Pdu]]] = {}
        self.delivered: dict[int, list[str]] = {each: [] for each in ids}
        self.stages: dict[int, list[tuple[str, str]]] = {each: [] for each in ids}
        self.views: dict[int, View] = {}
        self.carried: list[Pdu] = []
        self._out = Outbox()

    def broadcast(self, entity: int, *texts: str) -> None:
        self.members[entity].broadcast([text.encode() for text in texts], self.now, self._out)
        self._carry_out(entity)

    def carry(self, source: int | None = None, lost: tuple[int, ...] = ()) -> Pdu:
        """The next PDU of the medium, or of this sender's channel, reaches all it is for but those who miss it."""
        channel = 0 if self.protocol == "to" else source
        if channel is None:
            channel = next(each for each, queue in sorted(self.waiting.items()) if queue)
        sender, destinations, pdu = self.waiting[channel].popleft()
        self.carried.append(pdu)
        for entity in destinations:
            if entity == sender or entity not in lost:
                self.receive(entity, sender, pdu)
        return pdu

    def receive(self, entity: int, sender: int, *pdus: Pdu) -> None:
        self.members[entity].receive(sender, pdus, self.now, self._out)
        self._carry_out(entity)

    def carry_all(self, limit: int = 2000) -> None:
        while any(self.waiting.values()):
            self.carry()
            limit -= 1
            assert limit, "it never falls silent"

    def wake(self, *entities: int) -> None:
        for entity in entities or self.members:
            self.members[entity].wake(self.now, self._out)
            self._carry_out(entity)

    def run_heartbeats(self, heartbeats: int = 20) -> None:
        """Let time pass until everything is done."""
        for _ in range(heartbeats):
            self.now += HEARTBEAT
            self.wake()
            self.carry_all()

    def logs(self) -> list[str]:
        """RL = ARL | PRL | RRL of every entity, as in Fig. 1; of ARL only how long it is."""
        lines = []
        for entity, member in self.members.items():
            for log in member.order.logs:
                if log.acknowledged or log.pre_acknowledged or log.received:
                    parts = [" ".join(map(_name, stage)) for stage in (log.pre_acknowledged, log.received)]
                    lines.append(f"  E{entity}: {log.acknowledged} | {parts[0]} | {parts[1]}")
        return lines

    def _carry_out(self, entity: int) -> None:
        out = self._out
        for stage, batch in out.stages:
            self.stages[entity] += [(stage, payload.decode()) for payload in batch.segment.payloads()]
        for delivery in out.deliveries:
            if isinstance(delivery, Batch):
                self.delivered[entity] += [payload.decode() for payload in delivery.segment.payloads()]
            else:
                self.views[entity] = delivery
        for destinations, pdu in out.sends:
            channel = 0 if self.protocol == "to" else entity
            self.waiting.setdefault(channel, deque()).append((entity, tuple(destinations), pdu))
        out.clear()
        self.members[entity].invariants()


def _name(entry: tuple[int, Batch]) -> str:
    rank, batch = entry
    text = "".join(payload.decode() for payload in batch.segment.payloads())
    return f"{text or 'e'}{rank + 1}.{batch.number}"
