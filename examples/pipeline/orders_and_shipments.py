"""Join orders and shipments of two sites, and look for shipments that nobody ordered.

The shop in Madrid sends orders. The warehouse in Valencia sends a shipment for each order that it was delivered. Both
write what they send and deliver to logs, and the logs reach the lake at their own pace: Madrid's are late at times.
The same job reads them twice, side by side: through the isthmus source, and as the plain file stream that Spark
offers. A shipment without its order is an alarm, and only one of them raises false ones.

    python examples/pipeline/orders_and_shipments.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.session import spark_session
from isthmus.pipeline.source import SCHEMA, register
from isthmus.pipeline.source.log import DeliveryLog

ROUNDS = 6
ORDERS_PER_ROUND = 50
MESSAGE = "kind string, `order` int"


class Business:
    """Two sites at work. What one sends in a round, the other delivers in the same round, and answers."""

    def __init__(self, directory: Path) -> None:
        self.sites = [str(directory / "madrid"), str(directory / "valencia")]
        self.shop = DeliveryLog(self.sites[0], "today", "madrid", "shop", parts=True)
        self.warehouse = DeliveryLog(self.sites[1], "today", "valencia", "warehouse", parts=True)
        self.orders = 0

    def work(self) -> None:
        for _ in range(ORDERS_PER_ROUND):
            self.orders += 1
            number = self.orders
            order = json.dumps({"kind": "order", "order": number})
            shipment = json.dumps({"kind": "shipment", "order": number})
            self.shop.sent(number, order)
            self.warehouse.delivered("madrid", "shop", number, order)
            self.warehouse.sent(number, shipment)
            self.shop.delivered("valencia", "warehouse", number, shipment)
        self.warehouse.flush()


class Job:
    """Keeps all orders in a table, and counts the shipments whose order is not in it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory / name
        self.shipments = 0
        self.without_order = 0

    def start(self, rows: DataFrame) -> None:
        sent = rows.where("event = 'send'").select(f.from_json("payload", MESSAGE).alias("message")).select("message.*")
        writer = sent.writeStream.foreachBatch(self.take).queryName(self.name)
        self.query = writer.option("checkpointLocation", str(self.directory / "checkpoint")).start()

    def take(self, batch: DataFrame, number: int) -> None:
        batch = batch.cache()
        orders = str(self.directory / "orders")
        batch.where("kind = 'order'").select("order").write.parquet(f"{orders}/batch={number}", mode="overwrite")
        shipments = batch.where("kind = 'shipment'")
        known = batch.sparkSession.read.parquet(orders)
        self.shipments += shipments.count()
        self.without_order += shipments.join(known, "order", "left_anti").count()
        batch.unpersist()


def run(spark: SparkSession, directory: Path) -> tuple[Job, Job]:
    """The job over both sources, while the sites work."""
    register(spark)
    business = Business(directory)
    causal, plain = Job("isthmus", directory), Job("plain-files", directory)
    reader = spark.readStream.format("isthmus").option("events", "send").schema("event string, payload string")
    causal.start(reader.option("path", json.dumps(business.sites)).load())
    plain.start(spark.readStream.schema(SCHEMA).json(str(directory / "{madrid,valencia}")))
    for number in range(ROUNDS):
        business.work()
        if number % 2:
            business.shop.flush()  # in every other round Madrid's rows are in time
        plain.query.processAllAvailable()
        causal.query.processAllAvailable()
    business.shop.flush()
    plain.query.processAllAvailable()
    causal.query.processAllAvailable()
    for job in (causal, plain):
        job.query.stop()
    return causal, plain


def main() -> int:
    """Print what each job found. The exit code is 1 when the isthmus source let a shipment come before its order."""
    with tempfile.TemporaryDirectory(prefix="orders-and-shipments-") as directory:
        spark = spark_session("local[2]", shuffle_partitions=2)
        jobs = run(spark, Path(directory))
        spark.stop()
    for job in jobs:
        print(f"{job.name:12} {job.shipments:5} shipments, {job.without_order:5} of them without their order")
    return 1 if jobs[0].without_order or jobs[0].shipments != ROUNDS * ORDERS_PER_ROUND else 0


if __name__ == "__main__":
    sys.exit(main())
