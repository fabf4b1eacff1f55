"""Pieces of trace files into rows, inside Spark's Python workers.

The same decoder as in `trace.reader`, so the same rows count and the same words say why others do not; but a piece
knows nothing of the rest of the trace, so rows that come twice are found later, where logs are put in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from isthmus.pipeline.files import UNREADABLE, NotATrace, Piece, columns_to_read, unreadable_reason
from isthmus.pipeline.rows import ARROW_PLACED, TORN
from isthmus.trace.reader import MAX_LINE
from isthmus.trace.schema import COLUMNS, Event, printable, problem

_CHUNK = 1 << 20
_BATCH_ROWS = 1 << 14
_LONGEST_REASON = 200
_decoder = msgspec.json.Decoder(Event)


def decode_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: pieces in, rows with their places out. Whatever the bytes, no exception."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from _piece_rows(Piece(**row))


def _piece_rows(piece: Piece) -> Iterator[pa.RecordBatch]:
    rows = _Rows(piece.file)
    readers = {"jsonl": _jsonl, "parquet": _parquet}
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
    """Decode a megabyte at a time, and line by line only where something is wrong: that is half the time."""
    with open(piece.path, "rb") as file:
        start, line = _first_line_start(file, piece)
        for block in _blocks(file, start, piece.end):
            if block is None:
                rows.bad(line, f"longer than {MAX_LINE} bytes")
                line += 1
                continue
            line_ends = block.count(b"\n")
            try:
                events = _decoder.decode_lines(block)
            except (ValueError, RecursionError):
                events = []
            # Blank lines, or an object that spans lines: the count would give rows wrong line numbers.
            if line_ends and len(events) == line_ends and block.endswith(b"\n"):
                for number, event in enumerate(events, line):
                    rows.good(number, event)
            else:
                _line_by_line(block, line, rows)
            line += line_ends
            yield


def _first_line_start(file: IO[bytes], piece: Piece) -> tuple[int, int]:
    """Where the first line of the piece begins, and its number. A line belongs to the piece in which it begins."""
    if piece.start == 0:
        return 0, piece.first_line
    position = piece.start - 1
    file.seek(position)
    while chunk := file.read(min(_CHUNK, piece.end - position)):
        found = chunk.find(b"\n")
        if found >= 0:
            start = position + found + 1
            return start, piece.first_line + (start > piece.start)
        position += len(chunk)
    return piece.end, piece.first_line


def _blocks(file: IO[bytes], start: int, end: int) -> Iterator[bytes | None]:
    """Whole lines that begin before `end`; only the last of a file may lack its end. None: a line that is too long."""
    if start >= end:
        return
    file.seek(start)
    position = start
    rest = b""
    skipping = False
    while chunk := file.read(_CHUNK):
        chunk_start, position = position, position + len(chunk)
        if skipping:
            _, newline, after = chunk.partition(b"\n")
            if not newline:
                continue
            skipping = False
            chunk_start += len(chunk) - len(after)
            chunk = after
            if chunk_start >= end:
                return
        if position >= end:
            # The last line is the one that begins before `end`: cut after its end, if that is in sight.
            cut = chunk.find(b"\n", max(0, end - 1 - chunk_start))
            if cut >= 0:
                yield from _without_long_lines(rest + chunk[: cut + 1])
                return
        block, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield from _without_long_lines(block + newline)
        if len(rest) > MAX_LINE:
            yield None
            rest = b""
            skipping = True
    if rest:
        yield rest


def _without_long_lines(block: bytes) -> Iterator[bytes | None]:
    """Nearly every block passes as it is: only a line that began in an earlier chunk can be too long."""
    end = block.find(b"\n")
    if end > MAX_LINE:
        yield None
        block = block[end + 1 :]
    if block:
        yield block


def _line_by_line(block: bytes, first_line: int, rows: _Rows) -> None:
    *whole, tail = block.split(b"\n")
    for line, text in enumerate(whole, first_line):
        if text.strip():
            try:
                rows.good(line, _decoder.decode(text))
            except (ValueError, RecursionError) as error:
                rows.bad(line, str(error))
    if tail.strip():
        try:
            rows.good(first_line + len(whole), _decoder.decode(tail))
        except msgspec.ValidationError as error:
            rows.bad(first_line + len(whole), str(error))
        except (ValueError, RecursionError):
            rows.bad(first_line + len(whole), TORN)


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
