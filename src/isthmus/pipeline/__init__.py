"""The pipeline: everything that needs Spark. Traces in, verdicts and figures out.

A function here takes a `SparkSession` from its caller and never makes one by itself; `session.spark_session` makes one
with settings that suit a single machine. Importing this package imports no Spark, so that a command can say in one
line that it is missing.

    from isthmus.pipeline import register

    register(spark)
    rows = spark.readStream.format("isthmus").option("path", '["madrid", "valencia"]').load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession | None = None) -> None:
    """Make `format("isthmus")` and, for SQL, `isthmus_audit` known to a session, or to the active one."""
    from isthmus.pipeline import source, sql

    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
    source.register(spark)
    sql.register(spark)
