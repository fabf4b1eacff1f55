"""How Spark fails: which exceptions, and what they say."""

from __future__ import annotations

from pyspark.errors import PySparkException

from isthmus.pipeline.session import first_line as spark_reason

__all__ = ["SPARK_FAILURES", "spark_reason"]

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # a client of Spark Connect alone
    SPARK_FAILURES: tuple[type[Exception], ...] = (PySparkException,)
else:
    SPARK_FAILURES = (PySparkException, Py4JError)
"""Some failures of Spark come translated, others as the Java side threw them."""
