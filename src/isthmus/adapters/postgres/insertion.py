"""The one statement by which an append sets the record and inserts its rows, or does neither.

One statement, because the server begins it only when all of it has come: whoever is stopped while sending holds no lock
that a successor would wait for. Values go as one array for each column, made here: psycopg takes 1 µs for each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from struct import Struct

from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper

from isthmus.adapters.postgres.table import BYTEA, ORIGIN, Table
from isthmus.runtime.log.interface import Entry

_TEXT = 25
_HEAD = Struct(">iiIii")
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)

FENCE = "WITH fence AS (UPDATE isthmus.state SET record = $1 WHERE log = $2 AND token = $3 AND record = $4 RETURNING 1)"
"""Takes the row of the state until the statement is committed. Who claims afterwards finds the record that it left."""


class ByteaArray(bytes):
    """A `bytea[]`, as the server reads it."""


class TextArray(bytes):
    """A `text[]`, as the server reads it."""


def register(adapters: AdaptersMap) -> None:
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(TextArray, _TextArrayDumper)


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class _ByteaArrayDumper(_ArrayDumper):
    oid = 1001


class _TextArrayDumper(_ArrayDumper):
    oid = 1009


def insertion(tables: Sequence[Table], entries: Sequence[Entry]) -> tuple[str, list[bytes]]:
    """The statement and its values from $5 on. It returns one number: 1 if it was done, 0 if the fence was closed.

    Rows of several tables come one part after the other, each waiting for the former, so that the order is kept.
    """
    parts = [FENCE]
    values: list[bytes] = []
    gate = "EXISTS (SELECT FROM fence)"
    runs = [(part, list(run)) for part, run in groupby(entries, key=lambda entry: entry.part)]
    for number, (part, run) in enumerate(runs):
        table = tables[part]
        rows = [table.values(entry) for entry in run]
        names = [name for name in table.columns if any(name in row for row in rows)]
        if not names:
            # A row has one column at least.
            names = [ORIGIN]
        taken, shown = [], []
        for at, name in enumerate(names):
            column = table.columns[name]
            values.append(_array(column.oid, [row.get(name) for row in rows]))
            taken.append(f"${len(values) + 4}::{'bytea' if column.oid == BYTEA else 'text'}[]")
            value = f"u.c{at}" if column.oid in (BYTEA, _TEXT) else f"u.c{at}::{column.type}"
            shown.append(value if column.default is None else f"coalesce({value}, {column.default})")
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        arguments = ", ".join(f"c{at}" for at in range(len(names)))
        more = " RETURNING 1" if number + 1 < len(runs) else ""
        parts.append(
            f"run{number} AS (INSERT INTO {table.sql} ({columns}) SELECT {', '.join(shown)} "
            f"FROM unnest({', '.join(taken)}) AS u({arguments}) WHERE {gate}{more})"
        )
        gate = f"EXISTS (SELECT FROM fence) AND (SELECT count(*) FROM run{number}) >= 0"
    return ", ".join(parts) + " SELECT count(*) FROM fence", values


def _array(oid: int, values: Sequence[bytes | None]) -> bytes:
    pieces = [b""]
    pack = _LENGTH.pack
    for value in values:
        if value is None:
            pieces.append(_NULL)
        else:
            pieces += (pack(len(value)), value)
    is_bytes = oid == BYTEA
    pieces[0] = _HEAD.pack(1, 1, BYTEA if is_bytes else _TEXT, len(values), 1)
    return (ByteaArray if is_bytes else TextArray)(b"".join(pieces))
