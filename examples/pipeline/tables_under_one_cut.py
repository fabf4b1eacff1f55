"""Write orders and shipments to two tables under one cut id, die between the two, and look at what readers see.

The shop in Madrid sends orders, the warehouse in Valencia a shipment for each. One query writes both tables. It fails
after it has written the orders of a batch and before it has written the shipments. The tables as they lie there
disagree; their views do not. Started again, the query repeats the batch under the same cut id.

    python examples/pipeline/tables_under_one_cut.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from isthmus.pipeline.session import spark_session
from isthmus.pipeline.source import register
from isthmus.pipeline.source.log import DeliveryLog
from isthmus.pipeline.source.tables import CutTables

ORDERS = 100
TABLES = {"orders": "system = 'madrid'", "shipments": "system = 'valencia'"}


def business(directory: Path) -> None:
    """A day of two sites."""
    shop = DeliveryLog(directory / "madrid", "today", "madrid", "shop")
    warehouse = DeliveryLog(directory / "valencia", "today", "valencia", "warehouse")
    for number in range(1, ORDERS + 1):
        text = json.dumps({"order": number})
        shop.sent(number, text)
        warehouse.delivered("madrid", "shop", number, text)
        warehouse.sent(number, text)
    shop.end()
    warehouse.end()


def rows(spark: SparkSession, directory: Path) -> DataFrame:
    """What both sites sent, as a stream."""
    reader = spark.readStream.format("isthmus").option("events", "send").option("maxRowsPerBatch", ORDERS)
    reader = reader.option("checkpointLocation", str(directory / "checkpoint"))
    return reader.schema("system string, payload string, cut string").load(str(directory / "logs"))


def write(spark: SparkSession, directory: Path, tables: CutTables) -> None:
    """Write everything there is."""
    writer = rows(spark, directory).writeStream.foreachBatch(tables.take)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()


def run(spark: SparkSession, directory: Path) -> list[tuple[int, int, int, int]]:
    """After the failure and after the end: orders and shipments as they lie there, and as the views show them."""
    register(spark)
    business(directory / "logs")
    writes: list[str] = []

    def fail_once(name: str) -> None:
        writes.append(name)
        if writes.count("shipments") == 2 and name == "shipments":
            raise RuntimeError("the power fails")

    tables = CutTables(spark, str(directory / "lake"), TABLES, fail_once)
    counts = []
    for _ in range(2):
        try:
            write(spark, directory, tables)
        except StreamingQueryException:
            print("the query died between two tables")
        raw = [spark.read.parquet(str(directory / "lake" / name)).count() for name in TABLES]
        views = [tables.view(name).count() for name in TABLES]
        counts.append((raw[0], raw[1], views[0], views[1]))
    return counts


def main() -> int:
    """Print what the tables hold and what their views show. The exit code is 1 when the views disagree in the end."""
    with tempfile.TemporaryDirectory(prefix="tables-under-one-cut-") as directory:
        spark = spark_session("local[2]", shuffle_partitions=2)
        counts = run(spark, Path(directory))
        spark.stop()
    for when, (orders, shipments, seen_orders, seen_shipments) in zip(("died", "ended"), counts, strict=True):
        print(f"{when:6} files: {orders:4} orders {shipments:4} shipments", end="   ")
        print(f"views: {seen_orders:4} orders {seen_shipments:4} shipments")
    return 0 if counts[-1] == (ORDERS,) * 4 else 1


if __name__ == "__main__":
    sys.exit(main())
