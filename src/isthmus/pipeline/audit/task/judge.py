"""The audit of one run inside one task: all five properties, by numpy, from the arrays of `run_arrays`.

Answers are in three values, as the contract of the trace format has them, and `checked` and `violations` count what the
oracles of the simulator count, with one difference: a delivery is a causal violation when *any* cause of it is not
there, not only a direct one, so that the count depends on no algorithm.

Measured on one core with 10 processes: see docs/design/audit.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from isthmus.pipeline.audit.codes import as_numbers
from isthmus.pipeline.audit.findings import ARROW_FINDINGS, Finding
from isthmus.pipeline.audit.task.arrays import NEVER, Array, RunArrays
from isthmus.pipeline.audit.task.order import Channels, Unmet, closed_pasts, own_pasts

MAX_CELLS = 1 << 28
"""Of the matrix of causal pasts: a gigabyte. A run with more of them is for the other way to audit."""

WITNESSES = 10
"""Violations that are described, per run and property. All are counted."""


def audit_group(table: pa.Table) -> pa.Table:
    """For `applyInArrow`: the coded rows of one run in, verdicts and witnesses out."""
    run_name = table.column("run")[0].as_py()
    destinations, name = table.column("destinations"), table.column("name")
    columns = ("process", "app", "index", "kind", "origin", "seq", "audience")
    numbers: dict[str, Any] = {each: as_numbers(table.column(each)) for each in columns}
    run = RunArrays(**numbers, destinations=destinations, name=name)
    del table, numbers
    return findings_table(run_name, audit_arrays(run))


def findings_table(run_name: str, findings: list[Finding]) -> pa.Table:
    rows = [row for finding in findings for row in finding.rows(run_name)]
    return pa.Table.from_pylist(rows, schema=ARROW_FINDINGS)


def audit_arrays(run: RunArrays) -> list[Finding]:
    """All five properties of one run."""
    if run.messages * max(run.chains, run.processes) > MAX_CELLS:
        return [Finding.too_large()]
    audit = _Audit(run)
    return [audit.integrity, audit.agreement, audit.fifo, audit.causal, audit.total]


class _Audit:
    def __init__(self, run: RunArrays) -> None:
        self.run = run
        self.integrity, self.agreement, self.fifo, self.causal, self.total = (
            Finding(each, WITNESSES) for each in ("integrity", "agreement", "fifo", "causal", "total")
        )
        self.never_sent = run.never_sent()
        self.due = run.delivered | (run.complete_sender & ~run.crashed_sender)[run.sender]
        self.fifo.unknown = self.causal.unknown = run.some_past_is_open()
        self.integrity.unknown = bool(np.any(run.delivered & (run.sent_at < 0) & ~self.never_sent))
        self.positions = np.full((len(run.members), run.messages), -1, np.int32)
        self._doubtful = ~self.due
        self._open_recipients()

        pasts = own_pasts(run)
        # Where every cause had to be delivered and would be seen, those that senders saw settle it: see `causality`.
        simple = run.broadcast and not run.joined.any() and bool((run.first_gap[run.members] == NEVER).all())
        if not simple:
            pasts = closed_pasts(run, pasts)
        for number, process in enumerate(run.members):
            self._judge(number, int(process), pasts)
        if simple and self.causal.violations:
            pasts = closed_pasts(run, pasts)
            self.causal = Finding("causal", WITNESSES, unknown=self.causal.unknown)
            for process in run.members:
                channels = Channels(run, int(process))
                self.causal.checked += len(channels.first)
                self._unmet(self.causal, int(process), channels, channels.unmet_of_past(pasts))
        self._lost_destinations()
        self._judge_total()

    def _judge(self, number: int, process: int, pasts: Array) -> None:
        channels = Channels(self.run, process)
        self.positions[number] = channels.position
        first = len(channels.first)
        self.integrity.checked += len(channels.messages)
        self.fifo.checked += first
        self.causal.checked += first
        self.total.checked += first
        self._integrity(process, channels)
        self._agreement(process, channels)
        self._unmet(self.fifo, process, channels, channels.unmet_of_sender())
        self._unmet(self.causal, process, channels, channels.unmet_of_past(pasts))

    # Single messages

    def _integrity(self, process: int, channels: Channels) -> None:
        found, messages, index = self.integrity, channels.messages, channels.index
        if len(channels.first) < len(messages):
            again = np.setdiff1d(np.arange(len(messages)), channels.first, assume_unique=True)
            for place in found.described(again):
                message = messages[place]
                earlier = index[channels.position[message]]
                found.witness("again", self._code(process), self._key(message), at=(earlier, index[place]))
        first = messages[channels.first]
        for kind, wrong in (("nobody", self.never_sent[first]), ("stranger", ~channels.for_me[first])):
            for place in found.described(channels.first[wrong]):
                found.witness(kind, self._code(process), self._key(messages[place]), at=(index[place], None))

    def _agreement(self, process: int, channels: Channels) -> None:
        run, found = self.run, self.agreement
        if run.gone[process]:
            return
        owes = channels.for_me & channels.owes
        if run.joined[process]:
            owes &= run.placed
        owed = owes & self.due
        found.checked += int(owed.sum())
        missing = np.flatnonzero(owed & (channels.position < 0))
        if run.complete[process]:
            for message in found.described(missing):
                found.witness("missing", self._code(process), self._key(message))
        elif len(missing):
            found.unknown = True
        doubtful = owes & self._doubtful
        elsewhere = self.open_recipients > (not run.complete[process])
        if np.any(doubtful & (elsewhere | ~run.crashed_sender[run.sender])):
            found.unknown = True

    def _open_recipients(self) -> None:
        """How many destinations of each message have a log that is not complete."""
        run = self.run
        open_members = run.app & ~run.complete
        self.open_recipients = np.full(run.messages, int(open_members.sum()))
        if len(run.audiences):
            some = run.addressed >= 0
            counts = (run.audiences & open_members).sum(axis=1) + run.lost_destinations
            self.open_recipients[some] = counts[run.addressed[some]]

    def _lost_destinations(self) -> None:
        """A process that has no rows at all is a destination whose log is lost."""
        run, found = self.run, self.agreement
        if not len(run.audiences):
            return
        lost = np.where(run.addressed >= 0, run.lost_destinations[run.addressed], 0)
        found.checked += int(lost[self.due].sum())
        doubtful = self._doubtful & ((self.open_recipients > 1) | ~run.crashed_sender[run.sender])
        found.unknown |= bool(np.any((lost > 0) & (self.due | doubtful)))

    # Order

    def _unmet(self, found: Finding, process: int, channels: Channels, unmet: Unmet) -> None:
        index, gap = channels.index, self.run.first_gap[process]
        sure = index[unmet.missing] < gap
        found.unknown |= bool(np.any(~sure))
        code = self._code(process)
        late = np.stack([unmet.late, unmet.late_chains], axis=1)
        for place, chain in found.described(late):
            cause = channels.overtaken(chain, place)
            at = (index[channels.position[cause]], index[place])
            found.witness("late", code, self._key(cause), self._key(channels.messages[place]), at)
        absent = np.stack([unmet.missing[sure], unmet.missing_chains[sure]], axis=1)
        for place, chain in found.described(absent):
            cause = channels.absent(chain)
            found.witness("absent", code, self._key(cause), self._key(channels.messages[place]), (None, index[place]))

    def _judge_total(self) -> None:
        """One comparison with the longest log settles most; those that are no part of it are compared pair by pair."""
        run, found = self.run, self.total
        logs = [self._in_order(number) for number in range(len(run.members))]
        if not logs:
            return
        longest = max(range(len(logs)), key=lambda number: len(logs[number]))
        strays = [number for number in range(len(logs)) if not self._is_part_of(logs[number], longest)]
        for stray in strays:
            for other in range(len(logs)):
                if other != stray and (other not in strays or other < stray):
                    self._judge_pair(stray, other, logs[stray])
        if not found.violations:
            found.unknown = any(
                self._may_differ(number, logs[other])
                for number, process in enumerate(run.members)
                if not run.complete[process]
                for other in range(len(logs))
                if other != number
            )

    def _in_order(self, number: int) -> Array:
        """First deliveries in the order of delivery."""
        position = self.positions[number]
        messages = self.run.deliveries[self.run.members[number]][0]
        return messages[position[messages] == np.arange(len(messages))]

    def _is_part_of(self, log: Array, longest: int) -> bool:
        places = self.positions[longest][log]
        return bool((places >= 0).all() and (places[1:] > places[:-1]).all())

    def _judge_pair(self, number: int, other: int, log: Array) -> None:
        """Order differs somewhere exactly if it differs between two neighbours among the messages that both have."""
        for part in _growing_parts(log):
            places = self.positions[other][part]
            common = part[places >= 0]
            places = places[places >= 0]
            fallen = np.flatnonzero(places[1:] < places[:-1])
            if len(fallen):
                first, second = common[fallen[0]], common[fallen[0] + 1]
                if self.total.described([None]):
                    at, other_at = (self._indices(each, first, second) for each in (number, other))
                    code, other_code = (self._code(int(self.run.members[each])) for each in (number, other))
                    self.total.witness("order", code, self._key(first), self._key(second), at, other_code, other_at)
                return

    def _indices(self, number: int, first: int, second: int) -> tuple[int, int]:
        index, position = self.run.deliveries[self.run.members[number]][1], self.positions[number]
        return index[position[first]], index[position[second]]

    def _may_differ(self, number: int, log: Array) -> bool:
        """Could a process whose log is not complete have delivered what it misses in another order than this log?

        A message that is missing before a common one may have come later; one that is missing after, earlier in a gap.
        """
        run, process = self.run, int(self.run.members[number])
        common = self.positions[number][log] >= 0
        owed = run.is_for(process)[log] & (run.rank[log] >= run.owed_from(process)[run.chain[log]])
        if run.joined[process]:
            owed &= run.placed[log]
        missing = np.flatnonzero(~common & owed)
        both = np.flatnonzero(common)
        if not len(missing) or not len(both):
            return False
        return bool(missing[0] < both[-1] or (run.first_gap[process] != NEVER and both[0] < missing[-1]))

    # Names

    def _code(self, process: int) -> int:
        return int(self.run.codes[process])

    def _key(self, message: Any) -> tuple[int, int]:
        return self.run.text_key(int(message))


def _growing_parts(log: Array) -> Iterator[Array]:
    """A first part that is quick to look at and usually enough, then the whole."""
    if len(log) > 4096:
        yield log[:1024]
    yield log
