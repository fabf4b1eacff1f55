"""The page of the public API and the code say the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trace_files import all_rows, rounds, write_jsonl

import isthmus
from isthmus.pipeline import result, sql
from isthmus.trace.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs/pipeline-api.md").read_text()


def test_every_public_name_is_on_the_page_and_there() -> None:
    for name in isthmus.__all__:
        assert f"`isthmus.{name}" in PAGE
        assert hasattr(isthmus, name)


def test_columns_on_the_page_are_those_of_the_code() -> None:
    for name, schema in (
        ("verdicts", result.VERDICTS),
        ("violations", result.VIOLATIONS),
        ("quarantine", result.QUARANTINE),
        ("isthmus_audit", sql.AUDITED),
    ):
        told = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema)
        assert f"- `{name}`: {told}\n" in PAGE
    assert result.WITNESSES.names == ["number", "property", *COLUMNS]
    assert "- `witnesses`: number bigint, property string, and the columns of" in PAGE


MEASURED = ("runs", "pairs", "latencies", "throughput", "waits", "links", "processes", "messages")


def test_figures_are_dataframes_with_the_columns_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    trace = write_jsonl(tmp_path / "trace.jsonl", all_rows(rounds("r", 3, 5)) + all_rows(rounds("s", 2, 4)))
    isthmus.audit(spark, trace, table=tmp_path / "table")
    for data in (trace, tmp_path / "table", spark.read.json(str(trace))):
        with isthmus.measure(spark, data, run="r") as result:
            for name in MEASURED:
                schema = getattr(result, name).schema
                told = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema)
                assert f"- `{name}`: {told}\n" in PAGE
            assert [row.deliveries for row in result.pairs.collect()] == [3 * 3 * 5]
            assert [each.deliveries for each in result.figures.pairs] == [3 * 3 * 5]
            assert result.messages.count() == 3 * 5
    assert all(f"`{name}`" in PAGE for name in MEASURED)


def test_late_files_are_added_by_the_public_call(spark: SparkSession, tmp_path: Path) -> None:
    logs = rounds("r", 2, 3)
    early = write_jsonl(tmp_path / "early.jsonl", logs["a/p0"])
    late = write_jsonl(tmp_path / "late.jsonl", logs["a/p1"])
    table = tmp_path / "table"
    assert isthmus.audit(spark, early, table=table, append=True).report.verdict("causal") == "unknown"
    assert isthmus.audit(spark, late, table=table, append=True).report.verdict("causal") == "holds"
