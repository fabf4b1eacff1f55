"""A reliable FIFO stream from one process to some others, over a network that loses, duplicates and reorders.

Batches are numbered 1, 2, 3, …; receivers acknowledge cumulatively; the sender sends again what is not
acknowledged in time. `Outgoing` is the sender's half and `Incoming` the receiver's half. With one receiver it is a
plain channel. Both halves keep the batches in a `StreamLog` until somebody above says that they are stable: a
survivor may have to hand on what a crashed sender sent.

Costs: per batch and receiver one acknowledgement; a lost batch costs one more trip after it shows as a gap, or
`retry_after` when it was the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from isthmus.core.ids import Nanos, ProcessId


class Numbered(Protocol):
    """Anything with a number, which a stream can carry: batches of a group, frames between fellow gateways."""

    @property
    def number(self) -> int: ...


Item = TypeVar("Item", bound=Numbered)

RESEND_AT_ONCE = 4
"""Batches sent again to one peer per retry. More would flood a peer that is only slow."""

MAX_BACKOFF = 16
MAX_EARLY = 4096
"""How far ahead of a gap a batch may be to wait for it. One beyond is as good as lost and is sent again."""


class StreamLog(Generic[Item]):
    """The batches of one stream that are not stable yet: numbers `first` .. `last` without a gap."""

    __slots__ = ("_batches", "_dropped", "first")

    def __init__(self, after: int = 0) -> None:
        self._batches: list[Item] = []
        self._dropped = 0
        self.first = after + 1

    @property
    def last(self) -> int:
        return self.first + len(self._batches) - self._dropped - 1

    def append(self, batch: Item) -> None:
        self._batches.append(batch)

    def span(self, first: int, last: int) -> list[Item]:
        """The batches `first`..`last`, as far as they are here."""
        base = self.first - self._dropped
        return self._batches[max(first, self.first) - base : max(last + 1 - base, 0)]

    def drop_through(self, number: int) -> list[Item]:
        """Forget everything up to `number`, and return it."""
        count = min(number, self.last) - self.first + 1
        if count <= 0:
            return []
        dropped = self._batches[self._dropped : self._dropped + count]
        self._dropped += count
        self.first += count
        # Compacting only when half is dead keeps the cost per batch constant.
        if self._dropped * 2 >= len(self._batches):
            del self._batches[: self._dropped]
            self._dropped = 0
        return dropped

    def drop_after(self, number: int) -> None:
        """Forget everything beyond `number`: a view has ended there."""
        if self.last > number:
            del self._batches[self._dropped + max(number - self.first + 1, 0) :]

    def __len__(self) -> int:
        return len(self._batches) - self._dropped


class ReceiverState:
    """What the sender knows of one receiver of its stream.

    It holds everything up to `acked`, and has told of `seen` at most. `news_at` is when it last told anything new, or
    was sent something while it had everything; no news for `pause` means that something was lost. Numbers up to
    `resent` have been sent to it again, the last time at `resent_at`, in the round `resent_in`, when `resent_behind`
    was the latest of all. `is_silent`: it was, and has acknowledged nothing since.
    """

    __slots__ = (
        "acked",
        "is_silent",
        "news_at",
        "pause",
        "resent",
        "resent_at",
        "resent_behind",
        "resent_in",
        "seen",
    )

    def __init__(self, acked: int, pause: Nanos, now: Nanos) -> None:
        self.acked = self.seen = self.resent = self.resent_behind = acked
        self.news_at = self.resent_at = now
        self.pause = pause
        self.resent_in = 0
        self.is_silent = False


class Outgoing(Generic[Item]):
    """The sender's half. `peers` holds one entry per receiver; `holders` of them have received more than `mark`.

    `rounds` counts how often something was sent again. Where heartbeats carry it to receivers that say which one they
    answer, these tell what is lost from what is late.
    """

    __slots__ = ("holders", "log", "mark", "peers", "retry_after", "rounds", "sent")

    def __init__(self, receivers: Iterable[ProcessId], retry_after: Nanos, now: Nanos, after: int = 0) -> None:
        self.log: StreamLog[Item] = StreamLog(after)
        self.sent = after
        self.retry_after = retry_after
        self.peers = {receiver: ReceiverState(after, retry_after, now) for receiver in receivers}
        self.mark = after
        self.holders = 0
        self.rounds = 0

    def raise_mark(self, mark: int) -> None:
        self.mark = mark
        self.holders = sum([peer.acked > mark for peer in self.peers.values()])

    def append(self, batch: Item, now: Nanos) -> None:
        """A new batch goes out to everybody."""
        self.log.append(batch)
        self.sent = batch.number
        for peer in self.peers.values():
            if peer.acked == batch.number - 1:
                peer.news_at = now

    def acknowledge(self, receiver: ProcessId, received: int, seen: int, now: Nanos, answers: int = 0) -> list[Item]:
        """Note what a receiver holds. Returns what to send to it again: it has seen later batches than it lacks.

        `answers` is the round that a heartbeat named which this answers, if it answers one.
        """
        peer = self.peers.get(receiver)
        if peer is None or received > self.sent:
            return []
        if received > peer.acked:
            if peer.acked <= self.mark < received:
                self.holders += 1
            peer.acked = received
            if peer.is_silent:
                peer.is_silent = False
            elif peer.pause > self.retry_after or 2 * (now - peer.news_at) > self.retry_after:
                self._learn_pause(peer, now - peer.news_at)
            peer.news_at = now
        if seen <= peer.acked or now - peer.resent_at < self.retry_after // 4:
            return []
        if seen > peer.seen:
            peer.seen = seen
            peer.news_at = now
        return self._again(peer, seen - 1, now) if self._is_lost(peer, seen, answers) else []

    def _learn_pause(self, peer: ReceiverState, took: Nanos) -> None:
        """Something has come, and nothing was sent again meanwhile, so we know how long that took."""
        peer.pause = min(max(self.retry_after, peer.pause // 2, 2 * took), MAX_BACKOFF * self.retry_after)

    def _is_lost(self, peer: ReceiverState, seen: int, answers: int) -> bool:
        """Whether the next batch of a receiver that has seen later ones is lost, and not just late.

        It was not sent again yet, so its only copy left before those. Or something has come that left after the latest
        copy: a heartbeat, or a batch (beyond the first one, since of this a heartbeat speaks that left before).
        """
        return peer.acked >= peer.resent or answers >= peer.resent_in or seen > peer.resent_behind + 1

    def _again(self, peer: ReceiverState, last: int, now: Nanos) -> list[Item]:
        """Send a receiver again what follows on what it has, up to `last`."""
        self.rounds += 1
        peer.resent = min(last, peer.acked + RESEND_AT_ONCE)
        peer.resent_at = now
        peer.resent_in = self.rounds
        peer.resent_behind = self.sent
        return self.log.span(peer.acked + 1, peer.resent)

    def due(self, peer: ReceiverState) -> Nanos:
        """When something is sent to a receiver again, if there is no news of it."""
        return max(peer.news_at, peer.resent_at) + peer.pause

    def overdue(self, now: Nanos) -> list[tuple[ProcessId, list[Item]]]:
        """What to send again because there was no news in time. Waits twice as long after each try."""
        again = []
        for receiver, peer in self.peers.items():
            if peer.acked < self.sent and now >= self.due(peer):
                peer.pause = min(2 * peer.pause, MAX_BACKOFF * self.retry_after)
                peer.is_silent = True
                again.append((receiver, self._again(peer, self.sent, now)))
        return again

    def unanswering(self) -> list[ProcessId]:
        """Receivers that were sent something again and have not acknowledged anything since."""
        return [receiver for receiver, peer in self.peers.items() if peer.acked < self.sent and peer.is_silent]


class Incoming(Generic[Item]):
    """The receiver's half: puts one sender's batches back into order, each exactly once."""

    __slots__ = ("early", "log", "received", "seen")

    def __init__(self, after: int = 0) -> None:
        self.log: StreamLog[Item] = StreamLog(after)
        self.received = after
        self.seen = after
        self.early: dict[int, Item] = {}

    def accept(self, batch: Item) -> list[Item]:
        """The batches that are in order now: none for a duplicate or behind a gap, else this one and what it closes."""
        number = batch.number
        if number > self.seen:
            self.seen = number
        if number != self.received + 1:
            if self.received < number <= self.received + MAX_EARLY:
                self.early[number] = batch
            return []
        in_order = [batch]
        if self.early:
            while (following := self.early.pop(number + len(in_order), None)) is not None:
                in_order.append(following)
        for each in in_order:
            self.log.append(each)
        self.received += len(in_order)
        return in_order

    def gaps(self, after: int, last: int) -> Iterator[tuple[int, int]]:
        """What is missing behind `after`, up to `last`: the first and the last number of each gap."""
        after = max(after, self.received)
        for number in sorted(number for number in self.early if after < number <= last):
            if number > after + 1:
                yield after + 1, number - 1
            after = number
        if last > after:
            yield after + 1, last

    def end_at(self, cut: int) -> None:
        """The view ended with number `cut` of this stream: forget what lies beyond."""
        self.log.drop_after(cut)
        self.early.clear()
        self.received = self.seen = cut
