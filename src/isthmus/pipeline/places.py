"""Places that all workers of a session see, and room for tables that nobody keeps.

A driver finds the files and tasks read them, on other machines perhaps. A path of the driver that a worker does not see
would be a trace that cannot be read there, and a table there would be in as many pieces as there are machines. So where
workers may be elsewhere, a few tasks look first, and one line says what they do not see. That takes one small job.

The looking cannot be perfect: a worker that joins later is not asked, and a path that is there on every machine with
other contents is not noticed. Whoever has a cluster should use addresses.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.tasks import in_tasks
from isthmus.trace.places import Place, StoreProblem, place, remove_tree
from isthmus.trace.schema import TraceError

SCRATCH = "spark.isthmus.scratch"
"""The setting of a session that says below which place tables go that nobody keeps; without it, temporary files."""

_LOOKS = 32
"""Tasks that look, at most: enough that every core of a small cluster has one, and few for a large one."""
_SOME = 8
"""Files of a trace that are looked at."""
_WAY_OUT = "give a place that all workers see, such as s3a://BUCKET/PATH"


def shares_the_disk(spark: SparkSession) -> bool:
    """Whether tasks surely see what this process sees: they run on this machine, as the same user."""
    is_connect = getattr(spark, "_jsc", None) is None
    return not is_connect and re.fullmatch(r"local(\[.*\])?", spark.conf.get("spark.master", "") or "") is not None


def require_readable(spark: SparkSession, files: Sequence[str | Place]) -> None:
    """Refuse in one line what is there for the driver and not for the workers."""
    if shares_the_disk(spark):
        return
    looked_at = [str(each) for each in (*files[: _SOME // 2], *files[len(files) // 2 :][-_SOME // 2 :])]
    unseen = _first_answer(spark, looked_at, _unreadable)
    if unseen:
        raise TraceError(unseen, "is there for the driver, but workers of Spark cannot read it", _WAY_OUT)


def require_writable(spark: SparkSession, directory: Place, what: str, way_out: str = _WAY_OUT) -> None:
    """Refuse in one line a directory where workers cannot write what others read. It is made where that is needed."""
    if not isinstance(directory, Path):
        # Keys and bucket are those of all workers, and nobody should hear of a wrong one after minutes of work.
        probe = directory / f".isthmus-{uuid4().hex}"
        probe.write_bytes(b"")
        probe.unlink()
        return
    if shares_the_disk(spark):
        return
    mark = directory / f".isthmus-{uuid4().hex}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise TraceError(directory, f"cannot be written: {error.strerror or error}", "choose another") from error
    try:
        if _first_answer(spark, [str(mark)], _unwritable):
            raise SparkProblem(f"{directory}: workers of Spark cannot write {what} there", way_out)
    finally:
        for left in directory.glob(f"{mark.name}*"):
            left.unlink(missing_ok=True)


def _first_answer(spark: SparkSession, names: Sequence[str], look: object) -> str:
    def task(_: int) -> str:
        return next((name for name in names if look(name)), "")  # type: ignore[operator]

    return next(filter(None, in_tasks(spark, task, range(_LOOKS), str, stage="asking workers")), "")


def _unreadable(name: str) -> bool:
    where = place(name)
    try:
        return not (os.access(where, os.R_OK) if isinstance(where, Path) else where.exists())
    except OSError:
        return True


def _unwritable(mark: str) -> bool:
    """A directory of the same name is not the same directory; one that holds the mark is."""
    try:
        beside = Path(f"{mark}-{uuid4().hex}")
        beside.touch()
        there = Path(mark).exists()
        beside.unlink()
        return not there
    except OSError:
        return True


def use_scratch(spark: SparkSession, scratch: str | Place | None) -> None:
    """Tell a session where tables go that nobody keeps, if anybody says it."""
    if scratch is not None:
        spark.conf.set(SCRATCH, str(place(scratch).absolute()))


@contextmanager
def room_for_a_table(spark: SparkSession) -> Iterator[Place]:
    """Where a table can be that nobody keeps. It is gone at the end of the block."""
    given = spark.conf.get(SCRATCH, None)
    if given:
        room = place(given).absolute() / f"isthmus-{uuid4().hex}"
        try:
            yield room
        finally:
            try:
                remove_tree(room)
            except StoreProblem:
                pass  # the store went away, which is said already
        return
    with tempfile.TemporaryDirectory(prefix="isthmus-table-", ignore_cleanup_errors=True) as directory:
        require_writable(
            spark,
            Path(directory),
            "the table of the trace",
            f"keep it with --keep, or give --scratch ({SCRATCH}) a place that all workers see, such as s3a://BUCKET/PATH",
        )
        yield Path(directory, "table")
