"""Random executions and known mistakes, audited once for all tests of the pipeline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from isthmus.pipeline.ingest import TraceTable
    from isthmus.trace.schema import Event, Report

EXECUTIONS = int(os.environ.get("ISTHMUS_EXECUTIONS", "80"))
"""Random executions that are compared with the definition."""

BLOCK_BITS = 3
"""Logs and chains of tests are short; cut into blocks of eight, they still have several."""


class Audits(NamedTuple):
    """Random executions and known mistakes, all as runs of one table."""

    runs: dict[str, list[Event]]
    table: TraceTable


@pytest.fixture(scope="session")
def audits(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audits:
    from known_mistakes import known_mistakes
    from trace_files import executions, write_jsonl

    from isthmus.pipeline import ingest

    directory = tmp_path_factory.mktemp("audits")
    runs = executions(range(EXECUTIONS)) | known_mistakes()
    write_jsonl(directory / "runs.jsonl", [event for run in sorted(runs) for event in runs[run]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "BLOCK_BITS", BLOCK_BITS)
        return Audits(runs, ingest.ingest(spark, [directory], directory / "table"))


@pytest.fixture(scope="session")
def by_numpy(spark: SparkSession, audits: Audits) -> Report:
    from isthmus.pipeline.audit import audit
    from isthmus.trace.properties import PROPERTIES

    return audit(spark, audits.table, expected=PROPERTIES, engine="numpy")


@pytest.fixture(scope="session")
def by_sql(spark: SparkSession, audits: Audits) -> Report:
    from isthmus.pipeline import blocks as sql_blocks
    from isthmus.pipeline.audit import audit
    from isthmus.trace.properties import PROPERTIES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_blocks, "BLOCK_BITS", BLOCK_BITS)
        return audit(spark, audits.table, expected=PROPERTIES, engine="sql")
