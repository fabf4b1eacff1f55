"""Rows of a trace out of JSON Lines, from all of a file or from a piece of it, whatever the bytes.

Decoded a megabyte at a time, and line by line only where something is wrong: that is half the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

import msgspec

from isthmus.trace.schema import Event

MAX_LINE = 1 << 20
"""Bytes of one JSON line. A longer one is left out without being held in memory."""

_CHUNK = 1 << 20
_decoder = msgspec.json.Decoder(Event)


class Decoded(NamedTuple):
    """Some lines: what stands in those that are rows, and the reason for each of the others, by line from 1.

    `torn` is the number of a last line without its end that is no row: the tail that a crash tore off. 0: none.
    """

    rows: Iterable[tuple[int, Event]]
    bad: list[tuple[int, str]]
    torn: int = 0


def decode(file: IO[bytes], start: int = 0, end: int | None = None, first_line: int = 1) -> Iterator[Decoded]:
    """The lines that begin in `start … end - 1`, where line number `first_line` begins at or before `start`."""
    line = first_line
    if start:
        begins = _next_line(file, start, end)
        line += begins > start
        start = begins
    for block in _blocks(file, start, end):
        if block is None:
            yield Decoded((), [(line, f"longer than {MAX_LINE} bytes")])
            line += 1
            continue
        ends = block.count(b"\n")
        try:
            events = _decoder.decode_lines(block)
        except (ValueError, RecursionError):
            events = []
        # Blank lines, or an object that spans lines: the count would give rows wrong line numbers.
        if ends and len(events) == ends and block.endswith(b"\n"):
            yield Decoded(enumerate(events, line), [])
        else:
            yield _line_by_line(block, line)
        line += ends


def _next_line(file: IO[bytes], start: int, end: int | None) -> int:
    """Where the first line begins that does not begin before `start`."""
    position = start - 1
    file.seek(position)
    while chunk := file.read(_CHUNK if end is None else min(_CHUNK, end - position)):
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(chunk)
    return position


def _blocks(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes | None]:
    """Whole lines that begin before `end`; only the last of a file may lack its end. None: a line that is too long."""
    if end is not None and start >= end:
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
            if end is not None and chunk_start >= end:
                return
        if end is not None and position >= end:
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


def _line_by_line(block: bytes, first_line: int) -> Decoded:
    rows: list[tuple[int, Event]] = []
    bad: list[tuple[int, str]] = []
    torn = 0
    *whole, tail = block.split(b"\n")
    for line, text in enumerate(whole, first_line):
        if text.strip():
            try:
                rows.append((line, _decoder.decode(text)))
            except (ValueError, RecursionError) as error:
                bad.append((line, str(error)))
    if tail.strip():
        last = first_line + len(whole)
        try:
            rows.append((last, _decoder.decode(tail)))
        except msgspec.ValidationError as error:
            bad.append((last, str(error)))
        except (ValueError, RecursionError):
            torn = last
    return Decoded(rows, bad, torn)
