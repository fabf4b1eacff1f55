"""The columns of a trace for Spark and Arrow, and the schema as conditions that Spark checks row by row.

A row from JSON is checked by the decoder of `trace.schema`, a row from Parquet by the conditions here, which say the
same in the same words. A test holds the two together.
"""

from __future__ import annotations

from functools import reduce
from typing import get_args

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from isthmus.trace.schema import COLUMNS, NULLABLE, EventName, Role

_INTEGERS = ("index", "origin_seq", "payload_bytes", "control_bytes", "time_ns")
_NAMES = ("run", "system", "process", "origin_system", "origin_process")

TRACE_ROWS = StructType(
    [
        StructField(
            name,
            ArrayType(StringType()) if name == "destinations" else LongType() if name in _INTEGERS else StringType(),
        )
        for name in COLUMNS
    ]
)
"""A row of a trace. Everything may be null here: what must not be is checked and quarantined, not refused."""

PLACED_ROWS = StructType(
    [
        *TRACE_ROWS.fields,
        StructField("file", LongType()),
        StructField("line", LongType()),
        StructField("reason", StringType()),
    ]
)
"""A row with the number of its file, its line from 1 (in Parquet its row), and why it does not count, or null."""

ARROW_ROWS = pa.schema(
    [
        pa.field(
            name,
            pa.list_(pa.string()) if name == "destinations" else pa.int64() if name in _INTEGERS else pa.string(),
        )
        for name in COLUMNS
    ]
)
ARROW_PLACED = pa.schema(
    [*ARROW_ROWS, pa.field("file", pa.int64()), pa.field("line", pa.int64()), pa.field("reason", pa.string())]
)

TORN = "torn"
"""The reason of a last line that a crash tore off: it marks its file and is no bad row."""


def reason_not_to_count() -> Column:
    """Why a row does not fit the schema, or null. In the order and the words of the decoder."""
    cases: list[tuple[Column, str | Column]] = []
    for name in COLUMNS:
        column = f.col(name)
        kind = "int" if name in _INTEGERS else "str"
        if name not in NULLABLE:
            cases.append((column.isNull(), f"Expected `{kind}`, got `null` - at `$.{name}`"))
        if name in _NAMES:
            cases.append((f.length(column) == 0, f"Expected `str` of length >= 1 - at `$.{name}`"))
        if name in ("index", "payload_bytes", "control_bytes"):
            cases.append((column < 0, f"Expected `int` >= 0 - at `$.{name}`"))
        if name == "origin_seq":
            cases.append((column < 1, f"Expected `int` >= 1 - at `$.{name}`"))
        if name == "role":
            cases.append((~column.isin(*get_args(Role)), _invalid(name)))
        if name == "event":
            cases.append((~column.isin(*get_args(EventName)), _invalid(name)))
        if name == "destinations":
            nulls = f.transform(column, lambda each: each.isNull())
            place = (f.array_position(nulls, True) - 1).cast("string")
            what = f.concat(f.lit("Expected `str`, got `null` - at `$.destinations["), place, f.lit("]`"))
            cases.append((f.array_contains(nulls, True), what))
        elif kind == "str":
            cases.append((~f.is_valid_utf8(column), f"not UTF-8 - at `$.{name}`"))
    cases += _senseless()
    first, *rest = cases
    chosen = f.when(first[0], first[1])
    return reduce(lambda so_far, case: so_far.when(case[0], case[1]), rest, chosen)


def _invalid(name: str) -> Column:
    return f.concat(f.lit("Invalid enum value '"), f.col(name), f.lit(f"' - at `$.{name}`"))


def _senseless() -> list[tuple[Column, str | Column]]:
    """What `trace.schema.problem` finds, by the same rules in the same words."""
    event = f.col("event")
    origin = [f.col("origin_system"), f.col("origin_process"), f.col("origin_seq")]
    some_null = origin[0].isNull() | origin[1].isNull() | origin[2].isNull()
    some_set = origin[0].isNotNull() | origin[1].isNotNull() | origin[2].isNotNull()
    about = event.isin("send", "deliver", "stable", "hold", "receive", "pre-acknowledge", "acknowledge")
    not_about = event.isin("start", "join", "crash", "leave", "end", "view")
    foreign = (f.col("origin_system") != f.col("system")) | (f.col("origin_process") != f.col("process"))
    slash = "the name of a system must not contain a slash"
    return [
        (
            some_null & some_set,
            "the message id is incomplete: origin_system, origin_process and origin_seq go together",
        ),
        (some_null & about, f.concat(f.lit("a `"), event, f.lit("` row needs a message id"))),
        (
            ~some_null & not_about,
            f.concat(f.lit("a `"), event, f.lit("` row has no message, so its message id must be null")),
        ),
        (
            (event == "send") & (f.col("role") == "app") & foreign,
            "a process sends messages of its own only, but the message id names another origin",
        ),
        (f.contains(f.col("origin_system"), f.lit("/")), slash),
        (f.contains(f.col("system"), f.lit("/")), slash),
        (
            (event == "view") & (f.col("destinations").isNull() | f.col("peer").isNull()),
            "a `view` row needs its members in `destinations` and its number in `peer`",
        ),
    ]
