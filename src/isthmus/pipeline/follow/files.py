"""Files that grow, for the streaming audit: how far each can be read now, and its rows, packed by run.

Positions are bytes of JSON Lines, always at the end of a line, and row groups of Parquet. They are all that a
checkpoint holds of a file, so a batch that is repeated has the same rows. Here nothing is decoded to find them, other
than in `pipeline.source.files`, where the cut has to know every row first: the audit takes rows as they arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from isthmus.pipeline.follow.state import Row, row_of
from isthmus.trace.files import log_sizes, size_of
from isthmus.trace.rows import Rows, Stretch, lines_end, read_rows, row_groups
from isthmus.trace.schema import TraceError, printable

BATCH_BYTES = 16 << 20
"""Of JSON Lines that are read at a time: some 60,000 rows, about a second."""
PIECE_BYTES = 4 << 20
_LEAST_SHARE = 64 << 10
_ROW_GROUP_BYTES = 1 << 20
"""What a row group counts for in a batch."""
_GIVEN_UP = -1
"""The position in a Parquet file that cannot be read."""
SHOWN = 5
"""Bad rows of one piece that are described. All are counted."""

_rows_decoder = msgspec.msgpack.Decoder(list[Row])
_encoder = msgspec.msgpack.Encoder()

Positions = dict[str, int]


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
                ends[path] = lines_end(path, start.get(path, 0), share, sizes[path])
        room = self._batch_bytes
        for path in sizes:
            if path.endswith(".parquet") and room > 0:
                ends[path] = self._groups_end(path, start.get(path, 0), sizes[path], max(1, room // _ROW_GROUP_BYTES))
                room -= (ends[path] - start.get(path, 0)) * _ROW_GROUP_BYTES
        return {path: end for path, end in sorted(ends.items()) if end}

    def _sizes(self) -> Positions:
        """A file that has gone may have been read to its end; what was not read of it is not there to be read."""
        return log_sizes(self._paths)

    def _groups_end(self, path: str, start: int, size: int, most: int) -> int:
        if start == _GIVEN_UP:
            return start
        try:
            groups = row_groups(path)
        except TraceError:
            # It may be on its way. One that has not grown since the last look, or will not be looked at again, is not.
            if start == 0 and (self._frozen is not None or self._unreadable.get(path) == size):
                return _GIVEN_UP
            self._unreadable[path] = size
            return start
        return min(groups, start + most)


def pieces(start: Positions, end: Positions) -> list[Stretch]:
    """What came between two positions, for tasks."""
    found = []
    for path, last in end.items():
        first = start.get(path, 0)
        if last == _GIVEN_UP or not path.endswith(".jsonl"):
            if last != first:
                found.append(Stretch(path, first, last))
            continue
        cuts = [*range(first, last, PIECE_BYTES), last]
        found += [Stretch(path, *bounds) for bounds in pairwise(cuts)]
    return found


# Rows ---------------------------------------------------------------------------------------------------------------


def read_packed(piece: Stretch) -> Iterator[Packed]:
    """For a task: the rows of a piece, run by run. Whatever the bytes, no exception."""
    runs: dict[str, list[Row]] = {}
    bad: list[str] = []
    kind, after = ("row", "") if piece.is_parquet else ("line", f" after byte {piece.start}" if piece.start else "")
    for rows in _rows(piece):
        for event in rows.events:
            runs.setdefault(event.run, []).append(row_of(event))
        bad += [printable(f"{piece.path}, {kind} {line}{after}: {reason}") for line, reason in rows.bad]
    end = piece.end or 0
    for run, packed in runs.items():
        yield Packed(run, piece.path, end, _encoder.encode(packed), 0, [])
    if bad:
        yield Packed("", piece.path, end, b"", len(bad), bad[:SHOWN])


def read_again(files: Positions, run: str) -> Iterator[list[Row]]:
    """All rows of a run up to some positions, a piece of every file in turn. Raises where a file has gone."""
    for path in files:
        if size_of(path) is None:
            raise TraceError(path, "is needed again and has gone", "keep the files of a run while it is followed")
    by_file = [pieces({}, {path: end}) for path, end in sorted(files.items())]
    for turn in range(max(map(len, by_file), default=0)):
        for parts in by_file:
            if turn < len(parts):
                yield [row_of(event) for rows in _rows(parts[turn]) for event in rows.events if event.run == run]


def _rows(piece: Stretch) -> Iterator[Rows]:
    """The rows of a piece; a file that cannot be read is one bad row."""
    try:
        yield from read_rows(piece)
    except TraceError as error:
        yield Rows((), (), [(0, error.reason)])
