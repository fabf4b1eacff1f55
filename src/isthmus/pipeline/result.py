"""Results as DataFrames, `isthmus.audit` and `isthmus.measure`. docs/pipeline-api.md lists what is public.

Verdicts and violations are few and come from the driver; rows, witnesses, the quarantine and all figures are read from
the table of the clean rows when somebody looks at them, so this table has to live as long as they are looked at: a
directory of the caller's (`table`), or one that is removed by `close` or at the end of the Python process.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from isthmus.pipeline.audit import audit as audit_table
from isthmus.pipeline.columns import spark_schema
from isthmus.pipeline.ingest import TraceTable, ingest, open_table, table_named
from isthmus.pipeline.mapping import Mapped, Traces, model
from isthmus.pipeline.mapping.rows import Given
from isthmus.pipeline.measure import Tables, measured
from isthmus.pipeline.measure.rows import Figures
from isthmus.pipeline.places import room_for_a_table
from isthmus.pipeline.report import clean_table
from isthmus.pipeline.report.picture import Drawing, picture, plot
from isthmus.pipeline.report.witness import witnesses
from isthmus.pipeline.stores import use_settings_of
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.places import Address, Place
from isthmus.trace.properties import expected_properties
from isthmus.trace.schema import Report, TraceError

AnyMapping: TypeAlias = "str | Path | Mapping[str, Any] | model.Mapping"


def _schema(**columns: str) -> StructType:
    types = {"string": StringType(), "bigint": LongType(), "array<string>": ArrayType(StringType(), False)}
    fields = {name: kind.removesuffix("?") for name, kind in columns.items()}
    return StructType([StructField(name, types[kind], columns[name].endswith("?")) for name, kind in fields.items()])


VERDICTS = _schema(run="string", property="string", verdict="string", checked="bigint", violations="bigint")
VIOLATIONS = _schema(
    number="bigint", run="string", property="string", process="string", first="string", second="string?", why="string",
    chain="array<string>",
)  # fmt: skip
WITNESSES = StructType([*_schema(number="bigint?", property="string?"), *spark_schema(TRACE_COLUMNS)])
QUARANTINE = _schema(file="string?", line="bigint?", reason="string?")

_EVERYWHERE = ("total", "same-view")
"""Properties that compare processes: deliveries at all of them are witnesses."""


class Result:
    """DataFrames over a table that may be nobody's: it is there until `close`, or the end of a `with` block."""

    _room: ExitStack | None = None

    def close(self) -> None:
        """Remove the table, if nobody asked for it. The DataFrames over it cannot be read any more."""
        if self._room is not None:
            self._room.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def holding(self, room: ExitStack) -> Self:
        """The same result, whose table is in room that nobody else keeps."""
        self._room = room
        atexit.register(room.close)
        return self


class AuditResult(Result):
    """What an audit found. `report` is what the command line prints; the DataFrames say the same and more."""

    def __init__(self, spark: SparkSession, table: TraceTable, report: Report, expected: Sequence[str]) -> None:
        self.report = report
        self.expected = tuple(expected)
        self._spark, self._table = spark, table

    @property
    def holds(self) -> bool:
        """Nothing that is expected is violated. It may be unknown."""
        return not any(each.property in self.expected for each in self.report.violated)

    @property
    def verdicts(self) -> DataFrame:
        """One row for each run and property."""
        rows = [msgspec.structs.astuple(each) for each in self.report.verdicts]
        return self._spark.createDataFrame(rows, VERDICTS)

    @property
    def violations(self) -> DataFrame:
        """Violations that are described: up to ten of each run and property, and a thousand in all."""
        rows = [
            (number, *msgspec.structs.astuple(each)[:-1], list(each.chain))
            for number, each in enumerate(self.report.violations, 1)
        ]
        return self._spark.createDataFrame(rows, VIOLATIONS)

    @property
    def witnesses(self) -> DataFrame:
        """The rows of the trace that show each violation: its messages sent, and delivered where it matters."""
        told = self.violations
        messages = f.when(f.size("chain") > 0, f.col("chain")).otherwise(f.array_compact(f.array("first", "second")))
        told = told.select(
            "number", "property", f.col("run").alias("v_run"), f.col("process").alias("v_process"),
            f.transform(messages, lambda each: f.regexp_replace(each, "/[0-9]+$", "")).alias("v_senders"),
            f.explode(f.array_distinct(messages)).alias("v_message"),
        )  # fmt: skip
        rows = self.rows
        name = f.concat_ws("/", "system", "process")
        message = f.concat_ws("/", "origin_system", "origin_process", "origin_seq")
        matters = (name == f.col("v_process")) | f.array_contains("v_senders", name)
        matters |= f.col("property").isin(*_EVERYWHERE)
        shown = (f.col("event") == "send") | ((f.col("event") == "deliver") & matters)
        joined = rows.join(
            f.broadcast(told), (f.col("run") == f.col("v_run")) & (message == f.col("v_message")) & shown
        )
        return joined.select(*WITNESSES.names)

    @property
    def rows(self) -> DataFrame:
        """All rows that count, with the columns of a trace."""
        return self._table.rows(self._spark)

    @property
    def quarantine(self) -> DataFrame:
        """What does not count, and why."""
        return self._table.quarantine(self._spark)

    def picture(self, number: int) -> Drawing:
        """The diagram of the violation of this number: who sent and delivered its messages, and when."""
        if not 0 < number <= len(self.report.violations):
            there = f"there are {len(self.report.violations):,}, from 1 on"
            raise TraceError(f"violation {number}", "no such violation", there)
        [found] = witnesses(self.rows, [self.report.violations[number - 1]])
        return picture(found)


class MeasureResult(Result):
    """The figures of traces, as tables that are computed when they are looked at. What they mean: the report's page."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        names = ("runs", "pairs", "latencies", "throughput", "waits", "links", "processes", "messages")
        found = (tables.tables[name] for name in names)
        self.runs, self.pairs, self.latencies, self.throughput, *rest = found
        self.waits, self.links, self.processes, self.messages = rest

    @property
    def figures(self) -> Figures:
        """All but the single messages as plain values: what the command line prints."""
        return self._tables.figures()

    def plot(self, what: str = "latency") -> Drawing:
        """A plot of `latency` or of `throughput`, of a trace with one run."""
        return plot(self.figures, what)

    def write(self, directory: str | Place) -> None:
        """Write every table as Parquet below this directory, which must not hold any yet."""
        self._tables.write(directory)


def audit(
    spark: SparkSession,
    data: DataFrame | str | Place | Sequence[str | Place] | Given,
    *,
    mapping: AnyMapping | None = None,
    expect: Iterable[str] | None = None,
    table: str | Place | None = None,
    append: bool = False,
    run: str | None = None,
) -> AuditResult:
    """Audit traces, or any tables with a mapping: which properties every run keeps, and witnesses where it does not.

    `data` is a DataFrame, a path, several paths, or, for a mapping with several inputs, a dict of these by name. A
    DataFrame without `mapping` has the columns of a trace. `expect` names what has to hold; what is always judged is
    judged all the same. `table` keeps the clean rows and the quarantine in that directory; with `append`, `data` is
    added to the table that is there, and all of it is audited. `run` is the name of the only run to audit.
    """
    expected = tuple(expected_properties(None) if expect is None else expected_properties(",".join(expect)))
    return audit_given(spark, given(data, mapping), expected=expected, table=table, append=append, run=run)


def measure(
    spark: SparkSession,
    data: DataFrame | str | Place | Sequence[str | Place] | Given,
    *,
    mapping: AnyMapping | None = None,
    link_rate: float | None = None,
    run: str | None = None,
) -> MeasureResult:
    """Measure traces, or any tables with a mapping: latency, throughput, hold-back, links, overhead, processes.

    `data`, `mapping` and `run` are those of `audit`; a table that an audit has kept is read as it is. `link_rate` is
    what each link can carry, in bits per second, for utilisation.
    """
    with ExitStack() as room:
        table = room.enter_context(clean_table(spark, given(data, mapping), run))
        tables = room.enter_context(measured(spark, table.rows(spark), bits_per_second=link_rate))
        return MeasureResult(tables).holding(room.pop_all())


def audit_given(
    spark: SparkSession,
    traces: Traces,
    *,
    expected: Sequence[str],
    table: str | Place | None = None,
    append: bool = False,
    run: str | None = None,
) -> AuditResult:
    """Audit traces, one table that was made of them before, or tables with a mapping.

    With `run`, only the run of that name, and the rows of no other are read out of the table.
    """
    use_settings_of(spark)
    named = table_named(traces)
    if named is not None:
        made = open_table(named).only(run)
        return AuditResult(spark, made, audit_table(spark, made, expected=expected), expected)
    if table is not None:
        made = ingest(spark, traces, table, append=append).only(run)
        return AuditResult(spark, made, audit_table(spark, made, expected=expected), expected)
    with ExitStack() as room:
        made = ingest(spark, traces, room.enter_context(room_for_a_table(spark))).only(run)
        result = AuditResult(spark, made, audit_table(spark, made, expected=expected), expected)
        return result.holding(room.pop_all())


def given(data: DataFrame | str | Place | Sequence[str | Place] | Given, mapping: AnyMapping | None) -> Traces:
    """What the pipeline reads, out of what somebody gives."""
    if mapping is None:
        if isinstance(data, Mapping):
            raise TraceError("mapping", "several tables by name need one", "say what their columns mean")
        if isinstance(data, DataFrame):
            return Mapped(model.identity(data.columns, "the DataFrame"), {"": data})
        return [data] if isinstance(data, str | Path | Address) else list(data)
    known = mapping_of(mapping)
    if isinstance(data, Mapping):
        return Mapped(known, _checked_names(known, data))
    if len(known.names) > 1:
        way_out = f"give a dict with {', '.join(map(repr, known.names))}"
        raise TraceError(known.label, f"it has {len(known.names)} inputs, and one table is given", way_out)
    return Mapped(known, {known.names[0]: data})


def mapping_of(mapping: AnyMapping) -> model.Mapping:
    """A mapping out of a file, a template's name, or the same keys as a dict."""
    if isinstance(mapping, model.Mapping):
        return model.checked(mapping)
    if isinstance(mapping, Mapping):
        try:
            return model.checked(msgspec.convert(dict(mapping), model.Mapping))
        except msgspec.ValidationError as error:
            raise TraceError("mapping", f"not a mapping: {error}", model.WAY_OUT) from None
    return model.load_mapping(mapping)


def _checked_names(mapping: model.Mapping, tables: Given) -> Given:
    unknown = [name for name in tables if name not in mapping.names]
    if unknown:
        there = ", ".join(name or "one without a name" for name in mapping.names)
        raise TraceError(mapping.label, f"it has no input `{unknown[0]}`", f"there is {there}")
    return tables
