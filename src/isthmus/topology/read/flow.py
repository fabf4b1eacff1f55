"""The `[joins.of.SYSTEM]` table: what of one system goes over a join, from where on, and under which names.

It is for logs, whose entries have a subject and a key that a filter can look at.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.topology.problem import quote
from isthmus.topology.read.table import Table, describe

By: TypeAlias = Literal["subject", "key"]

START, NOW = "start", "now"
_BY: tuple[By, ...] = ("subject", "key")
_MOST_PATTERNS = 1024


class Flow(Struct, frozen=True):
    """What goes out of one system by one join.

    `start` is where the first gateway that ever runs begins to read: `start`, `now`, a time or a position. A message
    passes if `allow` is empty or has a pattern that its subject (or key) fits, and `deny` has none. `renames` are pairs
    of patterns: what fits the first becomes the second, with what its `*` stood for.
    """

    start: str = START
    by: By = "subject"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    @property
    def filters(self) -> bool:
        return bool(self.allow or self.deny)


EVERYTHING = Flow()


def read_flows(table: Table) -> tuple[tuple[str, Flow], ...]:
    inner = table.table("of", named=True)
    return tuple((name, _flow(inner.table(name))) for name in inner.entries)


def _flow(table: Table) -> Flow:
    flow = Flow(
        start=table.text("from") or START,
        by=table.choice("by", _BY, "subject"),
        allow=_patterns(table, "allow"),
        deny=_patterns(table, "deny"),
        renames=_renames(table),
    )
    table.close()
    return flow


def _patterns(table: Table, key: str) -> tuple[str, ...]:
    patterns = table.names(key, is_name=str.isprintable, form='write patterns such as "orders.*"', empty=True) or ()
    if len(patterns) > _MOST_PATTERNS:
        table.refuse(key, f"{len(patterns)} patterns are more than {_MOST_PATTERNS}", "use wider ones")
    return patterns


def _renames(table: Table) -> tuple[tuple[str, str], ...]:
    inner = table.table("map", named=True)
    pairs = []
    for old in inner.entries:
        new = inner.take(old)
        if not isinstance(new, str) or not new.isprintable() or not new:
            inner.refuse(old, f"must be a string, not {describe(new)}", 'write "orders.*" = "madrid.orders.*"')
        elif old.count("*") > 1 or new.count("*") > old.count("*"):
            reason = f"{quote(old)} to {quote(new)}: one * in the first, and one or none in the second"
            inner.refuse(old, reason, 'write "orders.*" = "madrid.orders.*"')
        else:
            pairs.append((old, new))
    return tuple(pairs)
