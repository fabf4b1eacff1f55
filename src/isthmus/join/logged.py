"""A gateway on a durable log: one writer at a time, by a claim, and everything else from what the log holds.

Whoever runs it reads the log and appends to it; this sees entries in their order, the import record and the token of
the claim. docs/design/logs.md has the assumptions and the argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.gateway import Company
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Marks, Segment
from isthmus.join.gateway import RETRY_AFTER, JoinGateway
from isthmus.join.plan import JoinPlan


class MissingEntries(Exception):
    """Entries of an origin were read, and earlier ones were left out. What follows a gap is never carried on."""


class LogGateway(JoinGateway):
    """The joins of a log's gateway, from the moment that it holds the claim.

    `confirmed` are the marks that every join has confirmed: reading need not begin before them. `read_to` are the marks
    of what was read. Appends are in `out.relays`, in order; `record_after` says what the import record is with them.
    """

    def __init__(self, owner: ProcessId, plans: Sequence[JoinPlan], retry_after: Nanos = RETRY_AFTER) -> None:
        super().__init__(owner, (owner,), plans, retry_after, joining=True)
        self.confirmed = SlotMarks()
        self.read_to = SlotMarks()
        self._record = SlotMarks()
        self._came_in = SlotMarks()
        self._logs = frozenset(slot for plan in plans for slot in plan.logs)

    def claimed(self, token: int, record: Marks, begin: Marks, now: Nanos, out: Outbox) -> None:
        """We hold the claim. `record` is what the log holds of others; it is read from where these marks are."""
        self.read_to.update(begin)
        self.confirmed.update(begin)
        self._record.update(record)
        self._came_in.update(record)
        self.acting(Company(token, (self.id,)), now, out)
        self.take_over(begin, (), now, out, brought_in=record)

    def appended(self, segment: Segment, out: Outbox) -> None:
        """These are in the log now. What is read later, and stands before them, is taken for an answer to them too."""
        fresh = segment.beyond(self._came_in.at(segment.marks))
        for join, imports in self.imports.items():
            coming = fresh.only(imports.comes_in)
            if coming:
                self._came_in.update(coming.marks)
                self.exports[join].came_in(coming.marks)
                imports.delivered(coming, out)
        self._end_of_step(out)

    def read(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        """The next entries, those that we appended among them."""
        known = self.read_to.at(segment.marks)
        if segment.following(known) is not segment:
            raise MissingEntries(f"read {list(segment.runs())} behind {sorted(known.items())}")
        self.read_to.update(segment.marks)
        # Before anything goes out: it may answer what stands before it in this very segment.
        self.appended(segment, out)
        for join, export in self.exports.items():
            going = segment.only(export.goes_out)
            if going:
                export.delivered(going, now, out)
                self.imports[join].went_out(out)
        for origin, seq in segment.marks.items():
            if not self.goes_out(origin):
                self.confirmed.raise_to(origin, seq)
        self._end_of_step(out)

    def durable(self, marks: Marks, out: Outbox) -> None:
        """What came in up to here cannot be lost any more."""
        self.settled(marks, out)

    def onward(self, origin: ProcessId, besides: int = -1) -> Iterator[SlotMarks]:
        """Whose confirmation we wait for before we confirm what came in: of an entry of another log nobody's.

        This log keeps it and sees it on its way. If logs waited for those behind them, two of them in the middle of a
        row, both full, would wait for each other for ever: each has to read what came in from the other before it can
        be confirmed further on, and neither reads on before its own is confirmed. Processes of groups wait for their
        messages to be stable everywhere; what they may send meanwhile is bounded by their windows.
        """
        return iter(()) if slot_of(origin) in self._logs else super().onward(origin, besides)

    def comes_in(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin come in by any join of ours. All others are born here."""
        return any(imports.comes_in(origin) for imports in self.imports.values())

    def record_after(self, segments: Sequence[Segment]) -> list[tuple[ProcessId, int]]:
        """The import record once these have been appended, with what former origins of each slot had."""
        for segment in segments:
            self._record.update(segment.marks)
        return self._record.counted()

    def finished(self, origin: ProcessId, seq: int, out: Outbox) -> None:
        self.confirmed.raise_to(origin, seq)
