"""Pieces of trace files into rows, inside Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from isthmus.pipeline.ingest.files import FilePiece
from isthmus.pipeline.ingest.rows import PLACE, TORN
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.files import open_file
from isthmus.trace.parquet import arrow_schema
from isthmus.trace.rows import Rows, Stretch, read_rows, sensible
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.shiviz.importer import import_log
from isthmus.trace.shiviz.log import MAX_FILE, Bad, Expressions

_BATCH_ROWS = 1 << 14
_PLACED = arrow_schema((*TRACE_COLUMNS, *PLACE))


def decode_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: pieces in, rows with their places out. Whatever the bytes, no exception."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from piece_rows(FilePiece(**row))


def piece_rows(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """The rows of one piece, bad ones with the reason, some thousands at a time."""
    gathered = _Gathered(piece.file)
    try:
        stretch = Stretch(piece.path, piece.start, piece.end, piece.first_line)
        for rows in [_shiviz_rows(piece)] if piece.shiviz else read_rows(stretch):
            gathered.add(rows)
            if gathered.count >= _BATCH_ROWS:
                yield gathered.batch()
    except TraceError as error:
        gathered.bad.append((0, error.reason))
    if gathered.count:
        yield gathered.batch()


def _shiviz_rows(piece: FilePiece) -> Rows:
    if piece.end is not None and piece.end > MAX_FILE:
        reason = f"a ShiViz log of more than {MAX_FILE >> 20} MiB, which is more than is read as a whole"
        raise TraceError(piece.path, reason, "cut it into several")
    with open_file(piece.path) as file:
        content = file.read()
    bad: Bad = []
    found = list(import_log(content, Path(piece.path).stem, Expressions(piece.parser, piece.delimiter), bad))
    return sensible(Rows([line for line, _ in found], [event for _, event in found], bad))


class _Gathered:
    """Rows of one file on their way into a record batch."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.lines: list[int] = []
        self.events: list[Event] = []
        self.bad: list[tuple[int, str]] = []

    @property
    def count(self) -> int:
        return len(self.events) + len(self.bad)

    def add(self, rows: Rows) -> None:
        self.lines += rows.lines
        self.events += rows.events
        self.bad += rows.bad
        if rows.torn:
            self.bad.append((rows.torn, TORN))

    def batch(self) -> pa.RecordBatch:
        good, bad = len(self.events), len(self.bad)
        columns = list(zip(*map(msgspec.structs.astuple, self.events), strict=True)) or [()] * len(TRACE_COLUMNS)
        values = [[*column, *[None] * bad] for column in columns]
        values += [
            [self.file] * (good + bad),
            [*self.lines, *(line for line, _ in self.bad)],
            [*[None] * good, *(reason for _, reason in self.bad)],
        ]
        self.lines, self.events, self.bad = [], [], []
        arrays = [pa.array(column, field.type) for column, field in zip(values, _PLACED, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_PLACED)
