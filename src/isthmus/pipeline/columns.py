"""The columns of a trace for Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from isthmus.trace.columns import Column


def spark_schema(columns: Sequence[Column], *, strict: bool = False) -> StructType:
    """The columns for Spark. `strict` says which may be null; otherwise all may: what must not be is quarantined."""
    types = {"string": StringType(), "int64": LongType(), "array of string": ArrayType(StringType())}
    return StructType([StructField(each.name, types[each.type], each.nullable or not strict) for each in columns])
