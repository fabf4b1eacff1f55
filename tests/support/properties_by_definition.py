"""The properties of a run, word for word: no cleverness, no speed, one small function per sentence.

This is the second opinion for everything that judges traces. It looks at all pairs of messages at all processes
and closes the relation "is a cause of" by brute force, so it is for runs of a few dozen rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise, product

from isthmus.trace.schema import Event

MessageId = tuple[str, str, int]


def id_of(row: Event) -> MessageId:
    assert row.origin_system is not None
    assert row.origin_process is not None
    assert row.origin_seq is not None
    return row.origin_system, row.origin_process, row.origin_seq


class Run:
    """One run, and what the rows of its trace say."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.logs: dict[str, list[Event]] = {}
        claims: dict[tuple[str, int], set[Event]] = {}
        for event in events:
            claims.setdefault((f"{event.system}/{event.process}", event.index), set()).add(event)
        # Where two different rows claim one index, neither counts.
        for (name, _), rows in sorted(claims.items(), key=lambda claim: claim[0]):
            if len(rows) == 1:
                self.logs.setdefault(name, []).extend(rows)
        # "Only rows with role `app` count."
        self.rows = {name: [row for row in log if row.role == "app"] for name, log in self.logs.items()}
        self.app = [name for name, rows in self.rows.items() if rows]

    # Logs

    def complete(self, name: str) -> bool:
        """No gap, and an `end`, `crash` or `leave` row at the end. A log that is not there is not complete."""
        log = self.logs.get(name, [])
        gapless = [row.index for row in log] == list(range(len(log)))
        return bool(log) and gapless and log[-1].event in ("end", "crash", "leave")

    def gap_before(self, name: str, index: int) -> bool:
        return not set(range(index)) <= {row.index for row in self.logs[name]}

    def has(self, name: str, event: str) -> bool:
        return any(row.event == event for row in self.rows.get(name, []))

    # Messages

    @cached_property
    def sends(self) -> dict[MessageId, Event]:
        found: dict[MessageId, Event] = {}
        for name in self.app:
            for row in self.rows[name]:
                if row.event == "send" and name == sender_of(id_of(row)):
                    found.setdefault(id_of(row), row)
        return found

    @cached_property
    def first_delivery(self) -> dict[str, dict[MessageId, int]]:
        """ "Order is judged on first deliveries." """
        found: dict[str, dict[MessageId, int]] = {name: {} for name in self.app}
        for name in self.app:
            for row in self.rows[name]:
                if row.event == "deliver":
                    found[name].setdefault(id_of(row), row.index)
        return found

    def delivered(self, name: str) -> dict[MessageId, int]:
        return self.first_delivery.get(name, {})

    @cached_property
    def messages(self) -> list[MessageId]:
        return sorted(self.sends.keys() | {m for name in self.app for m in self.delivered(name)})

    @cached_property
    def destinations(self) -> dict[MessageId, list[str]]:
        """The `send` row says it, or where that is lost a `deliver` row. Null means every app process of the run."""
        found = {}
        for m in self.messages:
            if m in self.sends:
                said = self.sends[m].destinations
            else:
                rows = [row for name in sorted(self.app) for row in self.rows[name] if row.event == "deliver"]
                lists = [row.destinations for row in rows if id_of(row) == m and row.destinations is not None]
                said = lists[0] if lists else None
            # A gateway is no app process; a process without any rows may be one whose log is lost.
            found[m] = self.app if said is None else [p for p in set(said) if p in self.app or p not in self.logs]
        return found

    # Order

    def ordered(self, m: MessageId) -> bool:
        """It has a place among its sender's messages: by its `send` row, or by its number where rows may be lost."""
        numbers = [
            other[2] for other, row in sorted(self.sends.items(), key=lambda item: item[1].index) if other[:2] == m[:2]
        ]
        return m in self.sends or (not self.complete(sender_of(m)) and numbers == sorted(numbers))

    @cached_property
    def earlier(self) -> set[tuple[MessageId, MessageId]]:
        """ "The same process sent m1 before m2." """
        found = set()
        for m1, m2 in product(self.messages, repeat=2):
            if m1[:2] == m2[:2] and m1 != m2 and self.ordered(m1) and self.ordered(m2):
                if m1 in self.sends and m2 in self.sends:
                    before = self.sends[m1].index < self.sends[m2].index
                else:
                    before = m1[2] < m2[2]
                if before:
                    found.add((m1, m2))
        return found

    @cached_property
    def causes(self) -> set[tuple[MessageId, MessageId]]:
        """ "… or the sender of m2 delivered m1 before it sent m2, or by a chain of these." """
        found = set(self.earlier)
        for m2, send in self.sends.items():
            found |= {(m1, m2) for m1, index in self.delivered(sender_of(m2)).items() if index < send.index}
        for middle in self.messages:
            before = [m1 for m1 in self.messages if (m1, middle) in found]
            after = [m2 for m2 in self.messages if (middle, m2) in found]
            found |= set(product(before, after))
        return found

    def owes(self, name: str, m: MessageId) -> bool:
        """ "From each sender it owes what follows the first message of that sender that it delivered." """
        if not self.has(name, "join"):
            return True
        of_sender = [other for other in self.delivered(name) if other[:2] == m[:2] and self.ordered(other)]
        return bool(of_sender) and (of_sender[0], m) in self.earlier

    def missing(self, name: str, m: MessageId) -> bool:
        return name in self.destinations[m] and m not in self.delivered(name) and self.owes(name, m)


def sender_of(m: MessageId) -> str:
    return f"{m[0]}/{m[1]}"


def answer(violated: bool, unknown: bool) -> str:
    return "violated" if violated else "unknown" if unknown else "holds"


def integrity(run: Run) -> str:
    violated = unknown = False
    for name in run.app:
        deliveries = [id_of(row) for row in run.rows[name] if row.event == "deliver"]
        for m, index in run.delivered(name).items():
            violated |= sender_of(m) == name and m in run.sends and index < run.sends[m].index
        for m in deliveries:
            nobody_sent_it = m not in run.sends
            violated |= deliveries.count(m) > 1
            violated |= nobody_sent_it and run.complete(sender_of(m))
            violated |= name not in run.destinations[m]
            unknown |= nobody_sent_it and not run.complete(sender_of(m))
    return answer(violated, unknown)


def agreement(run: Run) -> str:
    violated = unknown = False
    for m in run.messages:
        sender = sender_of(m)
        delivered_anywhere = any(m in run.delivered(name) for name in run.app)
        must = delivered_anywhere or (run.complete(sender) and not run.has(sender, "crash"))
        for name in run.destinations[m]:
            if run.has(name, "crash") or run.has(name, "leave") or not run.missing(name, m):
                continue
            others = [other for other in run.destinations[m] if other != name]
            delivered_in_a_lost_row = any(not run.complete(other) for other in others)
            may = delivered_in_a_lost_row or not run.has(sender, "crash")
            violated |= must and run.complete(name)
            unknown |= must or may
    return answer(violated, unknown)


def ordered_by(run: Run, relation: set[tuple[MessageId, MessageId]]) -> str:
    violated = unknown = False
    for name in run.app:
        for m2, index in run.delivered(name).items():
            if m2 not in run.sends:
                unknown |= not run.complete(sender_of(m2))
            else:
                unknown |= run.gap_before(sender_of(m2), run.sends[m2].index)
            for m1 in run.messages:
                # Nothing causes itself, whatever circles a trace claims.
                if m1 == m2 or (m1, m2) not in relation or name not in run.destinations[m1]:
                    continue
                if m1 in run.delivered(name):
                    violated |= not run.delivered(name)[m1] < index
                elif run.missing(name, m1):
                    violated |= not run.gap_before(name, index)
                    unknown |= run.gap_before(name, index)
    return answer(violated, unknown)


def fifo(run: Run) -> str:
    return ordered_by(run, run.earlier)


def causal(run: Run) -> str:
    return ordered_by(run, run.causes)


def total(run: Run) -> str:
    violated = unknown = False
    for p, q in product(run.app, repeat=2):
        if p == q:
            continue
        at_p, at_q = run.delivered(p), run.delivered(q)
        for m1, m2 in product(at_p, repeat=2):
            if not at_p[m1] < at_p[m2]:
                continue
            if m1 in at_q and m2 in at_q:
                violated |= at_q[m1] > at_q[m2]
            elif not run.complete(q):
                log = run.logs[q]
                has_gap = run.gap_before(q, log[-1].index)
                unknown |= m2 in at_q and run.missing(q, m1)
                unknown |= has_gap and m1 in at_q and run.missing(q, m2)
    return answer(violated, unknown)


def same_view(run: Run) -> str:
    violated = False
    unknown = not any(run.has(name, "view") for name in run.app)
    stays = []
    for name in run.app:
        views = [row for row in run.rows[name] if row.event == "view"]
        for row, next_row in pairwise(views):
            messages = {m for m, index in run.delivered(name).items() if row.index < index < next_row.index}
            seen = {each.index for each in run.logs[name]}
            gap = not set(range(row.index, next_row.index)) <= seen
            stays.append(((row.system, row.peer, next_row.peer), messages, gap))
    for (key, messages, gap), (other_key, others, other_gap) in product(stays, repeat=2):
        if key == other_key and messages != others:
            violated |= not gap and not other_gap
            unknown |= gap or other_gap
    return answer(violated, unknown)


def verdicts(events: Iterable[Event]) -> dict[str, str]:
    run = Run(events)
    return {
        rule.__name__.replace("_", "-"): rule(run) for rule in (integrity, agreement, fifo, causal, total, same_view)
    }
