"""Is what a sender calls stable really everywhere? Answered from the rows of one run, by its one virtual clock.

This cannot be an oracle for any trace: real processes have clocks of their own, and those are never compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from isthmus.trace.schema import Event

MessageKey: TypeAlias = tuple[str | None, str | None, int | None]


def too_early(events: Sequence[Event]) -> str:
    """Who called what stable before somebody had delivered it, in words; empty if nobody did.

    Only those count that were there from the start to the end: somebody who crashed, or was left out and did not know
    it yet, is no live destination, and somebody who came later owes nothing of the past.
    """
    from_the_start = {(row.run, _name(row)) for row in events if row.event == "start" and row.role == "app"}
    to_the_end = {(row.run, _name(row)) for row in events if row.event == "end"}
    witnesses: defaultdict[str, list[str]] = defaultdict(list)
    for run, name in sorted(from_the_start & to_the_end):
        witnesses[run].append(name)
    stable: dict[MessageKey, Event] = {}
    delivered: defaultdict[MessageKey, dict[str, int]] = defaultdict(dict)
    meant_for: dict[MessageKey, tuple[str, ...]] = {}
    for row in events:
        if row.role != "app":
            # What a gateway broadcast for others is stable, to it, when its own system is done with it.
            continue
        key = (row.origin_system, row.origin_process, row.origin_seq)
        if row.event == "stable":
            stable.setdefault(key, row)
        elif row.event == "deliver":
            delivered[key].setdefault(_name(row), row.time_ns)
        elif row.event == "send" and row.destinations is not None:
            meant_for[key] = row.destinations
    for key, row in stable.items():
        times = delivered[key]
        for name in witnesses[row.run]:
            if key in meant_for and name not in meant_for[key]:
                continue
            if times.get(name, row.time_ns + 1) > row.time_ns:
                message = "/".join(map(str, key))
                return f"{message} was called stable at {row.time_ns} ns, before {name} had delivered it"
    return ""


def _name(row: Event) -> str:
    return f"{row.system}/{row.process}"
