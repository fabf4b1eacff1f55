"""An audit as a query, for rows with the columns of a trace.

    SELECT * FROM isthmus_audit(TABLE(trace) PARTITION BY run)

`PARTITION BY run` brings all rows of a run to one task, where the run is judged by the engine in memory, with the words
and rules of any audit. So it is for runs that fit a task; `isthmus.audit` knows no such limit. Rows come as Arrow
batches and not one by one; functions of that kind cannot ask Spark for their partitions themselves (Spark 4.3), so the
query has to. One that does not is refused where a task meets two runs; where it meets part of one, the gaps make
verdicts unknown.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from isthmus.pipeline.engine.judges import judges_of
from isthmus.pipeline.engine.run import Run
from isthmus.pipeline.engine.store import InMemory
from isthmus.pipeline.ingest import write_blocks
from isthmus.pipeline.ingest.blocks import BLOCK_ROWS
from isthmus.pipeline.ingest.files import examine
from isthmus.pipeline.ingest.table import TableRows
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.properties import audited_properties, violation
from isthmus.trace.schema import COLUMNS, TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "isthmus_audit"
MOST_ROWS = 5_000_000
"""Of one run, about 1 GB in a task."""

_text, _count = StringType(), LongType()
_WITNESS = StructType(
    [
        StructField("process", _text),
        StructField("first", _text),
        StructField("second", _text),
        StructField("why", _text),
        StructField("chain", ArrayType(_text)),
    ]
)
AUDITED = StructType(
    [
        StructField("run", _text),
        StructField("property", _text),
        StructField("verdict", _text),
        StructField("checked", _count),
        StructField("violations", _count),
        StructField("quarantined", _count),
        StructField("witnesses", ArrayType(_WITNESS)),
    ]
)
"""Of what the function gives. `quarantined` counts the rows of the run that do not count."""


def register(spark: SparkSession) -> None:
    """Make `isthmus_audit` known to a session. Doing it again does no harm."""
    function: Any = arrow_udtf(AuditFunction, returnType=AUDITED)
    spark.udtf.register(NAME, function)


class AuditFunction:
    """One run, in a task."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._rows = 0
        self._runs: set[str | None] = set()

    def eval(self, rows: Any) -> Iterator[Any]:
        if not isinstance(rows, pa.RecordBatch):
            raise TraceError(NAME, "it audits a table", f"write {NAME}(TABLE(…) PARTITION BY run)")
        there = rows.schema.names
        missing = [each.name for each in TRACE_COLUMNS if not each.nullable and each.name not in there]
        if missing:
            raise TraceError(NAME, f"the table has no column `{missing[0]}`", "select the columns of a trace")
        part = pa.table({name: rows.column(name) for name in COLUMNS if name in there})
        self._runs |= set(pc.unique(part.column("run")).to_pylist())
        if len(self._runs) > 1:
            raise TraceError(NAME, "a task was given several runs", f"write {NAME}(TABLE(…) PARTITION BY run)")
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > MOST_ROWS:
            reason = f"a run has more than {MOST_ROWS:,} rows, and {NAME} judges a run in one task"
            raise TraceError(NAME, reason, "use isthmus.audit")
        return iter(())

    def terminate(self) -> Iterator[Any]:
        if self._parts:
            with tempfile.TemporaryDirectory(prefix="isthmus-sql-") as scratch:
                yield from _judged(pa.concat_tables(self._parts), Path(scratch))


def _judged(rows: Any, scratch: Path) -> Iterator[Any]:
    """The verdicts on one run. Rows without a run are nobody's, and have no verdict."""
    pq.write_table(rows, scratch / "run.parquet")
    made = write_blocks(_one_by_one, examine([scratch / "run.parquet"]), scratch, BLOCK_ROWS)
    blocks = [part.block for part in made.parts]
    if not blocks:
        return
    run = blocks[0].run
    found = Run(run, blocks, TableRows(scratch), InMemory()).judge(judges_of(audited_properties(())))
    told = [
        {
            "run": run, "property": each.judged, "verdict": each.verdict, "checked": int(each.checked),
            "violations": int(each.violations), "quarantined": made.bad_rows + len(made.bad_files),
            "witnesses": [_witness(violation(run, each.judged, one.mistake)) for one in each.described],
        }
        for each in found
    ]  # fmt: skip
    yield pa.Table.from_pylist(told, schema=_arrow())


def _witness(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in _WITNESS.names} | {"chain": list(found.chain)}


def _arrow() -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(AUDITED)


def _one_by_one(function: Any, jobs: Any, kind: Any, stage: str) -> list[Any]:
    return [function(job) for job in jobs]
