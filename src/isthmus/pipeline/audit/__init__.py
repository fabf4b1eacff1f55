"""The audit: which properties every run of a table keeps, and a witness where it does not.

Runs that fit a task are audited by numpy, each in one task, many at a time. A run that is too large for that is audited
by Spark SQL, spread over all tasks. Both give the same verdicts and counts; tests compare them with each other and with
the definition. See docs/design/audit.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Literal, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import coded, log_table, refuse_shared_codes
from isthmus.pipeline.audit.findings import FINDINGS, TOO_LARGE
from isthmus.pipeline.audit.sql.judge import audit_in_sql, sql_judges_of
from isthmus.pipeline.audit.task.judge import Judges, audit_group, judges_of
from isthmus.pipeline.audit.witness import violations_in_words
from isthmus.pipeline.ingest import SPARK_FAILURES, TraceTable, ingest, open_table, spark_reason
from isthmus.pipeline.problems import SparkProblem, is_table
from isthmus.pipeline.session import unweighed_batches
from isthmus.trace.properties import PROPERTIES, audited_properties
from isthmus.trace.schema import Answer, Report, Verdict

Engine: TypeAlias = Literal["numpy", "sql"]

ROWS_PER_TASK = 16_000_000
"""A run with more rows than this is audited by Spark SQL. Numpy takes about 100 bytes per row in its worst moment."""

MOST_WITNESSES = 1000
"""That are described in a report, over all runs. All violations are counted."""


def audit_traces(
    spark: SparkSession,
    paths: Sequence[str | Path],
    *,
    expected: Iterable[str] = (),
    table: str | Path | None = None,
    engine: Engine | None = None,
) -> Report:
    """Audit trace files, or one table that was made of them before. With `table`, the table is kept there."""
    if len(paths) == 1 and is_table(paths[0]):
        return audit(spark, open_table(paths[0]), expected=expected, engine=engine)
    if table is not None:
        return audit(spark, ingest(spark, paths, table), expected=expected, engine=engine)
    with tempfile.TemporaryDirectory(prefix="isthmus-audit-") as scratch:
        return audit(spark, ingest(spark, paths, Path(scratch, "table")), expected=expected, engine=engine)


def audit(
    spark: SparkSession,
    table: TraceTable,
    *,
    expected: Iterable[str] = (),
    engine: Engine | None = None,
    rows_per_task: int = ROWS_PER_TASK,
) -> Report:
    """Audit a table by the properties that are always judged and by those that are expected.

    `engine` overrides the choice by size.
    """
    properties = audited_properties(expected)
    try:
        with unweighed_batches(spark):
            return _audit(table.rows(spark), table.quarantined(spark), properties, engine, rows_per_task)
    except SPARK_FAILURES as error:
        raise SparkProblem(
            f"Spark gave up: {spark_reason(error)}", "give it more memory, or a larger master"
        ) from error


def _audit(
    rows: DataFrame, quarantined: int, properties: Sequence[str], engine: Engine | None, rows_per_task: int
) -> Report:
    sql_judges = sql_judges_of(properties)
    logs = log_table(rows).persist()
    found: DataFrame | None = None
    try:
        refuse_shared_codes(logs)
        runs, events = logs.select(f.count_distinct("run"), f.sum("rows")).collect()[0]
        numbers = coded(rows)
        large = _large_runs(logs, engine, rows_per_task)
        parts = []
        if len(large) < runs:
            small = _only(numbers, large, "left_anti") if large else numbers
            parts.append(small.groupBy("run").applyInArrow(_task(judges_of(properties)), FINDINGS))
        if large:
            parts.append(audit_in_sql(_only(numbers, large), sql_judges))
        found = reduce(DataFrame.unionByName, parts).persist()
        verdicts = found.where(f.col("record") == "verdict").collect()
        too_wide = [row.run for row in verdicts if row.property == TOO_LARGE]
        if too_wide:
            more = audit_in_sql(_only(numbers, too_wide), sql_judges)
            found.unpersist()
            found = found.where(f.col("property") != TOO_LARGE).unionByName(more).persist()
            verdicts = found.where(f.col("record") == "verdict").collect()
        witnesses = _witnesses(found)
        return Report(
            runs=runs,
            events=events,
            verdicts=_in_order(verdicts),
            violations=violations_in_words(rows, logs, witnesses),
            quarantined=quarantined,
        )
    finally:
        logs.unpersist()
        if found is not None:
            found.unpersist()


def _task(judges: Judges) -> Callable[[pa.Table], pa.Table]:
    """The function that Spark carries to its workers, with the judges in it."""

    def task(table: pa.Table) -> pa.Table:
        return audit_group(table, judges)

    return task


def _only(rows: DataFrame, runs: Sequence[str], how: str = "left_semi") -> DataFrame:
    names = rows.sparkSession.createDataFrame([(run,) for run in runs], "run string")
    return rows.join(f.broadcast(names), "run", how)


def _large_runs(logs: DataFrame, engine: Engine | None, rows_per_task: int) -> list[str]:
    if engine == "numpy":
        return []
    per_run = logs.groupBy("run").agg(f.sum("rows").alias("rows"))
    return [row.run for row in per_run.where(f.col("rows") > (0 if engine == "sql" else rows_per_task)).collect()]


def _witnesses(found: DataFrame) -> list[Row]:
    witnesses = found.where(f.col("record") == "witness")
    return (
        witnesses.orderBy("run", "property", "process", "second_index", "first_index").limit(MOST_WITNESSES).collect()
    )


def _in_order(rows: Iterable[Row]) -> list[Verdict]:
    verdicts = [Verdict(row.run, row.property, cast(Answer, row.verdict), row.checked, row.violations) for row in rows]
    places = {name: place for place, name in enumerate(PROPERTIES)}
    return sorted(verdicts, key=lambda each: (each.run, places[each.property]))
