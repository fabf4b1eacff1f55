"""Several tables that a query writes under one cut id, and views that show only cuts that all of them have.

    tables = CutTables(spark, "lake", {"orders": "event = 'send' AND system = 'madrid'", "shipments": ...})
    rows.writeStream.foreachBatch(tables.take).option("checkpointLocation", "lake/checkpoint").start()
    tables.view("orders"), tables.view("shipments")

Every batch writes a directory `cut=ID` of Parquet to each table, one table after the other, and then its **mark**. A
view shows rows whose cut is marked. Wherever the query is killed, a cut that some tables lack has no mark, so nobody
sees it; the batch comes again with the same id and the same rows, and is written over what the first attempt left. A
batch that has its mark is not written again, so what readers see never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from isthmus.trace.places import address_for_spark, place

MARKS = "cuts"


class CutTables:
    """Tables below one directory, by name, each with the condition or the function that chooses its rows of a batch.

    The stream needs its column `cut`. `between` is called before each write, for tests that kill there.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        tables: Mapping[str, str | Callable[[DataFrame], DataFrame]],
        between: Callable[[str], None] = lambda _: None,
    ) -> None:
        assert MARKS not in tables, f"{MARKS} is where the marks are"
        self._spark = spark
        self._tables = dict(tables)
        self._between = between
        self._directory = place(directory)

    def take(self, batch: DataFrame, number: int) -> None:
        """Write one batch. For `foreachBatch`."""
        batch = batch.persist()
        try:
            first = batch.select("cut").first()
            if first is None or not self.cuts(batch.sparkSession).where(f.col("cut") == first.cut).isEmpty():
                return
            for name, choose in self._tables.items():
                self._between(name)
                chosen = batch.where(choose) if isinstance(choose, str) else choose(batch)
                chosen.drop("cut").write.parquet(self._path(f"{name}/cut={first.cut}"), mode="overwrite")
            self._between(MARKS)
            mark = batch.sparkSession.range(1).select(f.lit(number).cast("bigint").alias("batch"))
            mark.coalesce(1).write.parquet(self._path(f"{MARKS}/cut={first.cut}"), mode="overwrite")
        finally:
            batch.unpersist()

    def cuts(self, spark: SparkSession | None = None) -> DataFrame:
        """Cuts that all tables have: `cut` and the number of the `batch`."""
        session = spark or self._spark
        if not (self._directory / MARKS).exists():
            return session.createDataFrame([], "batch bigint, cut string")
        return session.read.schema("batch bigint, cut string").parquet(self._path(MARKS))

    def view(self, name: str) -> DataFrame:
        """The rows of a table in cuts that all tables have."""
        rows = self._spark.read.option("basePath", self._path(name)).parquet(self._path(f"{name}/cut=*"))
        return rows.withColumn("cut", f.col("cut").cast("string")).join(self.cuts(), "cut", "left_semi")

    def _path(self, below: str) -> str:
        return f"{address_for_spark(self._directory)}/{below}"
