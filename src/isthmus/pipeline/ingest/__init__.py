"""Traces into one table: sound rows in order, and a quarantine for all others.

Nothing is dropped in silence, and no run or log has to fit anywhere. Rows may come in any order, from any number of
files, whole or partial; a row that comes twice (a file that was copied and then continued) counts once, and where two
different rows claim one place in a log, neither counts. How a table lies on disk is said in `table`, how rows get there
in `blocks`. Late files are added to a table in the same way: what is new is taken, and put together with what is there
where they overlap. The table is the old one until its mark is replaced, and from then on the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from pyspark.sql import SparkSession

from isthmus.pipeline.failures import SPARK_FAILURES, spark_reason
from isthmus.pipeline.ingest.blocks import (
    BLOCK_ROWS,
    Gathered,
    Group,
    Taken,
    gather,
    groups_of,
    put_aside,
    take,
    to_gather,
)
from isthmus.pipeline.ingest.files import FilePiece, TraceFiles, counted, examine, line_ends, together
from isthmus.pipeline.ingest.parts import Disputed, Log, Part
from isthmus.pipeline.ingest.table import TORN, VERSION, Contents, Mark, TraceTable, open_table
from isthmus.pipeline.mapping import Mapped, Traces
from isthmus.pipeline.mapping.rows import words_of, write_pieces
from isthmus.pipeline.places import require_readable, require_writable
from isthmus.pipeline.problems import TABLE_MARK, in_words, is_table
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.stores import use_settings_of
from isthmus.pipeline.tasks import in_tasks
from isthmus.pipeline.workers import make_ready
from isthmus.trace.files import find_files
from isthmus.trace.parquet import open_parquet
from isthmus.trace.places import Place, address_for_spark, place, remove_tree, write_whole
from isthmus.trace.schema import TraceError

__all__ = ["SPARK_FAILURES", "TraceTable", "ingest", "open_table", "session_for", "spark_reason", "table_named"]


def session_for(
    traces: Traces, master: str | None, memory: str | None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session to read these with. What is wrong with paths is said before the seconds that Spark takes to start."""
    here = not isinstance(traces, Mapped) and all(isinstance(each, Path) for each in traces)
    if here:
        _refuse_what_is_not_there(traces)
    spark = spark_session(master, driver_memory=memory, settings=settings)
    use_settings_of(spark)
    if not here:
        _refuse_what_is_not_there(traces)
    return spark


def _refuse_what_is_not_there(traces: Traces) -> None:
    if not isinstance(traces, Mapped) and table_named(traces) is None:
        find_files(traces)


def table_named(traces: Traces) -> str | Place | None:
    """The place of the table that was made of traces before, if that is what is given."""
    named = None if isinstance(traces, Mapped) or len(traces) != 1 else traces[0]
    return named if named is not None and is_table(named) else None


def ingest(
    spark: SparkSession, paths: Traces, table: str | Place, *, append: bool = False, block_rows: int = BLOCK_ROWS
) -> TraceTable:
    """Read traces, or tables with their mapping, into a new table. The directory must not exist, or be empty.

    With `append`, traces are added to the table that is there, if there is one. What it has is not read again: a file
    counts by its name and size. One that has grown is read anew and still counts once. Killed at any moment, the table
    is what it was, and the same call adds what is missing. Two at a time are refused, at the latest at their end.
    `block_rows` is the most that a task sorts at once.
    """
    use_settings_of(spark)
    target = place(table).absolute()
    before = open_table(target) if append and is_table(target) else None
    if before is None and target.exists() and any(target.iterdir()):
        raise TraceError(
            target,
            "is there already and not empty",
            "choose another directory for the table, or add to one with --append",
        )
    if before is not None and (before.mark.mapped or isinstance(paths, Mapped)):
        raise TraceError(target, "a mapping numbers all rows at once, so none can be added", "ingest all")
    if not isinstance(paths, Mapped):
        # Relative paths are resolved here, because tasks have other working directories.
        found = find_files([place(path).absolute() for path in paths])
        require_readable(spark, found)
        if before is None:
            return _ingest(spark, examine(found), target, block_rows)
        unread = {number for number, _ in before.mark.bad_files}
        sizes = [-1 if number in unread else size for number, size in enumerate(before.mark.sizes)]
        files = examine(found, before.files, sizes)
        return _append(spark, before, files, block_rows) if files.read else before
    make_ready(spark)
    require_writable(spark, target, "the table")
    pieces = target / "mapped" / "trace"
    try:
        write_pieces(spark, paths.mapping, paths.tables, address_for_spark(pieces))
        files = examine(find_files([pieces]))
        files = files._replace(names=[str(paths)] * len(files.names))
        made = _ingest(spark, files, target, block_rows, mapped=True)
        _refuse_misfit(spark, paths, made, address_for_spark(pieces))
    except SPARK_FAILURES as error:
        remove_tree(target)
        raise in_words(error, f"{paths}: {spark_reason(error)}", "check the mapping and its tables") from error
    except BaseException:
        remove_tree(target)
        raise
    remove_tree(pieces.parent)
    return made


def _ingest(
    spark: SparkSession, files: TraceFiles, target: Place, block_rows: int, *, mapped: bool = False
) -> TraceTable:
    if not files.pieces and files.bad:
        number, reason = files.bad[0]
        raise TraceError(files.names[number], reason, "remove or replace it")
    require_writable(spark, target, "the table")
    try:
        made = write_blocks(_tasks_of(spark), files, target, block_rows)
    except SPARK_FAILURES as error:
        remove_tree(target)
        raise in_words(error, spark_reason(error), "see its log with log_level='WARN'") from error
    mark = Mark(VERSION, 1, mapped, files.names, files.sizes, made.bad_files, made.bad_rows, made.aside)
    table = TraceTable(target, mark)
    if not made.parts:
        worst = table.first_bad()
        reason = f"{worst.reason} (line {worst.line})" if worst else "it is empty"
        where = worst.file if worst else files.names[0]
        remove_tree(target)
        raise TraceError(where, f"no row of the trace can be used; the first reason: {reason}", "check the files")
    _commit(table, made)
    return table


def _tasks_of(spark: SparkSession) -> Each:
    def each_in(function: Callable[[Any], Any], jobs: Sequence[Any], result: Any, stage: str) -> list[Any]:
        return in_tasks(spark, function, jobs, result, stage=stage)

    return each_in


def _commit(table: TraceTable, made: Written) -> None:
    """From here on, whoever opens the table sees this."""
    contents = Contents(made.parts, made.disputed)
    write_whole(table.path / table.mark.blocks, msgspec.msgpack.encode(contents))
    write_whole(table.path / TABLE_MARK, msgspec.json.encode(table.mark))


# Late files -----------------------------------------------------------------------------------------------------------


def _append(spark: SparkSession, before: TraceTable, files: TraceFiles, block_rows: int) -> TraceTable:
    target, mark = before.path, before.mark
    require_writable(spark, target, "the table")
    contents = before.contents()
    prefix = f"late-{mark.ingests + 1:04}-{uuid4().hex[:8]}-"
    try:
        made = write_blocks(_tasks_of(spark), files, target, block_rows, contents, prefix)
    except SPARK_FAILURES as error:
        raise in_words(error, spark_reason(error), "see its log with log_level='WARN'") from error
    bad_rows, aside = _without_files(before, files.read, prefix)
    now = TraceTable(
        target,
        Mark(
            VERSION, mark.ingests + 1, False, files.names, files.sizes,
            sorted([bad for bad in mark.bad_files if bad[0] not in files.read] + made.bad_files),
            bad_rows + made.bad_rows, aside + made.aside,
        ),
    )  # fmt: skip
    if open_table(target).mark.ingests != mark.ingests:
        raise TraceError(target, "something else was added to the table at the same time", "add the files again")
    _commit(now, made)
    _clean_up(before, now)
    return now


def _without_files(table: TraceTable, numbers: set[int], prefix: str) -> tuple[int, list[str]]:
    """How many rows are in the quarantine but for those of some files, which are read again; and where."""
    count, names = table.mark.bad_rows, []
    for name in table.mark.aside:
        with open_parquet(table.path / "quarantine" / name) as file:
            rows = [(row["file"], row["line"], row["reason"]) for row in file.read().to_pylist()]
        kept = [row for row in rows if row[0] not in numbers]
        count -= sum(row[0] in numbers and row[2] != TORN for row in rows)
        names += [name] if len(kept) == len(rows) else put_aside(table.path, f"{prefix}kept-{name}", kept)
    return count, names


def _clean_up(before: TraceTable, now: TraceTable) -> None:
    """Remove what neither the table nor the one before it names. Who has opened that one can still read it."""
    known = {before.mark.blocks, now.mark.blocks}
    for table in (before, now):
        known |= {*table.mark.aside, *(block.path for block in table.blocks())}
    for part in ("rows", "sets", "quarantine"):
        for file in [*(now.path / part).iterdir()]:
            if file.name not in known:
                file.unlink(missing_ok=True)
    for file in [*now.path.iterdir()]:
        if file.name.startswith("blocks-") and file.name not in known:
            file.unlink(missing_ok=True)


def _refuse_misfit(spark: SparkSession, mapped: Mapped, made: TraceTable, pieces: str) -> None:
    """A mapping that leaves nothing to judge, or no message in common, is a mistake, and no trace that holds."""
    blocks = made.blocks()
    if not any(block.deliveries for block in blocks):
        aside = "; ".join(each.reason for each in made.worst(spark, 3))
        told = f"; put aside were {made.mark.bad_rows:,} rows, the first: {aside}" if aside else ""
        reason = f"no row is a `deliver`; events are {words_of(spark, pieces)}{told}"
        raise TraceError(mapped, reason, "mend the mapping, see [input.events]")
    senders = {block.name for block in blocks if block.sends}
    named = {name for block in blocks for name, top in block.highest.items() if top}
    if senders and not senders & named:
        reason = f"no message that was delivered was sent: deliveries name {_some(named)}, senders are {_some(senders)}"
        raise TraceError(mapped, reason, "mend what says which message it is")


def _some(names: Iterable[str]) -> str:
    told = sorted(names)
    return ", ".join(told[:3]) + (", …" if len(told) > 3 else "")


Each: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any], Any, str], list[Any]]
"""How a function is given each of some jobs: by tasks of Spark, or one after the other. The last arguments are the type
of what it gives, and what it does, in words for whoever watches."""


class Written(NamedTuple):
    """All blocks of a table; and of the files that were read, what does not count, and where it is."""

    parts: list[Part]
    disputed: list[Disputed]
    bad_files: list[tuple[int, str]]
    bad_rows: int
    aside: list[str]


def write_blocks(
    each_in: Each, files: TraceFiles, target: Place, block_rows: int, before: Contents | None = None, prefix: str = ""
) -> Written:
    """The rows of files as blocks below a directory, beside those that were there `before`.

    What is written has names that begin with `prefix`, and nothing that was there is changed or removed.
    """
    there = before or Contents()
    for part in ("rows", "sets", "quarantine"):
        (target / part).mkdir(parents=True, exist_ok=True)

    def take_one(job: tuple[int, list[FilePiece]]) -> Taken:
        return take(target, f"{prefix}{job[0]:06}", job[1], block_rows)

    def gather_one(job: tuple[int, list[Group]]) -> Gathered:
        return gather(target, f"{prefix}gathered-{job[0]:06}", job[1])

    jobs = together(counted(files.pieces, lambda pieces: each_in(line_ends, pieces, int, "counting")))
    taken = each_in(take_one, list(enumerate(jobs)), Taken, "reading")
    damaged = {file: reason for each in taken for file, reason in each.damaged.items()}
    bad_files = sorted([*files.bad, *damaged.items()])
    sound = []
    for pieces, each in zip(jobs, taken, strict=True):
        if len(pieces) == 1 and pieces[0].file in damaged:  # where files share, it was left out
            _forget(target, each.names)
        else:
            sound.append(each)
    taken = sound
    late = [part for each in taken for part in each.parts]
    parts = there.parts + late
    again = to_gather(parts, late, there.disputed)
    groups = list(enumerate(groups_of(again, block_rows, there.disputed)))
    gathered = each_in(gather_one, groups, Gathered, "putting in order")
    replaced = {part.block.path for part in again}
    for name in replaced & {part.block.path for part in late}:
        (target / "rows" / name).unlink()
    parts = [part for part in parts if part.block.path not in replaced]
    parts += [part for each in gathered for part in each.parts]
    parts.sort(key=lambda part: (part.log, part.block.first))
    claimed: dict[Log, set[int]] = {}
    for one in [*there.disputed, *(one for each in gathered for one in each.disputed)]:
        claimed.setdefault(one.log, set()).update(one.places)
    return Written(
        parts,
        [Disputed(log, sorted(places)) for log, places in sorted(claimed.items())],
        bad_files,
        sum(each.bad for each in taken) + sum(each.bad for each in gathered),
        [name for kind in (taken, gathered) for each in kind for name in each.aside],
    )


def _forget(target: Place, names: Iterable[str]) -> None:
    """Remove what was written of a file that cannot be read to its end."""
    for name in names:
        for part in ("rows", "sets", "quarantine"):
            (target / part / name).unlink(missing_ok=True)
