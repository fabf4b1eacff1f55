"""The files of delivery logs: found, followed while they grow, and decoded twice, for the cut and for the rows.

Files are read in **blocks**, a stretch of whole lines of JSON or a row group of Parquet. Whoever computes the cut
reads every block once, keeps for each row who, where and about which message, and hands out references to blocks;
tasks then decode the same blocks to Arrow. Both must agree about which rows of a block are sound and in which place,
so both sides stand in this file.

A log grows at its end only. Its last line may be torn, because its writer has not finished it: it is left for the
next time. A Parquet file is there when it is whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet
from msgspec import Struct

from isthmus.trace.files import files_below
from isthmus.trace.jsonl import MAX_LINE
from isthmus.trace.schema import Event, TraceError

BLOCK_BYTES = 1 << 19
"""Of JSON Lines, about 2,000 rows: a small batch decodes little in vain, a large one loses little between blocks."""
_PART = re.compile(r"-\d+\.(jsonl|parquet)$")


class DeliveryRow(Event, frozen=True, gc=False, kw_only=True):
    """A row of a trace that may carry what the message said, as the application wrote it."""

    payload: str | None = None


COLUMNS: tuple[str, ...] = DeliveryRow.__struct_fields__
_DESTINATIONS = pa.list_(pa.field("element", pa.string()))
_NUMBERS = ("index", "origin_seq", "payload_bytes", "control_bytes", "time_ns")
ARROW_TYPES: dict[str, Any] = {name: pa.int64() if name in _NUMBERS else pa.string() for name in COLUMNS}
ARROW_TYPES["destinations"] = _DESTINATIONS


_decoder = msgspec.json.Decoder(DeliveryRow)


class Block(NamedTuple):
    """Where to find some rows: bytes of JSON Lines, or (with `length` 0) the row group `start` of a Parquet file."""

    path: str
    start: int
    length: int


class Keys(Struct, gc=False):
    """What the cut asks of the rows of a block, column by column."""

    run: list[str]
    system: list[str]
    process: list[str]
    index: list[int]
    event: list[str]
    role: list[str]
    origin_system: list[str | None]
    origin_process: list[str | None]
    origin_seq: list[int | None]


class Decoded(NamedTuple):
    """The sound rows of a block, and what is wrong with the others."""

    block: Block
    keys: Keys
    bad: list[str]


# Finding files --------------------------------------------------------------------------------------------------------


def log_files(paths: Iterable[str]) -> Iterator[str]:
    """All log files at or below some paths. What is not there yet may come: a site that has not started."""
    for given in paths:
        path = Path(given)
        if path.is_dir():
            yield from sorted(map(str, files_below(Path(os.path.realpath(path)))))
        elif path.is_file():
            yield os.path.realpath(path)


class Tail:
    """Files that grow, read from their beginnings to where they end now, block by block."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = list(paths)
        self._known: set[str] = set()
        self._groups: dict[str, list[_JsonLines | _Parquet]] = {}
        """The parts of one log (`name-00000`, `name-00001`, …) follow each other; different logs go side by side."""
        self._frozen = False

    def look(self) -> None:
        """See which files there are now, and how long they are."""
        if self._frozen:
            return
        for path in log_files(self._paths):
            if path not in self._known:
                self._known.add(path)
                file = _Parquet(path) if path.endswith(".parquet") else _JsonLines(path)
                self._groups.setdefault(_PART.sub("", path), []).append(file)
        for group in self._groups.values():
            for file in group:
                file.look()

    def freeze(self) -> None:
        """Look a last time: what is not there now will never be read."""
        self.look()
        self._frozen = True

    def next_blocks(self) -> Iterator[Decoded]:
        """One more block of every log that has one: none is read far ahead of the others."""
        for group in self._groups.values():
            for file in group:
                decoded = file.next_block()
                if decoded is not None:
                    yield decoded
                    break
            while group and group[0].finished:
                del group[0]


class _JsonLines:
    finished = False
    """A file of lines may always grow."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.position = 0
        self.size = 0
        self._torn_at = -1

    def look(self) -> None:
        try:
            size = os.stat(self.path).st_size
        except OSError as error:
            raise TraceError(
                self.path, f"cannot read: {error.strerror}", "logs must stay while they are read"
            ) from error
        if size < self.position:
            raise TraceError(
                self.path, f"was cut back to {size} bytes after {self.position} were read", "logs may only grow"
            )
        self.size = size

    def next_block(self) -> Decoded | None:
        wanted = BLOCK_BYTES
        while self.position < self.size and self._torn_at != self.size:
            data = _read(self.path, self.position, min(wanted, self.size - self.position))
            end = data.rfind(b"\n") + 1
            if not end and len(data) == wanted and wanted <= MAX_LINE:
                wanted = MAX_LINE + 1
                continue
            if not end and len(data) > MAX_LINE:
                raise TraceError(self.path, f"a line longer than {MAX_LINE} bytes", "split or remove it")
            if not end and self.position + len(data) == self.size:
                # The last line of a file that is finished may lack its end; one that is torn is no JSON.
                end = len(data) if _is_whole(data) else 0
            if not end:
                self._torn_at = self.size
                return None
            rows, bad = _rows(data[:end])
            block = Block(self.path, self.position, end)
            self.position += end
            where = f"{self.path}, after byte {block.start}"
            keys = Keys(*(list(map(attrgetter(name), rows)) for name in Keys.__struct_fields__))
            return Decoded(block, keys, [f"{where}: {reason}" for reason in bad])
        return None


class _Parquet:
    def __init__(self, path: str) -> None:
        self.path = path
        self.groups = 0
        self.position = 0
        self._seen = False

    def look(self) -> None:
        if not self._seen:
            try:
                self.groups = pa.parquet.read_metadata(self.path).num_row_groups
            except (pa.ArrowException, OSError) as error:
                reason = str(error).partition("\n")[0]
                raise TraceError(
                    self.path, f"not a readable Parquet file: {reason}", "give a file its name when it is whole"
                ) from error
            self._seen = True

    @property
    def finished(self) -> bool:
        return self._seen and self.position == self.groups

    def next_block(self) -> Decoded | None:
        if self.finished:
            return None
        block = Block(self.path, self.position, 0)
        self.position += 1
        keys = Keys(*map(_values, _row_group(block, Keys.__struct_fields__).columns))
        if min((seq for seq in keys.origin_seq if seq is not None), default=1) < 1:
            raise TraceError(self.path, "not a trace: origin_seq counts from 1", "see the trace format")
        return Decoded(block, keys, [])


# Decoding -------------------------------------------------------------------------------------------------------------


def read_rows(block: Block, columns: Iterable[str]) -> Any:
    """The sound rows of a block as an Arrow record batch with these columns, in the places `Decoded.keys` has them.

    Arrow has a reader of JSON Lines too, but it takes longer: 2.3 µs per row, where this way took 2.0.
    """
    names = tuple(columns)
    if not block.length:
        return _row_group(block, names)
    rows, _ = _rows(_read(block.path, block.start, block.length))
    arrays = [pa.array(list(map(attrgetter(name), rows)), ARROW_TYPES[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def _row_group(block: Block, names: tuple[str, ...]) -> Any:
    try:
        with pa.parquet.ParquetFile(block.path) as file:
            there = set(file.schema_arrow.names)
            table = file.read_row_group(block.start, columns=[name for name in names if name in there])
            columns = [
                table.column(name).cast(ARROW_TYPES[name])
                if name in there
                else pa.nulls(table.num_rows, ARROW_TYPES[name])
                for name in names
            ]
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise TraceError(
            block.path, f"not a readable trace: {reason}", "see the trace format for its columns"
        ) from error
    return pa.RecordBatch.from_arrays([_one(column) for column in columns], names)


def _values(column: Any) -> list[Any]:
    """A column as Python values. Names repeat, so each is made only once, and equal ones are quickly compared."""
    if pa.types.is_integer(column.type):
        return column.to_pylist() if column.null_count else column.to_numpy().tolist()  # type: ignore[no-any-return]
    encoded = column.dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), None]
    return [names[code] for code in encoded.indices.fill_null(-1).to_numpy().tolist()]


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _rows(data: bytes) -> tuple[list[DeliveryRow], list[str]]:
    """The sound rows, and what is wrong with the others."""
    try:
        return _decoder.decode_lines(data), []
    except (ValueError, RecursionError):
        pass
    rows, bad = [], []
    for line in data.split(b"\n"):
        if line.strip():
            try:
                rows.append(_decoder.decode(line))
            except (ValueError, RecursionError) as error:
                bad.append(str(error))
    return rows, bad


def _is_whole(line: bytes) -> bool:
    try:
        _decoder.decode(line)
    except (ValueError, RecursionError):
        return False
    return True


def _read(path: str, start: int, length: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(length)
    except OSError as error:
        raise TraceError(path, f"cannot read: {error.strerror}", "logs must stay while they are read") from error
    if len(data) < length:
        raise TraceError(path, f"has fewer than {start + length} bytes now", "logs may only grow")
    return data
