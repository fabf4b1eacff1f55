"""Rows of anybody's tables as rows of a trace, computed by Spark's SQL and written as Parquet for `ingest`.

No row passes through Python here, but for lines of text. Where a mapping says `order`, the place of a row is its
dense rank among the rows of its process: rows that tie share a place, where `ingest` takes equal rows for one row and
puts different ones aside. Places count from 1; place 0 is a `start` row that is added to each log about which there is
no doubt, so that a row that was lost without a place leaves a gap in every log that it may have belonged to.

Bad rows stay among the others, with their reason and the row itself in one more column; they take a place like any
other, and so leave a gap there. See docs/design/mapping.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from isthmus.pipeline.columns import spark_schema
from isthmus.pipeline.failures import SPARK_FAILURES
from isthmus.pipeline.mapping import model
from isthmus.pipeline.mapping.lines import text_lines
from isthmus.pipeline.mapping.model import IGNORE, ORIGIN, REASON, Input
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.places import Address, Place, address_for_spark
from isthmus.trace.schema import (
    COLUMNS,
    EVENTS,
    LAST_EVENTS,
    SLASH_IN_SYSTEM,
    WITH_A_MESSAGE,
    WITHOUT_A_MESSAGE,
    TraceError,
    printable,
)

Given: TypeAlias = Mapping[str, "DataFrame | str | Place | Sequence[str | Place]"]
"""Name of an input to what is read for it."""

NOBODY = "?"
"""System and process of the sender of a message that nobody sent."""

LOG = ("run", "system", "process")
_ORDER, _MESSAGE, _COMPLETE, _PLACED = (f"isthmus_{each}" for each in ("order", "message", "complete", "placed"))
_SHOWN = 160
"""Characters of a row that are quoted where it is put aside."""

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}
_SCHEMA = spark_schema(TRACE_COLUMNS)


class Reading(NamedTuple):
    """One input with its table."""

    place: str
    input: Input
    frame: DataFrame


def write_pieces(spark: SparkSession, mapping: model.Mapping, given: Given, directory: str) -> None:
    """Write all inputs as rows of one trace, and then the rows that begin and end its logs.

    Where messages have ids, rows are written before senders are looked up: what computes them would run three times.
    """
    rows = _mapped_rows(spark, mapping, given)
    if mapping.by_message:
        rows = _with_senders(_written(spark, rows, f"{directory}-by-message"))
    written = _written(spark, rows.drop(_MESSAGE), f"{directory}/rows")
    added = _beginnings_and_ends(written, mapping)
    reduce(DataFrame.unionByName, added).write.parquet(f"{directory}/ends")


def _written(spark: SparkSession, rows: DataFrame, path: str) -> DataFrame:
    """The same rows, computed once. Their schema is known; looking for it in the files would be a job."""
    rows.write.parquet(path)
    return spark.read.schema(rows.schema).parquet(path)


def _mapped_rows(spark: SparkSession, mapping: model.Mapping, given: Given) -> DataFrame:
    """All inputs: sound rows, and bad ones with their reason. Nothing is read yet."""
    mapped: dict[str, list[DataFrame]] = {}
    for number, one in enumerate(mapping.inputs, 1):
        place = f"{mapping.label}, input {one.name or number}"
        reading = Reading(place, one, _opened(spark, place, one, given))
        rows = _mapped(reading, mapping.is_complete(one))
        # Orders of one type are one order, also between inputs: a process may be told of by several.
        mapped.setdefault(rows.schema[_ORDER].dataType.simpleString(), []).append(rows)
    ranked = [_placed(reduce(DataFrame.unionByName, alike), mapping.numbered) for alike in mapped.values()]
    return reduce(DataFrame.unionByName, ranked)


def words_of(spark: SparkSession, directory: str) -> str:
    """Which events the rows that count are, for whoever wonders why none is a delivery."""
    rows = spark.read.parquet(f"{directory}/rows").where(f.col(REASON).isNull())
    found = rows.groupBy("event").count().orderBy(f.desc("count"), "event").limit(5).collect()
    return ", ".join(f"{each[1]:,} '{each[0]}'" for each in found) or "none that count"


# Tables ---------------------------------------------------------------------------------------------------------------


def _opened(spark: SparkSession, place: str, one: Input, given: Given) -> DataFrame:
    source = given.get(one.name) or one.source
    if isinstance(source, str | Path | Address):
        sources = [str(source)] if str(source) else []
    elif isinstance(source, Sequence):
        sources = list(map(str, source))
    else:
        if one.pattern:
            raise TraceError(place, "its pattern is for text logs, and it is given a DataFrame", "give a path")
        return source
    if not sources:
        option = f"--table {one.name}=…" if one.name else "--table"
        raise TraceError(place, "nothing says which table it is", f"give {option}, or `from` in the mapping")
    try:
        return _read(spark, sources, one)
    except SPARK_FAILURES as error:
        reason = f"Spark cannot read {', '.join(sources)}: {said(error)}"
        raise TraceError(place, reason, "check the name, and `format` and `options` in the mapping") from error


def _read(spark: SparkSession, sources: list[str], one: Input) -> DataFrame:
    if one.pattern:
        return text_lines(spark, list(map(_absolute, sources)), one)
    kind = one.format or _FORMATS.get(Path(sources[0]).suffix, "")
    is_path = bool(kind) or any("/" in each or Path(each).exists() for each in sources)
    if not is_path and len(sources) == 1:
        return spark.table(sources[0])
    options: dict[str, Any] = dict(one.options)
    paths = list(map(_absolute, sources))
    # Delta and others take one path and no list.
    return spark.read.format(kind or "parquet").options(**options).load(paths if len(paths) > 1 else paths[0])


def _absolute(path: str) -> str:
    """How Spark is told of a path or an address. Stores that only Spark knows are left to it."""
    return path if "://" in path else address_for_spark(Path(path))


def said(error: BaseException) -> str:
    """What Spark says, without its plan and position."""
    cause = getattr(error, "java_exception", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return printable(lines[0] if lines else type(error).__name__)[:400].rstrip("; ")


# Columns --------------------------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    column: Column
    wrong: Column | None = None
    """Where it cannot be what it has to be."""


def _mapped(reading: Reading, complete: bool) -> DataFrame:
    """The columns of a trace, not yet with places."""
    place, one, frame = reading
    if one.where:
        frame = frame.where(_expression(place, frame, "where", one.where)[0])
    expressions = one.expressions
    if "message" not in expressions:
        expressions = {"origin_system": expressions["system"]} | expressions
    values: dict[str, _Value] = {}
    for column in TRACE_COLUMNS:
        if column.name in expressions:
            given, kind = _expression(place, frame, column.name, expressions[column.name])
            values[column.name] = _value(place, column.name, _SCHEMA[column.name].dataType, given, kind)
    orders = [_sortable(*_expression(place, frame, "order", text)) for text in one.order]
    word = values["event"].column
    frame = _without(frame, word, [each for each, meant in one.events.items() if meant == IGNORE])
    event = _translated(word, one.events)
    message = f.lit(None).cast("string")
    if "message" in expressions:
        message = _expression(place, frame, "message", expressions["message"])[0].cast("string")
        message = f.when(~event.isin(*WITHOUT_A_MESSAGE), message)
    reasons = [f.col(REASON)] if one.pattern else []
    reasons += [*_reasons(values, orders), f.when(~event.isin(*EVENTS), _no_event(word))]
    if "message" in expressions:
        unknown = event.isin(*WITH_A_MESSAGE) & (f.coalesce(message, f.lit("")) == "")
        reasons.append(f.when(unknown, f.lit("`message` is null or empty")))
    placed = reduce(Column.__and__, [f.length(values[name].column) > 0 for name in LOG])
    for each in [values["index"].column] if one.numbered else orders:
        placed &= each.isNotNull()
    nothing = {name: f.lit(None).cast(_SCHEMA[name].dataType) for name in COLUMNS}
    trace = nothing | {name: value.column for name, value in values.items()} | {"event": event}
    for name in ORIGIN:
        trace[name] = f.when(~event.isin(*WITHOUT_A_MESSAGE), trace[name])
    if "message" in expressions and "note" not in values:
        trace["note"] = message
    return frame.select(
        *(column.alias(name) for name, column in trace.items()),
        message.alias(_MESSAGE),
        f.struct(*(each.alias(f"o{at}") for at, each in enumerate(orders or [f.lit(0)]))).alias(_ORDER),
        f.lit(complete).alias(_COMPLETE),
        f.coalesce(placed, f.lit(False)).alias(_PLACED),
        _with_row(frame, f.coalesce(*reasons), bool(one.pattern)).alias(REASON),
    )


def _expression(place: str, frame: DataFrame, name: str, text: str) -> tuple[Column, DataType]:
    """An expression of SQL and its type. What is wrong with it is said now, and not when Spark runs it."""
    try:
        column = f.expr(text)
        return column, frame.select(column.alias("x")).schema["x"].dataType
    except SPARK_FAILURES as error:
        reason = f"`{name}` is {json.dumps(text, ensure_ascii=False)}, which Spark does not take: {said(error)}"
        raise TraceError(place, reason, "give a column of the table or an expression of Spark's SQL") from None


def _value(place: str, name: str, wanted: DataType, column: Column, kind: DataType) -> _Value:
    """A value with the type of its column, and where it cannot have it."""
    if isinstance(wanted, StringType):
        return _Value(column.cast("string"))
    if isinstance(wanted, ArrayType):
        if isinstance(kind, StringType):
            return _Value(f.transform(f.split(column, ","), f.trim))
        if isinstance(kind, ArrayType):
            return _Value(column.cast("array<string>"))
        raise TraceError(place, f"`{name}` is {kind.simpleString()}", "give an array, or text with commas")
    if isinstance(kind, IntegralType):
        return _Value(column.cast("bigint"))
    if name == "time_ns" and isinstance(kind, TimestampType | TimestampNTZType):
        return _Value(f.unix_micros(column.cast("timestamp")) * 1000)
    number = column.try_cast("bigint")
    if isinstance(kind, FractionalType):
        number = f.when(column == f.floor(column), number)
    text = f.concat(f.lit(f"`{name}` is no whole number: "), column.cast("string"))
    return _Value(number, f.when(column.isNotNull() & number.isNull(), text))


def _sortable(column: Column, kind: DataType) -> Column:
    """Whole numbers and times of any width as one type, so that inputs may have them in common."""
    if isinstance(kind, IntegralType):
        return column.cast("bigint")
    if isinstance(kind, TimestampType | TimestampNTZType):
        return f.unix_micros(column.cast("timestamp"))
    if isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
        return column.cast("double")
    return column if isinstance(kind, DecimalType) else column.cast("string")


def _translated(event: Column, events: Mapping[str, str]) -> Column:
    if not events:
        return event
    meant = f.create_map(*(f.lit(each) for pair in events.items() for each in pair))
    return f.coalesce(f.try_element_at(meant, event), event)


def _without(frame: DataFrame, event: Column, words: Iterable[str]) -> DataFrame:
    ignored = list(words)
    return frame.where(f.coalesce(~event.isin(ignored), f.lit(True))) if ignored else frame


def _no_event(word: Column) -> Column:
    return f.concat(f.lit("`event` is '"), word, f.lit("', which is no event, and [input.events] does not name it"))


def _reasons(values: Mapping[str, _Value], orders: Sequence[Column]) -> Iterable[Column]:
    """Why a row does not count, of which the first is told. The rest is seen by whoever reads any trace."""
    for column in TRACE_COLUMNS:
        value = values.get(column.name)
        if value is None:
            continue
        if value.wrong is not None:
            yield value.wrong
        if not column.nullable:
            yield f.when(value.column.isNull(), f.lit(f"`{column.name}` is null"))
            if column.type == "string":
                yield f.when(value.column == "", f.lit(f"`{column.name}` is empty"))
    for order in orders:
        yield f.when(order.isNull(), f.lit("`order` is null"))
    yield f.when(f.contains(values["system"].column, f.lit("/")), f.lit(SLASH_IN_SYSTEM))


def _with_row(frame: DataFrame, reason: Column, text: bool) -> Column:
    """A reason, and the row that it is about, as far as it fits."""
    if text:
        where = f.concat(f.col("name"), f.lit(" line "), f.col("line").cast("string"), f.lit(": "), f.col("text"))
    else:
        row = f.struct(*(f.col(f"`{name.replace('`', '``')}`") for name in frame.columns))
        where = f.to_json(row)
        try:
            frame.select(where).schema  # noqa: B018 - Spark looks at the types when it is asked
        except PySparkException:
            where = row.cast("string")
    return f.when(reason.isNotNull(), f.concat(reason, f.lit(" in "), f.substring(where, 1, _SHOWN)))


# Places ---------------------------------------------------------------------------------------------------------------


def _placed(rows: DataFrame, numbered: bool) -> DataFrame:
    """Rows with their index."""
    if not numbered:
        own = Window.partitionBy(*LOG, _PLACED).orderBy(_ORDER)
        rows = rows.withColumn("index", f.dense_rank().over(own).cast("bigint"))
    return rows.withColumn("index", f.when(f.col(_PLACED), f.col("index"))).drop(_ORDER)


def _beginnings_and_ends(written: DataFrame, mapping: model.Mapping) -> list[DataFrame]:
    """A first row for each log without doubt, and a last one where it is complete.

    Who delivers nothing and only sends, where the mapping knows such, leaves at the end: so it owes no deliveries.
    """
    sound = f.col(REASON).isNull()
    logs = (
        written.where(_PLACED)
        .groupBy(*LOG)
        .agg(
            f.min("role").alias("role"),  # `app` where any row is of one
            f.max("index").alias("last"),
            f.bool_or(sound & f.col("event").isin(*LAST_EVENTS)).alias("over"),
            f.bool_or(f.col("event") == "join").alias("joined"),
            f.bool_or(f.col("event") == "deliver").alias("delivers"),
            f.bool_and(_COMPLETE).alias("complete"),
            f.min("time_ns").alias("begin"),
            f.max("time_ns").alias("end"),
        )
    )
    doubts = written.where(~f.col(_PLACED)).select(*(f.col(name).alias(f"doubt_{name}") for name in LOG)).distinct()
    may_be = [f.coalesce(f.col(f"doubt_{name}"), f.lit("")).isin("", f.col(name)) for name in LOG]
    sure = logs.join(f.broadcast(doubts), reduce(Column.__and__, may_be), "left_anti")
    ended = sure.where(f.col("complete") & ~f.coalesce("over", f.lit(False)))
    last = f.when(f.lit(mapping.senders_only) & ~f.coalesce("delivers", f.lit(False)), "leave").otherwise("end")
    found = [_added(ended, f.col("last") + 1, last, f.col("end"))]
    if not mapping.numbered:
        first = f.when(f.col("joined"), "join").otherwise("start")
        found.append(_added(sure, f.lit(0).cast("bigint"), first, f.col("begin")))
    if mapping.by_message:
        found.append(_nobody_else(written))
    return found


def _nobody_else(written: DataFrame) -> DataFrame:
    """The end of the log of the sender of what nobody sent, where it is sure that nobody did.

    A row that does not count may have been what sent it: then nobody knows.
    """
    sure = f.col(_COMPLETE) & f.col(_PLACED) & f.col(REASON).isNull()
    all_sure = written.agg(f.bool_and(sure).alias("sure")).where("sure")
    runs = written.where(f.col("origin_system") == NOBODY).select("run").distinct()
    unsent = runs.crossJoin(f.broadcast(all_sure)).select(
        "run", f.lit(NOBODY).alias("system"), f.lit(NOBODY).alias("process"), f.lit("gateway").alias("role")
    )
    return _added(unsent, f.lit(0).cast("bigint"), f.lit("end"), f.lit(0).cast("bigint"))


def _added(logs: DataFrame, index: Column, event: Column, time: Column) -> DataFrame:
    given = {name: f.col(name) for name in (*LOG, "role")} | {"index": index, "event": event}
    given["time_ns"] = f.coalesce(time, f.lit(0))
    return logs.select(*(given.get(each.name, f.lit(None)).cast(each.dataType).alias(each.name) for each in _SCHEMA))


# Messages that have an id instead of a sender's number ----------------------------------------------------------------


def _with_senders(rows: DataFrame) -> DataFrame:
    """Messages by their senders, who number them in the order of their `send` rows.

    What nobody sent has a sender of its own that has no log.
    """
    counts = f.col(REASON).isNull() & f.col(_MESSAGE).isNotNull()
    sender = [f.col("system").alias("sender_system"), f.col("process").alias("sender_process")]
    # Of several sends of one message the first counts; another process's send of it names a sender that is not itself.
    first = f.min(f.struct("index", *sender)).alias("first")
    sent = rows.where(counts & (f.col("event") == "send") & f.col(_PLACED)).groupBy("run", _MESSAGE).agg(first)
    sent = sent.select("run", _MESSAGE, "first.*")
    numbers = Window.partitionBy("run", "sender_system", "sender_process").orderBy("index")
    sent = sent.withColumn("number", f.row_number().over(numbers).cast("bigint")).drop("index")
    unsent = rows.where(counts).select("run", _MESSAGE).distinct().join(sent, ["run", _MESSAGE], "left_anti")
    unsent = unsent.select(
        "run", _MESSAGE, f.lit(NOBODY).alias("sender_system"), f.lit(NOBODY).alias("sender_process"),
        f.row_number().over(Window.partitionBy("run").orderBy(_MESSAGE)).cast("bigint").alias("number"),
    )  # fmt: skip
    known = sent.unionByName(unsent)
    joined = rows.join(known, ["run", _MESSAGE], "left")
    found = joined.withColumns(
        {
            "origin_system": f.col("sender_system"),
            "origin_process": f.col("sender_process"),
            "origin_seq": f.col("number"),
        }
    )
    return found.drop("sender_system", "sender_process", "number")
