"""Pieces of trace files into rows, inside Spark's Python workers.

The same decoder as in `trace.reader`, so the same rows count and the same words say why others do not; but a piece
knows nothing of the rest of the trace, so rows that come twice are found later, where logs are put in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from isthmus.pipeline.ingest.files import UNREADABLE, NotATrace, Piece, columns_to_read, unreadable_reason
from isthmus.pipeline.ingest.rows import ARROW_PLACED, TORN
from isthmus.trace.jsonl import decode
from isthmus.trace.schema import COLUMNS, Event, printable, problem
from isthmus.trace.shiviz.importer import import_log
from isthmus.trace.shiviz.log import MAX_FILE, Bad, Expressions

_BATCH_ROWS = 1 << 14
_LONGEST_REASON = 200


def decode_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: pieces in, rows with their places out. Whatever the bytes, no exception."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from _piece_rows(Piece(**row))


def _piece_rows(piece: Piece) -> Iterator[pa.RecordBatch]:
    rows = _Rows(piece.file)
    readers = {"jsonl": _jsonl, "parquet": _parquet, "shiviz": _shiviz}
    try:
        for _ in readers[piece.kind](piece, rows):
            if rows.count >= _BATCH_ROWS:
                yield rows.batch()
    except NotATrace as error:
        rows.bad(0, str(error))
    except UNREADABLE as error:
        rows.bad(0, unreadable_reason(error))
    if rows.count:
        yield rows.batch()


class _Rows:
    """Rows of one file on their way into a record batch."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.events: list[Event] = []
        self.lines: list[int] = []
        self.bad_lines: list[int] = []
        self.reasons: list[str] = []

    @property
    def count(self) -> int:
        return len(self.events) + len(self.bad_lines)

    def good(self, line: int, event: Event) -> None:
        reason = problem(event)
        if reason is None:
            self.events.append(event)
            self.lines.append(line)
        else:
            self.bad(line, reason)

    def bad(self, line: int, reason: str) -> None:
        if len(reason) > _LONGEST_REASON:
            reason = reason[:_LONGEST_REASON] + "…"
        self.bad_lines.append(line)
        self.reasons.append(printable(reason))

    def batch(self) -> pa.RecordBatch:
        good, bad = len(self.events), len(self.bad_lines)
        columns = list(zip(*map(msgspec.structs.astuple, self.events), strict=True)) or [()] * len(COLUMNS)
        nothing = [None] * bad
        arrays = [
            pa.array([*column, *nothing], field.type) for column, field in zip(columns, ARROW_PLACED, strict=False)
        ]
        arrays += [
            pa.array([self.file] * (good + bad), pa.int64()),
            pa.array(self.lines + self.bad_lines, pa.int64()),
            pa.array([None] * good + self.reasons, pa.string()),
        ]
        self.events, self.lines, self.bad_lines, self.reasons = [], [], [], []
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_PLACED)


# JSON Lines -----------------------------------------------------------------------------------------------------------


def _jsonl(piece: Piece, rows: _Rows) -> Iterator[None]:
    with open(piece.path, "rb") as file:
        for decoded in decode(file, piece.start, piece.end, piece.first_line):
            for line, reason in decoded.bad:
                rows.bad(line, reason)
            for line, event in decoded.rows:
                rows.good(line, event)
            if decoded.torn:
                rows.bad(decoded.torn, TORN)
            yield


# Parquet with columns that are like ours ------------------------------------------------------------------------------


def _parquet(piece: Piece, rows: _Rows) -> Iterator[None]:
    with pq.ParquetFile(piece.path) as file:
        wanted = columns_to_read(file.schema_arrow)
        names = [field.name for field in wanted]
        line = 1
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
            columns = [batch.column(field.name).cast(field.type).to_pylist() for field in wanted]
            for values in zip(*columns, strict=True):
                _parquet_row(dict(zip(names, values, strict=True)), line, rows)
                line += 1
            yield


def _parquet_row(values: dict[str, Any], line: int, rows: _Rows) -> None:
    try:
        rows.good(line, msgspec.convert(values, Event))
    except ValueError as error:
        rows.bad(line, str(error))


# ShiViz logs ----------------------------------------------------------------------------------------------------------


def _shiviz(piece: Piece, rows: _Rows) -> Iterator[None]:
    if piece.end > MAX_FILE:
        raise NotATrace(f"a ShiViz log of more than {MAX_FILE >> 20} MiB, which is more than is read as a whole")
    bad: Bad = []
    given = Expressions(piece.parser, piece.delimiter)
    for line, event in import_log(Path(piece.path).read_bytes(), Path(piece.path).stem, given, bad):
        rows.good(line, event)
        yield
    for line, reason in bad:
        rows.bad(line, reason)
        yield
