"""Which files a trace is made of, and in which pieces they are read.

Large JSON Lines files are cut into pieces at line ends, so that one file keeps all cores busy; a piece of a Parquet
file is one of its row groups. A file that cannot be read, or is no trace, is a bad file: it is quarantined as a whole,
with its reason, and the others still count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from isthmus.trace.files import open_file, size_of
from isthmus.trace.parquet import columns_to_read, open_parquet
from isthmus.trace.places import Address, Place, place
from isthmus.trace.schema import TraceError

PIECE_BYTES = 32 << 20
"""Of JSON Lines. About 120,000 rows, half a second of one core."""


_ROW_BYTES = 256
TOGETHER = 1 << 16
"""Rows of small files that are taken together. A larger file is not, and has pieces of no fewer rows."""
_ALONE = TOGETHER + 1
_UNCOUNTED = 0
"""The first line of a piece before anybody has counted the lines ahead of it."""
_AT_ONCE = 16
"""Files of a store that are looked at at the same time."""


class FilePiece(NamedTuple):
    """What is read of a file in one go: a stretch."""

    file: int
    path: str
    start: int = 0
    end: int | None = None
    first_line: int = 1
    rows: int = _ALONE
    """About how many rows it has, or that it shares with nobody."""


class TraceFiles(NamedTuple):
    """The files of a trace, and in which pieces they are read. `names[number]` is the file of that number."""

    names: list[str]
    pieces: list[FilePiece]
    bad: list[tuple[int, str]]
    """Number and reason of each file that cannot be used."""
    sizes: list[int]
    """In bytes, as they were when they were looked at."""
    read: set[int]
    """Files that are read: all but those that a table has already."""


def examine(paths: Iterable[Place], names: Iterable[str] = (), sizes: Iterable[int] = ()) -> TraceFiles:
    """Look at sizes and footers, and decide how each file is read.

    Files that a table has have their `names` and `sizes` there. They keep their numbers, and if they still have that
    size, they are not read again.
    """
    numbers = {name: number for number, name in enumerate(names)}
    before = list(sizes)
    found = [numbers.setdefault(str(path), len(numbers)) for path in paths]
    files = TraceFiles(list(numbers), [], [], [*before, *[0] * (len(numbers) - len(before))], set())

    def look(number: int) -> tuple[list[FilePiece] | None, str, int]:
        name = files.names[number]
        size = size_of(name) or 0
        if number < len(before) and size == before[number]:
            return None, "", size
        pieces = _row_groups(number, name) if name.endswith(".parquet") else _pieces(number, name, size)
        try:
            return list(pieces), "", size
        except TraceError as error:
            return [], error.reason, size

    # A store takes some ten milliseconds for an answer, and many answers take no longer.
    far = any(isinstance(place(name), Address) for name in files.names)
    with ThreadPoolExecutor(_AT_ONCE if far else 1) as pool:
        for number, (pieces, reason, size) in zip(found, pool.map(look, found), strict=True):
            if pieces is None:
                continue
            files.read.add(number)
            files.sizes[number] = size
            files.pieces.extend(pieces)
            if reason:
                files.bad.append((number, reason))
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


def _pieces(number: int, name: str, size: int) -> Iterator[FilePiece]:
    """Pieces with the right line numbers need the line ends before them; counting those costs 0.1 s per GB."""
    if size <= PIECE_BYTES:
        yield FilePiece(number, name, 0, size, rows=1 + size // _ROW_BYTES)
        return
    bounds = [(start, min(start + PIECE_BYTES, size)) for start in range(0, size, PIECE_BYTES)]
    if isinstance(place(name), Address):  # to count here would be to bring the whole file here
        yield from (FilePiece(number, name, start, end, _UNCOUNTED, rows=_ALONE) for start, end in bounds)
        return
    ended = 0
    with open_file(name) as file:
        for start, end in bounds:
            yield FilePiece(number, name, start, end, ended + 1, rows=_ALONE)
            ended += file.read(end - start).count(b"\n")


def counted(pieces: list[FilePiece], count: Callable[[list[FilePiece]], list[int]]) -> list[FilePiece]:
    """The same pieces, with the first lines of those that have none yet. `count` says how many lines end in each."""
    unknown = [piece for piece in pieces if piece.first_line == _UNCOUNTED]
    ends = dict(zip(unknown, count(unknown), strict=True)) if unknown else {}
    found: list[FilePiece] = []
    for piece in pieces:
        if piece in ends:
            follows = found and found[-1].file == piece.file
            first = found[-1].first_line + ends[pieces[len(found) - 1]] if follows else 1
            piece = piece._replace(first_line=first)  # noqa: PLW2901 - the same piece, with its line
        found.append(piece)
    return found


def line_ends(piece: FilePiece) -> int:
    """In a task: how many lines end in a piece."""
    with open_file(piece.path) as file:
        file.seek(piece.start)
        left, ended = (piece.end or 0) - piece.start, 0
        while left > 0 and (chunk := file.read(min(left, 4 << 20))):
            left, ended = left - len(chunk), ended + chunk.count(b"\n")
        return ended
