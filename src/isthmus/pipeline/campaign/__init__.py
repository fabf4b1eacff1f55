"""A campaign: thousands of simulated runs in one Spark job, each played and audited in the task that it was born in.

The job runs in a thread of its own, so that the thread that called can show how far it is and can stop it. What is
shown comes from an accumulator; what is returned comes from the job. See docs/design/campaign.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark import InheritableThread
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from isthmus.pipeline.campaign.task import Player, play_seeds
from isthmus.pipeline.ingest import SPARK_FAILURES, spark_reason
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.stores import use_settings_of
from isthmus.trace import stores
from isthmus.trace.account import Account
from isthmus.trace.places import Place, StoreProblem
from isthmus.trace.schema import TraceError
from isthmus.trace.stores import StoreSettings

SEEDS_PER_TASK = 8
"""About a second of work, beside some ten milliseconds that a task costs."""

MOST_TASKS = 20_000
"""Tasks are longer where there would be more: each costs the driver some memory."""

LOOK_EVERY = 0.2
"""Seconds between two looks at the progress."""


class Progress(Struct, frozen=True):
    """How far a campaign is."""

    runs: int = 0
    failing: tuple[int, ...] = ()
    """Seeds, in the order in which they were found."""
    problem: str = ""
    """Why a trace could not be written."""

    def plus(self, other: Progress) -> Progress:
        return Progress(self.runs + other.runs, self.failing + other.failing, self.problem or other.problem)


Watch: TypeAlias = Callable[[Progress], object]


def campaign(
    spark: SparkSession, seeds: range, player: Player, *, trace: Place | None = None, watch: Watch | None = None
) -> Account:
    """Play and audit all seeds, which count up by one. `watch` is told the progress a few times a second.

    With `trace`, rows are kept there as Parquet; the directory must be new or empty, and one that all workers see.
    Interrupting it cancels the job.
    """
    settings = use_settings_of(spark)
    directory = new_directory(trace) if trace is not None else None
    progress = spark.sparkContext.accumulator(Progress(), _Sum())
    job = _Job(spark, seeds, _task(player, directory, settings, progress))
    try:
        job.thread.start()
        while job.thread.is_alive():
            job.thread.join(LOOK_EVERY)
            if progress.value.problem:
                break
            if watch is not None:
                watch(progress.value)
    finally:
        job.end()
    if progress.value.problem:
        raise SparkProblem(progress.value.problem, "choose a directory that all workers can write to")
    return job.account()


class _Sum(AccumulatorParam[Progress]):
    def zero(self, value: Progress) -> Progress:
        return Progress()

    def addInPlace(self, value1: Progress, value2: Progress) -> Progress:  # noqa: N802 - Spark's name
        return value1.plus(value2)


def _task(
    player: Player, trace: Place | None, settings: StoreSettings, progress: Accumulator[Progress]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark carries to its workers."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use(settings)
        for batch in batches:
            seeds = batch.column(0).to_pylist()
            for start in range(0, len(seeds), SEEDS_PER_TASK):  # in a long task, rows of all its runs would be much
                try:
                    account = play_seeds(player, seeds[start : start + SEEDS_PER_TASK], trace)
                except (TraceError, StoreProblem) as error:
                    progress.add(Progress(problem=str(error).rpartition("; ")[0]))  # without its advice
                    return
                progress.add(Progress(account.runs, tuple(each.seed for each in account.failures)))
                yield pa.record_batch([pa.array([msgspec.json.encode(account)], pa.binary())], names=["account"])

    return task


def tasks_for(seeds: int, cores: int) -> int:
    """Into how many tasks a campaign is cut. Even a short one should keep all cores busy until its end."""
    per_task = max(1, min(SEEDS_PER_TASK, seeds // (8 * cores)))
    return min(-(-seeds // per_task), MOST_TASKS)


class _Job:
    """One Spark job in one thread, which can be cancelled without touching any other job of the session."""

    def __init__(self, spark: SparkSession, seeds: range, task: Any) -> None:
        self.spark = spark
        self.seeds = seeds
        self.task = task
        self.group = f"isthmus campaign {uuid4()}"
        self.thread = InheritableThread(target=self._run, daemon=True)
        self._rows: Sequence[Any] = ()
        self._error: Exception | None = None

    def _run(self) -> None:
        self.spark.sparkContext.setJobGroup(self.group, "isthmus campaign", interruptOnCancel=True)
        tasks = tasks_for(len(self.seeds), self.spark.sparkContext.defaultParallelism)
        seeds = self.spark.range(self.seeds.start, self.seeds.stop, 1, tasks)
        try:
            self._rows = seeds.mapInArrow(self.task, "account binary").collect()
        except Exception as error:
            self._error = error

    def end(self) -> None:
        """Cancel the job if it is still running, and wait until it is gone."""
        while self.thread.is_alive():  # again and again: what is not submitted yet cannot be cancelled
            self.spark.sparkContext.cancelJobGroup(self.group)
            self.thread.join(LOOK_EVERY)

    def account(self) -> Account:
        if isinstance(self._error, SPARK_FAILURES):
            raise SparkProblem(
                f"Spark gave up: {spark_reason(self._error)}", "see whether its workers have isthmus, and enough memory"
            ) from self._error
        if self._error is not None:
            raise self._error
        whole = Account()
        for row in self._rows:
            whole.add(msgspec.json.decode(row.account, type=Account))
        return whole


def new_directory(trace: Place) -> Place:
    """Rows of two campaigns in one directory would claim the same places."""
    try:
        trace.mkdir(parents=True, exist_ok=True)
        if any(trace.iterdir()):
            raise TraceError(trace, "is there already and not empty", "choose another directory for the traces")
    except OSError as error:
        raise TraceError(
            trace, f"cannot be written: {error.strerror or error}", "choose another directory for the traces"
        ) from error
    return trace.absolute()
