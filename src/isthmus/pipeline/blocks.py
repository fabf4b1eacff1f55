"""Running maxima and places along a log or a chain of any length, spread over all tasks.

A window over a whole log would put all of it into one task. Here it is cut into blocks of 65,536 numbers first; then
the few totals of its blocks are put in order, and each block is told what came before it. A log of a billion rows has
15,000 blocks. Only numbers that leave large holes give more: then a block holds few rows, and in the end one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

BLOCK_BITS = 16


def block_of(order: str, bits: int | None = None) -> Column:
    """The number of the block that a row is in."""
    return f.shiftright(order, BLOCK_BITS if bits is None else bits)


def running_maxima(
    rows: DataFrame, keys: Sequence[str], order: str, values: Mapping[str, Column], *, before: bool = False
) -> DataFrame:
    """Add the maximum of each value over all rows of the same keys up to this one, or before it."""
    return _running(rows, keys, order, values, before, f.max, f.greatest)


def places(rows: DataFrame, keys: Sequence[str], order: str, name: str) -> DataFrame:
    """Add how many rows of the same keys come before this one."""

    def sum_of(one: Column, other: Column) -> Column:
        return f.coalesce(one, f.lit(0)) + f.coalesce(other, f.lit(0))

    one = {name: f.lit(1).cast("bigint")}
    return _running(rows, keys, order, one, True, f.sum, sum_of)


def _running(
    rows: DataFrame,
    keys: Sequence[str],
    order: str,
    values: Mapping[str, Column],
    before: bool,
    reduced: Callable[[Column], Column],
    merged: Callable[[Column, Column], Column],
) -> DataFrame:
    # Keeping values and results under their own names lets one expression be taken over several windows.
    rows = rows.select(
        "*", *(value.alias(f"_{name}") for name, value in values.items()), block_of(order).alias("_block")
    )
    in_block = Window.partitionBy(*keys, "_block").orderBy(order)
    frame = in_block.rowsBetween(Window.unboundedPreceding, -1 if before else Window.currentRow)
    local = rows.select("*", *(reduced(f.col(f"_{name}")).over(frame).alias(name) for name in values))
    totals = rows.groupBy(*keys, "_block").agg(*(reduced(f.col(f"_{name}")).alias(name) for name in values))
    earlier = Window.partitionBy(*keys).orderBy("_block").rowsBetween(Window.unboundedPreceding, -1)
    carried = totals.select(
        *keys, "_block", *(reduced(f.col(name)).over(earlier).alias(f"_carried_{name}") for name in values)
    )
    both = local.join(carried, [*keys, "_block"])
    plain = [f.col(name) for name in rows.columns if name != "_block" and not name.startswith("_")]
    return both.select(*plain, *(merged(f.col(name), f.col(f"_carried_{name}")).alias(name) for name in values))
