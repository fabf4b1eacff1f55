"""Receipt logs and acknowledgement conditions: what TO and PO have in common (TO/PO, Sect. 2, 3 and 5).

Every PDU says which number of each member its sender expects next (A). From that each member learns by itself, of any
PDU, that everybody has received it (**pre-acknowledged**) and that everybody knows so (**acknowledged**). The printed
indices contradict each other; docs/design/to-po.md has them put right, and says why the logs below are safe.

State, at E_k: `expected` is REQ, `knows[h][j]` is AL_hj, `pre_knows[h][j]` is A_j of the last pre-acknowledged PDU of
E_h. A log is RRL | PRL | ARL, of which ARL is only counted. PO has a log per sender, TO one for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.core.endpoint import Hold, Stage, Staged
from isthmus.core.ids import MILLISECOND, Nanos, ProcessId
from isthmus.core.message import Batch

ActOn: TypeAlias = Literal["received", "pre-acknowledged", "acknowledged"]
Answer: TypeAlias = Literal["finally", "each"]

_EVENT_OF: dict[ActOn, Stage] = {
    "received": "receive",
    "pre-acknowledged": "pre-acknowledge",
    "acknowledged": "acknowledge",
}

BUFFER_SHARE = 2
"""C of the flow condition: what one PDU may take of everybody's buffers is one part in C·n²."""


class AcknowledgedSettings(Struct, frozen=True):
    """`window` is W. An empty PDU waits for `answer_after` whether data comes along that it can ride on.

    `answer` is when a pre-acknowledgement is itself answered: once, when the last one is there (the paper's best case,
    Sect. 4), or each one (its worst).
    """

    act_on: ActOn = "acknowledged"
    window: int = 8
    answer_after: Nanos = 2 * MILLISECOND
    answer: Answer = "finally"


class ReceiptLog:
    """RL = ARL | PRL | RRL: `received` and `pre_acknowledged` are RRL and PRL, `acknowledged` is the length of ARL.

    Entries are (rank of the sender, PDU).
    """

    __slots__ = ("acknowledged", "pre_acknowledged", "received")

    def __init__(self) -> None:
        self.received: deque[tuple[int, Batch]] = deque()
        self.pre_acknowledged: deque[tuple[int, Batch]] = deque()
        self.acknowledged = 0

    def open(self) -> Iterator[tuple[int, Batch]]:
        """What stands behind ARL, in the order of the log."""
        return chain(self.pre_acknowledged, self.received)


class AcknowledgingOrder(ABC):
    """The state of one view. Subclasses say what is done with a PDU that fails the receipt condition.

    `undelivered` is, by sender, everything that is here and was not delivered; `stages` is what the trace has to be
    told. `_data` are the PDUs with data in RRL, `_own_data` our own that not all have. `needed` and `announced` decide
    about empty PDUs: see the note, "One PDU".
    """

    single_log = False

    def __init__(self, settings: AcknowledgedSettings) -> None:
        self.settings = settings
        self.stages: list[Staged] = []
        self._act_on = _EVENT_OF[settings.act_on]
        # Who comes later has no view yet, and nothing to finish.
        self.install((), 0, ())

    def install(self, members: Sequence[ProcessId], own_rank: int, counts: Sequence[int]) -> None:
        size = len(members)
        self.members = tuple(members)
        self.own = own_rank
        self.buffers = 2 * BUFFER_SHARE * size * size * self.settings.window
        self.used = 0
        self.expected = [count + 1 for count in counts]
        self.knows = [list(self.expected) for _ in members]
        # What this member has itself it need not be told.
        self.knows[own_rank : own_rank + 1] = [self.expected]
        self.pre_knows = [list(self.expected) for _ in members]
        self.free_buffers = [self.buffers] * size
        self.announced = list(self.expected)
        self.needed = list(self.expected)
        self.undelivered: list[deque[Batch]] = [deque() for _ in members]
        self.logs = [ReceiptLog() for _ in range(1 if self.single_log else size)]
        self._own_data: deque[int] = deque()
        self._data: dict[tuple[int, int], None] = {}
        self.closing = False

    # Transmission

    def may_send(self) -> bool:
        """Flow condition: is there room, here and with everybody, for one more PDU with data and all it causes?"""
        seen_by_all = self.seen_by_all(self.own)
        while self._own_data and self._own_data[0] < seen_by_all:
            self._own_data.popleft()
        size = len(self.members)
        room = min(self.settings.window, min(self.free_buffers) // (BUFFER_SHARE * size * size))
        return len(self._own_data) < room

    def stamp(self, number: int) -> list[int]:
        """The stamp of the PDU that is sent now: the next PDU expected of each member, then the free buffers."""
        self.announced = list(self.expected)
        return [*self.expected, self.buffers - self.used]

    def sent(self, batch: Batch) -> None:
        if batch.segment:
            self._own_data.append(batch.number)

    def has_news(self) -> bool:
        """Always False: no PDU has to go out at once. `owes` says whether an empty one has to go out after a while."""
        return False

    def owes(self) -> bool:
        """Whether somebody waits for a word of ours that no PDU of ours has said yet."""
        own = self.own
        return any(
            needed > announced
            for rank, (needed, announced) in enumerate(zip(self.needed, self.announced, strict=True))
            if rank != own
        )

    # Receipt

    def well_formed(self, rank: int, batch: Batch) -> bool:
        size = len(self.members)
        return len(batch.stamp) == size + 1 and batch.stamp[size] <= self.buffers and batch.stamp[rank] <= batch.number

    @abstractmethod
    def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
        """A PDU that is next in the stream of its sender."""

    def lacking(self, batch: Batch) -> int | None:
        """Receipt condition (2): a member of whose PDUs the sender of this one had more than is here."""
        for member, (theirs, ours) in enumerate(zip(batch.stamp, self.expected, strict=False)):
            if theirs > ours:
                return member
        return None

    def accept(self, rank: int, batch: Batch, ready: list[Batch]) -> None:
        """Log a PDU that satisfies the receipt condition, and deliver what it acknowledges."""
        number = batch.number
        assert number == self.expected[rank], f"number {number} of {rank}, expected {self.expected[rank]}"
        size = len(self.members)
        self.expected[rank] = number + 1
        row = self.knows[rank]
        if self.settings.answer == "each" and rank != self.own and self._answers_data(row, batch):
            self.needed[rank] = number + 1
        known_better = [rank]
        if rank != self.own:
            # The own row is `expected`, which no PDU raises but by being received.
            for member in range(size):
                if batch.stamp[member] > row[member]:
                    row[member] = batch.stamp[member]
                    known_better.append(member)
        row[rank] = number + 1
        self.free_buffers[rank] = batch.stamp[size]
        if batch.segment:
            self.needed[rank] = number + 1
            self._data[rank, number] = None
        log = self.logs[0 if self.single_log else rank]
        log.received.append((rank, batch))
        self._reached("receive", rank, batch, ready)
        self._advance(known_better, ready)

    def _answers_data(self, row: list[int], batch: Batch) -> bool:
        """Whether this PDU is the first to say that its sender has some data that is not pre-acknowledged here."""
        return any(row[rank] <= number < batch.stamp[rank] for rank, number in self._data)

    # Pre-acknowledgement and acknowledgement

    def seen_by_all(self, rank: int) -> int:
        """The paper's minAL_j: everybody has the PDUs of this member with smaller numbers."""
        return min(row[rank] for row in self.knows)

    def known_to_all(self, rank: int) -> int:
        """Below this everybody is known to know that everybody has the PDUs of this member."""
        return min(row[rank] for row in self.pre_knows)

    def _advance(self, known_better: Sequence[int], ready: list[Batch]) -> None:
        """`known_better` are the members of whose PDUs more is known now; of the others nothing can have changed.

        That and a look at PRL only when it has grown take 70 µs off the 300 µs of a PDU among four entities by PO.
        """
        grown = False
        for log in self.logs if self.single_log else [self.logs[member] for member in known_better]:
            while log.received and self.may_pre_acknowledge(*log.received[0]):
                rank, batch = log.received.popleft()
                log.pre_acknowledged.append((rank, batch))
                self._pre_acknowledged(rank, batch, ready)
                grown = True
        for log in self.logs if grown else ():
            while log.pre_acknowledged and self.may_acknowledge(*log.pre_acknowledged[0]):
                rank, batch = log.pre_acknowledged.popleft()
                log.acknowledged += 1
                self.used -= 1
                self._reached("acknowledge", rank, batch, ready)

    def may_pre_acknowledge(self, rank: int, batch: Batch) -> bool:
        """The PACK condition: everybody is known to have this PDU."""
        return batch.number < self.seen_by_all(rank)

    def may_acknowledge(self, rank: int, batch: Batch) -> bool:
        """The ACK condition: everybody is known to know that everybody has this PDU."""
        return batch.number < self.known_to_all(rank)

    def _pre_acknowledged(self, rank: int, batch: Batch, ready: list[Batch]) -> None:
        row = self.pre_knows[rank]
        for member in range(len(self.members)):
            row[member] = max(row[member], batch.stamp[member])
        row[rank] = batch.number + 1
        if batch.segment:
            del self._data[rank, batch.number]
            self.answer(rank, batch.number)
        self._reached("pre-acknowledge", rank, batch, ready)

    @abstractmethod
    def answer(self, rank: int, number: int) -> None:
        """Others can acknowledge this PDU only when they know that we have whatever pre-acknowledged it."""

    def _reached(self, stage: Stage, rank: int, batch: Batch, ready: list[Batch]) -> None:
        if batch.segment:
            self.stages.append(Staged(stage, batch))
        if stage == self._act_on:
            # The same PDU, though an own one that a real medium has carried comes back as a copy.
            assert self.undelivered[rank][0].number == batch.number, f"{batch.number} of {rank} is not next"
            ready.append(self.undelivered[rank].popleft())

    # The group layer

    def safe(self, rank: int, count: int, ready: list[Batch]) -> None:  # noqa: B027 - there is nothing to override
        """Nothing to do: quorums play no part where everybody has to have a PDU."""

    def close(self, order: Sequence[int]) -> None:
        """The view ends. What arrives from now on is what others had; `order` is the log that was agreed on."""
        self.closing = True

    def finish(self, ready: list[Batch]) -> None:
        for queue in self.undelivered:
            ready.extend(queue)
            queue.clear()

    def waiting(self) -> Iterator[Hold]:
        """What is not delivered, up to the last data of each member. Empty PDUs behind that are never acknowledged."""
        for rank, queue in enumerate(self.undelivered):
            last = len(queue) - 1
            while last >= 0 and not queue[last].segment:
                last -= 1
            for batch in islice(queue, last + 1):
                yield Hold(batch, self.settings.act_on, self.members[rank], batch.number)

    def invariants(self) -> None:
        assert 0 <= self.used <= self.buffers, f"{self.used} buffers in use, there are {self.buffers}"
        for log in self.logs:
            if log.received:
                assert not self.may_pre_acknowledge(*log.received[0]), "PACK holds, and nothing was done about it"
            if log.pre_acknowledged:
                assert not self.may_acknowledge(*log.pre_acknowledged[0]), "ACK holds, and nothing was done about it"
        latest = [0] * len(self.members)
        for log in self.logs:
            for rank, batch in log.open():
                assert latest[rank] in (0, batch.number - 1), f"{rank}: {batch.number} comes after {latest[rank]}"
                latest[rank] = batch.number
        for last, expected in zip(latest, self.expected, strict=True):
            assert last in (0, expected - 1), f"the log ends with {last}, and {expected} is expected"
