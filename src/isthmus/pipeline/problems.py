"""Why Spark or a report does not work here, in words for the user. Imports no Spark: it may be what is missing."""

from __future__ import annotations

import re
from pathlib import Path

from isthmus.trace.places import Place, StoreProblem, place
from isthmus.trace.schema import TraceError, printable


class SparkProblem(Exception):
    """Spark cannot be started or has given up: why, and what to do, in one line."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{reason}; {way_out}"))


TABLE_MARK = "table.json"
"""The file by which a table that `ingest` has written is known."""


def is_table(path: str | Place) -> bool:
    return (place(path) / TABLE_MARK).is_file()


def in_words(error: BaseException, reason: str, way_out: str) -> Exception:
    """What to tell of a failure of Spark, for which it has a `reason`. What a task of ours raised is told as it is."""
    said = str(error)
    ours = _OURS.search(said)
    if ours is not None:
        where, _, rest = ours[2].partition(": ")
        why, _, advice = rest.rpartition("; ")
        return (TraceError if ours[1] == "TraceError" else StoreProblem)(where, why, advice)
    if "S3AFileSystem not found" in said or "No FileSystem for scheme" in said:
        return SparkProblem(
            "Spark itself cannot read or write at this kind of address: it lacks a package",
            "for s3a, start it with spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, of its version of Hadoop",
        )
    return SparkProblem(f"Spark gave up: {reason}", way_out)


_OURS = re.compile(r"(TraceError|StoreProblem): ([^\n]+)")


def refuse_target(target: str | Place, example: str = "report.html") -> None:
    """Say that a file cannot be written there before the seconds that its contents take."""
    path = place(target)
    if path.is_dir():
        raise TraceError(path, "is a directory", f"give a file, such as {example}")
    if isinstance(path, Path) and not path.absolute().parent.is_dir():
        raise TraceError(path, "its directory does not exist", "make it first, or choose another file")
