"""Files that grow, for the streaming audit: how far each can be read now, and its rows, packed by run.

Positions are bytes of JSON Lines, always at the end of a line, and row groups of Parquet. They are all that a
checkpoint holds of a file, so a batch that is repeated has the same rows. Here nothing is decoded to find them, other
than in `source_files`, where the cut has to know every row first: the audit takes rows as they arrive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq

from isthmus.pipeline.follow.state import Row, row_of
from isthmus.pipeline.ingest.files import UNREADABLE, NotATrace, columns_to_read, unreadable_reason
from isthmus.pipeline.source.files import log_files
from isthmus.trace.jsonl import MAX_LINE, decode
from isthmus.trace.schema import Event, TraceError, printable, problem

BATCH_BYTES = 16 << 20
"""Of JSON Lines that are read at a time: some 60,000 rows, about a second."""
PIECE_BYTES = 4 << 20
_LEAST_SHARE = 64 << 10
_ROW_GROUP_BYTES = 1 << 20
"""What a row group counts for in a batch."""
_GIVEN_UP = -1
"""The position in a Parquet file that cannot be read."""
_LONGEST_REASON = 200
SHOWN = 5
"""Bad rows of one piece that are described. All are counted."""

_event_decoder = msgspec.json.Decoder(Event)
_rows_decoder = msgspec.msgpack.Decoder(list[Row])
_encoder = msgspec.msgpack.Encoder()

Positions = dict[str, int]


class Piece(NamedTuple):
    """Part of a file for one task: bytes of lines, or row groups."""

    path: str
    start: int
    end: int


class Packed(NamedTuple):
    """The rows of one run in one piece; with an empty name of the run, those that do not fit the schema."""

    run: str
    path: str
    end: int
    rows: bytes
    bad: int
    reasons: list[str]


def unpack(rows: bytes) -> list[Row]:
    return _rows_decoder.decode(rows)


# How far ------------------------------------------------------------------------------------------------------------


class GrowingFiles:
    """Looks at files and says up to where the next batch goes."""

    def __init__(self, paths: Iterable[str], batch_bytes: int = BATCH_BYTES) -> None:
        self._paths = list(paths)
        self._batch_bytes = batch_bytes
        self._frozen: Positions | None = None
        self._unreadable: dict[str, int] = {}

    def freeze(self) -> None:
        """What is not there now will not be read."""
        self._frozen = self._sizes()

    def latest(self, start: Positions) -> Positions:
        """As far as the files go, but no more than a batch; longer ones go faster, so that logs stay side by side."""
        sizes = self._sizes() if self._frozen is None else self._frozen
        left = {path: size - start.get(path, 0) for path, size in sizes.items() if path.endswith(".jsonl")}
        for path, rest in left.items():
            if rest < 0:
                raise TraceError(
                    path, f"was cut back to {sizes[path]} bytes after {start[path]} were read", "logs may only grow"
                )
        total = sum(left.values())
        ends = dict(start)
        for path, rest in left.items():
            if rest:
                share = max(_LEAST_SHARE, self._batch_bytes * rest // max(total, self._batch_bytes))
                try:
                    ends[path] = _line_end(path, start.get(path, 0), share, sizes[path])
                except OSError as error:
                    raise TraceError(path, f"cannot read: {error.strerror}", "check its permissions") from error
        room = self._batch_bytes
        for path in sizes:
            if path.endswith(".parquet") and room > 0:
                ends[path] = self._groups_end(path, start.get(path, 0), sizes[path], max(1, room // _ROW_GROUP_BYTES))
                room -= (ends[path] - start.get(path, 0)) * _ROW_GROUP_BYTES
        return {path: end for path, end in sorted(ends.items()) if end}

    def _sizes(self) -> Positions:
        """A file that has gone may have been read to its end; what was not read of it is not there to be read."""
        sizes = {}
        for path in log_files(self._paths):
            try:
                sizes[path] = os.stat(path).st_size
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TraceError(path, f"cannot read: {error.strerror}", "check its permissions") from error
        return sizes

    def _groups_end(self, path: str, start: int, size: int, most: int) -> int:
        if start == _GIVEN_UP:
            return start
        try:
            groups: int = pq.read_metadata(path).num_row_groups
        except UNREADABLE:
            # It may be on its way. One that has not grown since the last look, or will not be looked at again, is not.
            if start == 0 and (self._frozen is not None or self._unreadable.get(path) == size):
                return _GIVEN_UP
            self._unreadable[path] = size
            return start
        return min(groups, start + most)


def _line_end(path: str, start: int, share: int, size: int) -> int:
    """Where the last whole line ends that fits the share; or the first, if it is longer."""
    with open(path, "rb") as file:
        end = min(size, start + share)
        position = end
        while position > start:
            step = min(4096 if position == end else _LEAST_SHARE, position - start)
            position -= step
            file.seek(position)
            found = file.read(step).rfind(b"\n")
            if found >= 0:
                return position + found + 1
        file.seek(end)
        while end < size:
            chunk = file.read(min(_LEAST_SHARE, size - end))
            found = chunk.find(b"\n")
            if found >= 0:
                return end + found + 1
            if not chunk:
                break
            end += len(chunk)
        # The last line of a file that is finished may lack its end; one that is torn is no JSON.
        if size - start > MAX_LINE:
            return start
        file.seek(start)
        return size if _is_whole(file.read(size - start)) else start


def _is_whole(line: bytes) -> bool:
    try:
        _event_decoder.decode(line)
    except (ValueError, RecursionError):
        return False
    return True


def pieces(start: Positions, end: Positions) -> list[Piece]:
    """What came between two positions, for tasks."""
    found = []
    for path, last in end.items():
        first = start.get(path, 0)
        if last == _GIVEN_UP or not path.endswith(".jsonl"):
            if last != first:
                found.append(Piece(path, first, last))
            continue
        cuts = [*range(first, last, PIECE_BYTES), last]
        found += [Piece(path, *bounds) for bounds in pairwise(cuts)]
    return found


# Rows ---------------------------------------------------------------------------------------------------------------


def read_packed(piece: Piece) -> Iterator[Packed]:
    """For a task: the rows of a piece, run by run. Whatever the bytes, no exception."""
    runs: dict[str, list[Row]] = {}
    reasons: list[str] = []
    for place, event, reason in _events(piece):
        if event is not None:
            runs.setdefault(event.run, []).append(row_of(event))
        else:
            short = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "…"
            reasons.append(printable(f"{piece.path}, {place}: {short}"))
    for run, rows in runs.items():
        yield Packed(run, piece.path, piece.end, _encoder.encode(rows), 0, [])
    if reasons:
        yield Packed("", piece.path, piece.end, b"", len(reasons), reasons[:SHOWN])


def read_again(files: Positions, run: str) -> Iterator[list[Row]]:
    """All rows of a run up to some positions, a piece of every file in turn. Raises where a file has gone."""
    for path in files:
        if not os.path.exists(path):
            raise TraceError(path, "is needed again and has gone", "keep the files of a run while it is followed")
    by_file = [pieces({}, {path: end}) for path, end in sorted(files.items())]
    for turn in range(max(map(len, by_file), default=0)):
        for parts in by_file:
            if turn < len(parts):
                events = (event for _, event, _ in _events(parts[turn]) if event is not None and event.run == run)
                yield [row_of(event) for event in events]


def _events(piece: Piece) -> Iterator[tuple[str, Event | None, str]]:
    """Where a row stands, the row or None, and why it does not count."""
    try:
        rows = _parquet_events(piece) if piece.path.endswith(".parquet") else _json_events(piece)
        for place, event, reason in rows:
            wrong = reason if event is None else problem(event)
            yield place, None if wrong else event, wrong or ""
    except NotATrace as error:
        yield "row 0", None, str(error)
    except UNREADABLE as error:
        yield "row 0", None, unreadable_reason(error)


def _json_events(piece: Piece) -> Iterator[tuple[str, Event | None, str]]:
    after = f" after byte {piece.start}" if piece.start else ""
    with open(piece.path, "rb") as file:
        for decoded in decode(file, piece.start, piece.end):
            for line, event in decoded.rows:
                yield f"line {line}{after}", event, ""
            for line, reason in decoded.bad:
                yield f"line {line}{after}", None, reason


def _parquet_events(piece: Piece) -> Iterator[tuple[str, Event | None, str]]:
    with pq.ParquetFile(piece.path) as file:
        wanted = columns_to_read(file.schema_arrow)
        names = [field.name for field in wanted]
        for group in range(piece.start, piece.end):
            table = file.read_row_group(group, columns=names)
            columns = [table.column(field.name).cast(field.type).to_pylist() for field in wanted]
            for number, values in enumerate(zip(*columns, strict=True), 1):
                place = f"row {number} of row group {group}"
                try:
                    yield place, msgspec.convert(dict(zip(names, values, strict=True)), Event), ""
                except ValueError as error:
                    yield place, None, str(error)
