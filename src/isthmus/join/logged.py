"""A gateway on a durable log: one writer at a time, by a claim, and everything else from what the log holds.

Whoever runs it reads the log and appends to it; this sees entries in their order, the import record and the token of
the claim. docs/design/logs.md has the assumptions and the argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.gateway import Company
from isthmus.core.ids import Nanos, ProcessId
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

    def claimed(self, token: int, record: Marks, begin: Marks, now: Nanos, out: Outbox) -> None:
        """We hold the claim. `record` is what has been brought in; the log is read from where these marks are."""
        self.read_to.update(begin)
        self.confirmed.update(begin)
        self._record.update(record)
        self.acting(Company(token, (self.id,)), now, out)
        self.take_over(begin, (), now, out, brought_in=record)

    def read(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        """The next entries, those that we appended among them."""
        known = self.read_to.at(segment.marks)
        if segment.following(known) is not segment:
            raise MissingEntries(f"read {list(segment.runs())} behind {sorted(known.items())}")
        self.read_to.update(segment.marks)
        self.delivered(segment, now, out)
        for origin, seq in segment.marks.items():
            if not self.goes_out(origin):
                self.confirmed.raise_to(origin, seq)

    def durable(self, marks: Marks, out: Outbox) -> None:
        """What was read up to here cannot be lost any more."""
        self.settled(marks, out)

    def record_after(self, segments: Sequence[Segment]) -> dict[ProcessId, int]:
        """The import record once these have been appended."""
        for segment in segments:
            self._record.update(segment.marks)
        return dict(self._record.items())

    def finished(self, origin: ProcessId, seq: int, out: Outbox) -> None:
        self.confirmed.raise_to(origin, seq)
