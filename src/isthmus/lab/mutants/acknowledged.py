"""Mistakes in TO and PO: conditions, logs, what is done about losses and crashes (docs/design/to-po.md)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.ids import LinkId, Nanos
from isthmus.core.message import Batch, Message
from isthmus.core.wire.group import Fetch, Promise
from isthmus.lab.mutants.mutant import Mutant
from isthmus.ordering.acknowledged.member import (
    AcknowledgingMember,
    TotallyOrderingMember,
)
from isthmus.ordering.acknowledged.po import PartialOrder
from isthmus.ordering.acknowledged.receipts import AcknowledgingOrder
from isthmus.ordering.acknowledged.to import LogMembership, TotallyOrdering
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import Membership

# Conditions


def _printed_index(self: AcknowledgingOrder, rank: int) -> int:
    """As printed, minAL_j is "the minimum of AL_j1, …, AL_jn": what E_j has of everybody."""
    return min(self.knows[rank])


def _acknowledged_at_once(self: AcknowledgingOrder, rank: int, batch: Batch) -> bool:
    return self.may_pre_acknowledge(rank, batch)


def _one_not_asked(self: AcknowledgingOrder, rank: int) -> int:
    return min((row[rank] for row in self.knows[:-1]), default=0)


def _majority(self: AcknowledgingOrder, rank: int) -> int:
    have = sorted(row[rank] for row in self.knows)
    return have[(len(have) - 1) // 2]


def _nothing_lacking(self: AcknowledgingOrder, batch: Batch) -> int | None:
    return None


def _no_flow_control(self: AcknowledgingOrder) -> bool:
    return True


def _never_owes(self: AcknowledgingOrder) -> bool:
    return False


def _no_answer(self: PartialOrder, rank: int, number: int) -> None:
    """The PDU itself is acknowledged, but nobody says that it has the acknowledgements."""


def _log_not_answered(self: TotallyOrdering, rank: int, number: int) -> None:
    """Waits for nobody's word, and answers only what is there."""
    self._answer(self._places.popleft())


def _claims_one_more(self: AcknowledgingOrder, number: int) -> list[int]:
    """Says of the first member that it has one PDU more than it has."""
    stamp = _stamp(self, number)
    if self.own:
        stamp[0] += 1
    return stamp


# PO


def _discards(self: PartialOrder, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
    """What fails the receipt condition is thrown away, and nobody knows that it ever came."""
    if self.closing or self.lacking(batch) is None:
        _arrived(self, rank, batch, ready, holds)


def _nothing_sent_again(self: GroupMember, link: LinkId, fetch: Fetch, out: Outbox) -> None:
    if self.membership.blocked or fetch.view != self.view.number:
        _on_fetch(self, link, fetch, out)


def _does_not_ask(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    self._ask_at.clear()


def _gaps_skipped(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    """What is lost is lost: goes on with what came after it."""
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


def _placed_where_it_comes(self: TotallyOrdering, rank: int, ready: list[Batch]) -> bool:
    """What was lost is put at the end of the log, whatever stands there."""
    batch = self._here(rank, self.expected[rank])
    if batch is None or self.lacking(batch) is not None:
        return False
    self.accept(rank, batch, ready)
    return True


def _always_sure(self: TotallyOrdering) -> int:
    return self.length


def _told_is_nothing_new(self: TotallyOrdering, first: int, ranks: Sequence[int], ready: list[Batch]) -> None:
    """Does not follow anybody."""


def _sent_again_is_carried(self: TotallyOrderingMember, link: LinkId, batch: Batch, now: Nanos, out: Outbox) -> None:
    """Takes what was sent again for what the medium carries now."""
    self._exist.clear()
    stream = self.incoming.get(batch.sender)
    if stream is not None:
        stream.seen = min(stream.seen, batch.number - 1)
    _to_on_batch(self, link, batch, now, out)


def _does_not_go_back(self: TotallyOrderingMember, now: Nanos) -> None:
    """Waits for somebody who knows."""


def _own_place_at_once(self: TotallyOrderingMember, messages: list[Message], now: Nanos, out: Outbox) -> None:
    """Puts its own PDU into its log when it sends it, and not where the medium carries it."""
    batch = self._stamped(messages, now, out)
    self._hear(self._own_rank, batch.number, out)
    out.sends.append((self.view.members, batch))


def _not_carried_again(self: TotallyOrderingMember, batch: Batch, out: Outbox) -> None:
    """Has its place already."""


def _agreed_order_ignored(self: TotallyOrdering, order: Sequence[int]) -> None:
    AcknowledgingOrder.close(self, order)


def _log_not_reported(self: LogMembership, ballot: int) -> Promise:
    return Membership._promise(self, ballot)


def _empty_pdus_counted_out(self: AcknowledgingMember, now: Nanos, out: Outbox) -> None:
    """The timer's PDU is made and never broadcast, so that it is as good as lost."""
    before = len(out.sends)
    _settle(self, now, out)
    out.sends[before:] = [
        (to, pdu) for to, pdu in out.sends[before:] if not (isinstance(pdu, Batch) and not pdu.messages)
    ]


def _data_sent_again(self: GroupMember, link: LinkId, fetch: Fetch, out: Outbox) -> None:
    before = len(out.sends)
    _on_fetch(self, link, fetch, out)
    out.sends[before:] = [(to, pdu) for to, pdu in out.sends[before:] if isinstance(pdu, Batch) and pdu.messages]


def _flush_forgets(self: TotallyOrdering, ready: list[Batch]) -> None:
    """At the end of a view only what the agreed log has is delivered."""
    _finish(self, ready)
    known = len(self.agreed)
    del ready[known:]


_stamp = AcknowledgingOrder.stamp
_arrived = PartialOrder.arrived
_on_fetch = GroupMember._on_fetch
_settle = AcknowledgingMember._settle
_finish = TotallyOrdering.finish
_to_on_batch = TotallyOrderingMember._on_batch

ACKNOWLEDGED_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "pack-index-as-printed",
        "fifo",
        "the PACK condition takes the minimum of a row, as the paper prints it",
        ((AcknowledgingOrder, "seen_by_all", _printed_index),),
        "po",
    ),
    Mutant(
        "pack-one-not-asked",
        "total",
        "a PDU is pre-acknowledged when all but the last member have it",
        ((AcknowledgingOrder, "seen_by_all", _one_not_asked),),
        "to",
    ),
    Mutant(
        "pack-by-majority",
        "fifo",
        "a PDU is pre-acknowledged when most members have it",
        ((AcknowledgingOrder, "seen_by_all", _majority),),
        "po",
    ),
    Mutant(
        "acknowledged-too-soon",
        "total",
        "a PDU counts as acknowledged as soon as it is pre-acknowledged",
        ((AcknowledgingOrder, "may_acknowledge", _acknowledged_at_once),),
        "to",
    ),
    Mutant(
        "receipt-condition-2-dropped",
        "fifo",
        "a PDU is received before what its sender had",
        ((AcknowledgingOrder, "lacking", _nothing_lacking),),
        "po",
    ),
    Mutant(
        "too-much-acknowledged",
        "fifo",
        "A says one more than was received",
        ((AcknowledgingOrder, "stamp", _claims_one_more),),
        "po",
    ),
    Mutant(
        "flow-condition-ignored",
        "total",
        "data is sent whatever is under way",
        ((AcknowledgingOrder, "may_send", _no_flow_control),),
        "to",
    ),
    Mutant(
        "no-empty-pdu",
        "fifo",
        "without data nothing is acknowledged",
        ((AcknowledgingOrder, "owes", _never_owes),),
        "po",
    ),
    Mutant(
        "empty-pdu-not-broadcast",
        "total",
        "empty PDUs get a number and never leave, whoever asks for them",
        (
            (AcknowledgingMember, "_settle", _empty_pdus_counted_out),
            (GroupMember, "_on_fetch", _data_sent_again),
        ),
        "to",
    ),
    Mutant(
        "acknowledgements-not-answered",
        "fifo",
        "nobody says that it has what pre-acknowledged a PDU",
        ((PartialOrder, "answer", _no_answer),),
        "po",
    ),
    Mutant(
        "log-not-answered",
        "total",
        "acknowledgements that come late are not answered",
        ((TotallyOrdering, "answer", _log_not_answered),),
        "slow to",
    ),
    Mutant(
        "held-pdu-discarded",
        "fifo",
        "a PDU that comes before what its sender had is thrown away",
        ((PartialOrder, "arrived", _discards),),
        "po",
    ),
    Mutant(
        "retransmission-lost",
        "fifo",
        "a request for what was lost is not answered",
        ((GroupMember, "_on_fetch", _nothing_sent_again),),
        "po",
    ),
    Mutant(
        "loss-not-reported",
        "fifo",
        "nobody asks for what was lost",
        ((AcknowledgingMember, "_ask", _does_not_ask),),
        "po",
    ),
    Mutant(
        "loss-skipped",
        "fifo",
        "the stream goes on behind a gap",
        ((AcknowledgingMember, "_ask", _gaps_skipped),),
        "po",
    ),
    Mutant(
        "selective-repeat-in-to",
        "total",
        "what was lost is fetched and put at the end of the log, instead of going back",
        ((TotallyOrdering, "_fill", _placed_where_it_comes),),
        "to",
    ),
    Mutant(
        "unsure-log-told",
        "total",
        "who has lost something follows a log that may lack something itself",
        ((TotallyOrdering, "sure", _always_sure),),
        "to",
    ),
    Mutant(
        "sent-again-taken-for-carried",
        "total",
        "what is sent again stands where it comes",
        ((TotallyOrderingMember, "_on_batch", _sent_again_is_carried),),
        "to",
    ),
    Mutant(
        "no-going-back",
        "total",
        "a loss is seen and nothing is done about it",
        (
            (TotallyOrdering, "follow", _told_is_nothing_new),
            (TotallyOrderingMember, "go_back", _does_not_go_back),
        ),
        "to",
    ),
    Mutant(
        "no-agreement-on-an-order",
        "total",
        "where nobody knows the order, everybody waits for somebody who does",
        ((TotallyOrderingMember, "go_back", _does_not_go_back),),
        "to",
    ),
    Mutant(
        "own-place-at-once",
        "total",
        "an entity logs its own PDUs when it sends them",
        (
            (TotallyOrderingMember, "_send_batch", _own_place_at_once),
            (TotallyOrderingMember, "_carried", _not_carried_again),
        ),
        "slow to",
    ),
    Mutant(
        "agreed-order-ignored",
        "total",
        "at the end of a view everybody takes its own log, then ranks",
        ((TotallyOrdering, "close", _agreed_order_ignored),),
        "to",
    ),
    Mutant(
        "log-not-reported",
        "total",
        "promises do not say what was received in which order",
        ((LogMembership, "_promise", _log_not_reported),),
        "to",
    ),
    Mutant(
        "behind-the-failure-point-lost",
        "total",
        "what the agreed log does not have is dropped",
        ((TotallyOrdering, "finish", _flush_forgets),),
        "to",
    ),
)
