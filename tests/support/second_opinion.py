"""A second opinion on a run: what docs/trace-format.md says of the properties, tried on everything there is.

Written from that page alone, for executions of a few dozen rows, and kept under 150 lines. It shares nothing with the
audits but the class of a row: no history, no chains, no pasts. Where the page and this file are at odds, one is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import permutations
from typing import TypeAlias

from isthmus.trace.schema import Event

Message: TypeAlias = tuple[str, int]
Opinion: TypeAlias = tuple[str, int, int]
"""The verdict, what was checked, and how many violations."""


class Log:
    """What one process wrote down, as far as it counts. One that has no rows at all did nothing that we know of."""

    def __init__(self, rows: list[Event]) -> None:
        self.rows = sorted(rows, key=lambda row: row.index)
        self.app = [row for row in self.rows if row.role == "app"]
        events = {row.event for row in self.app}
        self.late, self.crashed, self.gone = "join" in events, "crash" in events, bool({"crash", "leave"} & events)
        ended = bool(rows) and self.rows[-1].event in ("end", "crash", "leave")
        self.complete = ended and not self.gap_before(len(rows))
        self.deliveries = [row for row in self.app if row.event == "deliver"]
        self.delivered: dict[Message, int] = {}
        self.sent: dict[Message, int] = {}
        for row in self.app:  # of rows about one message, the first counts
            if row.event in ("send", "deliver"):
                (self.sent if row.event == "send" else self.delivered).setdefault(identity(row), row.index)
        self.numbered = not self.complete and [*self.sent] == sorted(self.sent)

    def gap_before(self, index: int) -> bool:
        return not {*range(index)} <= {row.index for row in self.rows}


def identity(row: Event) -> Message:
    return f"{row.origin_system}/{row.origin_process}", row.origin_seq or 0


class Run:
    """The rows of one run that count, and what they say of its messages."""

    def __init__(self, rows: Iterable[Event]) -> None:
        claims: dict[tuple[str, int], set[Event]] = defaultdict(set)
        for row in rows:
            claims[f"{row.system}/{row.process}", row.index].add(row)
        logs: dict[str, list[Event]] = defaultdict(list)
        for (name, _), claim in claims.items():
            logs[name] += claim if len(claim) == 1 else ()
        self.logs = {name: Log(rows) for name, rows in logs.items() if rows}
        self.app = {name: log for name, log in sorted(self.logs.items()) if log.app}
        self.messages = {m for log in self.app.values() for m in (*log.sent, *log.delivered)}
        self.audience = {m: self.recipients(m) for m in self.messages}
        self.before = {(m1, m2) for m1, m2 in permutations(self.messages, 2) if self.sent_before(m1, m2)}

    def log(self, name: str) -> Log:
        return self.logs.get(name) or Log([])

    def recipients(self, m: Message) -> set[str]:
        rows = [row for log in self.app.values() for row in log.deliveries if identity(row) == m]
        if m in self.log(m[0]).sent:
            rows = [row for row in self.log(m[0]).app if row.index == self.log(m[0]).sent[m]]
        told = [row.destinations for row in rows if row.destinations is not None]
        return {p for p in told[0] if p in self.app or p not in self.logs} if told else {*self.app}

    def sent_before(self, m1: Message, m2: Message) -> bool:
        log = self.log(m1[0])
        if m1 in log.sent and m2 in log.sent:
            return log.sent[m1] < log.sent[m2]
        return m1[0] == m2[0] and log.numbered and m1[1] < m2[1]

    @cached_property
    def causes(self) -> set[tuple[Message, Message]]:
        found = set(self.before)
        for log in self.app.values():
            found |= {(m1, m2) for m2 in log.sent for m1, at in log.delivered.items() if at < log.sent[m2]}
        while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
            found |= more
        return {(m1, m2) for m1, m2 in found if m1 != m2}

    def owes(self, p: str, m: Message) -> bool:
        """Could it be missing there? (Whether p crashed or left is not asked.)"""
        if p not in self.audience[m] or not self.log(p).late:
            return p in self.audience[m]
        log = self.log(m[0])
        theirs = [each for each in self.log(p).delivered if each[0] == m[0] and (log.numbered or each in log.sent)]
        return bool(theirs) and (theirs[0], m) in self.before

    def integrity(self) -> Iterator[str]:
        for p, log in self.app.items():
            for row in log.deliveries:
                m, sender = identity(row), self.log(identity(row)[0])
                unsent, early = m not in sender.sent, row.index < log.sent.get(m, 0)
                mistakes = [unsent and sender.complete, early, p not in self.audience[m]]
                yield "checked, unknown" if unsent and not sender.complete else "checked"
                yield from ["violated"] * (sum(mistakes) if row.index == log.delivered[m] else 1)

    def agreement(self) -> Iterator[str]:
        for m in self.messages:
            sender, delivered = self.log(m[0]), any(m in log.delivered for log in self.app.values())
            due = delivered or (sender.complete and not sender.crashed)
            for p in {p for p in self.audience[m] if self.owes(p, m) and not self.log(p).gone}:
                yield "checked" if due else ""
                if m not in self.log(p).delivered:
                    elsewhere = any(not self.log(q).complete for q in self.audience[m] - {p})
                    may = due or elsewhere or not sender.crashed
                    yield "violated" if due and self.log(p).complete else "unknown" if may else ""

    def order(self, relation: set[tuple[Message, Message]]) -> Iterator[str]:
        for p, log in self.app.items():
            for m2, at in log.delivered.items():
                sender = self.log(m2[0])
                hidden = sender.gap_before(sender.sent[m2]) if m2 in sender.sent else not sender.complete
                yield "checked, unknown" if hidden else "checked"
                befores = [m1 for m1 in self.messages if (m1, m2) in relation and p in self.audience[m1]]
                absent = any(m1 not in log.delivered and self.owes(p, m1) for m1 in befores)
                if any(log.delivered.get(m1, -1) > at for m1 in befores) or (absent and not log.gap_before(at)):
                    yield "violated"
                yield "unknown" if absent else ""

    def total(self) -> Iterator[str]:
        yield from ("checked" for log in self.app.values() for _ in log.delivered)
        for (name, log), (other, there) in permutations(self.app.items(), 2):
            here, at, gap = log.delivered, there.delivered, log.gap_before(len(log.rows))
            both = permutations(here.keys() & at.keys(), 2)
            differ = name < other and any(here[a] < here[b] and at[a] > at[b] for a, b in both)
            missing = {m for m in at.keys() - here.keys() if self.owes(name, m)} if not log.complete else set()
            may = any(gap or at[m] < at[common] for m in missing for common in at.keys() & here.keys())
            yield "violated" if differ else "unknown" if may else ""


def opinion(rows: Iterable[Event]) -> dict[str, Opinion]:
    """Verdict and counts of one run, for each of the five properties."""
    run, answers = Run(rows), {}
    orders = {"fifo": run.order(run.before), "causal": run.order(run.causes), "total": run.total()}
    for name, found in {"integrity": run.integrity(), "agreement": run.agreement(), **orders}.items():
        words = [*found]
        wrong = words.count("violated")
        answer = "violated" if wrong else "unknown" if any("unknown" in word for word in words) else "holds"
        answers[name] = (answer, sum("checked" in word for word in words), wrong)
    return answers
