"""Pieces of trace files into rows, inside tasks: what counts as a table, and what does not with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from isthmus.pipeline.engine.logs import Array
from isthmus.pipeline.ingest.files import FilePiece
from isthmus.pipeline.ingest.sound import not_utf8, suspects
from isthmus.pipeline.ingest.table import TORN, WORDS
from isthmus.pipeline.mapping.model import REASON
from isthmus.trace.parquet import arrow_schema, columns_to_read, open_parquet
from isthmus.trace.rows import Stretch, converted, read_rows, sensible
from isthmus.trace.schema import COLUMNS, TraceError, printable

BATCH_ROWS = 1 << 20
"""Rows that a task has in memory at a time."""

_SCHEMA = arrow_schema()
_WORD = pa.dictionary(pa.int32(), pa.string())


class Batch(NamedTuple):
    """Rows of one file in the order of its lines, which may leave out some, and lines that do not count."""

    rows: Any
    lines: Array
    bad: list[tuple[int, str]]


def decoded(piece: FilePiece) -> Iterator[Batch]:
    """The rows of a piece. `TraceError` where a Parquet file cannot be read; nothing else, whatever the bytes."""
    if piece.path.endswith(".parquet"):
        yield from _parquet(piece)
        return
    lines: list[int] = []
    events: list[Any] = []
    bad: list[tuple[int, str]] = []
    try:
        stretch = Stretch(piece.path, piece.start, piece.end, piece.first_line)
        for rows in read_rows(stretch):
            lines += rows.lines
            events += rows.events
            bad += rows.bad
            if rows.torn:
                bad.append((rows.torn, TORN))
    except TraceError as error:
        bad.append((0, error.reason))
    columns = list(zip(*map(msgspec.structs.astuple, events), strict=True)) or [()] * len(_SCHEMA)
    arrays = [
        _encoded(field.name, pa.array(column, field.type)) for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    yield Batch(pa.table(arrays, names=_SCHEMA.names), np.array(lines, np.int64), bad)


def _encoded(name: str, column: Any) -> Any:
    """Words as numbers in a dictionary."""
    return column.dictionary_encode() if name in WORDS and not pa.types.is_dictionary(column.type) else column


def _parquet(piece: FilePiece) -> Iterator[Batch]:
    """Row groups, in parts of a million rows."""
    with open_parquet(piece.path, read_dictionary=WORDS, memory_map=True) as file:
        names = columns_to_read(piece.path, file.schema_arrow).names
        if REASON in file.schema_arrow.names:
            names = [*names, REASON]
        groups = list(range(piece.start, piece.end or 0))
        line = piece.first_line
        for part in file.iter_batches(BATCH_ROWS, groups, names, use_threads=False):
            yield _without_reason(part, np.arange(line, line + part.num_rows))
            line += part.num_rows


def _without_reason(part: Any, lines: Array) -> Batch:
    """Rows that have no reason beside them why they do not count, checked like any other."""
    if REASON not in part.schema.names or part.column(REASON).null_count == part.num_rows:
        return _checked(_with_our_types(part), lines)
    reasons = part.column(REASON)
    sound = reasons.is_null().to_numpy(zero_copy_only=False)
    told = zip(lines[~sound].tolist(), reasons.drop_null().to_pylist(), strict=True)
    batch = _checked(_with_our_types(part.filter(pa.array(sound))), lines[sound])
    return batch._replace(bad=batch.bad + [(line, printable(reason)) for line, reason in told])


def _with_our_types(part: Any) -> Any:
    """All columns of a trace; words stay numbers in a dictionary."""
    columns = []
    for field in _SCHEMA:
        if field.name not in part.schema.names:
            column = pa.nulls(part.num_rows, field.type)
        else:
            column = part.column(field.name)
            if column.type not in (field.type, _WORD):
                column = column.cast(field.type)
        columns.append(_encoded(field.name, column))
    return pa.table(columns, names=_SCHEMA.names)


def _checked(rows: Any, lines: Array) -> Batch:
    garbled = not_utf8(rows)
    if garbled:
        kept = np.isin(np.arange(len(lines)), list(garbled), invert=True)
        some = rows.filter(pa.array(kept))
        # Encoded again: a dictionary keeps words that no row has any more.
        columns = [_encoded(field.name, some.column(field.name).cast(field.type)) for field in _SCHEMA]
        rest = _checked(pa.table(columns, names=_SCHEMA.names), lines[kept])
        return rest._replace(bad=rest.bad + [(int(lines[row]), reason) for row, reason in garbled.items()])
    wrong = np.flatnonzero(suspects(rows))
    if not len(wrong):
        return Batch(rows, lines, [])
    values = rows.take(pa.array(wrong)).to_pylist()
    found = sensible(converted(values, lines[wrong].tolist()))
    kept = np.isin(lines, [line for line, _ in found.bad], invert=True)
    return Batch(rows.filter(pa.array(kept)), lines[kept], found.bad)


assert tuple(_SCHEMA.names) == COLUMNS
