"""Which rows of a Parquet file count, a million at a time.

Rows that a look at whole columns finds nothing wrong with are sound. Any other is given to the reader of `trace.rows`,
which says what is wrong with it, in its words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from isthmus.pipeline.engine.logs import Array, numbers, words
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.schema import WITH_A_MESSAGE, WITHOUT_A_MESSAGE


def suspects(table: Any) -> Array:
    """Which rows may not fit the columns, or make no sense. A table has the columns of a trace, with our types."""
    found = np.zeros(table.num_rows, bool)
    said: dict[str, tuple[Array, list[Any]]] = {}
    for column in TRACE_COLUMNS:
        values = table.column(column.name)
        if not column.nullable and values.null_count:
            found |= values.is_null().to_numpy()
        if column.type == "int64" and column.least is not None:
            found |= numbers(values, column.least) < column.least
        elif column.type == "string" and (column.least or column.values):
            number, told = said[column.name] = words(values)
            allowed = column.values
            wrong = [not word or (bool(allowed) and word not in allowed) for word in told]
            if any(wrong):
                found |= np.array([*wrong, False])[number]
        elif column.type == "array of string" and values.null_count < len(values):
            lists = values.combine_chunks()
            items = lists.flatten()
            if items.null_count:
                inside = np.repeat(np.arange(len(lists)), numbers(pa.compute.list_value_length(lists)))
                found[inside[items.is_null().to_numpy(zero_copy_only=False)]] = True
    return found | _senseless(table, said)


def _senseless(table: Any, said: dict[str, tuple[Array, list[Any]]]) -> Array:
    """What `trace.schema.problem` finds, by the same rules."""

    def among(name: str, wanted: Any) -> Array:
        number, told = said[name]
        return np.array([word in wanted for word in told] + [False])[number]

    def slashed(name: str) -> Array:
        number, told = said[name]
        return np.array(["/" in word for word in told] + [False])[number]

    absent = [table.column(f"origin_{part}").is_null().to_numpy() for part in ("system", "process", "seq")]
    none, some = absent[0] & absent[1] & absent[2], absent[0] | absent[1] | absent[2]
    found = some & ~none
    found |= none & among("event", WITH_A_MESSAGE)
    found |= ~none & among("event", WITHOUT_A_MESSAGE)
    send, view = among("event", {"send"}) & among("role", {"app"}), among("event", {"view"})
    found |= send & (_differ(said, "system") | _differ(said, "process"))
    found |= slashed("system") | slashed("origin_system")
    if view.any():
        found |= view & (table.column("destinations").is_null().to_numpy() | table.column("peer").is_null().to_numpy())
    return found


def _differ(said: dict[str, tuple[Array, list[Any]]], name: str) -> Array:
    """Where the name of a process and that of the sender are not the same."""
    (number, told), (origin, origins) = said[name], said[f"origin_{name}"]
    place = {word: at for at, word in enumerate(told)}
    same = np.array([place.get(word, -2) for word in origins] + [-2])
    return same[origin] != number


def not_utf8(table: Any) -> dict[int, str]:
    """Rows with a name or word that is no text, and why they do not count."""
    found: dict[int, str] = {}
    for column in TRACE_COLUMNS:
        if column.type != "string":
            continue
        values = table.column(column.name)
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            number, told = words(values.cast(pa.string()).cast(pa.binary()))
            wrong = np.array([not _is_text(word) for word in told] + [False])
            for row in np.flatnonzero(wrong[number]).tolist():
                found.setdefault(row, f"not UTF-8 - at `$.{column.name}`")
    return found


def _is_text(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
