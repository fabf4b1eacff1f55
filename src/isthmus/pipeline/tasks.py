"""Work in tasks of Spark: a function is carried to jobs, and plain values come back. Rows stay in files.

Jobs and the function travel as Spark carries functions, so they may be anything, and with them the settings of stores;
what comes back is encoded by msgspec.
A task costs some ten milliseconds whatever it does, so small jobs share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from isthmus.pipeline.stores import use_settings_of
from isthmus.trace import stores

Job = TypeVar("Job")
Result = TypeVar("Result")

TASKS_PER_CORE = 4


def in_tasks(
    spark: SparkSession, function: Callable[[Job], Result], jobs: Sequence[Job], result: type[Result]
) -> list[Result]:
    """What the function gives for each job, in their order. `result` is the type of what it gives."""
    count = len(jobs)
    if not count:
        return []
    settings = use_settings_of(spark)
    tasks = min(count, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)

    def share(part: int) -> range:
        """Neighbours go together: they may share files."""
        return range(part * count // tasks, (part + 1) * count // tasks)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use(settings)
        for batch in batches:
            for number in (each for part in batch.column(0).to_pylist() for each in share(part)):
                answer = msgspec.msgpack.encode(function(jobs[number]), enc_hook=_plain)
                yield pa.record_batch([pa.array([number]), pa.array([answer], pa.large_binary())], ["job", "answer"])

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(task, "job bigint, answer binary").collect()
    answers = {row.job: msgspec.msgpack.decode(row.answer, type=result) for row in rows}
    return [answers[number] for number in range(count)]


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item()
