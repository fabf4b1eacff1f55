"""What keeps Spark from working here, in words for the user. Imports no Spark, because Spark may be what is missing."""

from __future__ import annotations

from isthmus.trace.schema import printable


class SparkProblem(Exception):
    """Spark cannot be started or has given up: why, and what to do, in one line."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{reason}; {way_out}"))
