"""Traces into one table: sound rows in order, and a quarantine for all others.

Nothing is dropped in silence, and no run or log has to fit anywhere. Rows may come in any order, from any number of
files, whole or partial; a row that comes twice (a file that was copied and then continued) counts once, and where two
different rows claim one place in a log, neither counts. How a table lies on disk is said in `table`, how rows get there
in `blocks`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from isthmus.pipeline.engine.logs import Block
from isthmus.pipeline.ingest.blocks import BLOCK_ROWS, Gathered, Group, Taken, gather, groups_of, take, to_gather
from isthmus.pipeline.ingest.files import FilePiece, TraceFiles, examine, together
from isthmus.pipeline.ingest.table import BLOCKS, VERSION, Mark, TraceTable, open_table
from isthmus.pipeline.problems import TABLE_MARK, SparkProblem, is_table
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.tasks import in_tasks
from isthmus.trace.files import Traces, find_files_and_logs, local_path
from isthmus.trace.places import Place
from isthmus.trace.schema import TraceError
from isthmus.trace.shiviz.log import Expressions

__all__ = ["SPARK_FAILURES", "TraceTable", "ingest", "open_table", "session_for", "spark_reason"]

SPARK_FAILURES = (PySparkException, Py4JError)
"""Some failures of Spark come translated, others as the Java side threw them."""


def session_for(traces: Sequence[Place], master: str | None, memory: str) -> SparkSession:
    """A session to read these with. What is wrong with them is said before the seconds that Spark takes to start."""
    if not (len(traces) == 1 and is_table(traces[0])):
        find_files_and_logs(traces)
    return spark_session(master, driver_memory=memory)


def spark_reason(error: BaseException) -> str:
    """What Spark says in its first line, without the stack that follows."""
    cause = getattr(error, "java_exception", None) or error
    return str(cause).partition("\n")[0]


def ingest(
    spark: SparkSession, paths: Iterable[str | Place], table: str | Place, *, block_rows: int = BLOCK_ROWS
) -> TraceTable:
    """Read traces into a new table. The directory must not exist, or be empty. `Traces` may say how to read logs.

    `block_rows` is the most that a task sorts at once.
    """
    target = local_path(table)
    if target.exists() and any(target.iterdir()):
        raise TraceError(target, "is there already and not empty", "choose another directory for the table")
    files = examine(find_files_and_logs(paths), paths.expressions if isinstance(paths, Traces) else Expressions())
    if not files.pieces and files.bad:
        number, reason = files.bad[0]
        raise TraceError(files.names[number], reason, "remove or replace it")
    for part in ("rows", "sets", "quarantine"):
        (target / part).mkdir(parents=True)
    try:
        made, blocks = _write(spark, files, target.absolute(), block_rows)
    except SPARK_FAILURES as error:
        shutil.rmtree(target, ignore_errors=True)
        raise SparkProblem(f"Spark gave up: {spark_reason(error)}", "see its log with log_level='WARN'") from error
    if not blocks:
        worst = made.worst(spark, 1)
        reason = f"{worst[0].reason} (line {worst[0].line})" if worst else "it is empty"
        where = worst[0].file if worst else files.names[0]
        shutil.rmtree(target, ignore_errors=True)
        raise TraceError(where, f"no row of the trace can be used; the first reason: {reason}", "check the files")
    (target / BLOCKS).write_bytes(msgspec.msgpack.encode(blocks))
    mark = Mark(VERSION, made.files, made.bad_files, made.bad_rows)
    (target / TABLE_MARK).write_bytes(msgspec.json.encode(mark))
    return made


def _write(spark: SparkSession, files: TraceFiles, target: Path, block_rows: int) -> tuple[TraceTable, list[Block]]:
    def take_one(job: tuple[int, list[FilePiece]]) -> Taken:
        return take(target, *job, block_rows)

    def gather_one(job: tuple[int, list[Group]]) -> Gathered:
        return gather(target, *job)

    jobs = together(files.pieces)
    taken = in_tasks(spark, take_one, list(enumerate(jobs)), Taken)
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
    gathered = in_tasks(spark, gather_one, list(enumerate(groups_of(again, block_rows))), Gathered)
    replaced = {part.block.path for part in again}
    for name in replaced:
        (target / "rows" / name).unlink()
    blocks = [part.block for part in parts if part.block.path not in replaced]
    blocks += [block for each in gathered for block in each.blocks]
    blocks.sort(key=lambda block: (block.run, block.system, block.process, block.first))
    bad = sum(each.bad for each in taken) + sum(each.bad for each in gathered)
    return TraceTable(target, files.names, bad_files, bad), blocks


def _forget(target: Path, names: Iterable[str]) -> None:
    """Remove what was written of a file that cannot be read to its end."""
    for name in names:
        for part in ("rows", "sets", "quarantine"):
            (target / part / name).unlink(missing_ok=True)
