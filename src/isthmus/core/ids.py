"""Identities: small integers inside, names at the edges.

A process is an integer, because it is compared, hashed and put on the wire millions of times a second. A
`Directory` turns integers back into the names that people read; only topology, trace and terminal code
holds one.

A process that crashed comes back only as a new one (crash-stop model). Its id keeps the *slot* of its place in
the topology in the low bits and counts *incarnations* above, so that no id is ever used twice and a driver
still finds the address of a returning process.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

ProcessId: TypeAlias = int
LinkId: TypeAlias = int
Nanos: TypeAlias = int
"""Virtual or real time, always an argument, never read by a protocol."""

SLOT_BITS = 16
SLOT_MASK = (1 << SLOT_BITS) - 1

LIFE = 100_000
"""Incarnations of a slot in one life of its system, which begins again when all its processes died at once: the first
life begins with `p1`, the second one with `p1+100000`. Who comes later within a life counts on from there. Ids of the
first life, up to 65,535 returns, take 5 bytes in MessagePack; those of later ones 9."""

_INCARNATION = re.compile(r"[1-9][0-9]{0,17}")

MILLISECOND: Nanos = 1_000_000
SECOND: Nanos = 1_000_000_000


def incarnation_of(slot: int, incarnation: int) -> ProcessId:
    """The id of the n-th process (from 0) that lives in a slot of the topology."""
    if not 0 <= slot <= SLOT_MASK:
        raise ValueError(f"slot {slot} does not fit {SLOT_BITS} bits")
    return incarnation << SLOT_BITS | slot


def slot_of(process: ProcessId) -> int:
    return process & SLOT_MASK


def life_of(process: ProcessId) -> int:
    """In which life of its system a process lives."""
    return (process >> SLOT_BITS) // LIFE


class MessageId(NamedTuple):
    """Stamped once by the origin, carried everywhere: (origin process, sequence number from 1)."""

    origin: ProcessId
    seq: int


class ProcessName(NamedTuple):
    """How people call a process; `str()` gives the `system/process` of the trace format."""

    system: str
    process: str

    def __str__(self) -> str:
        return f"{self.system}/{self.process}"


class Directory:
    """The names of all slots of a topology, and from them the names of all processes that ever live in them.

    The first process in a slot carries the slot's name (`p2`); one that came back carries its incarnation as
    well (`p2+1`), so that traces never mix two lives. Of these, `_returned` remembers the one of each slot that was
    named last.
    """

    def __init__(self, slots: list[ProcessName]) -> None:
        if len(set(slots)) != len(slots):
            raise ValueError("two slots carry the same name")
        self.slots = slots
        self._returned: dict[int, tuple[ProcessId, ProcessName]] = {}
        self._ids = {name: index for index, name in enumerate(slots)}

    def name(self, process: ProcessId) -> ProcessName:
        if process < len(self.slots):
            return self.slots[process]
        slot = slot_of(process)
        known, name = self._returned.get(slot, (0, self.slots[slot]))
        if known != process:
            name = ProcessName(name.system, f"{self.slots[slot].process}+{process >> SLOT_BITS}")
            self._returned[slot] = (process, name)
        return name

    def id(self, system: str, process: str) -> ProcessId:
        """The id behind a name; `KeyError` where there is none."""
        base, plus, incarnation = process.partition("+")
        slot = self._ids[ProcessName(system, base)]
        if not plus:
            return slot
        if not _INCARNATION.fullmatch(incarnation):
            raise KeyError(f"{system}/{process}")
        return incarnation_of(slot, int(incarnation))
