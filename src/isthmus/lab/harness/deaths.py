"""What the traces of a run can be told, and can tell, of a process that was killed in the middle of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event
from isthmus.trace.writer import JsonlSink

STANDSTILL: Nanos = 100 * MILLISECOND
"""A shorter pause is how messages come: with 120 a second each way, undisturbed ones of 20 to 60 ms are common."""


def certify_death(trace: Path, run: str, system: str, process: str, killed_at: Nanos) -> None:
    """Who was killed could not say so. We killed it, so we can: its log ends here."""
    path = trace / f"{run}.{system}.{process}.jsonl"
    log = next(iter(read_trace([path]).logs.values()))
    row = Event(
        run=run,
        system=system,
        process=process,
        role=log.role,
        index=log.events[-1].index + 1 if log.events else 0,
        event="crash",
        time_ns=killed_at,
        note="killed with SIGKILL by whoever ran it",
    )
    sink = JsonlSink(path)
    sink.write([row])
    sink.close()


def flowing_again(events: Sequence[Event], systems: Iterable[str], at: Nanos, until: Nanos) -> Nanos:
    """When the longest standstill of what comes from elsewhere was over, in any of the systems; `at` if there was none.

    One counts that began between these times, or before them and was not over; it may be over later than `until`.
    """
    over = at
    longest = STANDSTILL
    for system in systems:
        came = [
            event.time_ns
            for event in events
            if event.event == "deliver" and event.role == "app" and event.system == system != event.origin_system
        ]
        for earlier, later in pairwise(sorted(came)):
            if earlier < until and at < later and later - max(earlier, at) > longest:
                longest, over = later - max(earlier, at), later
    return over
