"""Measure: the figures of a trace, as Parquet tables for whoever goes on with them, and as plain values for a report.

    with measured(spark, table.rows(spark)) as tables:
        tables.write("figures")
        figures = tables.figures()

The tables are described in docs/design/report.md and defined in `measure_tables`; `measure_rows` has a class for the
rows of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.ingest import SPARK_FAILURES, spark_reason
from isthmus.pipeline.measure import tables as measure_tables
from isthmus.pipeline.measure.rows import (
    Figures,
    LatencyRow,
    LinkRow,
    PairRow,
    ProcessRow,
    RunRow,
    ThroughputRow,
    WaitRow,
)
from isthmus.pipeline.problems import in_words
from isthmus.pipeline.progress import Stage, tell
from isthmus.trace.places import Place, address_for_spark, place
from isthmus.trace.schema import TraceError

MOST_ROWS = 100_000
"""Of one table that are collected. Parquet has no such limit."""


_ROWS: dict[str, tuple[type[Struct], tuple[str, ...]]] = {
    "runs": (RunRow, ("run",)),
    "pairs": (PairRow, ("run", "origin_system", "system")),
    "latencies": (LatencyRow, ("run", "origin_system", "system", "bin")),
    "throughput": (ThroughputRow, ("run", "origin_system", "system", "slice")),
    "waits": (WaitRow, ("run", "system", "role", "awaited", "reason")),
    "links": (LinkRow, ("run", "from_system", "to_system", "link")),
    "processes": (ProcessRow, ("run", "system", "role", "process")),
}
"""Table to its class and its order."""


class Tables:
    """The tables of one trace. They are computed when they are asked for, from rows that stay in Spark."""

    def __init__(self, rows: DataFrame, messages: DataFrame, runs: DataFrame, bits_per_second: float | None) -> None:
        self.tables: dict[str, DataFrame] = {
            "runs": runs,
            "pairs": measure_tables.pairs(messages),
            "latencies": measure_tables.latencies(messages),
            "throughput": measure_tables.throughput(messages, runs),
            "waits": measure_tables.waits(messages),
            "links": measure_tables.links(rows, runs, bits_per_second),
            "processes": measure_tables.processes(rows),
            "messages": measure_tables.message_sizes(messages),
        }

    def figures(self, runs: Sequence[str] | None = None) -> Figures:
        """The figures of these runs, or of all, in a fixed order."""
        found = []
        for done, name in enumerate(_ROWS):
            tell(Stage("measuring", done, len(_ROWS)))
            found.append(self._collect(name, runs))
        return Figures(*found)  # type: ignore[arg-type]

    def _collect(self, name: str, runs: Sequence[str] | None) -> list[Struct]:
        kind, order = _ROWS[name]
        chosen = self.tables[name].select(*kind.__struct_fields__)
        if runs is not None:
            chosen = chosen.where(f.col("run").isin(*runs))
        found = chosen.limit(MOST_ROWS).collect()
        rows = [msgspec.convert(row.asDict(), kind) for row in found]
        return sorted(rows, key=lambda row: [_sortable(getattr(row, column)) for column in order])

    def write(self, directory: str | Place) -> list[str]:
        """Every table as a directory of Parquet files below this one, which must not hold any yet. Their names.

        From then on the tables are read from there, so nothing is computed twice.
        """
        target = place(directory).absolute()
        for done, (name, rows) in enumerate(list(self.tables.items())):
            tell(Stage("writing tables", done, len(self.tables)))
            if (target / name).exists():
                raise TraceError(target / name, "is there already", "choose another directory for the tables")
            where = address_for_spark(target / name)
            # In one or a few files: all but the messages are small.
            rows.coalesce(1 if name != "messages" else 8).write.parquet(where)
            self.tables[name] = rows.sparkSession.read.schema(rows.schema).parquet(where)
        return list(self.tables)


def _sortable(value: str | int | None) -> tuple[bool, str | int]:
    return (value is not None, "" if value is None else value)


@contextmanager
def measured(spark: SparkSession, rows: DataFrame, *, bits_per_second: float | None = None) -> Iterator[Tables]:
    """The tables over the clean rows of a trace. What they share is kept in Spark until the end of the block."""
    messages = measure_tables.by_message(rows).persist(StorageLevel.MEMORY_AND_DISK)
    runs = measure_tables.runs(rows).persist()
    try:
        yield Tables(rows, messages, runs, bits_per_second)
    except SPARK_FAILURES as error:
        raise in_words(error, spark_reason(error), "give it more memory, or a larger master") from error
    finally:
        messages.unpersist()
        runs.unpersist()
