"""TO on 1C: one order everywhere, on a medium that shows all PDUs to everybody in one order (TO/PO, Sect. 4).

One log for all senders. Own PDUs enter it where the medium carried them. A PDU that fails the receipt condition means
that something was lost for good, somewhere in the log: then the log is frozen (`failed`) until the view ends and an
order is agreed on, up to the failure point by the longest log, and by rank behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from isthmus.core.endpoint import Hold
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.core.pdu import Promise, Proposal
from isthmus.ordering.acknowledging import AcknowledgingOrder
from isthmus.ordering.membership import Attempt, Membership


class TotallyOrdering(AcknowledgingOrder):
    """`agreed` is the log of the proposal that ends the view: how much was before it, then ranks.

    A **place** is how much of everybody the log has up to a PDU, that one included. `_places` are those of PDUs with
    data in RRL; `_unanswered` of those that are pre-acknowledged here and wait for a word of somebody. `_words` are, by
    member, the stamps of its PDUs, with their places: the first is one that speaks of all that was answered.
    """

    single_log = True

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        super().install(members, own_rank, counts)
        self.failed = False
        self.agreed: Sequence[int] = ()
        self._places: deque[list[int]] = deque()
        self._unanswered: deque[list[int]] = deque()
        self._words: list[deque[tuple[Sequence[int], list[int]]]] = [deque() for _ in members]

    def sent(self, batch: Batch) -> None:
        super().sent(batch)
        self.undelivered[self.own].append(batch)
        self.used += 1

    def carried(self, batch: Batch, ready: list[Batch]) -> None:
        """The medium has carried a PDU of our own: this is its place."""
        if self.failed or self.closing:
            return
        self.accept(self.own, batch, ready)

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self.undelivered[rank].append(batch)
        if self.closing:
            return
        self.used += 1
        lacking = self.lacking(batch)
        if lacking is not None:
            self.failed = True
            holds.append(Hold(batch, "received", self.members[lacking], batch.stamp[lacking] - 1))
        if not self.failed:
            self.accept(rank, batch, ready)

    def accept(self, rank: int, batch: Batch, ready: list[Batch]) -> None:
        place = list(self.expected)
        place[rank] = batch.number + 1
        self._words[rank].append((batch.stamp, place))
        if batch.messages:
            self._places.append(place)
        super().accept(rank, batch, ready)
        if batch.messages:
            # In one log nothing passes what stands before it: all that is there has to be told along.
            self.needed = list(map(max, self.needed, place))
        while self._unanswered and self._answer(self._unanswered[0]):
            self._unanswered.popleft()

    def answer(self, rank: int, number: int) -> None:
        self._unanswered.append(self._places.popleft())

    def _answer(self, place: list[int]) -> bool:
        """Once everybody's word on the PDU there and on all before it is in the log: the log up to the last such word.

        A word may stand behind PDUs that its sender did not have when it made it, our own too; those are told along.
        Who does not speak of this place speaks of no later one, so nothing is looked at twice: a search of the log for
        each PDU took three quarters of all time (four entities and eight, W = 32).
        """
        for member, words in enumerate(self._words):
            while words and not _speaks_of(place, member, words[0][0]):
                words.popleft()
        if not all(self._words):
            return False
        for words in self._words:
            self.needed = list(map(max, self.needed, words[0][1]))
        return True

    def log(self) -> list[int]:
        """The receipt log of this view: how long ARL is, then whose PDUs follow."""
        log = self.logs[0]
        return [log.acknowledged, *(rank for rank, _ in log.open())]

    def close(self, order: Sequence[int]) -> None:
        super().close(order)
        self.agreed = order

    def finish(self, ready: list[Batch]) -> None:
        queues = self.undelivered
        # A rank that is none, or has nothing left, comes off the wire from somebody who lies.
        ready.extend(queues[rank].popleft() for rank in self._agreed_ranks() if rank < len(queues) and queues[rank])
        super().finish(ready)

    def _agreed_ranks(self) -> Iterator[int]:
        """Whose PDUs come next, from the first that was not delivered here, as far as the agreed log goes.

        What that log has only counted is acknowledged where it comes from, so here it is pre-acknowledged at least, and
        the log of this member has it in the same place.
        """
        own = self.logs[0]
        delivered = own.acknowledged
        if self.settings.act_on == "pre-acknowledged":
            delivered += len(own.pre_acknowledged)
        counted, *ranks = self.agreed or (0,)
        for place, (rank, _) in enumerate(own.open(), own.acknowledged):
            if delivered <= place < counted:
                yield rank
        yield from ranks[max(delivered - counted, 0) :]


class LogMembership(Membership):
    """Views that agree on an order as well: promises report logs, and a proposal takes the longest."""

    def _promise(self, ballot: int) -> Promise:
        return replace(super()._promise(ballot), log=self._order().log())

    def _choose(self, attempt: Attempt) -> Proposal:
        proposal = super()._choose(attempt)
        promises = attempt.promises.values()
        if any(promise.accepted is proposal for promise in promises):
            return proposal
        logs = [promise.log for promise in promises if promise.log]
        return replace(proposal, order=max(logs, key=_length, default=[]))

    def _order(self) -> TotallyOrdering:
        order = getattr(self.host, "order", None)
        assert isinstance(order, TotallyOrdering)
        return order


def _speaks_of(place: Sequence[int], member: int, stamp: Sequence[int]) -> bool:
    """Whether a member that says this has all that the log has up to there. Its own it has anyway."""
    return all(told >= count for each, (told, count) in enumerate(zip(stamp, place, strict=False)) if each != member)


def _length(log: Sequence[int]) -> int:
    return log[0] + len(log) - 1
