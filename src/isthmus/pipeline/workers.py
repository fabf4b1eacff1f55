"""Who does the work: how many cores a session has, and whether its executors can run our code.

The first thing that is asked of a session. A cluster that gives no executors is found out here, in bounded time; so are
executors whose Python is another, or lacks a package. What they lack of isthmus itself is sent to them. It works by
jobs alone, so a session of Spark Connect is asked in the same way.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark import inheritable_thread_target
from pyspark.sql import functions as f

import isthmus
from isthmus.pipeline.artifact import code_of_isthmus
from isthmus.pipeline.failures import SPARK_FAILURES
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.session import WAIT, is_connect, patience_of, why_no_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("numpy", "pandas", "pyarrow", "msgspec")
"""What tasks import besides isthmus. They are compiled, so they cannot be sent."""

_OLDEST_PYTHON = (3, 11)
_MOST_PARTS = 1 << 12
_MOST_ASKED = 64
"""Tasks that look at their executor; more tell nothing new."""
_PYTHON_PATIENCE = 4
"""Times the patience with a cluster: the first Python of an executor may take long to start, and says if it fails."""

Result = TypeVar("Result")


class Found(NamedTuple):
    """What one task sees around it."""

    host: str
    python: str
    version: tuple[int, int]
    missing: tuple[str, ...]
    isthmus: str
    """The version that is installed; empty if none is."""


_known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_without: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at a time. The first time it makes sure that they will run, or raises a `SparkProblem`."""
    known = _known.get(spark)
    if known is None:
        patience = patience_of(spark)
        _in_time(spark, lambda: _parts(spark), patience, _no_executors)
        _prepare(spark, patience)
        known = _known[spark] = _parts(spark)  # after the first tasks more executors are there
    return known


def make_ready(spark: SparkSession) -> None:
    """Make sure, once per session, that executors have what they need to run our code, sources included."""
    cores_of(spark)


def takes_code(spark: SparkSession) -> bool:
    """Had executors of this session to be sent the code of isthmus?"""
    make_ready(spark)
    return _without.get(spark, False)


def _parts(spark: SparkSession) -> int:
    """Into how many parts Spark cuts data by itself: as many as cores, unless the user has set it."""
    part = spark.range(0, _MOST_PARTS).select(f.spark_partition_id().alias("part"))
    return 1 + int(part.agg(f.max("part")).collect()[0][0])


def _prepare(spark: SparkSession, patience: float) -> None:
    found = _look(spark, patience)
    for each in found:
        where = f"the Python of executors ({each.python}, on {each.host})"
        if each.version < _OLDEST_PYTHON:
            version = ".".join(map(str, each.version))
            raise SparkProblem(
                f"{where} is {version}, and isthmus needs 3.11 or newer", "set PYSPARK_PYTHON to a newer one there"
            )
        if each.missing:
            raise SparkProblem(
                f"{where} lacks {' and '.join(each.missing)}",
                "install isthmus[spark] there, or set PYSPARK_PYTHON to a Python that has it",
            )
    if any(each.isthmus != isthmus.__version__ for each in found):
        spark.addArtifacts(str(code_of_isthmus()), pyfile=True)
        _without[spark] = True
        for each in _look(spark, patience):
            if each.isthmus != isthmus.__version__:
                raise SparkProblem(
                    f"executors did not take the code of isthmus (on {each.host})", "install isthmus[spark] there"
                )


def _look(spark: SparkSession, patience: float) -> list[Found]:
    parts = min(_parts(spark), _MOST_ASKED)
    # Not by Arrow: that is one of the packages that may be missing.
    look = f.udf(_looker(PACKAGES), "string", useArrow=False)
    asked = spark.range(0, parts, 1, parts).select(look("id").alias("found"))
    rows = _in_time(spark, asked.collect, _PYTHON_PATIENCE * patience, _no_python)
    found = []
    for row in rows:
        host, python, version, missing, version_of_ours = json.loads(row.found)
        found.append(Found(host, python, (version[0], version[1]), tuple(missing), version_of_ours))
    return found


def _looker(packages: tuple[str, ...]) -> Callable[[int], str]:
    """A function that is carried as it is, not by the name of a module that may be missing where it arrives."""

    def look(part: int) -> str:
        import json
        import re
        import socket
        import sys
        from importlib.util import find_spec

        missing = [package for package in packages if find_spec(package) is None]
        version = ""
        ours: Any = find_spec("isthmus")
        if ours is not None:
            # Not imported: a worker that lives on would keep the one that it has.
            found = re.search('__version__ = "([^"]+)"', ours.loader.get_source("isthmus") or "")
            version = found[1] if found else "?"
        return json.dumps([socket.gethostname(), sys.executable, sys.version_info[:2], missing, version])

    return look


# Queries that can be stopped -----------------------------------------------------------------------------------------


@contextmanager
def stoppable(spark: SparkSession, tag: str) -> Iterator[None]:
    """Queries of this thread in this block can be stopped by that tag, from any thread.

    Both kinds of session have tags; those of a classic session are known only to the thread that gave them, so there
    it takes the tags of its context.
    """
    if is_connect(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context: Any = spark.sparkContext
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def stop(spark: SparkSession, tag: str) -> None:
    """Ask for the end of such queries, and do not wait for it: a cluster that is gone does not answer."""

    def ask() -> None:
        try:
            if is_connect(spark):
                spark.interruptTag(tag)
            else:
                spark.sparkContext.cancelJobsWithTag(tag)
        except Exception:
            pass  # it has ended, or does not hear

    threading.Thread(target=ask, daemon=True).start()


# In bounded time ------------------------------------------------------------------------------------------------------


def _in_time(
    spark: SparkSession,
    ask: Callable[[], Result],
    patience: float,
    explain: Callable[[SparkSession, str], SparkProblem],
) -> Result:
    """What `ask` finds. If it takes longer than that, or fails, the problem that `explain` makes of the reason."""
    tag = f"isthmus-{uuid4()}"
    found: list[Result] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            with stoppable(spark, tag):
                found.append(ask())
        except Exception as error:
            failed.append(error)

    # A daemon: a cluster may never answer, and nobody waits for it at the end of the process.
    asking = threading.Thread(target=inheritable_thread_target(spark)(run), daemon=True)
    asking.start()
    asking.join(patience)
    if found:
        return found[0]
    if failed and not isinstance(failed[0], SPARK_FAILURES):
        raise failed[0]
    if not failed:
        stop(spark, tag)
    raise explain(spark, str(failed[0]) if failed else f"nothing within {patience:g} s")


def _no_executors(spark: SparkSession, reason: str) -> SparkProblem:
    known = why_no_executors()
    text = f"Spark runs no task: {known or reason.partition(chr(10))[0]}"
    whose = "the log of its Connect server" if is_connect(spark) else "the logs of its master and workers"
    return SparkProblem(text, f"see {whose}; {WAIT} gives it more seconds")


def _no_python(spark: SparkSession, reason: str) -> SparkProblem:
    """Spark wraps what a Python worker says into stacks of Java and Python."""
    way_out = "set PYSPARK_PYTHON to a Python that executors have, of the version of this one, with isthmus[spark]"
    here = ".".join(map(str, sys.version_info[:2]))
    for pattern, words in (
        (
            r'Cannot run program "([^"]+)"[^\n]*?(No such file or directory|Permission denied)',
            "executors cannot run {}: {}",
        ),
        (r"PYTHON_VERSION_MISMATCH\].*?version: ([\d.]+)", f"the Python of executors is {{}}, and here it is {here}"),
        (r"No module named '([^']+)'", "the Python of executors lacks {}"),
    ):
        found = re.search(pattern, reason, re.DOTALL)
        if found:
            return SparkProblem(words.format(*found.groups()), way_out)
    return SparkProblem(f"Spark runs no Python: {reason.partition(chr(10))[0]}", way_out)
