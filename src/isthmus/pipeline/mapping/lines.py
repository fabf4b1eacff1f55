"""Text logs as a table: one row per line, with the groups of a pattern as columns.

Spark reads the files, whole, through its own file systems; a task cuts them into lines and looks at each, in Python:
Spark's own reader of text does not know the numbers of lines, and in a log they are the order. A file is read by one
task and may have `MAX_FILE` bytes. A pattern, and the lines of a stranger, may take for ever together: a file has the
processor time of `SECONDS` and `SECONDS_PER_MEGABYTE`, and what is behind the line that uses it up is not read.

A line that the pattern does not match, that is no text or too long is a row, too: with a reason, and without groups.
"""

from __future__ import annotations

import re
import signal
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from types import FrameType
from typing import Any, NoReturn, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from isthmus.pipeline.mapping.model import LINE_COLUMNS, REASON, Input

MAX_FILE = 256 << 20
MAX_LINE = 1 << 16
SECONDS = 10.0
SECONDS_PER_MEGABYTE = 1.0
_BATCH = 1 << 14
_NO_MATCH = "the pattern does not match"


def text_lines(spark: SparkSession, paths: list[str], one: Input, *, seconds: float = SECONDS) -> DataFrame:
    """The lines of text files, or of all files below directories."""
    matcher = _Matcher(one.pattern, one.unmatched == "ignore", seconds)
    columns = [(name, LongType() if name == "line" else StringType()) for name in LINE_COLUMNS]
    columns += [(name, StringType()) for name in (*matcher.groups, REASON)]
    schema = StructType([StructField(name, kind) for name, kind in columns])
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
    return files.select("path", "length", "content").mapInArrow(matcher, schema)


class _Matcher:
    """What a task does. It travels there, and a compiled expression need not."""

    def __init__(self, pattern: str, silent: bool, seconds: float) -> None:
        self.pattern, self.silent, self.seconds = pattern, silent, seconds
        self.groups = list(re.compile(pattern).groupindex)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        pattern = re.compile(self.pattern)
        for batch in batches:
            for path, length, content in zip(*(batch.column(at) for at in range(3)), strict=True):
                yield from self._file(pattern, path.as_py(), length.as_py(), content)

    def _file(self, pattern: re.Pattern[str], path: str, length: int, content: Any) -> Iterator[Any]:
        rows: list[tuple[Any, ...]] = []
        nothing = (None,) * len(self.groups)
        name = PurePosixPath(path).name
        stem = name.removesuffix(".gz").rpartition(".")[0] or name

        def bad(line: int, text: str, reason: str) -> None:
            rows.append((path, stem, line, text[:MAX_LINE], *nothing, reason))

        try:
            data = _unpacked(name, length, content)
        except ValueError as error:
            bad(0, "", str(error))
            data = b""
        with _Patience(self.seconds + SECONDS_PER_MEGABYTE * len(data) / 1e6) as patience:
            for number, raw in enumerate(data.split(b"\n"), 1):
                if not raw or raw.isspace():
                    continue
                text, reason = _text(raw)
                if reason:
                    bad(number, text, reason)
                    continue
                try:
                    match = patience.match(pattern, text)
                except _TooSlow:
                    bad(number, text, "the pattern takes too long here, and the rest of the file was not read")
                    break
                if match is not None:
                    found = match.groupdict()
                    rows.append((path, stem, number, text, *(found[each] for each in self.groups), None))
                elif not self.silent:
                    bad(number, text, _NO_MATCH)
                if len(rows) >= _BATCH:
                    yield self._batch(rows)
                    rows = []
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, ...]]) -> Any:
        names = [*LINE_COLUMNS, *self.groups, REASON]
        types = [pa.int64() if name == "line" else pa.string() for name in names]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names)


def _unpacked(name: str, length: int, content: Any) -> bytes:
    """The bytes of a file. Those of one that ends with `.gz` are compressed."""
    too_long = (
        f"the file has more than {MAX_FILE >> 20} MiB, which is more than is read as a whole; cut it into several"
    )
    if length > MAX_FILE:
        raise ValueError(too_long)
    data: bytes = content.as_py() or b""
    if not name.endswith(".gz"):
        return data
    parts, size = [], 0
    try:
        while data:
            stream = zlib.decompressobj(wbits=31)
            parts.append(stream.decompress(data, MAX_FILE + 1 - size))
            size += len(parts[-1])
            if size > MAX_FILE:
                raise ValueError(too_long)
            if not stream.eof:
                raise ValueError("the compressed file is cut off")
            data = stream.unused_data
    except zlib.error as error:
        raise ValueError(f"not a compressed file: {error}") from None
    return b"".join(parts)


def _text(raw: bytes) -> tuple[str, str]:
    """A line, and why it cannot be looked at."""
    if len(raw) > MAX_LINE:
        return raw[:80].decode(errors="replace"), f"longer than {MAX_LINE} bytes"
    try:
        return raw.removesuffix(b"\r").decode(), ""
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), "not UTF-8"


class _TooSlow(Exception):
    """The pattern has used up its time."""


class _Patience:
    """Processor time for all searches in one file; one that is still running when it is used up is interrupted.

    Python's matcher looks for signals every few thousand steps. Tasks of Spark run in the main thread of their process,
    which alone may have them. Setting the timer takes 0.5 µs.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGVTALRM, _interrupt)
        return self

    def __exit__(self, *reason: object) -> None:
        signal.signal(signal.SIGVTALRM, self._previous)

    def match(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        if self._left <= 0:
            raise _TooSlow
        signal.setitimer(signal.ITIMER_VIRTUAL, self._left)
        try:
            return pattern.search(text)
        finally:
            self._left = signal.setitimer(signal.ITIMER_VIRTUAL, 0)[0]  # 0 where it has run out


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise _TooSlow
