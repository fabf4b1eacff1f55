"""Plays the streaming audit without Spark: rows in some order of arrival, small feeds, a snapshot after each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from properties_by_definition import MessageId, Run, sender_of

from isthmus.pipeline.follow.run import MAX_HELD, feed
from isthmus.pipeline.follow.state import Findings, Row, RunState, restore, row_of, snapshot
from isthmus.trace.schema import LAST_EVENTS, Event, Violation


class Followed(NamedTuple):
    state: RunState
    found: Findings
    violations: list[Violation]


class Following:
    """One run that is being followed."""

    def __init__(self, max_held: int = MAX_HELD) -> None:
        self.state = RunState("r", max_held)
        self.arrived: list[Row] = []
        self.violations: list[Violation] = []
        self.warnings: list[str] = []
        self.most_held = 0

    def feed(self, rows: Iterable[Row | Event]) -> Findings:
        part = [row_of(row) if isinstance(row, Event) else row for row in rows]
        self.arrived += part
        self.state, found = feed(restore(snapshot(self.state)), part, lambda: [self.arrived])
        self.violations += found.violations
        self.warnings += found.warnings
        self.most_held = max(self.most_held, found.held)
        return found


def follow(rows: Sequence[Event], random: Random) -> Followed:
    following = Following()
    found = following.feed([])
    for part in parts(rows, random):
        found = following.feed(part)
    return Followed(following.state, found, following.violations)


def parts(rows: Sequence[Event], random: Random) -> Iterable[Sequence[Event]]:
    start = 0
    while start < len(rows):
        size = random.choice((1, 2, 5, 20))
        yield rows[start : start + size]
        start += size


def arrival(events: Iterable[Event], random: Random) -> list[Event]:
    """Anyhow; or log by log in order; or so, but one log comes when all others are there."""
    rows = list(events)
    way = random.choice(("anyhow", "in order", "one is late"))
    if way == "anyhow":
        random.shuffle(rows)
        return rows
    logs: dict[str, list[Event]] = {}
    for row in sorted(rows, key=lambda row: -row.index):
        logs.setdefault(f"{row.system}/{row.process}", []).append(row)
    names = sorted(logs)
    late = random.choice(names) if way == "one is late" else None
    arrived = []
    while any(logs.values()):
        ready = [name for name in names if logs[name] and name != late] or [name for name in names if logs[name]]
        arrived.append(logs[random.choice(ready)].pop())
    return arrived


def is_finished(events: Sequence[Event]) -> bool:
    """Every log is there, without gaps, and ends once."""
    run = Run(events)
    if len({(row.system, row.process, row.index) for row in events}) < len(events):
        return False
    return all(
        run.complete(name) and not any(row.event in LAST_EVENTS for row in log[:-1]) for name, log in run.logs.items()
    ) and all(sender_of(message) in run.logs for message in run.messages)


def can_be_followed(events: Sequence[Event]) -> bool:
    """No log goes on after its end, and no two rows dispute a place: there the first that comes counts."""
    run = Run(events)
    undisputed = len({(row.system, row.process, row.index) for row in events}) == len(set(events))
    return undisputed and not any(row.event in LAST_EVENTS for log in run.logs.values() for row in log[:-1])


def wrong_deliveries(run: Run, relation: set[tuple[MessageId, MessageId]]) -> set[tuple[str, MessageId]]:
    """Deliveries that a cause should have come before, by definition."""
    wrong = set()
    for name in run.app:
        delivered = run.delivered(name)
        for second, index in delivered.items():
            for first in run.messages:
                if first != second and (first, second) in relation and name in run.destinations[first]:
                    late = not delivered[first] < index if first in delivered else run.missing(name, first)
                    if late and (first in delivered or not run.gap_before(name, index)):
                        wrong.add((name, second))
    return wrong
