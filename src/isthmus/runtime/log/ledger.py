"""What a gateway of a log writes down in the broker: the import record and the checkpoint (docs/design/brokers.md).

Both are JSON, so that whoever looks into the broker can read them, and both count by names: the numbers of processes
change when a system is added to the topology file, what is written down does not. To adapters they are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from isthmus.core.ids import Directory, ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.runtime.log.interface import LogProblem, Position

VERSION = 1

Marks = list[tuple[str, Annotated[int, Meta(ge=0, lt=1 << 62)]]]
"""Of each origin, by name, how far it has come. The first process of a place that others have followed in stands for
all of the former ones together (`core/marks.py`)."""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far each origin has been brought in.

    `parked` are those that were put aside instead, as far as they may not have been read by; `skips` are systems of
    which some messages were left out by a filter, so that their numbers have gaps in the log. `retried` are those that
    were parked and appended later: each has one entry behind its place.
    """

    version: int = VERSION
    marks: Marks = []
    parked: Marks = []
    skips: list[str] = []
    retried: Marks = []


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position, and the marks there. `lives` counts how often the log was begun anew after a loss.

    `again` says that what lies between here and the end may have been read in a former life already. `retried` are
    those messages of the record's `retried` whose entries lie before here.
    """

    version: int = VERSION
    lives: int = 0
    again: bool = False
    position: Position
    marks: Marks = []
    retried: Marks = []


AnyLedger = TypeVar("AnyLedger", Record, Checkpoint)


def encode(ledger: Record | Checkpoint) -> bytes:
    return msgspec.json.encode(ledger)


def decode(written: bytes, kind: type[AnyLedger], where: str) -> AnyLedger:
    """What was written down; `LogProblem` where that is nothing of ours."""
    try:
        read = msgspec.json.decode(written, type=kind)
    except msgspec.MsgspecError as error:
        raise LogProblem(
            f"{where}: what isthmus keeps there cannot be read ({error}). Restore it, or remove it to begin anew: then "
            "what was brought in before is brought in again."
        ) from error
    if read.version != VERSION:
        raise LogProblem(f"{where}: written by another version of isthmus ({read.version}, this is {VERSION})")
    return read


def named(marks: Iterable[tuple[ProcessId, int]], names: Directory) -> Marks:
    return [(str(names.name(origin)), seq) for origin, seq in marks]


def numbered(marks: Marks, names: Directory) -> SlotMarks:
    """The marks of those origins that the topology still has. What others sent is behind us for good."""
    known = []
    for name, seq in marks:
        origin = id_of(name, names)
        if origin is not None:
            known.append((origin, seq))
    return SlotMarks(known)


def numbers_of(messages: Marks, names: Directory) -> set[tuple[ProcessId, int]]:
    """Single messages that were written down, of those origins that the topology still has."""
    return {(origin, seq) for name, seq in messages if (origin := id_of(name, names)) is not None}


def id_of(name: str, names: Directory) -> ProcessId | None:
    """The process of this name (`system/process`); None where the topology has none."""
    system, _, process = name.partition("/")
    try:
        return names.id(system, process)
    except (KeyError, ValueError):
        return None
