"""What the audit is measured against, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from isthmus.pipeline.ingest import TraceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stage(Struct, frozen=True):
    """One stage of Spark. `largest_share` is the part of all rows that passed through its busiest task."""

    name: str
    tasks: int
    seconds: float
    longest_task: float
    rows: int
    largest_share: float


def read_and_sort(spark: SparkSession, table: TraceTable) -> None:
    """Read all rows of a table, put them in order, and throw them away: what any audit costs at least."""
    rows = table.rows(spark).sort("run", "system", "process", "index")
    rows.write.format("noop").mode("overwrite").save()


def free_memory(spark: SparkSession) -> None:
    """Let Spark forget what it kept, so that one measurement does not pay for another."""
    spark.catalog.clearCache()
    jvm: Any = spark._jvm
    jvm.System.gc()


def last_stage(spark: SparkSession) -> int:
    """A number that later stages exceed."""
    return max((stage.stageId() for stage in _stages(spark)), default=-1)


def stages_since(spark: SparkSession, number: int) -> list[Stage]:
    """The stages after this one that had rows to move, in order."""
    found = []
    for stage in _stages(spark):
        if stage.stageId() <= number or str(stage.status()) != "COMPLETE":
            continue
        tasks = _tasks(spark, stage)
        rows = [_rows(task) for task in tasks]
        times = [_seconds(task) for task in tasks]
        if sum(rows):
            share = max(rows) / sum(rows)
            found.append(
                Stage(str(stage.name()).partition(" at ")[0], len(tasks), sum(times), max(times), sum(rows), share)
            )
    return found


def _store(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc().statusStore()


def _stages(spark: SparkSession) -> list[Any]:
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    none = context._gateway.new_array(jvm.double, 0)
    listed = _store(spark).stageList(None, False, False, none, None)
    return sorted((listed.apply(each) for each in range(listed.size())), key=lambda stage: int(stage.stageId()))


def _tasks(spark: SparkSession, stage: Any) -> list[Any]:
    listed = _store(spark).taskList(stage.stageId(), stage.attemptId(), 100_000)
    return [listed.apply(each) for each in range(listed.size())]


def _rows(task: Any) -> int:
    metrics = task.taskMetrics()
    if metrics.isEmpty():
        return 0
    measured = metrics.get()
    return int(measured.inputMetrics().recordsRead() + measured.shuffleReadMetrics().recordsRead())


def _seconds(task: Any) -> float:
    metrics = task.taskMetrics()
    return 0.0 if metrics.isEmpty() else metrics.get().executorRunTime() / 1000
