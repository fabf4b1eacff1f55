"""Traces into one table: sound rows in order, and a quarantine for all others.

A table is a directory: `rows/state=clean/shard=…/` holds the sound rows as Parquet, each file sorted by run, process
and index, so that an audit of some runs reads few of them; `rows/state=quarantine/` holds every other row with its
file, its line and the reason why it does not count; `table.json` says where it came from. All of it is written in one
pass: one shuffle by log, one sort. Nothing is dropped in silence, and no run has to fit anywhere.

Rows may come in any order, from any number of files, whole or partial; a row that comes twice (a file that was copied
and then continued) counts once, and where two different rows claim one place in a log, neither counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from isthmus.pipeline.blocks import block_of
from isthmus.pipeline.ingest.decode import decode_pieces
from isthmus.pipeline.ingest.files import PIECE_SCHEMA, TraceFiles, examine
from isthmus.pipeline.ingest.rows import PLACED_ROWS, TORN, reason_not_to_count, spark_schema
from isthmus.pipeline.problems import TABLE_MARK, SparkProblem, is_table
from isthmus.pipeline.session import spark_session
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.files import Traces, find_files_and_logs, local_path
from isthmus.trace.parquet import open_parquet
from isthmus.trace.reader import Quarantined
from isthmus.trace.schema import COLUMNS, TraceError
from isthmus.trace.shiviz.log import Expressions

SHARDS = 8
SPARK_FAILURES = (PySparkException, Py4JError)
"""Some failures of Spark come translated, others as the Java side threw them."""

_STORED = StructType([*PLACED_ROWS.fields, StructField("state", StringType()), StructField("shard", IntegerType())])
_BLOCK = ("shard", "run", "system", "process", "block")
BLOCK_BITS = 18
"""A log is put in order 262,144 rows at a time, so that no task has to sort, write and later read the longest alone.

Blocks are large because an audit by numpy need not sort the rows of a log that comes in one piece.
"""


class _Mark(Struct):
    """What `table.json` holds. `version` changes when the layout does."""

    version: int
    files: list[str]
    bad_files: list[tuple[int, str]]


class TraceTable(NamedTuple):
    """A table on disk, and the files that it was made of."""

    path: Path
    files: list[str]
    bad_files: list[tuple[int, str]]

    def rows(self, spark: SparkSession) -> DataFrame:
        """The sound rows, with the columns of the trace and `shard`, which is a function of the run."""
        return self._read(spark, "clean").select(*COLUMNS, "shard")

    def _read(self, spark: SparkSession, state: str) -> DataFrame:
        everything = spark.read.schema(_STORED)
        return everything.parquet(str(self.path / "rows")).where(f.col("state") == state).drop("state")

    def quarantine(self, spark: SparkSession) -> DataFrame:
        """File, line and reason of everything that does not count. Line 0 stands for a whole file."""
        names = spark.createDataFrame(list(enumerate(self.files)), "file bigint, name string")
        rows = self._read(spark, "quarantine").select("file", "line", "reason")
        if self.bad_files:
            whole = [(number, 0, reason) for number, reason in self.bad_files]
            rows = rows.unionByName(spark.createDataFrame(whole, "file bigint, line bigint, reason string"))
        return rows.join(f.broadcast(names), "file", "left").select(f.col("name").alias("file"), "line", "reason")

    def quarantined(self, spark: SparkSession) -> int:
        return self.quarantine(spark).where(f.col("reason") != TORN).count()

    def torn_files(self, spark: SparkSession) -> list[str]:
        """Files whose last line a crash tore off."""
        found = self.quarantine(spark).where(f.col("reason") == TORN).select("file").distinct().collect()
        return sorted(row.file for row in found)

    def worst(self, spark: SparkSession, most: int = 20) -> list[Quarantined]:
        """The first rows in quarantine, by file and line."""
        found = self.quarantine(spark).where(f.col("reason") != TORN).orderBy("file", "line").limit(most).collect()
        return [Quarantined(row.file, row.line, row.reason) for row in found]


def session_for(traces: Sequence[Path], master: str | None, memory: str) -> SparkSession:
    """A session to read these with. What is wrong with them is said before the seconds that Spark takes to start."""
    if not (len(traces) == 1 and is_table(traces[0])):
        find_files_and_logs(traces)
    return spark_session(master, driver_memory=memory)


def open_table(path: str | Path) -> TraceTable:
    """A table that `ingest` has written."""
    try:
        mark = msgspec.json.decode(Path(local_path(path), TABLE_MARK).read_bytes(), type=_Mark)
    except (OSError, ValueError) as error:
        raise TraceError(path, f"not a table of isthmus: {error}", "ingest the traces again") from error
    return TraceTable(Path(path), mark.files, mark.bad_files)


def ingest(spark: SparkSession, paths: Iterable[str | Path], table: str | Path) -> TraceTable:
    """Read traces into a new table. The directory must not exist, or be empty. `Traces` may say how to read logs."""
    target = local_path(table)
    if target.exists() and any(target.iterdir()):
        raise TraceError(target, "is there already and not empty", "choose another directory for the table")
    files = examine(find_files_and_logs(paths), paths.expressions if isinstance(paths, Traces) else Expressions())
    try:
        _write(spark, files, target)
    except SPARK_FAILURES as error:
        # A footer can be sound and a page behind it not. Spark does not say which file, so look at all of them.
        damaged = _damaged(files)
        if not damaged:
            raise SparkProblem(f"Spark gave up: {spark_reason(error)}", "see its log with log_level='WARN'") from error
        files = files._replace(
            native=[each for each in files.native if each not in damaged],
            bad=files.bad + list(damaged.items()),
        )
        _write(spark, files, target)
    made = TraceTable(target, files.names, files.bad)
    if made.rows(spark).isEmpty():
        worst = made.worst(spark, 1)
        reason = f"{worst[0].reason} (line {worst[0].line})" if worst else "it is empty"
        where = worst[0].file if worst else files.names[0]
        shutil.rmtree(target, ignore_errors=True)
        raise TraceError(where, f"no row of the trace can be used; the first reason: {reason}", "check the files")
    mark = _Mark(1, files.names, files.bad)
    (target / TABLE_MARK).write_bytes(msgspec.json.encode(mark))
    return made


def spark_reason(error: BaseException) -> str:
    """What Spark says in its first line, without the stack that follows."""
    cause = getattr(error, "java_exception", None) or error
    return str(cause).partition("\n")[0]


def _damaged(files: TraceFiles) -> dict[int, str]:
    """Parquet files with a sound footer that still cannot be read to the end, with reasons."""
    damaged = {}
    for number in files.native:
        try:
            with open_parquet(files.names[number]) as file:
                for _ in file.iter_batches():
                    pass
        except TraceError as error:
            damaged[number] = error.reason
    return damaged


def _write(spark: SparkSession, files: TraceFiles, target: Path) -> None:
    sources = [*_decoded(spark, files), *_native(spark, files)]
    if not sources:
        number, reason = files.bad[0]
        raise TraceError(files.names[number], reason, "remove or replace it")
    rows = reduce(DataFrame.unionByName, sources)
    # As many open files per task: without this setting Spark would sort everything once more, by directory.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(2 * SHARDS))
    judged = _judged(rows)
    judged.write.mode("overwrite").partitionBy("state", "shard").parquet(str(target / "rows"))


def _decoded(spark: SparkSession, files: TraceFiles) -> list[DataFrame]:
    if not files.pieces:
        return []
    pieces = spark.createDataFrame([tuple(piece) for piece in files.pieces], PIECE_SCHEMA)
    tasks = min(len(files.pieces), 4 * spark.sparkContext.defaultParallelism)
    return [pieces.repartition(tasks).mapInArrow(decode_pieces, PLACED_ROWS)]


def _native(spark: SparkSession, files: TraceFiles) -> list[DataFrame]:
    if not files.native:
        return []
    names = [str(Path(files.names[number]).absolute()) for number in files.native]
    read = spark.read.schema(spark_schema(TRACE_COLUMNS)).parquet(*names)
    read = read.withColumn("line", f.col("_metadata.row_index") + 1)
    path = f.col("_metadata.file_path")
    if len(names) == 1:
        number: Column = f.lit(files.native[0]).cast("bigint")
        placed = read.withColumn("file", number)
    else:
        uris = [(Path(name).as_uri(), each) for name, each in zip(names, files.native, strict=True)]
        numbers = spark.createDataFrame(uris, "uri string, file bigint")
        placed = read.withColumn("uri", f.regexp_replace(path, "^file:/+", "file:///"))
        placed = placed.join(f.broadcast(numbers), "uri", "left").drop("uri")
    return [placed.withColumn("reason", reason_not_to_count())]


def _judged(rows: DataFrame) -> DataFrame:
    """Put logs in order and find the rows that claim a place twice."""
    shard = f.when(f.col("reason").isNull(), f.pmod(f.xxhash64("run"), f.lit(SHARDS))).otherwise(0).cast("int")
    rows = rows.withColumns({"shard": shard, "block": block_of("index", BLOCK_BITS)})
    in_order = Window.partitionBy(*_BLOCK).orderBy("index")
    same_place = in_order.rangeBetween(Window.currentRow, Window.currentRow)
    repeated = f.lag("index").over(in_order) == f.col("index")
    # Whole rows are compared, nulls as values: Spark's hashes leave nulls out, and a list of one looks like its item.
    content = f.struct(*COLUMNS)
    disputed = f.min(content).over(same_place) != f.max(content).over(same_place)
    place = f.concat(f.col("system"), f.lit("/"), f.col("process"), f.lit(" in run "), f.col("run"))
    reason = (
        f.when(f.col("reason").isNotNull(), f.col("reason"))
        .when(
            disputed,
            f.concat(
                f.lit("two different rows claim index "),
                f.col("index"),
                f.lit(" of "),
                place,
                f.lit(", so neither counts"),
            ),
        )
        .when(repeated, f.concat(f.lit("the same row again: index "), f.col("index"), f.lit(" of "), place))
    )
    # Sorted by file and line too, so that it is always the same copy of a row that counts.
    ordered = rows.repartition(*_BLOCK).sortWithinPartitions(*_BLOCK, "index", "file", "line")
    judged = ordered.withColumn("reason", reason)
    state = f.when(f.col("reason").isNull(), "clean").otherwise("quarantine")
    return judged.withColumn("state", state).select(*COLUMNS, "file", "line", "reason", "state", "shard")
