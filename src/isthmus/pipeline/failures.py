"""How Spark fails: which exceptions, and what they say."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

SPARK_FAILURES = (PySparkException, Py4JError)
"""Some failures of Spark come translated, others as the Java side threw them."""


def spark_reason(error: BaseException) -> str:
    """What Spark says in its first line, without the stack that follows."""
    cause = getattr(error, "java_exception", None) or error
    return str(cause).partition("\n")[0]
