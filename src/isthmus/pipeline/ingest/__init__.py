"""Traces into one table: sound rows in order, and a quarantine for all others.

Nothing is dropped in silence, and no run or log has to fit anywhere. Rows may come in any order, from any number of
files, whole or partial; a row that comes twice (a file that was copied and then continued) counts once, and where two
different rows claim one place in a log, neither counts. How a table lies on disk is said in `table`, how rows get there
in `blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from pyspark.sql import SparkSession

from isthmus.pipeline.engine.logs import Block
from isthmus.pipeline.failures import SPARK_FAILURES, spark_reason
from isthmus.pipeline.ingest.blocks import BLOCK_ROWS, Gathered, Group, Taken, gather, groups_of, take, to_gather
from isthmus.pipeline.ingest.files import FilePiece, TraceFiles, counted, examine, line_ends, together
from isthmus.pipeline.ingest.table import BLOCKS, VERSION, Mark, TraceTable, open_table
from isthmus.pipeline.mapping import Mapped, Traces
from isthmus.pipeline.mapping.rows import words_of, write_pieces
from isthmus.pipeline.places import require_readable, require_writable
from isthmus.pipeline.problems import TABLE_MARK, in_words, is_table
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.stores import use_settings_of
from isthmus.pipeline.tasks import in_tasks
from isthmus.pipeline.workers import make_ready
from isthmus.trace.files import find_files
from isthmus.trace.places import Place, address_for_spark, place, remove_tree
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


def ingest(spark: SparkSession, paths: Traces, table: str | Place, *, block_rows: int = BLOCK_ROWS) -> TraceTable:
    """Read traces, or tables with their mapping, into a new table. The directory must not exist, or be empty.

    `block_rows` is the most that a task sorts at once.
    """
    use_settings_of(spark)
    target = place(table).absolute()
    if target.exists() and any(target.iterdir()):
        raise TraceError(target, "is there already and not empty", "choose another directory for the table")
    if not isinstance(paths, Mapped):
        # Relative paths are resolved here, because tasks have other working directories.
        found = find_files([place(path).absolute() for path in paths])
        require_readable(spark, found)
        return _ingest(spark, examine(found), target, block_rows)
    make_ready(spark)
    require_writable(spark, target, "the table")
    pieces = target / "mapped" / "trace"
    try:
        write_pieces(spark, paths.mapping, paths.tables, address_for_spark(pieces))
        files = examine(find_files([pieces]))
        made = _ingest(spark, files._replace(names=[str(paths)] * len(files.names)), target, block_rows)
        _refuse_misfit(spark, paths, made, address_for_spark(pieces))
    except SPARK_FAILURES as error:
        remove_tree(target)
        raise in_words(error, f"{paths}: {spark_reason(error)}", "check the mapping and its tables") from error
    except BaseException:
        remove_tree(target)
        raise
    remove_tree(pieces.parent)
    return made


def _ingest(spark: SparkSession, files: TraceFiles, target: Place, block_rows: int) -> TraceTable:
    if not files.pieces and files.bad:
        number, reason = files.bad[0]
        raise TraceError(files.names[number], reason, "remove or replace it")
    require_writable(spark, target, "the table")

    def each_in(function: Callable[[Any], Any], jobs: Sequence[Any], result: Any, stage: str) -> list[Any]:
        return in_tasks(spark, function, jobs, result, stage=stage)

    try:
        made, blocks = write_blocks(each_in, files, target, block_rows)
    except SPARK_FAILURES as error:
        remove_tree(target)
        raise in_words(error, spark_reason(error), "see its log with log_level='WARN'") from error
    if not blocks:
        worst = made.first_bad()
        reason = f"{worst.reason} (line {worst.line})" if worst else "it is empty"
        where = worst.file if worst else files.names[0]
        remove_tree(target)
        raise TraceError(where, f"no row of the trace can be used; the first reason: {reason}", "check the files")
    (target / BLOCKS).write_bytes(msgspec.msgpack.encode(blocks))
    mark = Mark(VERSION, made.files, made.bad_files, made.bad_rows)
    (target / TABLE_MARK).write_bytes(msgspec.json.encode(mark))
    return made


def _refuse_misfit(spark: SparkSession, mapped: Mapped, made: TraceTable, pieces: str) -> None:
    """A mapping that leaves nothing to judge, or no message in common, is a mistake, and no trace that holds."""
    blocks = made.blocks()
    if not any(block.deliveries for block in blocks):
        aside = "; ".join(each.reason for each in made.worst(spark, 3))
        told = f"; put aside were {made.bad_rows:,} rows, the first: {aside}" if aside else ""
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


def write_blocks(each_in: Each, files: TraceFiles, target: Place, block_rows: int) -> tuple[TraceTable, list[Block]]:
    """The rows of files as blocks below a directory."""
    for part in ("rows", "sets", "quarantine"):
        (target / part).mkdir(parents=True)

    def take_one(job: tuple[int, list[FilePiece]]) -> Taken:
        return take(target, *job, block_rows)

    def gather_one(job: tuple[int, list[Group]]) -> Gathered:
        return gather(target, *job)

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
    parts = [part for each in taken for part in each.parts]
    again = to_gather(parts)
    groups = list(enumerate(groups_of(again, block_rows)))
    gathered = each_in(gather_one, groups, Gathered, "putting in order")
    replaced = {part.block.path for part in again}
    for name in replaced:
        (target / "rows" / name).unlink()
    blocks = [part.block for part in parts if part.block.path not in replaced]
    blocks += [block for each in gathered for block in each.blocks]
    blocks.sort(key=lambda block: (block.run, block.system, block.process, block.first))
    bad = sum(each.bad for each in taken) + sum(each.bad for each in gathered)
    return TraceTable(target, files.names, bad_files, bad), blocks


def _forget(target: Place, names: Iterable[str]) -> None:
    """Remove what was written of a file that cannot be read to its end."""
    for name in names:
        for part in ("rows", "sets", "quarantine"):
            (target / part / name).unlink(missing_ok=True)
