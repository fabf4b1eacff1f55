"""One Spark for all tests of the pipeline.

Starting it costs seconds and half a gigabyte, so as few test processes as possible should have one. Tests that need it
go to the front of the list: a worker is given a whole stretch of the list and is robbed from the end of it, so with
the whole suite they stay together on the first worker, whatever the number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from patience import seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from isthmus.pipeline.ingest import TraceTable
    from isthmus.trace.schema import Event, Report

HERE = Path(__file__).parent

EXECUTIONS = int(os.environ.get("ISTHMUS_EXECUTIONS", "80"))
"""Random executions that are compared with the definition."""

PATIENCE = 400
"""Seconds, on a quick machine. The first test pays for the start of Spark and for audits that others share."""

BLOCK_BITS = 3
"""Logs and chains of tests are short; cut into blocks of eight, they still have several."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Commands come second: they take the Spark that is there, and would start one that is made for larger work.
    commands = {"test_cli_audit.py", "test_cli_campaign.py"}

    def place(item: pytest.Item) -> int:
        return 0 if item.path.is_relative_to(HERE) else 1 if item.path.name in commands else 2

    items.sort(key=place)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(seconds(PATIENCE)))  # one that a test has itself comes before it


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from isthmus.pipeline.session import spark_session

    # Nothing here runs long enough to earn back what the better compilers of Java and Spark cost.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    session = spark_session(
        "local[2]",
        driver_memory="1g",
        shuffle_partitions=2,  # the tables of tests are small, and every task costs some ten milliseconds
        settings={"spark.sql.codegen.wholeStage": "false"},
    )
    yield session
    session.stop()


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
