"""Why Spark or a report does not work here, in words for the user. Imports no Spark: it may be what is missing."""

from __future__ import annotations

from pathlib import Path

from isthmus.trace.files import local_path
from isthmus.trace.places import Place, place
from isthmus.trace.schema import TraceError, printable


class SparkProblem(Exception):
    """Spark cannot be started or has given up: why, and what to do, in one line."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{reason}; {way_out}"))


TABLE_MARK = "table.json"
"""The file by which a table that `ingest` has written is known."""


def is_table(path: str | Place) -> bool:
    return (place(path) / TABLE_MARK).is_file()


def refuse_target(target: str | Path, example: str = "report.html") -> None:
    """Say that a file cannot be written there before the seconds that its contents take."""
    path = local_path(target)
    if path.is_dir():
        raise TraceError(path, "is a directory", f"give a file, such as {example}")
    if not path.absolute().parent.is_dir():
        raise TraceError(path, "its directory does not exist", "make it first, or choose another file")
