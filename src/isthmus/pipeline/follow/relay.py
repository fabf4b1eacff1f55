"""What a streaming audit finds, on its way from a server of Spark Connect to whoever asked for it.

With Spark Connect the function that takes a batch runs beside the server, not in the process that started the query. So
there it does the least: it writes what batch N has found as Parquet under that number, and the client reads it by its
session. A batch counts when Spark says that it is through; one that is repeated is written again, the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from isthmus.trace.places import Place, address_for_spark, remove_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOUND = StructType([StructField("run", StringType()), StructField("found", BinaryType())])
"""Of one batch: for each run that got rows, what was found."""

Take = Callable[["DataFrame", int], None]


class Relay:
    """Batches from a number on, in a directory that the server and its executors see."""

    def __init__(self, spark: SparkSession, directory: Place, first: int, take: Take) -> None:
        self._spark, self._directory, self._next, self._take = spark, directory, first, take

    def sink(self) -> Take:
        """The function for the server. It is carried as it is, because the server may not have isthmus."""
        directory = address_for_spark(self._directory)

        def keep(found: DataFrame, number: int) -> None:
            found.write.mode("overwrite").parquet(f"{directory}/{number}")

        return keep

    def fetch(self, query: Any, ended: bool) -> None:
        """Take all batches that are through by now; when the query has ended well, all there are."""
        progress = query.lastProgress
        done = -1
        if progress is not None:
            # While there is nothing to read, it shows the number of the batch that will be the next.
            done = progress["batchId"] if progress["numInputRows"] else progress["batchId"] - 1
        while ended or self._next <= done:
            batch = self._directory / str(self._next)
            try:
                self._take(self._spark.read.schema(FOUND).parquet(address_for_spark(batch)), self._next)
            except AnalysisException as error:
                if ended and error.getCondition() == "PATH_NOT_FOUND":
                    return
                raise
            # Where the place is shared, what was taken is not kept twice.
            remove_tree(batch)
            self._next += 1
