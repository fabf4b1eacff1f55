"""TO on 1C: one order everywhere, on a medium that shows all PDUs to everybody in one order (TO/PO, Sect. 4).

One log for all senders, and PDUs enter it where the medium carried them, own ones too. Who has lost something cannot
go on with its log: it goes back to the failure point, and follows the log of somebody who is **sure** of it. Where
nobody is, the view ends with an order that is agreed on, up to the failure point by the longest log, and by rank behind
it. docs/design/to-po.md says why both are safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from isthmus.core.endpoint import Hold, Stage
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.group import Promise, Proposal
from isthmus.ordering.acknowledged.receipts import AcknowledgingOrder
from isthmus.ordering.group.membership import Attempt, Membership

MAX_PLACES = 1024
"""The most places of the log that one answer lists."""
MAX_HEARD = 4096
"""The most PDUs that are kept behind a missing one. More are as good as lost."""


class TotallyOrdering(AcknowledgingOrder):
    """`agreed` is the log of the proposal that ends the view: how much was before it, then ranks.

    A **place** is how much of everybody the log has up to a PDU, that one included. `_places` are those of PDUs with
    data in RRL; `_unanswered` of those that are pre-acknowledged here and wait for a word of somebody. `_words` are, by
    member, the stamps of its PDUs, with their places: the first is one that speaks of all that was answered.

    `_latest` are the places of the last PDUs of all. `_heard` is what the medium has carried since the failure point,
    in its order: (rank, number, whether this is the PDU or only a word that there was one). `_spoke` is how long the
    log was when a member was last heard with nothing of its own missing; `_mended_to` is how far others have told us
    the log, as `_known` says from `_known_from` on.
    """

    single_log = True

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        super().install(members, own_rank, counts)
        self._heard: deque[tuple[int, int, bool]] = deque()
        self._latest = [list(self.expected) for _ in members]
        self._spoke = [0] * len(members)
        self._mended_to = 0
        self._known_from = 0
        self._known: Sequence[int] = ()
        self._received_before = False
        self.agreed: Sequence[int] = ()
        self._places: deque[list[int]] = deque()
        self._unanswered: deque[list[int]] = deque()
        self._words: list[deque[tuple[Sequence[int], list[int]]]] = [deque() for _ in members]

    def sent(self, batch: Batch) -> None:
        super().sent(batch)
        self.undelivered[self.own].append(batch)
        self.used += 1

    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        self.undelivered[rank].append(batch)
        if not self.closing:
            self.used += 1

    # What the medium carries

    @property
    def failed(self) -> bool:
        """Something is missing that the medium carried before what was heard next."""
        return bool(self._heard)

    def hear(self, rank: int, number: int, ready: list[Batch], *, is_pdu: bool = True) -> None:
        """The medium has carried this PDU, or a word that its sender has sent as many: it stands behind all before."""
        news = is_pdu or number >= self.expected[rank] or not self._heard
        if news and not self.closing and len(self._heard) < MAX_HEARD:
            self._heard.append((rank, number, is_pdu))
            self.go_on(ready)

    def go_on(self, ready: list[Batch]) -> None:
        """Receive what was heard, up to the next thing that is missing and that nobody can say the place of here."""
        while self._heard:
            rank, number, is_pdu = self._heard[0]
            if is_pdu and number == self.expected[rank]:
                batch = self._here(rank, number)
                lacking = rank if batch is None else self.lacking(batch)
                if batch is not None and lacking is None:
                    self.accept(rank, batch, ready)
            else:
                lacking = rank if number >= self.expected[rank] else None
            if lacking is None:
                self._heard.popleft()
                self._spoke[rank] = self.length
            elif not self._fill(lacking, ready):
                return

    def _fill(self, rank: int, ready: list[Batch]) -> bool:
        """Receive the next PDU of this member, which was lost and has been sent again, if its place is here.

        It came before what was heard next, and after the one before it in its stream. So it is, if all in the log since
        that one is of its sender, or was known to its sender.
        """
        batch = self._here(rank, self.expected[rank])
        for _ in self.members:
            lacking = None if batch is None else self.lacking(batch)
            if lacking is None:
                break
            rank = lacking
            batch = self._here(rank, self.expected[rank])
        else:
            return False
        if batch is None:
            return False
        for member, (acknowledged, count, before) in enumerate(
            zip(batch.stamp, self.expected, self._latest[rank], strict=False)
        ):
            if acknowledged < count and count > before and member != rank:
                return False
        self.accept(rank, batch, ready)
        return True

    def missing(self) -> tuple[int, int]:
        """At the failure point: of whom, and up to which number, there is something that was not received here."""
        rank, number, is_pdu = self._heard[0]
        if is_pdu and number > self.expected[rank]:
            return rank, number - 1
        batch = self._here(rank, number) if is_pdu else None
        lacking = None if batch is None else self.lacking(batch)
        return (rank, number) if batch is None or lacking is None else (lacking, batch.stamp[lacking] - 1)

    def has_its_place(self) -> bool:
        """At the failure point: nothing is in the log since the PDU before the missing one, so its place is here.

        Unless it has come, and names another that is missing, and that has none.
        """
        rank, _ = self.missing()
        if self._here(rank, self.expected[rank]) is not None:
            return False
        pairs = enumerate(zip(self.expected, self._latest[rank], strict=True))
        return all(count == before for member, (count, before) in pairs if member != rank)

    def _here(self, rank: int, number: int) -> Batch | None:
        queue = self.undelivered[rank]
        place = number - queue[0].number if queue else -1
        return queue[place] if 0 <= place < len(queue) else None

    # Whose log is right

    @property
    def length(self) -> int:
        log = self.logs[0]
        return log.acknowledged + len(log.pre_acknowledged) + len(log.received)

    def sure(self) -> int:
        """Up to here the log is what the medium has carried, with nothing left out.

        A PDU of a member with nothing missing before it says that none of that member's was lost before; so does a
        count of what it has sent. Own PDUs are never lost.
        """
        log = self.logs[0]
        spoken = min((place for rank, place in enumerate(self._spoke) if rank != self.own), default=self.length)
        return max(spoken, self._mended_to, log.acknowledged + len(log.pre_acknowledged))

    def places(self, first: int, rank: int, number: int) -> tuple[int, list[int]] | None:
        """For somebody who knows the log up to `first`, and lacks this PDU: how it goes on, if we are sure as far."""
        log = self.logs[0]
        first, sure = max(first, log.acknowledged), self.sure()
        unsure = sum(each == rank for each, _ in islice(log.open(), sure - log.acknowledged, None))
        if first >= sure or self.expected[rank] - unsure <= number:
            return None
        ranks = [each for each, _ in islice(log.open(), first - log.acknowledged, sure - log.acknowledged)]
        return first, ranks[:MAX_PLACES]

    def follow(self, first: int, ranks: Sequence[int], ready: list[Batch]) -> None:
        """Take over from a member that is sure how the log goes on."""
        if first <= self.sure() and first + len(ranks) > self._known_from + len(self._known):
            self._known_from, self._known = first, ranks
            self.mend(ready)

    def mend(self, ready: list[Batch]) -> None:
        """Go back to where our own log is sure, and on as we were told, as far as all PDUs are here.

        What was received behind that point stays received, and comes behind what we were told: all that the medium
        carried earlier is in what we were told.
        """
        sure, log = self.sure(), self.logs[0]
        known = self._known[sure - self._known_from :] if sure >= self._known_from else ()
        if not known or self.closing:
            return
        kept = sure - log.acknowledged - len(log.pre_acknowledged)
        behind = list(islice(log.received, kept, None))
        place = list(self.expected)
        for rank, batch in reversed(behind):
            place[rank] = batch.number
        following: list[tuple[int, Batch]] = []
        ahead = list(place)
        for rank in known:
            next_batch = self._here(rank, ahead[rank]) if rank < len(ahead) else None
            if next_batch is None:
                break
            following.append((rank, next_batch))
            ahead[rank] += 1
        self._mended_to = sure + len(following)
        following += [(rank, batch) for rank, batch in behind if batch.number >= ahead[rank]]
        if following != behind:
            self._receive_again(behind, place, following, ready)
        self.go_on(ready)

    def _receive_again(
        self, behind: list[tuple[int, Batch]], place: list[int], following: list[tuple[int, Batch]], ready: list[Batch]
    ) -> None:
        """Replace what is behind a place in the log. Whatever was received before is among what follows now."""
        log, before = self.logs[0], list(self.expected)
        for _, batch in behind:
            log.received.pop()
            if batch.segment:
                self._places.pop()
        for rank, words in enumerate(self._words):
            while words and words[-1][1][rank] > place[rank]:
                words.pop()
        # In place: what this member expects is its own row of what all do.
        self.expected[:] = place
        for rank, batch in following:
            self._received_before = batch.number < before[rank]
            self.accept(rank, batch, ready)
        self._received_before = False
        # Words that were answered may stand further back now.
        self.needed = list(map(max, self.needed, self.expected))

    # Receipt

    def accept(self, rank: int, batch: Batch, ready: list[Batch]) -> None:
        place = list(self.expected)
        place[rank] = batch.number + 1
        self._latest[rank] = place
        self._words[rank].append((batch.stamp, place))
        if batch.segment:
            self._places.append(place)
        super().accept(rank, batch, ready)
        if batch.segment:
            # In one log nothing passes what stands before it: all that is there has to be told along.
            self.needed = list(map(max, self.needed, place))
        while self._unanswered and self._answer(self._unanswered[0]):
            self._unanswered.popleft()

    def answer(self, rank: int, number: int) -> None:
        self._unanswered.append(self._places.popleft())

    def _answer(self, place: list[int]) -> bool:
        """If everybody has spoken of this place of the log, note in `needed` what others wait to hear. Says whether so.

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

    def _reached(self, stage: Stage, rank: int, batch: Batch, ready: list[Batch]) -> None:
        if stage != "receive" or not self._received_before:
            super()._reached(stage, rank, batch, ready)

    # The end of a view

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
    """Whether a member with this stamp has all PDUs of the log up to `place`. Its own it has anyway."""
    return all(
        acknowledged >= count
        for each, (acknowledged, count) in enumerate(zip(stamp, place, strict=False))
        if each != member
    )


def _length(log: Sequence[int]) -> int:
    return log[0] + len(log) - 1
