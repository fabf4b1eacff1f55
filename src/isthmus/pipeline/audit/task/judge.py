"""The audit of one run inside one task, by numpy, from the arrays of `RunArrays`: one judge per property, in `JUDGES`.

Answers are in three values, and `checked` and `violations` count what docs/trace-format.md says they count, as with all
judges. A delivery is a causal violation when *any* cause of it is not there, not only a direct one, so that the count
depends on no algorithm.

Measured on one core with 10 processes: see docs/design/audit.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from isthmus.pipeline.audit.codes import as_numbers
from isthmus.pipeline.audit.findings import ARROW_FINDINGS, Finding
from isthmus.pipeline.audit.task.arrays import NEVER, Array, RunArrays
from isthmus.pipeline.audit.task.order import Channels, Unmet, chain_of_causes, closed_pasts, own_pasts

MAX_CELLS = 1 << 28
"""Of the matrix of causal pasts: a gigabyte. A run with more of them is for the other way to audit."""


class Facts:
    """What several judges ask about a run, computed for the first of them."""

    def __init__(self, run: RunArrays) -> None:
        self.run = run

    @cached_property
    def never_sent(self) -> Array:
        return self.run.never_sent()

    @cached_property
    def some_past_is_open(self) -> bool:
        return self.run.some_past_is_open()


class Judge:
    """Judges one property of one run: looks at each application process in turn, and then concludes."""

    def __init__(self, judged: str, facts: Facts) -> None:
        self.facts = facts
        self.run = facts.run
        self.found = Finding(judged)

    def look(self, channels: Channels) -> None:
        """One process, by what it has of each sender's messages."""

    def conclude(self) -> None:
        """Everybody was looked at."""

    def witness(self, process: int, first: Any, second: Any = None, **more: Any) -> None:
        """Describe a violation that was counted, by the numbers of process and messages."""
        keys = [None if each is None else self.run.text_key(int(each)) for each in (first, second)]
        assert keys[0] is not None
        self.found.witness(self.code(process), keys[0], keys[1], **more)

    def code(self, process: int) -> int:
        return int(self.run.codes[process])


Judges: TypeAlias = Mapping[str, type[Judge] | None]
"""Property to its judge; None where nobody can judge it here. It travels with the task, so that what was added to
`JUDGES` is known wherever a task runs."""


def judges_of(properties: Iterable[str]) -> Judges:
    return {each: JUDGES.get(each) for each in properties}


def audit_group(table: pa.Table, judges: Judges) -> pa.Table:
    """For `applyInArrow`: the coded rows of one run in, verdicts and witnesses out."""
    run_name = table.column("run")[0].as_py()
    destinations, name = table.column("destinations"), table.column("name")
    columns = ("process", "app", "index", "kind", "origin", "seq", "audience")
    numbers: dict[str, Any] = {each: as_numbers(table.column(each)) for each in columns}
    run = RunArrays(**numbers, destinations=destinations, name=name)
    del table, numbers
    rows = [row for finding in audit_arrays(run, judges) for row in finding.rows(run_name)]
    return pa.Table.from_pylist(rows, schema=ARROW_FINDINGS)


def audit_arrays(run: RunArrays, judges: Judges) -> list[Finding]:
    """What these judges find in one run."""
    if run.messages * max(run.chains, run.processes) > MAX_CELLS:
        return [Finding.too_large()]
    facts = Facts(run)
    at_work = {name: judge(name, facts) for name, judge in judges.items() if judge is not None}
    for process in run.members:
        channels = Channels(run, int(process))
        for judge in at_work.values():
            judge.look(channels)
    for judge in at_work.values():
        judge.conclude()
    return [at_work[name].found if name in at_work else Finding(name, unknown=True) for name in judges]


# Single messages ------------------------------------------------------------------------------------------------------


class Integrity(Judge):
    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        unsent = self.run.delivered & (self.run.sent_at < 0)
        self.found.unknown = bool(np.any(unsent & ~facts.never_sent))

    def look(self, channels: Channels) -> None:
        found, messages, index = self.found, channels.messages, channels.index
        found.checked += len(messages)
        if len(channels.first) < len(messages):
            again = np.setdiff1d(np.arange(len(messages)), channels.first, assume_unique=True)
            for place in found.described(again):
                at = (index[channels.position[messages[place]]], index[place])
                self.witness(channels.process, messages[place], at=at, kind="again")
        first = messages[channels.first]
        own = self.run.log_of_sender[self.run.sender[first]] == channels.process
        mistakes = {
            "nobody": self.facts.never_sent[first],
            "early": own & (index[channels.first] < self.run.sent_at[first]),
            "stranger": ~channels.for_me[first],
        }
        for kind, wrong in mistakes.items():
            for place in found.described(channels.first[wrong]):
                self.witness(channels.process, messages[place], at=(index[place], None), kind=kind)


class Agreement(Judge):
    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        run = self.run
        self.due = run.delivered | (run.complete_sender & ~run.crashed_sender)[run.sender]
        open_members = run.app & ~run.complete
        self.open_recipients = np.full(run.messages, int(open_members.sum()))
        """How many destinations of each message have a log that is not complete."""
        if len(run.audiences):
            some = run.addressed >= 0
            counts = (run.audiences & open_members).sum(axis=1) + run.lost_destinations
            self.open_recipients[some] = counts[run.addressed[some]]

    def look(self, channels: Channels) -> None:
        run, found, process = self.run, self.found, channels.process
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
                self.witness(process, message)
        elif len(missing):
            found.unknown = True
        doubtful = owes & ~self.due
        elsewhere = self.open_recipients > (not run.complete[process])
        if np.any(doubtful & (elsewhere | ~run.crashed_sender[run.sender])):
            found.unknown = True

    def conclude(self) -> None:
        """A process that has no rows at all is a destination whose log is lost."""
        run, found = self.run, self.found
        if not len(run.audiences):
            return
        lost = np.where(run.addressed >= 0, run.lost_destinations[run.addressed], 0)
        found.checked += int(lost[self.due].sum())
        doubtful = ~self.due & ((self.open_recipients > 1) | ~run.crashed_sender[run.sender])
        found.unknown |= bool(np.any((lost > 0) & (self.due | doubtful)))


# Order ----------------------------------------------------------------------------------------------------------------


class Fifo(Judge):
    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        self.found.unknown = facts.some_past_is_open

    def look(self, channels: Channels) -> None:
        self.found.checked += len(channels.first)
        self.early(channels, self.unmet(channels))

    def unmet(self, channels: Channels) -> Unmet:
        return channels.unmet_of_sender()

    def early(self, channels: Channels, unmet: Unmet) -> None:
        """Deliveries before something that should have come before them."""
        found, index, messages = self.found, channels.index, channels.messages
        sure = index[unmet.missing] < self.run.first_gap[channels.process]
        found.unknown |= bool(np.any(~sure))
        late = np.stack([unmet.late, unmet.late_chains], axis=1)
        for place, chain in found.described(late):
            cause = channels.overtaken(chain, place)
            at = (index[channels.position[cause]], index[place])
            self.overtaken(channels.process, cause, messages[place], at)
        absent = np.stack([unmet.missing[sure], unmet.missing_chains[sure]], axis=1)
        for place, chain in found.described(absent):
            self.overtaken(channels.process, channels.absent(chain), messages[place], (None, index[place]))

    def overtaken(self, process: int, first: int, second: int, at: tuple[Any, Any]) -> None:
        """Describe that `second` was delivered and `first` was not there."""
        self.witness(process, first, second, at=at)


class Causal(Fifo):
    """Like FIFO, against whole pasts.

    Where every cause had to be delivered and would be seen, the causes that senders saw settle it: see `causality`.
    """

    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        run = self.run
        self.simple = run.broadcast and not run.joined.any() and bool((run.first_gap[run.members] == NEVER).all())
        self.pasts = own_pasts(run)
        if not self.simple:
            self.pasts = closed_pasts(run, self.pasts)

    def unmet(self, channels: Channels) -> Unmet:
        return channels.unmet_of_past(self.pasts)

    def overtaken(self, process: int, first: int, second: int, at: tuple[Any, Any]) -> None:
        chain = map(self.run.text_key, chain_of_causes(self.run, int(first), int(second)))
        self.witness(process, first, second, at=at, chain=chain)

    def conclude(self) -> None:
        """Where direct causes were not there, whole pasts say how many deliveries came too early."""
        if self.simple and self.found.violations:
            self.pasts = closed_pasts(self.run, self.pasts)
            self.found = Finding(self.found.property, unknown=self.found.unknown)
            for process in self.run.members:
                self.look(Channels(self.run, int(process)))


class Total(Judge):
    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        self.positions: list[Array] = []
        """Per member: message to its place there, or -1."""

    def look(self, channels: Channels) -> None:
        self.found.checked += len(channels.first)
        self.positions.append(channels.position.astype(np.int32))

    def conclude(self) -> None:
        """One comparison with the longest log settles most; those that are no part of it are compared pair by pair."""
        run, found = self.run, self.found
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
                if self.found.described([None]):
                    at, other_at = (self._indices(each, first, second) for each in (number, other))
                    process, other_process = (int(self.run.members[each]) for each in (number, other))
                    self.witness(process, first, second, at=at, other=self.code(other_process), other_at=other_at)
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


def _growing_parts(log: Array) -> Iterator[Array]:
    """A first part that is quick to look at and usually enough, then the whole."""
    if len(log) > 4096:
        yield log[:1024]
    yield log


# Views ----------------------------------------------------------------------------------------------------------------


class Stay(NamedTuple):
    """A process between two views: what it delivered, by number, and whether its log has a gap there."""

    process: int
    delivered: Array
    has_gap: bool


class SameView(Judge):
    def __init__(self, judged: str, facts: Facts) -> None:
        super().__init__(judged, facts)
        self.found.unknown = not any(self.run.views)
        self.stays: defaultdict[tuple[int, str, str], list[Stay]] = defaultdict(list)
        """By who counts the views, and both of their numbers."""

    def look(self, channels: Channels) -> None:
        index = channels.index[channels.first]
        for view, following in pairwise(self.run.views[channels.process]):
            start, end = np.searchsorted(index, (view.at, following.at))
            delivered = np.sort(channels.messages[channels.first[start:end]])
            has_gap = following.place - view.place != following.at - view.at
            stay = Stay(channels.process, delivered, has_gap)
            self.stays[view.group, view.number, following.number].append(stay)
            self.found.checked += 1

    def conclude(self) -> None:
        for (_, number, next_number), stays in self.stays.items():
            for one, two in combinations(stays, 2):
                if np.array_equal(one.delivered, two.delivered):
                    continue
                if one.has_gap or two.has_gap:
                    self.found.unknown = True
                elif self.found.described([None]):
                    message = np.setxor1d(one.delivered, two.delivered, assume_unique=True)[0]
                    lacking, having = (two, one) if message in one.delivered else (one, two)
                    detail = f"between view {number} and view {next_number}"
                    self.witness(lacking.process, message, other=self.code(having.process), detail=detail)


JUDGES: dict[str, type[Judge]] = {
    "integrity": Integrity,
    "agreement": Agreement,
    "fifo": Fifo,
    "causal": Causal,
    "total": Total,
    "same-view": SameView,
}
