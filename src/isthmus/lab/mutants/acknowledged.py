"""Mistakes in TO and PO: conditions, logs, what is done about losses and crashes (docs/design/to-po.md)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Fetch, Promise
from isthmus.lab.mutants.mutant import mutant, part_of
from isthmus.ordering.acknowledged.member import (
    AcknowledgingMember,
    TotallyOrderingMember,
)
from isthmus.ordering.acknowledged.po import PartialOrder
from isthmus.ordering.acknowledged.receipts import AcknowledgingOrder
from isthmus.ordering.acknowledged.to import LogMembership, TotallyOrdering
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import Membership

# The originals that mutants build on, taken before anything is replaced.
_stamp = AcknowledgingOrder.stamp
_arrived = PartialOrder.arrived
_on_fetch = GroupMember._on_fetch
_end_step = AcknowledgingMember._end_step
_finish = TotallyOrdering.finish
_to_on_batch = TotallyOrderingMember._on_batch


# Conditions


@mutant("pack-index-as-printed", breaks="fifo", of=AcknowledgingOrder.seen_by_all, scenario="po")
def _printed_index(self: AcknowledgingOrder, rank: int) -> int:
    """The PACK condition takes the minimum of a row, as the paper prints it.

    As printed, minAL_j is "the minimum of AL_j1, …, AL_jn": what E_j has of everybody.
    """
    return min(self.knows[rank])


@mutant("acknowledged-too-soon", breaks="total", of=AcknowledgingOrder.may_acknowledge, scenario="to")
def _acknowledged_at_once(self: AcknowledgingOrder, rank: int, batch: Batch) -> bool:
    """A PDU counts as acknowledged as soon as it is pre-acknowledged."""
    return self.may_pre_acknowledge(rank, batch)


@mutant("pack-one-not-asked", breaks="total", of=AcknowledgingOrder.seen_by_all, scenario="to")
def _one_not_asked(self: AcknowledgingOrder, rank: int) -> int:
    """A PDU is pre-acknowledged when all but the last member have it."""
    return min((row[rank] for row in self.knows[:-1]), default=0)


@mutant("pack-by-majority", breaks="fifo", of=AcknowledgingOrder.seen_by_all, scenario="po")
def _majority(self: AcknowledgingOrder, rank: int) -> int:
    """A PDU is pre-acknowledged when most members have it."""
    have = sorted(row[rank] for row in self.knows)
    return have[(len(have) - 1) // 2]


@mutant("receipt-condition-2-dropped", breaks="fifo", of=AcknowledgingOrder.lacking, scenario="po")
def _nothing_lacking(self: AcknowledgingOrder, batch: Batch) -> int | None:
    """A PDU is received before what its sender had."""
    return None


@mutant("flow-condition-ignored", breaks="total", of=AcknowledgingOrder.may_send, scenario="to")
def _no_flow_control(self: AcknowledgingOrder) -> bool:
    """Data is sent whatever is under way."""
    return True


@mutant("no-empty-pdu", breaks="fifo", of=AcknowledgingOrder.owes, scenario="po")
def _never_owes(self: AcknowledgingOrder) -> bool:
    """Without data nothing is acknowledged."""
    return False


@mutant("acknowledgements-not-answered", breaks="fifo", of=PartialOrder.answer, scenario="po")
def _no_answer(self: PartialOrder, rank: int, number: int) -> None:
    """Nobody says that it has what pre-acknowledged a PDU.

    The PDU itself is acknowledged, but nobody says that it has the acknowledgements.
    """


@mutant("log-not-answered", breaks="total", of=TotallyOrdering.answer, scenario="slow to")
def _log_not_answered(self: TotallyOrdering, rank: int, number: int) -> None:
    """Acknowledgements that come late are not answered.

    Waits for nobody's word, and answers only what is there.
    """
    self._answer(self._places.popleft())


@mutant("too-much-acknowledged", breaks="fifo", of=AcknowledgingOrder.stamp, scenario="po")
def _claims_one_more(self: AcknowledgingOrder, number: int) -> list[int]:
    """A stamp says that the first member has one PDU more than it has."""
    stamp = _stamp(self, number)
    if self.own:
        stamp[0] += 1
    return stamp


# PO


@mutant("held-pdu-discarded", breaks="fifo", of=PartialOrder.arrived, scenario="po")
def _discards(self: PartialOrder, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
    """A PDU that comes before what its sender had is thrown away."""
    if self.closing or self.lacking(batch) is None:
        _arrived(self, rank, batch, ready, holds)


@mutant("retransmission-lost", breaks="fifo", of=GroupMember._on_fetch, scenario="po")
def _nothing_sent_again(self: GroupMember, source: ProcessId, fetch: Fetch, now: Nanos, out: Outbox) -> None:
    """A request for what was lost is not answered."""
    if self.membership.blocked or fetch.view != self.view.number:
        _on_fetch(self, source, fetch, now, out)


@mutant("loss-not-reported", breaks="fifo", of=AcknowledgingMember._ask, scenario="po")
def _does_not_ask(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    """Nobody asks for what was lost."""
    self._ask_at.clear()


@mutant("loss-skipped", breaks="fifo", of=AcknowledgingMember._ask, scenario="po")
def _gaps_skipped(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    """The stream goes on behind a gap."""
    for sender, stream in self.incoming.items():
        if stream.early:
            later = [stream.early[number] for number in sorted(stream.early)]
            stream.early.clear()
            for batch in later:
                moved = replace(batch, number=stream.received + 1)
                for each in stream.accept(moved):
                    self._hand_over(self._ranks[sender], each, out)
    self._ask_at.clear()


# TO


@mutant("selective-repeat-in-to", breaks="total", of=TotallyOrdering._fill, scenario="to")
def _placed_where_it_comes(self: TotallyOrdering, rank: int, ready: list[Batch]) -> bool:
    """What was lost is fetched and put at the end of the log, instead of going back."""
    batch = self._here(rank, self.expected[rank])
    if batch is None or self.lacking(batch) is not None:
        return False
    self.accept(rank, batch, ready)
    return True


@mutant("unsure-log-told", breaks="total", of=TotallyOrdering.sure, scenario="to")
def _always_sure(self: TotallyOrdering) -> int:
    """Who has lost something follows a log that may lack something itself."""
    return self.length


@mutant("no-going-back", breaks="total", of=TotallyOrdering.follow, scenario="to")
def _told_is_nothing_new(self: TotallyOrdering, first: int, ranks: Sequence[int], ready: list[Batch]) -> None:
    """A loss is seen and nothing is done about it."""


@mutant("sent-again-taken-for-carried", breaks="total", of=TotallyOrderingMember._on_batch, scenario="to")
def _sent_again_is_carried(
    self: TotallyOrderingMember, source: ProcessId, batch: Batch, now: Nanos, out: Outbox
) -> None:
    """What is sent again stands where it comes."""
    self._exist.clear()
    stream = self.incoming.get(batch.sender)
    if stream is not None:
        stream.seen = min(stream.seen, batch.number - 1)
    _to_on_batch(self, source, batch, now, out)


@mutant("no-agreement-on-an-order", breaks="total", of=TotallyOrderingMember.go_back, scenario="to")
@part_of("no-going-back", of=TotallyOrderingMember.go_back)
def _does_not_go_back(self: TotallyOrderingMember, now: Nanos) -> None:
    """Where nobody knows the order, everybody waits for somebody who does."""


@mutant("own-place-at-once", breaks="total", of=TotallyOrderingMember._send_batch, scenario="slow to")
def _own_place_at_once(self: TotallyOrderingMember, segment: Segment, now: Nanos, out: Outbox) -> None:
    """An entity logs its own PDUs when it sends them."""
    batch = self._stamped(segment, now, out)
    self._hear(self._own_rank, batch.number, out)
    out.sends.append((self.view.members, batch))


@part_of("own-place-at-once", of=TotallyOrderingMember._carried)
def _not_carried_again(self: TotallyOrderingMember, batch: Batch, out: Outbox) -> None:
    """Part of the mistake above: an own PDU that the medium brings back is ignored, as it has its place already."""


@mutant("agreed-order-ignored", breaks="total", of=TotallyOrdering.close, scenario="to")
def _agreed_order_ignored(self: TotallyOrdering, order: Sequence[int]) -> None:
    """At the end of a view everybody takes its own log, then ranks."""
    AcknowledgingOrder.close(self, order)


@mutant("log-not-reported", breaks="total", of=LogMembership._promise, scenario="to")
def _log_not_reported(self: LogMembership, ballot: int) -> Promise:
    """Promises do not say what was received in which order."""
    return Membership._promise(self, ballot)


@mutant("empty-pdu-not-broadcast", breaks="total", of=AcknowledgingMember._end_step, scenario="to")
def _empty_pdus_counted_out(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    """Empty PDUs get a number and never leave, whoever asks for them.

    The timer's PDU is made and never broadcast, so that it is as good as lost.
    """
    before = len(out.sends)
    _end_step(self, now, out)
    out.sends[before:] = [
        (to, pdu) for to, pdu in out.sends[before:] if not (isinstance(pdu, Batch) and not pdu.segment)
    ]


@part_of("empty-pdu-not-broadcast", of=GroupMember._on_fetch)
def _data_sent_again(self: GroupMember, source: ProcessId, fetch: Fetch, now: Nanos, out: Outbox) -> None:
    before = len(out.sends)
    _on_fetch(self, source, fetch, now, out)
    out.sends[before:] = [(to, pdu) for to, pdu in out.sends[before:] if isinstance(pdu, Batch) and pdu.segment]


@mutant("behind-the-failure-point-lost", breaks="total", of=TotallyOrdering.finish, scenario="to")
def _flush_forgets(self: TotallyOrdering, ready: list[Batch]) -> None:
    """What the agreed log does not have is dropped."""
    _finish(self, ready)
    known = len(self.agreed)
    del ready[known:]
