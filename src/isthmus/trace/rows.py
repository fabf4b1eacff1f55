"""The reader of rows: out of JSON Lines and Parquet, of whole files or of stretches of them, whatever the bytes.

Everybody who reads a trace reads it here: the oracles whole files, the tasks of Spark a stretch each, the streaming
audit and the streaming source what has come to a file that grows. So one set of rules says which rows count, and one
set of words why others do not.

A row is bad when it does not fit the table of columns, or makes no sense (`trace.schema.problem`), or is longer than
`MAX_LINE`. A last line without its end is a row if it is one; if it is no JSON it is *torn*: a crash tore it off, or
its writer has not finished it. Rows that come twice are not found here: a stretch knows nothing of the others.

JSON is decoded a megabyte at a time, and line by line only where something is wrong: that is half the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from isthmus.trace.files import open_file
from isthmus.trace.parquet import columns_to_read, open_parquet
from isthmus.trace.schema import Event, TraceError, printable, problem

MAX_LINE = 1 << 20
"""Bytes of one JSON line. A longer one is left out without being held in memory."""

_CHUNK = 1 << 20
_STEP = 1 << 16
_BATCH_ROWS = 1 << 14
_LONGEST_REASON = 200

Decoder = msgspec.json.Decoder[Any]
"""Of rows: of `Event`, or of a class that adds columns to it."""
_event_decoder = msgspec.json.Decoder(Event)


class Stretch(NamedTuple):
    """Part of a file: the lines that begin in bytes `start … end - 1`, or the row groups `start … end - 1` of Parquet.

    Without an `end`, all that follows. `first_line` is the number of a line that begins at or before `start`.
    """

    path: str
    start: int = 0
    end: int | None = None
    first_line: int = 1

    @property
    def is_parquet(self) -> bool:
        return self.path.endswith(".parquet")


class Rows(NamedTuple):
    """Some rows with their lines, and the reason for each line that is none. In Parquet, a line is a row; from 1.

    `torn` is the number of a last line that is torn. 0: none.
    """

    lines: Sequence[int]
    events: Sequence[Event]
    bad: list[tuple[int, str]]
    torn: int = 0


def read_rows(stretch: Stretch) -> Iterator[Rows]:
    """The rows of a stretch, some thousands at a time. `TraceError` where a file is no trace or cannot be read."""
    for rows in _parquet_rows(stretch) if stretch.is_parquet else json_rows(stretch):
        yield sensible(rows)


def sensible(rows: Rows) -> Rows:
    """Put rows that fit the columns and make no sense among the bad ones, and make all reasons fit to be shown."""
    reasons = list(map(problem, rows.events))
    bad = rows.bad
    if any(reasons):
        bad = bad + [(line, reason) for line, reason in zip(rows.lines, reasons, strict=True) if reason]
        kept = [place for place, reason in enumerate(reasons) if not reason]
        rows = rows._replace(lines=[rows.lines[at] for at in kept], events=[rows.events[at] for at in kept])
    return rows._replace(bad=[(line, shown(reason)) for line, reason in sorted(bad)]) if bad else rows


def shown(reason: str) -> str:
    """A reason as one short line. It may quote what stands in a file."""
    return printable(reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "…")


# JSON Lines -----------------------------------------------------------------------------------------------------------


def json_rows(stretch: Stretch, decoder: Decoder = _event_decoder) -> Iterator[Rows]:
    """The rows that fit the columns, whether or not they make sense."""
    with open_file(stretch.path) as file:
        yield from json_rows_of(file, stretch, decoder)


def json_rows_of(file: IO[bytes], stretch: Stretch, decoder: Decoder = _event_decoder) -> Iterator[Rows]:
    """The same of a file that is open."""
    line, start, end = stretch.first_line, stretch.start, stretch.end
    if start:
        start = _next_line(file, start, end)
        line += start > stretch.start
    for block in _blocks(file, stretch._replace(start=start)):
        if block is None:
            yield Rows((), (), [(line, f"longer than {MAX_LINE} bytes")])
            line += 1
            continue
        ends = block.count(b"\n")
        try:
            events = decoder.decode_lines(block)
        except (ValueError, RecursionError):
            events = []
        # Blank lines, or an object that spans lines: the count would give rows wrong line numbers.
        if ends and len(events) == ends and block.endswith(b"\n"):
            yield Rows(range(line, line + ends), events, [])
        else:
            yield _line_by_line(block, line, decoder)
        line += ends


def _next_line(file: IO[bytes], start: int, end: int | None) -> int:
    """Where the first line begins that does not begin before `start`."""
    position = start - 1
    file.seek(position)
    step = 1  # where a file is followed, every stretch begins with a line
    while chunk := file.read(step if end is None else min(step, end - position)):
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(chunk)
        step = _STEP
    return position


def _blocks(file: IO[bytes], stretch: Stretch) -> Iterator[bytes | None]:
    """Whole lines that begin in a stretch; only the last of a file may lack its end. None: a line that is too long."""
    position, end = stretch.start, stretch.end
    file.seek(position)
    rest = b""
    skipping = False
    while end is None or position < end or rest or skipping:
        behind = end is not None and position >= end
        chunk = file.read(_STEP if behind else _CHUNK if end is None else min(_CHUNK, end - position))
        if not chunk:
            if end is not None and position < end:
                raise TraceError(stretch.path, f"has fewer than {end} bytes now", "logs may only grow")
            break
        position += len(chunk)
        if behind:  # of this only the rest of our last line is ours
            chunk = chunk[: chunk.find(b"\n") + 1] or chunk
        if skipping:
            _, newline, chunk = chunk.partition(b"\n")
            skipping = not newline
        block, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield from _without_a_long_line(block + newline)
        if len(rest) > MAX_LINE:
            yield None
            rest = b""
            skipping = True
    if rest:
        yield rest


def _without_a_long_line(block: bytes) -> Iterator[bytes | None]:
    """Nearly every block passes as it is: only a line that began in an earlier chunk can be too long."""
    end = block.find(b"\n")
    if end > MAX_LINE:
        yield None
        block = block[end + 1 :]
    if block:
        yield block


def _line_by_line(block: bytes, first_line: int, decoder: Decoder) -> Rows:
    lines: list[int] = []
    events: list[Event] = []
    bad: list[tuple[int, str]] = []
    torn = 0
    *whole, tail = block.split(b"\n")
    for line, text in enumerate(whole, first_line):
        if text.strip():
            try:
                events.append(decoder.decode(text))
                lines.append(line)
            except (ValueError, RecursionError) as error:
                bad.append((line, str(error)))
    if tail.strip():
        last = first_line + len(whole)
        try:
            events.append(decoder.decode(tail))
            lines.append(last)
        except msgspec.ValidationError as error:
            bad.append((last, str(error)))
        except (ValueError, RecursionError):
            torn = last
    return Rows(lines, events, bad, torn)


def lines_end(path: str, start: int, most: int, size: int) -> int:
    """How far a file of `size` bytes that grows can be read now: to the end of the last whole line in `most` bytes.

    If the first line is longer than that, to its end; `start` if there is no whole line yet.
    """
    with open_file(path) as file:
        end = min(size, start + most)
        position = end
        while position > start:
            step = min(4096 if position == end else _STEP, position - start)
            position -= step
            file.seek(position)
            found = file.read(step).rfind(b"\n")
            if found >= 0:
                return position + found + 1
        file.seek(end)
        while end < size and (chunk := file.read(min(_STEP, size - end))):
            found = chunk.find(b"\n")
            if found >= 0:
                return end + found + 1
            end += len(chunk)
        if size - start > MAX_LINE:
            return start
        # The last line of a file that is finished may lack its end.
        file.seek(start)
        return size if _line_by_line(file.read(size - start), 1, _event_decoder).events else start


# Parquet --------------------------------------------------------------------------------------------------------------


def _parquet_rows(stretch: Stretch) -> Iterator[Rows]:
    with open_parquet(stretch.path) as file:
        wanted = columns_to_read(stretch.path, file.schema_arrow)
        names = wanted.names
        end = file.num_row_groups if stretch.end is None else stretch.end
        row = 1 + sum(file.metadata.row_group(group).num_rows for group in range(stretch.start))
        groups = list(range(stretch.start, end))
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names):
            columns = [batch.column(field.name).cast(field.type).to_pylist() for field in wanted]
            values = [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]
            yield converted(values, range(row, row + len(values)))
            row += len(values)


def converted(values: list[dict[str, Any]], rows: Sequence[int]) -> Rows:
    """Rows that are given as values by column: those that fit the columns, whether or not they make sense."""
    try:
        return Rows(rows, msgspec.convert(values, list[Event]), [])
    except ValueError:
        pass
    lines, events, bad = [], [], []
    for row, each in zip(rows, values, strict=True):
        try:
            events.append(msgspec.convert(each, Event))
            lines.append(row)
        except ValueError as error:
            bad.append((row, str(error)))
    return Rows(lines, events, bad)


def row_groups(path: str | Path) -> int:
    """How many row groups a Parquet file has. `TraceError` where it is not whole yet, or never will be."""
    with open_parquet(path) as file:
        groups: int = file.num_row_groups
        return groups
