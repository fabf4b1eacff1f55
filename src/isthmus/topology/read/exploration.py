"""The `[exploration]` table: which few messages the explorer has sent, and how many gateways it crashes.

All of it is optional. What is sent matters more than how much: two messages of one process and one of another show
other mistakes than three of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.core.ids import ProcessName
from isthmus.topology.problem import choose_from, quote
from isthmus.topology.read.table import Table, describe

Stability: TypeAlias = Literal["late", "any"]
"""When gateways hear that a batch is settled: when nothing else can happen, or at any time."""

MAX_SENDS = 64
MAX_CRASHES = 64
MAX_STATES = 1_000_000_000

_STABILITIES: tuple[Stability, ...] = ("late", "any")
_EXAMPLE = 'write "system/process"'


class Directed(Struct, frozen=True, kw_only=True):
    """A message to one process, sent when its sender has delivered message number `after` (0: at any time).

    In a daisy it may `also` be for others.
    """

    sender: ProcessName
    destination: ProcessName
    after: int = 0
    also: tuple[ProcessName, ...] = ()

    @property
    def destinations(self) -> tuple[ProcessName, ...]:
        return (self.destination, *self.also)


class Exploration(Struct, frozen=True, kw_only=True):
    """`sends` names the sender of each message; None deals a few over all processes.

    In a system of clusters and in a daisy `messages` says it instead, for there a message has destinations.
    """

    sends: tuple[ProcessName, ...] | None = None
    crashes: int = 0
    stability: Stability = "late"
    max_states: int = 2_000_000
    messages: tuple[Directed, ...] = ()


def read_exploration(table: Table, processes: Mapping[str, tuple[str, ...]]) -> Exploration:
    """`processes` are those of each system, to find names that nobody has."""
    default = Exploration()
    exploration = Exploration(
        sends=_sends(table, processes),
        crashes=table.integer("crashes", default.crashes, 0, MAX_CRASHES),
        stability=table.choice("stability", _STABILITIES, default.stability),
        max_states=table.integer("max-states", default.max_states, 1, MAX_STATES),
        messages=_messages(table, processes),
    )
    table.close()
    return exploration


def _sends(table: Table, processes: Mapping[str, tuple[str, ...]]) -> tuple[ProcessName, ...] | None:
    """One entry per message, so that the same name may stand there several times."""
    value = table.take("sends")
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SENDS:
        found = f"{len(value)} of them" if isinstance(value, list) else describe(value)
        table.refuse("sends", f"must be an array of 1 to {MAX_SENDS} processes, not {found}", _EXAMPLE)
        return None
    known = [f"{system}/{name}" for system, names in processes.items() for name in names]
    for index, each in enumerate(value):
        if not isinstance(each, str):
            table.refuse_element("sends", index, f"must be a process, not {describe(each)}", _EXAMPLE)
        elif each not in known:
            way_out = choose_from(each, known, "the processes are")
            table.refuse_element("sends", index, f"there is no process {quote(each)}", way_out)
    return tuple(ProcessName(*each.split("/")) for each in value if each in known)


def _messages(table: Table, processes: Mapping[str, tuple[str, ...]]) -> tuple[Directed, ...]:
    """Each says from whom to whom; numbers count from 1, in the order of the file."""
    known = [f"{system}/{name}" for system, names in processes.items() for name in names]
    found: list[Directed | None] = []
    rows = table.tables("messages")
    if len(rows) > MAX_SENDS:
        table.refuse("messages", f"must be at most {MAX_SENDS}, not {len(rows)}", "explore fewer")
    for row in rows:
        ends = []
        for key in ("from", "to"):
            text = row.text(key)
            if text in known:
                ends.append(ProcessName(*text.split("/")))
            elif key not in row.entries:
                row.missing(key, "a message goes from one process to one other", _EXAMPLE)
            elif text is not None:
                row.refuse(key, f"there is no process {quote(text)}", choose_from(text, known, "the processes are"))
        after = row.integer("after", 0, 0, len(found))
        also = row.names("also", known.__contains__, choose_from("", known, "the processes are")) or ()
        row.close()
        question = found[after - 1] if after else None
        if len(ends) == 2 and question is not None and ends[0] not in question.destinations:
            row.refuse("after", f"message {after} is not for {ends[0]}", "name one that its sender delivers")
        others = tuple(name for each in also if (name := ProcessName(*each.split("/"))) not in ends[1:])
        complete = len(ends) == 2
        found.append(Directed(sender=ends[0], destination=ends[1], after=after, also=others) if complete else None)
    return tuple(each for each in found if each is not None)
