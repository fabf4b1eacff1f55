"""Does a run keep its promises? Answers from the trace alone, in three values.

Each property of `trace.properties` is one function here, in `ORACLES`. `unknown` means
that nothing seen is wrong, but a log has a gap or no end where the answer depends on it. Order is judged on first
deliveries. A process that came later owes, from each sender, what follows the first message of that sender that it
delivered; only that can be missing there.

That m1 was not delivered *before* m2 is certain even in a log that breaks off after m2, so it is a violation there;
with a gap before m2 it is unknown.

`checked` counts deliveries (integrity), pairs of a message and a process that owes it (agreement), first deliveries
(fifo, causal, total) and pairs of a process and a view (same-view). `violations` counts wrong or missing deliveries,
and for total and same-view pairs of processes that differ.

Measured on one core with 10 processes and 400,000 deliveries, in microseconds per delivery: 0.8 for the history, and
then 0.04 integrity, 0.08 agreement, 0.2 fifo, 0.05 total, 0.1 same-view; causal 0.4 when messages come in batches of
8, 1.0 when one by one, 2.8 for multicast, where whole pasts are needed. All six together: 1.8.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise
from operator import getitem, le
from typing import Any, TypeAlias

from isthmus.trace.causality import Past, causal_pasts, chains_in_history, direct_causes
from isthmus.trace.history import NEVER, ProcessHistory, RunHistory, histories, life_of
from isthmus.trace.properties import PROPERTIES, Mistake, violation
from isthmus.trace.schema import Answer, Event, Report, Verdict, Violation

WITNESSES = 100
"""Violations that are described, per run and property. All are counted."""

Stay: TypeAlias = tuple[ProcessHistory, set[int], bool]
"""A process between two views: who, what it delivered, and whether its log has a gap there."""


class OracleFinding:
    """What one oracle found in one run."""

    def __init__(self, history: RunHistory, judged: str) -> None:
        self.history = history
        self.property = judged
        self.checked = 0
        self.violations = 0
        self.witnesses: list[Violation] = []
        self.unknown = False

    def violated(self, process: ProcessHistory, first: int, second: int | None = None, **more: Any) -> None:
        """Count a violation, and describe it by its messages and whatever more a `Mistake` needs."""
        self.violations += 1
        if self.room:
            text, deliveries = self.history.text, process.deliveries
            known = {"first": text(first), "first_index": deliveries.get(first)}
            if second is not None:
                known |= {"second": text(second), "second_index": deliveries[second]}
            mistake = Mistake(process=process.name, **known | more)
            self.witnesses.append(violation(self.history.run, self.property, mistake))

    @property
    def room(self) -> bool:
        """One more violation may be described."""
        return len(self.witnesses) < WITNESSES

    def verdict(self) -> Verdict:
        answer: Answer = "violated" if self.violations else "unknown" if self.unknown else "holds"
        return Verdict(self.history.run, self.property, answer, self.checked, self.violations)


def judge(events: Iterable[Event], properties: Iterable[str] | None = None) -> Report:
    """Judge every run in a trace, by all properties or by these. The rows must fit the schema, as a reader's do."""
    runs = histories(events)
    wanted = tuple(PROPERTIES if properties is None else properties)
    findings = [_found(history, each) for history in runs for each in wanted]
    return Report(
        runs=len(runs),
        events=sum(history.rows for history in runs),
        verdicts=[finding.verdict() for finding in findings],
        violations=[witness for finding in findings for witness in finding.witnesses],
    )


def _found(history: RunHistory, judged: str) -> OracleFinding:
    found = OracleFinding(history, judged)
    oracle = ORACLES.get(judged)
    if oracle is None or (PROPERTIES[judged].about_views and not any(each.views for each in history.members)):
        found.unknown = True
    else:
        oracle(history, found)
    return found


# Single messages ------------------------------------------------------------------------------------------------------


def integrity(history: RunHistory, found: OracleFinding) -> None:
    """Violated when a process delivers a message twice, or one that nobody (had) sent, or one that was not for it.

    That nobody had sent it yet shows where the sender itself delivers it: between processes nothing else tells.
    """
    sent_by_nobody = {each for each in history.delivered if history.never_sent(each)}
    found.unknown = any(history.sent_at[each] < 0 for each in history.delivered - sent_by_nobody)
    for process in history.members:
        deliveries = process.deliveries
        found.checked += len(deliveries) + len(process.again)
        for message, index in process.again:
            found.violated(process, message, kind="again", second_index=index)
        for message in sorted(sent_by_nobody & deliveries.keys()):
            found.violated(process, message, kind="nobody")
        for message in process.early:
            found.violated(process, message, kind="early")
        for message in () if history.broadcast else deliveries:
            if not history.is_for(message, process):
                found.violated(process, message, kind="stranger")


def agreement(history: RunHistory, found: OracleFinding) -> None:
    """Violated when a message that was delivered anywhere, or whose sender did not crash, is missing at a destination.

    A destination that crashed or left owes nothing. A sender whose log breaks off may have crashed, and a message
    of a crashed sender may have been delivered where a log breaks off: both leave the answer open.
    """
    due: list[int] = []
    doubtful: list[int] = []
    for message in range(len(history.keys)):
        sender = history.sender_log(message)
        is_due = message in history.delivered or (sender.complete and not sender.crashed)
        (due if is_due else doubtful).append(message)

    for process, messages in _due_by_process(history, due):
        owed = {each for each in messages if history.owes(process, each)} if process.joined else messages
        found.checked += len(owed)
        missing = owed.difference(process.deliveries)
        if process.complete:
            for message in sorted(missing):
                found.violated(process, message)
        elif missing:
            found.unknown = True
    found.unknown = found.unknown or any(_may_be_due(history, message) for message in doubtful)


def _due_by_process(history: RunHistory, due: Iterable[int]) -> Iterator[tuple[ProcessHistory, set[int]]]:
    """What is due at each process that is still there."""
    for_everyone: set[int] = set()
    for_some: defaultdict[str, set[int]] = defaultdict(set)
    for message in due:
        if history.destinations[message] is None:
            for_everyone.add(message)
        else:
            for process in history.recipients(message):
                for_some[process.name].add(message)
    for process in history.members:
        if not process.gone:
            yield process, for_everyone | for_some[process.name]
    for name in sorted(for_some.keys() - history.processes.keys()):
        yield history.log(name), for_some[name]


def _may_be_due(history: RunHistory, message: int) -> bool:
    """A message that nobody is seen to have delivered: could some process owe it all the same?"""
    recipients = history.recipients(message)
    open_logs = sum(not process.complete for process in recipients)
    for process in recipients:
        if not process.gone and history.owes(process, message):
            delivered_elsewhere = open_logs > (not process.complete)
            if delivered_elsewhere or not history.sender_log(message).crashed:
                return True
    return False


# Order ----------------------------------------------------------------------------------------------------------------


def _some_past_is_open(history: RunHistory) -> bool:
    """Some delivered message was sent after things that we do not see."""
    return any(not (history.past_is_known(each) or history.never_sent(each)) for each in history.delivered)


def fifo(history: RunHistory, found: OracleFinding) -> None:
    """Violated when a process delivers m2 without having delivered before it an earlier m1 of that sender for it."""
    found.unknown = _some_past_is_open(history)
    destinations = history.destinations
    for process in history.members:
        name, deliveries = process.name, process.deliveries
        found.checked += len(deliveries)
        for sender, order in enumerate(history.order):
            owed_from = history.owed_from(process, sender)
            latest = missing = -1
            latest_index = -1
            for rank, message in enumerate(order):
                index = deliveries.get(message)
                if index is not None:
                    if index < latest_index:
                        found.violated(process, latest, message)
                    elif missing >= 0:
                        if index < process.first_gap:
                            found.violated(process, missing, message)
                        else:
                            found.unknown = True
                own_destinations = destinations[message]
                if own_destinations is None or name in own_destinations:
                    if index is None:
                        if missing < 0 and rank >= owed_from:
                            missing = message
                    elif index > latest_index:
                        latest, latest_index = message, index


def causal(history: RunHistory, found: OracleFinding) -> None:
    """Violated when a process delivers m2 without having delivered before it a cause m1 that was also for it."""
    found.unknown = _some_past_is_open(history)
    found.checked = sum(len(process.deliveries) for process in history.members)
    simple = [each for each in history.members if history.broadcast and not each.joined and each.first_gap == NEVER]
    causes = direct_causes(history) if simple else []
    rest = [each for each in history.members if each not in simple or not _keeps_direct_causes(each, causes)]
    if rest:
        pasts = causal_pasts(history)
        for process in rest:
            _judge_by_pasts(found, process, pasts)


def _keeps_direct_causes(process: ProcessHistory, causes: list[list[int]]) -> bool:
    """Enough for "nothing is wrong" where every cause had to be delivered here and would be seen; see `causality`.

    How many deliveries are wrong, it does not say: one counts when *any* of its causes is not there.
    """
    deliveries = process.deliveries
    return not any(
        deliveries.get(cause, NEVER) > index for message, index in deliveries.items() for cause in causes[message]
    )


def _judge_by_pasts(found: OracleFinding, process: ProcessHistory, pasts: list[Past]) -> None:
    """Judge by whole causal pasts: exact everywhere, at the cost of one comparison per sender."""
    deliveries = process.deliveries
    channels = _Channels(found.history, process)
    for message, index in deliveries.items():
        cause = channels.unmet_cause(pasts[message], index)
        if cause is None:
            continue
        if cause in deliveries or index < process.first_gap:
            [chain] = chains_in_history(found.history, [(cause, message)] if found.room else []) or [[]]
            found.violated(process, cause, message, chain=tuple(map(found.history.text, chain)))
        else:
            found.unknown = True


class _Channels:
    """What one process has of each sender, so that a whole causal past can be checked against it at once.

    `latest[sender][n]` is the latest delivery index among the sender's first n messages that are for this process;
    `first_missing[sender]` is the n with which the first comes that is owed but missing, or `NEVER`.
    """

    def __init__(self, history: RunHistory, process: ProcessHistory) -> None:
        self.history = history
        self.process = process
        self.latest: list[list[int]] = []
        self.first_missing: list[int] = []
        for sender, order in enumerate(history.order):
            owed_from = history.owed_from(process, sender)
            latest = [-1]
            first_missing = NEVER
            for rank, message in enumerate(order):
                index = -1
                if history.is_for(message, process):
                    index = process.deliveries.get(message, -1)
                    if index < 0 and owed_from <= rank < first_missing:
                        first_missing = rank + 1
                latest.append(max(latest[-1], index))
            self.latest.append(latest)
            self.first_missing.append(first_missing)

    def unmet_cause(self, past: Past, index: int) -> int | None:
        """A cause that was delivered after `index`; failing that, one that is missing; failing that, None.

        At `index` itself stands the message whose past it is: a circle may have it there, but nothing causes itself.
        """
        counts, unplaced = past
        if max(map(getitem, self.latest, counts)) > index:
            return self._overtaken(counts, index)
        missing = None
        if any(map(le, self.first_missing, counts)):
            sender = next(sender for sender, count in enumerate(counts) if self.first_missing[sender] <= count)
            missing = self.history.order[sender][self.first_missing[sender] - 1]
        for cause in unplaced:
            if self.history.is_for(cause, self.process):
                delivered_at = self.process.deliveries.get(cause)
                if delivered_at is None:
                    missing = cause if self.history.owes(self.process, cause) else missing
                elif delivered_at > index:
                    return cause
        return missing

    def _overtaken(self, counts: list[int], index: int) -> int:
        for order, latest, count in zip(self.history.order, self.latest, counts, strict=True):
            if latest[count] > index:
                return order[bisect(latest, index) - 1]  # where the maximum first passed the index
        raise AssertionError("one of them is late, or the maximum would be below")


def total(history: RunHistory, found: OracleFinding) -> None:
    """Violated when two processes deliver the same two messages in different orders.

    In a run that keeps it, all logs are usually part of the longest, and one comparison with that settles all pairs.
    """
    found.checked = sum(len(process.deliveries) for process in history.members)
    longest = max((process.deliveries for process in history.members), key=len, default={})
    strays = [process for process in history.members if not _is_part_of(process.deliveries, longest)]
    for stray in strays:
        for other in history.members:
            if other not in strays or other.name < stray.name:
                _judge_pair(found, stray, other)
    if not found.violations:
        found.unknown = any(
            _may_differ(history, process, other)
            for process in history.members
            if not process.complete
            for other in history.members
            if other is not process
        )


def _is_part_of(deliveries: Iterable[int], longest: Iterable[int]) -> bool:
    remaining = iter(longest)
    return all(message in remaining for message in deliveries)  # `in` goes forward to where it finds the message


def _judge_pair(found: OracleFinding, process: ProcessHistory, other: ProcessHistory) -> None:
    """Order differs somewhere exactly if it differs between two neighbours among the messages that both have."""
    common = (message for message in process.deliveries if message in other.deliveries)
    for first, second in pairwise(common):
        if other.deliveries[first] > other.deliveries[second]:
            there = {"other_first_index": other.deliveries[first], "other_second_index": other.deliveries[second]}
            found.violated(process, first, second, other=other.name, **there)
            return


def _may_differ(history: RunHistory, process: ProcessHistory, other: ProcessHistory) -> bool:
    """Could `process`, whose log is not complete, have delivered what it misses in another order than `other`?

    A message that is missing before a common one may have come later; one that is missing after, earlier in a gap.
    """
    missing = common = False
    for message in other.deliveries:
        if message in process.deliveries:
            if missing:
                return True
            common = True
        elif history.is_for(message, process) and history.owes(process, message):
            if common and process.gaps:
                return True
            missing = True
    return False


# Views ----------------------------------------------------------------------------------------------------------------


def same_view(history: RunHistory, found: OracleFinding) -> None:
    """Violated when two processes went from one view to the same next one and delivered different messages between."""
    stays: defaultdict[tuple[str, int, str, str], list[Stay]] = defaultdict(list)
    for process in history.members:
        messages, indices = list(process.deliveries), list(process.deliveries.values())
        for (start, number), (end, next_number) in pairwise(process.views):
            delivered = set(messages[bisect(indices, start) : bisect(indices, end)])
            has_gap = any(start < gap < end for gap in process.gaps)
            stays[process.system, life_of(process.name), number, next_number].append((process, delivered, has_gap))
            found.checked += 1
    for (_, _, number, next_number), same_stays in sorted(stays.items()):
        for (process, delivered, has_gap), (other, other_delivered, other_has_gap) in combinations(same_stays, 2):
            if delivered == other_delivered:
                continue
            if has_gap or other_has_gap:
                found.unknown = True
                continue
            message = min(delivered ^ other_delivered)
            lacking, having = (other, process) if message in delivered else (process, other)
            views = f"between view {number} and view {next_number}"
            found.violated(lacking, message, other=having.name, detail=views)


ORACLES: dict[str, Callable[[RunHistory, OracleFinding], None]] = {
    "integrity": integrity,
    "agreement": agreement,
    "fifo": fifo,
    "causal": causal,
    "total": total,
    "same-view": same_view,
}
"""Property to the function that looks for violations of it in the history of a run."""
