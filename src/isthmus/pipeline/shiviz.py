"""Which rows go into a ShiViz log: all of a run, or those that tell the story of one violation.

The story is the one that the report draws: the sends, the chain of causes from the earlier message to the later, and
the deliveries at the process that is wrong. A delivery that is missing has no row; there, the last row of that process
stands for it and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.audit import audit
from isthmus.pipeline.ingest import SPARK_FAILURES, spark_reason
from isthmus.pipeline.mapping import Traces
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.report import clean_table
from isthmus.pipeline.report.witness import witnesses
from isthmus.trace.schema import COLUMNS, Event, Report, TraceError, Violation
from isthmus.trace.shiviz.exporter import chosen_run


class ShownRows(NamedTuple):
    """Rows of one run, words for some of them by `system/process` and index, and the violation that they show."""

    rows: list[Event]
    captions: dict[tuple[str, int], str]
    violation: Violation | None


def story(spark: SparkSession, traces: Traces, run: str | None, number: int | None) -> ShownRows:
    """The rows of a run, or of the violation of that number. They come to the driver: what ShiViz draws is small."""
    with clean_table(spark, traces) as table:
        shown = None if number is None else nth_violation(audit(spark, table), number, run)
        try:
            if shown is not None:
                return witness(table.rows(spark), shown)
            rows = table.rows(spark)
            chosen = chosen_run((row.run for row in rows.select("run").distinct().collect()), run)
            whole = rows.where(f.col("run") == chosen).select(*COLUMNS)
            return ShownRows(_events(whole.toLocalIterator()), {}, None)
        except SPARK_FAILURES as error:
            raise SparkProblem(f"Spark gave up: {spark_reason(error)}", "give it more memory") from error


def nth_violation(report: Report, number: int, run: str | None) -> Violation:
    """The violation of that number, from 1, as `audit` lists them: of all runs, or of one."""
    found = [each for each in report.violations if run in (None, each.run)]
    where = f" in run '{run}'" if run is not None else ""
    if not found:
        raise TraceError("--violation", f"the audit finds no violation{where}", "leave it out to export a whole run")
    if number > len(found):
        raise TraceError(
            "--violation", f"the audit describes {len(found):,} violations{where}", "choose one of these, from 1"
        )
    return found[number - 1]


def witness(rows: DataFrame, violation: Violation) -> ShownRows:
    """The rows that show one violation."""
    [found] = witnesses(rows, [violation])
    picture = found.picture
    wanted: dict[tuple[str, int], str] = {}
    missing: dict[str, str] = {}
    for happening in picture.happenings:
        if happening.index is None:
            missing[happening.process] = f"never delivered {picture.messages[happening.message]}"
        else:
            wanted[happening.process, happening.index] = happening.caption
    name = f.concat_ws("/", "system", "process")
    in_run = rows.where(f.col("run") == violation.run).withColumn("name", name)
    captions = wanted | _last_rows(in_run, missing)
    table = rows.sparkSession.createDataFrame(sorted(captions), "name string, index bigint")
    chosen = in_run.join(f.broadcast(table), ["name", "index"]).select(*COLUMNS)
    return ShownRows(_events(chosen.collect()), captions, violation)


def _last_rows(rows: DataFrame, missing: dict[str, str]) -> dict[tuple[str, int], str]:
    if not missing:
        return {}
    last = rows.where(f.col("name").isin(*missing)).groupBy("name").agg(f.max("index").alias("last"))
    return {(row.name, row.last): missing[row.name] for row in last.collect()}


def _events(rows: Iterable[Row]) -> list[Event]:
    return [msgspec.convert(row.asDict(), Event) for row in rows]
