"""The rows of one run, as objects in memory, as the arrays that the audit works on.

An audit of tables codes names by hashes, because no task sees all of them. Here one task has the whole run, so its
processes are numbered, and no two can share a code. Rows must be sound, as `trace.writer` makes them: nothing is
quarantined here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from isthmus.pipeline.audit.codes import KINDS, OTHER
from isthmus.pipeline.audit.findings import TOO_LARGE
from isthmus.pipeline.audit.task.arrays import RunArrays
from isthmus.pipeline.audit.task.judge import audit_arrays, judges_of
from isthmus.pipeline.audit.witness import violation_in_words
from isthmus.trace.history import life_of
from isthmus.trace.properties import audited_properties
from isthmus.trace.schema import Answer, Event, TraceError, Violation

_EVERYONE = 0

Key = TypeVar("Key", bound=Hashable)


class Judgement(NamedTuple):
    """What the audit says of one run."""

    verdicts: dict[str, Answer]
    violations: list[Violation]
    """Up to ten of each property."""


class Numbers(dict[Key, int]):
    """Keys to 0, 1, 2, … in the order in which they are met."""

    def __missing__(self, key: Key) -> int:
        number = self[key] = len(self)
        return number


def judge_rows(events: Sequence[Event], properties: Iterable[str] | None = None) -> Judgement:
    """Audit the rows of one run, by these properties or by those that an audit always judges."""
    wanted = audited_properties() if properties is None else properties
    numbers: Numbers[tuple[str | None, str | None]] = Numbers()
    run = run_arrays(events, numbers)
    rows = [row for finding in audit_arrays(run, judges_of(wanted)) for row in finding.rows(events[0].run)]
    verdicts: dict[str, Answer] = {row["property"]: row["verdict"] for row in rows if row["record"] == "verdict"}
    if TOO_LARGE in verdicts:
        raise TraceError(
            f"run {events[0].run}", "too large to be audited in one task", "simulate it with --trace, and audit that"
        )
    names = {number: f"{system}/{process}" for (system, process), number in numbers.items()}
    witnesses = [Row(**row) for row in rows if row["record"] == "witness"]
    return Judgement(verdicts, [violation_in_words(witness, names) for witness in witnesses])


def run_arrays(events: Sequence[Event], numbers: Numbers[tuple[str | None, str | None]]) -> RunArrays:
    """The arrays of a run; `numbers` learns which process has which code."""
    audiences: Numbers[tuple[str, ...] | None] = Numbers({None: _EVERYONE})
    about = [row.role == "app" and row.event in ("send", "deliver") for row in events]
    pairs = list(zip(events, about, strict=True))
    audience = np.array([audiences[row.destinations] if counts else _EVERYONE for row, counts in pairs], np.int64)
    lists = [_codes(row.destinations, numbers) if counts else None for row, counts in pairs] if audience.any() else []
    names = [f"{row.system}/{row.process}" for row in events]
    groups: Numbers[tuple[str, int]] = Numbers()
    origins = [
        numbers[row.origin_system, row.origin_process]
        if counts
        else groups[row.system, life_of(name)]
        if row.event == "view"
        else 0
        for (row, counts), name in zip(pairs, names, strict=True)
    ]
    return RunArrays(
        process=np.array([numbers[row.system, row.process] for row in events], np.int64),
        app=np.array([row.role == "app" for row in events], bool),
        index=np.array([row.index for row in events], np.int64),
        kind=np.array([KINDS.get(row.event, OTHER) for row in events], np.int8),
        origin=np.array(origins, np.int64),
        seq=np.array([row.origin_seq if counts else 0 for row, counts in pairs], np.int64),
        audience=audience,
        destinations=pa.array(lists, pa.list_(pa.int64())),
        name=pa.array(
            [row.peer if row.event == "view" else name for row, name in zip(events, names, strict=True)], pa.string()
        ),
    )


def _codes(destinations: tuple[str, ...] | None, numbers: Numbers[tuple[str | None, str | None]]) -> list[int] | None:
    """A destination is named as `system/process`, and the name of a system has no slash."""
    if destinations is None:
        return None
    parts = (name.partition("/") for name in destinations)
    return [numbers[system, process] for system, _, process in parts]
