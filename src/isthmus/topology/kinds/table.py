"""The table of kinds: what each brings to the topology file, one line each."""

from __future__ import annotations

from isthmus.topology.kinds.acknowledged import ACKNOWLEDGED
from isthmus.topology.kinds.clusters import CLUSTERS
from isthmus.topology.kinds.daisy import DAISY
from isthmus.topology.kinds.group import GROUP
from isthmus.topology.kinds.kind import Kind
from isthmus.topology.kinds.log import LOG
from isthmus.topology.read.table import Table

KINDS: dict[str, Kind] = {
    "clusters": CLUSTERS,
    "daisy": DAISY,
    "acknowledged": ACKNOWLEDGED,
    "group": GROUP,
    "log": LOG,
}
"""All kinds by name, the same as in the tables of other layers. Of two tables in a file, the first kind counts."""


def providers() -> tuple[str, ...]:
    """All words that may stand after `kind =`."""
    return tuple(dict.fromkeys(word for kind in KINDS.values() for word in kind.providers))


def all_keys() -> tuple[str, ...]:
    """All keys that some system may have."""
    return tuple(dict.fromkeys(key for kind in KINDS.values() for key in (kind.table, *kind.keys) if key))


def kind_of(provider: str, table: Table) -> str:
    """The kind of a system of this provider: the one whose table it has, or the one that needs none."""
    fitting = {name: kind for name, kind in KINDS.items() if provider in kind.providers}
    marked = [name for name, kind in fitting.items() if kind.table in table.entries]
    return marked[0] if marked else next(name for name, kind in fitting.items() if not kind.table)
