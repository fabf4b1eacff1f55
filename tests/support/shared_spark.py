"""A pytest plugin: one Spark for all tests of a worker, whether they call the pipeline or its commands.

Starting it costs seconds and half a gigabyte, so as few workers as possible should have one. Tests that need it go to
the front of the list: a worker is given a whole stretch of the list and is robbed from the end of it, so with the whole
suite they begin on the first worker, whatever the number of workers, and others take some only when all else is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from patience import seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 400
"""Seconds, on a quick machine. The first test pays for the start of Spark and for audits that others share."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def needs_spark(item: pytest.Item) -> bool:
        return "spark" in getattr(item, "fixturenames", ())

    items.sort(key=lambda item: not needs_spark(item))
    for item in filter(needs_spark, items):
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
