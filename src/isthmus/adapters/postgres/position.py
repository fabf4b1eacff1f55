"""A place in the order of commits, and what shows that it is in the log that it was made for."""

from __future__ import annotations

import re
from typing import NamedTuple

from isthmus.runtime.log.interface import LogProblem, Position

_PLACE = re.compile(r"(\d{1,20})/(\d{1,10})/([\d+]{1,700})/([0-9A-F]{1,8}-[0-9A-F]{1,8})/(-?\d{1,19})/(\d{1,19})")
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class Place(NamedTuple):
    """Behind row `row` of the transaction whose commit is written at `lsn`; 0: before that transaction.

    `system` is the cluster, `timeline` changes when a server is restored or a standby takes over, `tables` are the
    object ids of the tables, which are others when a table is made anew. `time` is that of the commit, in
    microseconds since 2000: a server that was set back has other transactions there.
    """

    system: int
    timeline: int
    tables: str
    lsn: int
    time: int = 0
    row: int = 0

    def position(self) -> Position:
        lsn = lsn_text(self.lsn).replace("/", "-")
        return f"{self.system}/{self.timeline}/{self.tables}/{lsn}/{self.time}/{self.row}"


def place_of(position: Position) -> Place:
    found = _PLACE.fullmatch(position)
    if not found:
        raise LogProblem(f"{position[:200]!r} is no position in a log of PostgreSQL.")
    system, timeline, tables, lsn, time, row = found.groups()
    return Place(int(system), int(timeline), tables, lsn_of(lsn.replace("-", "/")), int(time), int(row))


def is_position(text: str) -> bool:
    return bool(_PLACE.fullmatch(text))


def is_lsn(text: str) -> bool:
    return bool(_LSN.fullmatch(text))


def lsn_of(text: str) -> int:
    """A number for what PostgreSQL writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
