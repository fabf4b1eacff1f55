"""Which files a trace is made of, and in which pieces they are read.

Large JSON Lines files are cut into pieces at line ends, so that one file keeps all cores busy; Parquet files whose
columns are exactly ours are Spark's to read, and any others are read through pyarrow. A Parquet file that cannot be
read, or is no trace, is a bad file: it is quarantined as a whole, with its reason, and the others still count. A ShiViz
log is one piece, because its clocks need the whole of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from isthmus.pipeline.ingest.rows import ARROW_ROWS
from isthmus.trace.files import LOG_SUFFIX, SHIVIZ_SUFFIX
from isthmus.trace.schema import NULLABLE, printable
from isthmus.trace.shiviz.log import Expressions

PIECE_BYTES = 32 << 20
"""Of JSON Lines. About 120,000 rows, half a second of one core."""

UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, MemoryError, OverflowError)
"""What pyarrow raises for damaged files is not documented; these are the classes that it uses."""


class Piece(NamedTuple):
    """Part of a file that one task reads: the lines that begin in `start … end - 1`.

    `parser` and `delimiter` are for ShiViz logs that do not say themselves how they are read.
    """

    file: int
    path: str
    kind: str
    start: int
    end: int
    first_line: int
    parser: str = ""
    delimiter: str = ""


class TraceFiles(NamedTuple):
    """The files of a trace by the way in which they are read. `names[number]` is the file of that number."""

    names: list[str]
    pieces: list[Piece]
    native: list[int]
    """Parquet files with exactly our columns."""
    bad: list[tuple[int, str]]
    """Number and reason of each file that cannot be used."""


def examine(paths: Iterable[Path], expressions: Expressions) -> TraceFiles:
    """Look at sizes and footers, and decide how each file is read."""
    names = list(map(str, paths))
    files = TraceFiles(names, [], [], [])
    for number, name in enumerate(names):
        try:
            if name.endswith(".parquet"):
                if _is_native(name):
                    files.native.append(number)
                else:
                    files.pieces.append(Piece(number, name, "parquet", 0, 0, 1))
            elif name.endswith((SHIVIZ_SUFFIX, LOG_SUFFIX)):
                how = (expressions.parser, expressions.delimiter)
                files.pieces.append(Piece(number, name, "shiviz", 0, os.stat(name).st_size, 1, *how))
            else:
                files.pieces.extend(_pieces(number, name))
        except NotATrace as error:
            files.bad.append((number, str(error)))
        except UNREADABLE as error:
            files.bad.append((number, unreadable_reason(error)))
    return files


def unreadable_reason(error: BaseException) -> str:
    return printable(f"not a readable file: {str(error).partition(chr(10))[0] or type(error).__name__}")


class NotATrace(Exception):
    """The file can be read, but its columns are not those of a trace."""


def _is_native(name: str) -> bool:
    """Whether Spark can read a Parquet file as it is. Raises where nobody can."""
    schema = pq.read_schema(name)
    columns_to_read(schema)
    return all(schema.field(field.name).type == field.type for field in ARROW_ROWS if field.name in schema.names)


def columns_to_read(found: Any) -> list[Any]:
    """The columns of ours that a file has, with our types. Other integers and other kinds of string will do."""
    types = pa.types
    alike = {"int64": [types.is_integer], "string": [types.is_string, types.is_large_string]}
    wanted = []
    for field in ARROW_ROWS:
        if field.name in found.names:
            kind = found.field(field.name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            accepted = alike.get(str(field.type), [types.is_list, types.is_large_list])
            if not (types.is_null(kind) or any(fits(kind) for fits in accepted)):
                raise NotATrace(f"not a trace: column `{field.name}` is {kind}, not {field.type}")
            wanted.append(field)
        elif field.name not in NULLABLE:
            raise NotATrace(f"not a trace: it has no column `{field.name}`")
    return wanted


def _pieces(number: int, name: str) -> Iterator[Piece]:
    """Pieces with the right line numbers need the line ends before them; counting those costs 0.1 s per GB."""
    size = os.stat(name).st_size
    if size <= PIECE_BYTES:
        yield Piece(number, name, "jsonl", 0, size, 1)
        return
    line_ends = 0
    with open(name, "rb", buffering=0) as file:
        for start in range(0, size, PIECE_BYTES):
            end = min(start + PIECE_BYTES, size)
            yield Piece(number, name, "jsonl", start, end, line_ends + 1)
            line_ends += file.read(end - start).count(b"\n")
