"""A run that is too large for one task: the same passes, each job in a task of Spark, with files in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from isthmus.pipeline.engine.logs import Block
from isthmus.pipeline.engine.run import Run
from isthmus.pipeline.engine.store import InFiles
from isthmus.pipeline.ingest.table import TableRows
from isthmus.pipeline.tasks import in_tasks

Job = TypeVar("Job")
Result = TypeVar("Result")


class SpreadRun(Run):
    def __init__(self, spark: SparkSession, name: str, blocks: Sequence[Block], rows: TableRows, scratch: Path) -> None:
        self._spark: SparkSession | None = spark
        super().__init__(name, blocks, rows, InFiles(scratch))

    def __getstate__(self) -> dict[str, Any]:
        """What travels to tasks."""
        return self.__dict__ | {"_spark": None}

    def each(self, function: Callable[[Run, Job], Result], jobs: Sequence[Job], result: type[Result]) -> list[Result]:
        assert self._spark is not None, "a task starts no tasks"
        return in_tasks(self._spark, _Bound(self, function), jobs, result)


class _Bound:
    """A pass of one run."""

    def __init__(self, run: Run, function: Callable[[Run, Any], Any]) -> None:
        self._run, self._function = run, function

    def __call__(self, job: Any) -> Any:
        return self._function(self._run, job)
