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

BLOCK_ROWS = 8
"""Logs of tests are short; cut into blocks of eight rows, they still have several."""

SPREAD = 12
"""Random executions that are also audited as if they were too large for a task: that takes a second each."""


class Audits(NamedTuple):
    """Random executions and known mistakes, all as runs of one table."""

    runs: dict[str, list[Event]]
    table: TraceTable


@pytest.fixture(scope="session")
def audits(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audits:
    from known_mistakes import known_mistakes
    from trace_files import executions, write_jsonl

    from isthmus.pipeline.ingest import ingest

    directory = tmp_path_factory.mktemp("audits")
    runs = executions(range(EXECUTIONS)) | known_mistakes()
    write_jsonl(directory / "runs.jsonl", [event for run in sorted(runs) for event in runs[run]])
    return Audits(runs, ingest(spark, [directory], directory / "table", block_rows=BLOCK_ROWS))


@pytest.fixture(scope="session")
def in_one_task(spark: SparkSession, audits: Audits) -> Report:
    from isthmus.pipeline.audit import audit
    from isthmus.trace.properties import PROPERTIES

    return audit(spark, audits.table, expected=PROPERTIES)


@pytest.fixture(scope="session")
def spread(spark: SparkSession, audits: Audits, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The known mistakes and some executions, each run spread over tasks with files in between."""
    from trace_files import write_jsonl

    from isthmus.pipeline.audit import audit
    from isthmus.pipeline.ingest import ingest
    from isthmus.trace.properties import PROPERTIES

    directory = tmp_path_factory.mktemp("spread")
    few = {f"x{seed}" for seed in range(SPREAD, EXECUTIONS)}
    events = [event for run, events in audits.runs.items() if run not in few for event in events]
    write_jsonl(directory / "runs.jsonl", events)
    table = ingest(spark, [directory], directory / "table", block_rows=BLOCK_ROWS)
    return audit(spark, table, expected=PROPERTIES, rows_per_task=0)
