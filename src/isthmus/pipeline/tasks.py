"""Work in tasks of Spark: a function is carried to jobs, and plain values come back. Rows stay in files.

Jobs and the function travel as Spark carries functions, so they may be anything, and with them the settings of stores;
what comes back is encoded by msgspec.
A task costs some ten milliseconds whatever it does, so small jobs share one. All tasks are one query of Spark, or where
somebody wants to know how far they are, several, one after the other: a query gives its answers when all of its tasks
are through, in every kind of session. The next one is under way before the last has ended, so that no core is idle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from isthmus.pipeline.progress import Stage, is_watched, tell
from isthmus.pipeline.stores import use_settings_of
from isthmus.pipeline.workers import cores_of, stop, stoppable
from isthmus.trace import stores

Job = TypeVar("Job")
Result = TypeVar("Result")

TASKS_PER_CORE = 4
TASKS_PER_CORE_WATCHED = 16
LOOK_EVERY = 0.2
"""Seconds between two looks at the progress."""
AT_A_TIME = 2
"""Queries under way: while the last tasks of one run, those of the next fill the other cores."""
_TO_END = 10.0
"""Seconds that queries have to end when they are cancelled. A cluster that is gone does not hear of it."""


class Arrived(NamedTuple):
    """The answers of some jobs that follow each other, in their order."""

    first: int
    answers: list[Any]


def in_tasks(
    spark: SparkSession,
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    result: type[Result],
    *,
    stage: str = "working",
    rows: Sequence[int] | None = None,
) -> list[Result]:
    """What the function gives for each job, in their order. `result` is the type of what it gives.

    Whoever watches is told `stage`, and how many of the `rows` of the jobs are done.
    """
    count = len(jobs)
    if not count:
        return []
    whole = sum(rows or ())
    cores = cores_of(spark)
    if is_watched():
        tasks = min(count, TASKS_PER_CORE_WATCHED * cores)
        per_query = cores
    else:
        tasks = per_query = min(count, TASKS_PER_CORE * cores)
    tell(Stage(stage, 0, count, 0, whole))
    answers: list[Any] = [None] * count
    done = rows_done = 0
    for first, some in arrivals(spark, function, jobs, result, tasks, per_query):
        answers[first : first + len(some)] = some
        done += len(some)
        rows_done += sum(rows[first : first + len(some)]) if rows is not None else 0
        tell(Stage(stage, done, count, rows_done, whole))
    return answers


def arrivals(
    spark: SparkSession,
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    result: type[Result],
    tasks: int,
    per_query: int,
    look: Callable[[], object] = lambda: None,
) -> Iterator[Arrived]:
    """The answers as they come, in any order of queries. `look` is called several times a second, in this thread.

    Whatever ends it early, in here or by its caller, also cancels what is under way.
    """
    count = len(jobs)
    settings = use_settings_of(spark)

    def share(part: int) -> range:
        """Neighbours go together: they may share files."""
        return range(part * count // tasks, (part + 1) * count // tasks)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use(settings)
        for batch in batches:
            for number in (each for part in batch.column(0).to_pylist() for each in share(part)):
                answer = msgspec.msgpack.encode(function(jobs[number]), enc_hook=_plain)
                yield pa.record_batch([pa.array([number]), pa.array([answer], pa.large_binary())], ["job", "answer"])

    tag = f"isthmus-{uuid4()}"

    def query(parts: range) -> Arrived:
        with stoppable(spark, tag):
            asked = spark.range(parts.start, parts.stop, 1, len(parts)).mapInArrow(task, "job bigint, answer binary")
            answers = {row.job: msgspec.msgpack.decode(row.answer, type=result) for row in asked.collect()}
        first = share(parts.start).start
        return Arrived(first, [answers[first + each] for each in range(len(answers))])

    # What the caller has set for its thread, such as a pool of the scheduler, holds for these too.
    in_its_name = inheritable_thread_target(spark)(query)
    waiting = iter(range(start, min(start + per_query, tasks)) for start in range(0, tasks, per_query))
    under_way: set[Future[Arrived]] = set()
    try:
        while True:
            while len(under_way) < AT_A_TIME and (parts := next(waiting, None)) is not None:
                under_way.add(_started(in_its_name, parts))
            if not under_way:
                return
            ended, under_way = wait(under_way, LOOK_EVERY, FIRST_COMPLETED)
            look()
            for each in ended:
                yield each.result()
    finally:
        _cancel(spark, tag, under_way)


def _started(query: Callable[[range], Arrived], parts: range) -> Future[Arrived]:
    """In a thread that nobody waits for at the end of the process: a cluster may never answer."""
    answer: Future[Arrived] = Future()

    def run() -> None:
        try:
            answer.set_result(query(parts))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


def _cancel(spark: SparkSession, tag: str, under_way: set[Future[Arrived]]) -> None:
    until = time.monotonic() + _TO_END
    while under_way and time.monotonic() < until:  # again and again: what is not submitted yet cannot be cancelled
        stop(spark, tag)
        under_way = wait(under_way, LOOK_EVERY).not_done


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item()
