"""Rows into blocks, in two steps of tasks.

**Take**: each batch of a file is written as one file of the table, log by log and by index. A batch that is one log in
order, as our writer makes them, is written as it comes. **Gather**: where pieces of a log overlap, or are small, they
are read again and put together, and rows that claim one place meet. Files of which a part is put together are replaced.

Both are told a `prefix` for the names of what they write: late files are added beside the blocks of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from isthmus.pipeline.engine.logs import Array, Block, audiences_of, coded, facts, words
from isthmus.pipeline.ingest.decode import Batch, decoded
from isthmus.pipeline.ingest.files import FilePiece
from isthmus.pipeline.ingest.parts import Disputed, Log, Part
from isthmus.pipeline.ingest.table import TORN, WORDS
from isthmus.trace.parquet import open_parquet, write_parquet
from isthmus.trace.places import Place
from isthmus.trace.rows import shown
from isthmus.trace.schema import COLUMNS, TraceError

BLOCK_ROWS = 1 << 20
"""The most rows that a task sorts, and that a block has."""

LEAST_ROWS = 1 << 16
MOST_SMALL = 4
"""A log in more pieces than this is put together if they are smaller than that."""

_OWN_GROUP = 1 << 12
"""Rows from which on a block has a row group to itself."""

_WRITING: dict[str, Any] = {
    "compression": "snappy",
    "use_dictionary": [*WORDS, "payload_bytes", "control_bytes", "audience"],
    "column_encoding": dict.fromkeys(("index", "origin_seq", "time_ns", "line"), "DELTA_BINARY_PACKED"),
    "write_statistics": ["run", "system", "process", "index"],
    "store_schema": False,
}


class Taken(Struct):
    parts: list[Part]
    bad: int
    """Lines that do not count, and are in the quarantine."""
    names: list[str]
    """Of the files that were written."""
    aside: list[str]
    """Those of the quarantine."""
    damaged: dict[int, str]
    """Files that cannot be read to their end, and why. Nothing of them counts."""


class _Cut(NamedTuple):
    """Rows of one log."""

    start: int
    stop: int
    log: Log


# Take -----------------------------------------------------------------------------------------------------------------


def take(directory: Place, prefix: str, pieces: Sequence[FilePiece], block_rows: int) -> Taken:
    """The rows of a piece of a large file, or of some small files, as files of the table."""
    taken = Taken([], 0, [], [], {})
    together: list[tuple[int, Batch]] = []
    for piece in pieces:
        try:
            for batch in decoded(piece):
                if len(pieces) > 1:
                    together.append((piece.file, batch))
                else:
                    _take_batches(directory, prefix, [(piece.file, batch)], block_rows, taken)
        except TraceError as error:
            taken.damaged[piece.file] = error.reason
            together = [(file, batch) for file, batch in together if file != piece.file]
    if together:
        _take_batches(directory, prefix, together, block_rows, taken)
    return taken


def _take_batches(
    directory: Place, prefix: str, batches: Sequence[tuple[int, Batch]], block_rows: int, taken: Taken
) -> None:
    """One file of the table."""
    name = f"{prefix}-{len(taken.names):03}.parquet"
    taken.names.append(name)
    bad = [(file, line, reason) for file, batch in batches for line, reason in batch.bad]
    taken.bad += sum(reason != TORN for _, _, reason in bad)
    taken.aside += put_aside(directory, name, bad)
    rows = pa.concat_tables([batch.rows for _, batch in batches])
    if len(batches) > 1:
        rows = rows.unify_dictionaries().combine_chunks()
    if rows.num_rows:
        files = np.concatenate([np.full(len(batch.lines), file) for file, batch in batches])
        lines = np.concatenate([batch.lines for _, batch in batches])
        taken.parts += _in_order(directory, name, rows, files, lines, block_rows)


def _in_order(directory: Place, name: str, rows: Any, files: Array, lines: Array, block_rows: int) -> Iterator[Part]:
    log, names = _logs(rows)
    index = rows.column("index").to_numpy()
    starts = _changes(log)
    rising = ~((index[1:] <= index[:-1]) & (log[1:] == log[:-1])).any()
    if not (rising and len(starts) == len(np.unique(log[starts]))):
        order = np.lexsort((index, log))
        rows, log, index = rows.take(pa.array(order)), log[order], index[order]
        files, lines = files[order], lines[order]
        starts = np.union1d(_changes(log), _changes(index // block_rows))
    plain = bool((lines[1:] == lines[:-1] + 1).all() and files[0] == files[-1] and (files == files[0]).all())
    if not plain:
        rows = rows.append_column("file", pa.array(files)).append_column("line", pa.array(lines))
    stops = [*starts[1:].tolist(), len(log)]
    cuts = [_Cut(start, stop, names[log[start]]) for start, stop in zip(starts.tolist(), stops, strict=True)]
    for cut, block in zip(cuts, write(directory, name, rows, cuts), strict=True):
        part = index[cut.start : cut.stop]
        first_line = int(lines[cut.start]) if plain else 0
        yield Part(block, int(files[cut.start]), first_line, bool((part[1:] > part[:-1]).all()))


def _logs(rows: Any) -> tuple[Array, list[Log]]:
    """The number of each row's log, and the names of logs by number, which rise with them."""
    number = np.zeros(rows.num_rows, np.int64)
    told: list[list[str]] = []
    for column in ("run", "system", "process"):
        word, names = words(rows.column(column))
        rank = np.argsort(np.argsort(np.array(names, object)))
        number = number * len(names) + rank[word]
        told.append(sorted(names))
    used, number = np.unique(number, return_inverse=True) if number.any() else (np.zeros(1, np.int64), number)
    runs, systems, processes = told
    of_log = (np.unravel_index(each, (len(runs), len(systems), len(processes))) for each in used.tolist())
    return number, [(runs[run], systems[system], processes[process]) for run, system, process in of_log]


def _changes(values: Array) -> Array:
    """Where something else begins."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


def write(directory: Place, name: str, rows: Any, cuts: Sequence[_Cut]) -> list[Block]:
    """Write a file of the table, and the facts of its blocks. Small blocks share row groups."""
    numbers = coded(rows)
    audience, sets = audiences_of(rows, numbers)
    rows = rows.append_column("audience", audience)
    if sets.sizes:
        (directory / "sets" / name).write_bytes(msgspec.msgpack.encode(sets))
    blocks: list[Block] = []
    groups: list[tuple[int, int]] = []
    for cut in cuts:
        small = cut.stop - cut.start < _OWN_GROUP
        if not (small and groups and groups[-1][1] - groups[-1][0] < LEAST_ROWS and blocks[-1].rows < _OWN_GROUP):
            groups.append((cut.start, cut.stop))
        groups[-1] = groups[-1][0], cut.stop
        block = facts(numbers.part(cut.start, cut.stop), *cut.log)
        block.path, block.group, block.start = name, len(groups) - 1, cut.start - groups[-1][0]
        blocks.append(block)
    write_parquet(directory / "rows" / name, rows, groups, **_WRITING)
    return blocks


def put_aside(directory: Place, name: str, bad: Sequence[tuple[int, int, str]]) -> list[str]:
    """Write a file of the quarantine. Its name; none where there is nothing to write."""
    if not bad:
        return []
    columns = zip(*bad, strict=True)
    table = pa.table([pa.array(each) for each in columns], names=["file", "line", "reason"])
    write_parquet(directory / "quarantine" / name, table)
    return [name]


# Gather ---------------------------------------------------------------------------------------------------------------


class Group(Struct):
    """Parts of one log that become a block: their rows from one index to before another."""

    parts: list[Part]
    low: int
    high: int
    rows: int
    disputed: list[int]
    """Places in this log that different rows have claimed before."""


class Gathered(Struct):
    parts: list[Part]
    bad: int
    aside: list[str]
    disputed: list[Disputed]


def to_gather(parts: Sequence[Part], late: Sequence[Part] = (), disputed: Sequence[Disputed] = ()) -> list[Part]:
    """Parts that overlap or are small pieces of a log, and all that share a file with one of these.

    `late` are those among them that came after places were `disputed`; they may have more claims.
    """
    known = {each.log: np.array(each.places) for each in disputed}
    wrong = {part.block.path for part in late if part.log in known and _between(known[part.log], part.block)}
    for mine in _by_log(parts):
        last, reaches_furthest = -1, ""
        small = len(mine) > MOST_SMALL and sum(part.block.rows for part in mine) < len(mine) * LEAST_ROWS
        for part in mine:
            if small or not part.rising:
                wrong.add(part.block.path)
            if part.block.first <= last:
                wrong |= {part.block.path, reaches_furthest}
            if part.block.last > last:
                last, reaches_furthest = part.block.last, part.block.path
    return [part for part in parts if part.block.path in wrong]


def _between(places: Array, block: Block) -> bool:
    return bool(((places >= block.first) & (places <= block.last)).any())


def _by_log(parts: Sequence[Part]) -> list[list[Part]]:
    found: dict[Log, list[Part]] = {}
    for part in parts:
        found.setdefault(part.log, []).append(part)
    return [sorted(found[log], key=lambda part: part.block.first) for log in sorted(found)]


def groups_of(parts: Sequence[Part], block_rows: int, disputed: Sequence[Disputed] = ()) -> list[list[Group]]:
    """What is put together, in jobs of about a million rows."""
    known = {each.log: each.places for each in disputed}
    jobs: list[list[Group]] = []
    size = BLOCK_ROWS
    for mine in _by_log(parts):
        for group in _groups(mine, block_rows):
            group.disputed = [place for place in known.get(mine[0].log, ()) if group.low <= place < group.high]
            if size + group.rows > BLOCK_ROWS:
                jobs.append([])
                size = 0
            jobs[-1].append(group)
            size += group.rows
    return jobs


def _groups(parts: Sequence[Part], block_rows: int) -> Iterator[Group]:
    """Parts of a log that overlap go together, and with neighbours as long as that makes no large block."""
    together: list[Part] = []
    last, rows = -1, 0
    for part in [*parts, None]:
        if together and (part is None or (part.block.first > last and rows + part.block.rows > block_rows)):
            yield from _cut(Group(together, together[0].block.first, last + 1, rows, []), block_rows)
            together, rows = [], 0
        if part is not None:
            together.append(part)
            last, rows = max(last, part.block.last), rows + part.block.rows


def _cut(group: Group, block_rows: int) -> Iterator[Group]:
    """A group that no task should hold at once, by index."""
    count = (group.high - group.low) // block_rows + 1
    if group.rows <= 2 * block_rows or count > group.rows:
        yield group
        return
    for low in range(group.low, group.high, block_rows):
        high = min(low + block_rows, group.high)
        parts = [part for part in group.parts if part.block.first < high and part.block.last >= low]
        if parts:
            yield Group(parts, low, high, min(group.rows, sum(part.block.rows for part in parts)), [])


def gather(directory: Place, prefix: str, groups: Sequence[Group]) -> Gathered:
    """Put groups together into one file of the table, whose rows keep their file and line."""
    name = f"{prefix}.parquet"
    tables, cuts, bad, disputed = [], [], [], []
    count = 0
    for group in groups:
        log = group.parts[0].log
        rows, wrong, places = _merged(directory, group, log)
        bad += wrong
        if places:
            disputed.append(Disputed(log, places))
        if rows.num_rows:
            cuts.append(_Cut(count, count + rows.num_rows, log))
            tables.append(rows)
            count += rows.num_rows
    blocks = write(directory, name, pa.concat_tables(tables), cuts) if tables else []
    parts = [Part(block, 0, 0, True) for block in blocks]
    return Gathered(parts, len(bad), put_aside(directory, name, bad), disputed)


def _merged(directory: Place, group: Group, log: Log) -> tuple[Any, list[tuple[int, int, str]], list[int]]:
    """The rows of a group in order of index, those that are put aside, and disputed places.

    Of equal rows the first by line counts. A line that was read twice, because its file has grown, is one row.
    """
    tables, files, lines = [], [], []
    for part in group.parts:
        table, file, line = _read(directory, part)
        index = table.column("index").to_numpy()
        inside = slice(*np.searchsorted(index, (group.low, group.high)).tolist())
        tables.append(table.slice(inside.start, inside.stop - inside.start))
        files.append(file[inside])
        lines.append(line[inside])
    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    file, line = np.concatenate(files), np.concatenate(lines)
    order = np.lexsort((line, file, rows.column("index").to_numpy()))
    rows, file, line = rows.take(pa.array(order)), file[order], line[order]
    rows = rows.append_column("file", pa.array(file)).append_column("line", pa.array(line))
    index = rows.column("index").to_numpy()
    repeats = np.append(False, index[1:] == index[:-1])
    known = np.isin(index, group.disputed) if group.disputed else np.zeros(len(index), bool)
    if not (repeats.any() or known.any()):
        return rows, [], []
    claim = np.cumsum(~repeats) - 1
    at = np.flatnonzero(repeats)
    differs = np.zeros(claim[-1] + 1, bool)
    differs[claim[at[~_equal(rows.take(pa.array(at - 1)), rows.take(pa.array(at)))]]] = True
    disputed = differs[claim] | known
    read_twice = repeats & np.append(False, (file[1:] == file[:-1]) & (line[1:] == line[:-1]))
    place = f"{log[1]}/{log[2]} in run {log[0]}"
    bad = []
    for row in np.flatnonzero((disputed | repeats) & ~read_twice).tolist():
        reason = f"the same row again: index {index[row]} of {place}"
        if disputed[row]:
            reason = f"two different rows claim index {index[row]} of {place}, so neither counts"
        bad.append((int(file[row]), int(line[row]), shown(reason)))
    places = np.unique(index[disputed & ~known]).tolist()
    return rows.filter(pa.array(~(disputed | repeats))), bad, places


def _read(directory: Place, part: Part) -> tuple[Any, Array, Array]:
    """The rows of a part, and their files and lines."""
    block = part.block
    with open_parquet(directory / "rows" / block.path, read_dictionary=WORDS, memory_map=True) as file:
        columns = [*COLUMNS, *([] if part.first_line else ["file", "line"])]
        rows = file.read_row_group(block.group, columns=columns, use_threads=False).slice(block.start, block.rows)
    if part.first_line:
        return rows, np.full(block.rows, part.file), np.arange(part.first_line, part.first_line + block.rows)
    return rows.select(COLUMNS), rows.column("file").to_numpy(), rows.column("line").to_numpy()


def _equal(one: Any, other: Any) -> Array:
    """Which rows are the same in every column, nulls included."""
    same = np.ones(one.num_rows, bool)
    for name in COLUMNS:
        left, right = one.column(name), other.column(name)
        if pa.types.is_list(left.type):
            same &= np.array([a == b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)
        else:
            both, _ = words(pa.chunked_array([*left.chunks, *right.chunks]))
            same &= both[: len(left)] == both[len(left) :]
    return same
