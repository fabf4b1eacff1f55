"""Why Spark or a report does not work here, in words for the user. Imports no Spark: it may be what is missing."""

from __future__ import annotations

from pathlib import Path

from isthmus.trace.schema import TraceError, printable


class SparkProblem(Exception):
    """Spark cannot be started or has given up: why, and what to do, in one line."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{reason}; {way_out}"))


def refuse_target(target: str | Path) -> None:
    """Say that a page cannot be written there before the seconds that making it takes."""
    path = Path(target)
    if path.is_dir():
        raise TraceError(path, "is a directory", "give a file for the report, such as report.html")
    if not path.absolute().parent.is_dir():
        raise TraceError(path, "its directory does not exist", "make it first, or choose another file")
