"""What the audit is measured against, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.pipeline.ingest import TraceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def task_seconds_since(spark: SparkSession, number: int) -> float:
    """How long tasks of the stages after this one ran, all added up."""
    done = [stage for stage in _stages(spark) if stage.stageId() > number and str(stage.status()) == "COMPLETE"]
    return sum(float(stage.executorRunTime()) for stage in done) / 1000


def _store(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc().statusStore()


def _stages(spark: SparkSession) -> list[Any]:
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    none = context._gateway.new_array(jvm.double, 0)
    listed = _store(spark).stageList(None, False, False, none, None)
    return sorted((listed.apply(each) for each in range(listed.size())), key=lambda stage: int(stage.stageId()))
