"""A run that is too large for one task: the same passes, each job in a task of Spark, with files in between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import SparkSession

from isthmus.pipeline.engine.logs import Block
from isthmus.pipeline.engine.run import Run
from isthmus.pipeline.engine.store import InFiles, InStore, Store
from isthmus.pipeline.failures import SPARK_FAILURES
from isthmus.pipeline.ingest.table import TableRows
from isthmus.pipeline.tasks import in_tasks
from isthmus.trace.places import Place, remove_tree

Job = TypeVar("Job")
Result = TypeVar("Result")

_IN_WORDS = {
    "walk": "logs",
    "look_with": "processes",
    "close": "past of messages",
    "judge_closed": "processes by the past of messages",
    "compare": "pairs of processes",
    "describe_chains": "chains of causes",
    "describe_difference": "witnesses",
    "describe_stays": "witnesses",
    "may_differ": "logs that are not complete",
}
"""What whoever watches is told of a pass. The others prepare messages."""
_FORGETTING = 32
"""Tasks that remove copies of arrays; every machine of a small cluster has one."""


class SpreadRun(Run):
    def __init__(self, spark: SparkSession, name: str, blocks: Sequence[Block], rows: TableRows, store: Store) -> None:
        self._spark: SparkSession | None = spark
        super().__init__(name, blocks, rows, store)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to tasks."""
        return self.__dict__ | {"_spark": None}

    def each(self, function: Callable[[Run, Job], Result], jobs: Sequence[Job], result: type[Result]) -> list[Result]:
        assert self._spark is not None, "a task starts no tasks"
        stage = f"judging: {_IN_WORDS.get(function.__name__, 'messages')}"
        return in_tasks(self._spark, _Bound(self, function), jobs, result, stage=stage)


@contextmanager
def store_beside(spark: SparkSession, directory: Place) -> Iterator[Store]:
    """Where tasks leave arrays for each other below a directory that all of them see; gone at the end of the block."""
    if isinstance(directory, Path):
        with tempfile.TemporaryDirectory(prefix=".audit-", dir=directory) as scratch:
            yield InFiles(Path(scratch))
        return
    store = InStore(directory / f".audit-{uuid4().hex}")
    try:
        yield store
    finally:
        remove_tree(store.address)
        store.forget()
        with suppress(*SPARK_FAILURES):  # workers that do not hear of it lose their copies with the session
            in_tasks(spark, lambda _: store.forget(), range(_FORGETTING), type(None), stage="cleaning up")


class _Bound:
    """A pass of one run."""

    def __init__(self, run: Run, function: Callable[[Run, Any], Any]) -> None:
        self._run, self._function = run, function

    def __call__(self, job: Any) -> Any:
        return self._function(self._run, job)
