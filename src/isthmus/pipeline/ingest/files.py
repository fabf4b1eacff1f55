"""Which files a trace is made of, and in which pieces they are read.

Large JSON Lines files are cut into pieces at line ends, so that one file keeps all cores busy; a piece of a Parquet
file is one of its row groups. A file that cannot be read, or is no trace, is a bad file: it is quarantined as a whole,
with its reason, and the others still count. A ShiViz log is one piece, because its clocks need the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from isthmus.trace.files import LOG_SUFFIX, SHIVIZ_SUFFIX, open_file, size_of
from isthmus.trace.parquet import columns_to_read, open_parquet
from isthmus.trace.places import Place
from isthmus.trace.schema import TraceError
from isthmus.trace.shiviz.log import Expressions

PIECE_BYTES = 32 << 20
"""Of JSON Lines. About 120,000 rows, half a second of one core."""


_ROW_BYTES = 256
TOGETHER = 1 << 16
"""Rows of small files that are taken together. A larger file is not, and has pieces of no fewer rows."""
_ALONE = TOGETHER + 1


class FilePiece(NamedTuple):
    """What is read of a file in one go: a stretch, or a whole ShiViz log.

    `parser` and `delimiter` are for ShiViz logs that do not say themselves how they are read.
    """

    file: int
    path: str
    start: int = 0
    end: int | None = None
    first_line: int = 1
    shiviz: bool = False
    parser: str = ""
    delimiter: str = ""
    rows: int = _ALONE
    """About how many rows it has, or that it shares with nobody."""


class TraceFiles(NamedTuple):
    """The files of a trace, and in which pieces they are read. `names[number]` is the file of that number."""

    names: list[str]
    pieces: list[FilePiece]
    bad: list[tuple[int, str]]
    """Number and reason of each file that cannot be used."""


def examine(paths: Iterable[Place], expressions: Expressions) -> TraceFiles:
    """Look at sizes and footers, and decide how each file is read."""
    names = list(map(str, paths))
    files = TraceFiles(names, [], [])
    for number, name in enumerate(names):
        try:
            if name.endswith(".parquet"):
                files.pieces.extend(_row_groups(number, name))
            elif name.endswith((SHIVIZ_SUFFIX, LOG_SUFFIX)):
                how = (expressions.parser, expressions.delimiter)
                files.pieces.append(
                    FilePiece(number, name, 0, size_of(name), 1, True, *how, 1 + (size_of(name) or 0) // _ROW_BYTES)
                )
            else:
                files.pieces.extend(_pieces(number, name))
        except TraceError as error:
            files.bad.append((number, error.reason))
    return files


def _row_groups(number: int, name: str) -> Iterator[FilePiece]:
    with open_parquet(name) as file:
        columns_to_read(name, file.schema_arrow)
        rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    if sum(rows) <= TOGETHER:
        yield FilePiece(number, name, 0, len(rows), rows=1 + sum(rows))
        return
    start, first_row, count = 0, 1, 0
    for end, more in enumerate(rows, 1):
        count += more
        if count > TOGETHER or end == len(rows):
            yield FilePiece(number, name, start, end, first_row, rows=_ALONE)
            start, first_row, count = end, first_row + count, 0


def together(pieces: Iterable[FilePiece]) -> list[list[FilePiece]]:
    """Pieces that one task takes in one go: small files share, in their order."""
    jobs: list[list[FilePiece]] = []
    room = 0
    for piece in pieces:
        if piece.rows > room:
            jobs.append([])
            room = TOGETHER
        jobs[-1].append(piece)
        room -= piece.rows
    return jobs


def _pieces(number: int, name: str) -> Iterator[FilePiece]:
    """Pieces with the right line numbers need the line ends before them; counting those costs 0.1 s per GB."""
    size = size_of(name) or 0
    if size <= PIECE_BYTES:
        yield FilePiece(number, name, 0, size, rows=1 + size // _ROW_BYTES)
        return
    line_ends = 0
    with open_file(name) as file:
        for start in range(0, size, PIECE_BYTES):
            end = min(start + PIECE_BYTES, size)
            yield FilePiece(number, name, start, end, line_ends + 1, rows=_ALONE)
            line_ends += file.read(end - start).count(b"\n")
