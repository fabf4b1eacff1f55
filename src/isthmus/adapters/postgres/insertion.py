"""The statement by which an append sets the record and inserts its rows, or does neither.

One statement, because the server begins it only when all of it has come: whoever is stopped while sending holds no lock
that a successor would wait for. Only rows that alternate between tables need a transaction of several.
Values go as one array for each column, made here: psycopg takes several times as long for a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from struct import Struct
from typing import Any, NamedTuple

from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper

from isthmus.adapters.postgres.table import BYTEA, ORIGIN, Table
from isthmus.runtime.log.interface import Entry

_TEXT = 25
_HEAD = Struct(">iiIii")
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)

FENCE = "WITH fence AS (UPDATE isthmus.state SET record = $1 WHERE log = $2 AND token = $3 AND record = $4 RETURNING 1)"
"""Takes the row of the state until the transaction ends. Who claims afterwards finds the record that it left."""

FENCE_VALUES = 4


class Insert(NamedTuple):
    """A statement, with values from $5 on if it is `fenced`, else from $1 on."""

    statement: str
    values: list[Any]


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


def inserts(tables: Sequence[Table], entries: Sequence[Entry]) -> list[Insert]:
    """One statement for each run of entries of one table, to be carried out in this order in one transaction.

    A single run has the fence in it, and is a transaction by itself. It returns one number: 1 if it was done, 0 if the
    fence was closed.
    """
    runs = [(part, list(run)) for part, run in groupby(entries, key=lambda entry: entry.part)]
    return [_insert(tables[part], run, fenced=len(runs) == 1) for part, run in runs]


def _insert(table: Table, entries: Sequence[Entry], *, fenced: bool) -> Insert:
    rows = [table.values(entry) for entry in entries]
    # A row has one column at least.
    names = [name for name in table.columns if any(name in row for row in rows)] or [ORIGIN]
    values: list[Any] = []
    taken, shown = [], []
    for at, name in enumerate(names):
        column = table.columns[name]
        values.append(_array(column.oid, [row.get(name) for row in rows]))
        taken.append(f"${FENCE_VALUES * fenced + at + 1}::{'bytea' if column.oid == BYTEA else 'text'}[]")
        value = f"u.c{at}" if column.oid in (BYTEA, _TEXT) else f"u.c{at}::{column.type}"
        shown.append(value if column.default is None else f"coalesce({value}, {column.default})")
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    arguments = ", ".join(f"c{at}" for at in range(len(names)))
    insert = (
        f"INSERT INTO {table.sql} ({columns}) SELECT {', '.join(shown)} "
        f"FROM unnest({', '.join(taken)}) AS u({arguments})"
    )
    if fenced:
        insert = f"{FENCE}, run AS ({insert} WHERE EXISTS (SELECT FROM fence)) SELECT count(*) FROM fence"
    return Insert(insert, values)


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
