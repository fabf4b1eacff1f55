"""The columns of a trace for Spark, and the rules for rows as conditions that Spark checks.

A row that Python reads is checked by `trace.rows`, a row of a Parquet file that Spark reads by the conditions here,
which say the same in the same words. Both come from the table of columns, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from isthmus.trace.columns import TRACE_COLUMNS, Column
from isthmus.trace.schema import (
    EMPTY_VIEW,
    FOREIGN_MESSAGE,
    HAS_NO_MESSAGE,
    INCOMPLETE_ID,
    NEEDS_A_MESSAGE,
    SLASH_IN_SYSTEM,
    WITH_A_MESSAGE,
    WITHOUT_A_MESSAGE,
)

_Case: TypeAlias = tuple[Expression, str | Expression]
"""A condition on a row, and what is wrong with a row of which it is true."""


def spark_schema(columns: Sequence[Column], *, strict: bool = False) -> StructType:
    """The columns for Spark. `strict` says which may be null; otherwise all may: what must not be is quarantined."""
    types = {"string": StringType(), "int64": LongType(), "array of string": ArrayType(StringType())}
    return StructType([StructField(each.name, types[each.type], each.nullable or not strict) for each in columns])


PLACE = (
    Column("file", "int64", False, "the number of the file among those of the table"),
    Column("line", "int64", False, "the line of the row, from 1; in Parquet its row; 0 for the whole file"),
    Column("reason", "string", True, "why the row does not count"),
)
PLACED_ROWS = spark_schema((*TRACE_COLUMNS, *PLACE))

TORN = "torn"
"""The reason of a last line that a crash tore off: it marks its file and is no bad row."""


def reason_not_to_count() -> Expression:
    """Why a row does not fit the columns or makes no sense, or null. In the order and the words of `trace.rows`."""
    first, *rest = [case for column in TRACE_COLUMNS for case in _misfits(column)] + _senseless()
    return reduce(lambda so_far, case: so_far.when(*case), rest, f.when(*first))


def _misfits(column: Column) -> list[_Case]:
    """What can be wrong with the value of one column."""
    value, where = f.col(column.name), f" - at `$.{column.name}"
    kind = {"string": "str", "int64": "int", "array of string": "array"}[column.type]
    cases: list[_Case] = []
    if not column.nullable:
        cases.append((value.isNull(), f"Expected `{kind}`, got `null`{where}`"))
    if column.least is not None:
        too_little = f.length(value) < column.least if kind == "str" else value < column.least
        length = " of length" if kind == "str" else ""
        cases.append((too_little, f"Expected `{kind}`{length} >= {column.least}{where}`"))
    if column.values:
        cases.append((~value.isin(*column.values), f.concat(f.lit("Invalid enum value '"), value, f.lit(f"'{where}`"))))
    if kind == "array":
        nulls = f.transform(value, lambda each: each.isNull())
        place = (f.array_position(nulls, True) - 1).cast("string")
        what = f.concat(f.lit(f"Expected `str`, got `null`{where}["), place, f.lit("]`"))
        cases.append((f.array_contains(nulls, True), what))
    elif kind == "str":
        cases.append((~f.is_valid_utf8(value), f"not UTF-8{where}`"))
    return cases


def _senseless() -> list[_Case]:
    """What `trace.schema.problem` finds, by the same rules."""
    event = f.col("event")
    origin = [f.col("origin_system"), f.col("origin_process"), f.col("origin_seq")]
    some_null = origin[0].isNull() | origin[1].isNull() | origin[2].isNull()
    some_set = origin[0].isNotNull() | origin[1].isNotNull() | origin[2].isNotNull()
    foreign = (origin[0] != f.col("system")) | (origin[1] != f.col("process"))
    return [
        (some_null & some_set, INCOMPLETE_ID),
        (some_null & event.isin(*WITH_A_MESSAGE), _about(NEEDS_A_MESSAGE, event)),
        (~some_null & event.isin(*WITHOUT_A_MESSAGE), _about(HAS_NO_MESSAGE, event)),
        ((event == "send") & (f.col("role") == "app") & foreign, FOREIGN_MESSAGE),
        (f.contains(origin[0], f.lit("/")), SLASH_IN_SYSTEM),
        (f.contains(f.col("system"), f.lit("/")), SLASH_IN_SYSTEM),
        ((event == "view") & (f.col("destinations").isNull() | f.col("peer").isNull()), EMPTY_VIEW),
    ]


def _about(sentence: str, event: Expression) -> Expression:
    before, _, after = sentence.partition("{event}")
    return f.concat(f.lit(before), event, f.lit(after))
