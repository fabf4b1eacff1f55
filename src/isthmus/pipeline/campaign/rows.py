"""The rows of one run, as objects in memory, judged by the engine of the audit.

Rows must be sound, as `trace.writer` makes them: nothing is quarantined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from isthmus.pipeline.engine.judges import judges_of
from isthmus.pipeline.engine.run import run_of
from isthmus.trace.properties import audited_properties, violation
from isthmus.trace.schema import Answer, Event, Violation


class Judgement(NamedTuple):
    """What the audit says of one run."""

    verdicts: dict[str, Answer]
    violations: list[Violation]
    """Up to ten of each property."""


def judge_rows(events: Sequence[Event], properties: Iterable[str] | None = None) -> Judgement:
    """Audit the rows of one run, by these properties or by those that an audit always judges."""
    found = run_of(events).judge(judges_of(audited_properties() if properties is None else properties))
    violations = [violation(events[0].run, each.judged, one.mistake) for each in found for one in each.described]
    return Judgement({each.judged: each.verdict for each in found}, violations)
