"""Witnesses in words: names for codes, and sentences for kinds.

Names are looked up in Spark for the few witnesses that are shown; the trace stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import code
from isthmus.trace.properties import Mistake, violation
from isthmus.trace.schema import Violation


def violations_in_words(rows: DataFrame, logs: DataFrame, witnesses: Sequence[Row]) -> list[Violation]:
    """The rows of witnesses as the report shows them."""
    if not witnesses:
        return []
    names = _names(rows, logs, {each for witness in witnesses for each in _codes(witness) if each is not None})
    violations = [violation_in_words(each, names) for each in witnesses]
    return sorted(violations, key=lambda each: (each.run, each.property, each.process, each.first, each.second or ""))


def _codes(witness: Row) -> Iterator[int | None]:
    yield from (witness.process, witness.other, witness.first_origin, witness.second_origin)
    yield from witness.chain[::2]


def _names(rows: DataFrame, logs: DataFrame, wanted: Iterable[int]) -> dict[int, str]:
    found = logs.where(f.col("code").isin(*wanted)).select("code", "system", "process").distinct().collect()
    names = {row.code: f"{row.system}/{row.process}" for row in found}
    lost = set(wanted) - names.keys()
    if lost:  # only mentioned as the origin of a message: there is no log of it
        origins = rows.select(code("origin_system", "origin_process").alias("code"), "origin_system", "origin_process")
        for row in origins.where(f.col("code").isin(*lost)).distinct().collect():
            names[row.code] = f"{row.origin_system}/{row.origin_process}"
    return names


def violation_in_words(row: Row, names: Mapping[int, str]) -> Violation:
    def text(origin: int | None, seq: int | None) -> str:
        return f"{names[cast(int, origin)]}/{seq}"

    mistake = Mistake(
        process=names[row.process],
        first=text(row.first_origin, row.first_seq),
        second=None if row.second_origin is None else text(row.second_origin, row.second_seq),
        first_index=row.first_index,
        second_index=row.second_index,
        other=None if row.other is None else names[row.other],
        other_first_index=row.other_first_index,
        other_second_index=row.other_second_index,
        kind=row.kind,
        detail=row.detail,
        chain=tuple(map(text, row.chain[::2], row.chain[1::2])),
    )
    return violation(row.run, row.property, mistake)
