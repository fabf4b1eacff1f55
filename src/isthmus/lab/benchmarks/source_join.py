"""One join of two tables, once with the isthmus source and once with Spark's own file streams and watermarks.

Two shops send orders, and a warehouse sends a shipment for each, half a minute later. Their logs reach the lake in
parts every five minutes; those of the second shop come half an hour late. Each shipment has to meet its order.

- **Spark's way**: two file streams and a left outer join, with watermarks, because state has to end somewhere. Whoever
  writes the query has to guess how late a file can be. Orders that are later are dropped, and their shipments come
  out without an order.
- **With the source**: a shipment does not come before its order did, so every batch joins with what is there. Nothing
  is guessed, and nothing has to be kept for rows that may never come.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from isthmus.pipeline.session import spark_session
from isthmus.pipeline.source import SCHEMA, register
from isthmus.pipeline.source.log import DeliveryLog

ROUNDS = 12
ORDERS = 20
"""Of each shop in one round."""
ROUND_MINUTES = 5
LATE_ROUNDS = 6
WATERMARKS = (10, 20, 60)
"""Minutes that the writer of Spark's query may guess."""
_MESSAGE = "number int"
_MINUTE = 60 * 10**9


class Joined(Struct, frozen=True):
    """One way to join, and how many of the shipments came out with and without their order."""

    way: str
    shipments: int
    matched: int
    unmatched: int
    most_held: int
    """Rows that had to be kept at once to be joined later; -1 where that is not counted."""


class Business:
    """Two shops and a warehouse with a clock of their own."""

    def __init__(self, directory: Path) -> None:
        self.now = 10**18
        self.orders = 0
        self.shops = [self._log(directory, "madrid", f"shop{number}") for number in (1, 2)]
        self.warehouse = self._log(directory, "valencia", "warehouse")
        self.sent = [0, 0]

    def _log(self, directory: Path, system: str, process: str) -> DeliveryLog:
        return DeliveryLog(directory / system, "today", system, process, parts=True, clock=lambda: self.now)

    def work(self, number: int) -> None:
        """Five minutes. The second shop's part comes only every half hour."""
        for _ in range(ORDERS):
            self.now += ROUND_MINUTES * _MINUTE // ORDERS
            for place, shop in enumerate(self.shops):
                self.orders += 1
                self.sent[place] += 1
                text = json.dumps({"number": self.orders})
                shop.sent(self.sent[place], text)
                self.warehouse.delivered("madrid", shop.process, self.sent[place], text)
                self.warehouse.sent(self.orders, text)
        self.shops[0].flush()
        self.warehouse.flush()
        if number % LATE_ROUNDS == LATE_ROUNDS - 1:
            self.shops[1].flush()

    def rest(self) -> None:
        """Much later something happens everywhere, so that watermarks pass everything before."""
        self.now += 1000 * _MINUTE
        self.orders += 1
        for place, shop in enumerate(self.shops):
            shop.sent(self.sent[place] + 1, json.dumps({"number": -1 - place}))
            shop.flush()
        self.warehouse.sent(self.orders, json.dumps({"number": -3}))
        self.warehouse.flush()


def measure(rounds: int = ROUNDS, watermarks: Sequence[int] = WATERMARKS) -> list[Joined]:
    """The join in all ways at once, while the logs come."""
    spark = spark_session(shuffle_partitions=2)
    register(spark)
    with tempfile.TemporaryDirectory(prefix="isthmus-join-") as scratch:
        directory = Path(scratch)
        logs = directory / "logs"
        business = Business(logs)
        ways = [_Causal(spark, directory), *(_Watermarks(spark, directory, minutes) for minutes in watermarks)]
        for number in range(rounds):
            business.work(number)
            for way in ways:
                way.catch_up()
        for _ in range(2):
            business.rest()
            for way in ways:
                way.catch_up()
        for way in ways:
            way.query.stop()
        return [way.joined() for way in ways]


class _Way:
    name = ""

    def __init__(self) -> None:
        self.found: list[tuple[int, bool]] = []
        self.query: Any = None
        self.held = -1

    def catch_up(self) -> None:
        self.query.processAllAvailable()

    def joined(self) -> Joined:
        rows = [row for row in self.found if row[0] > 0]
        matched = sum(known for _, known in rows)
        return Joined(self.name, len(rows), matched, len(rows) - matched, self.held)


class _Causal(_Way):
    """Orders go to a table; shipments of the same batch are joined with it."""

    name = "isthmus source"

    def __init__(self, spark: Any, directory: Path) -> None:
        super().__init__()
        self.orders = str(directory / "orders")
        reader = spark.readStream.format("isthmus").option("events", "send")
        rows = reader.schema("system string, payload string, cut string").load(str(directory / "logs"))
        rows = rows.selectExpr("system", "cut", f"from_json(payload, '{_MESSAGE}').number AS number")
        writer = rows.writeStream.foreachBatch(self.take)
        self.query = writer.option("checkpointLocation", str(directory / "checkpoint-isthmus")).start()

    def take(self, batch: Any, _: int) -> None:
        cut = batch.select("cut").first().cut
        orders = batch.where("system = 'madrid'").select("number")
        orders.write.parquet(f"{self.orders}/cut={cut}", mode="overwrite")
        known = batch.sparkSession.read.parquet(self.orders).selectExpr("number", "true AS known")
        shipments = batch.where("system = 'valencia'").join(known, "number", "left")
        self.found += [(row.number, row.known is True) for row in shipments.select("number", "known").collect()]


class _Watermarks(_Way):
    """A stream-stream join."""

    def __init__(self, spark: Any, directory: Path, minutes: int) -> None:
        super().__init__()
        self.name = f"Spark's streams, watermark of {minutes} minutes"
        delay = f"{minutes} minutes"

        def sent(system: str, number: str, time: str) -> Any:
            files = spark.readStream.schema(SCHEMA).json(str(directory / "logs" / system)).where("event = 'send'")
            number_of = f"from_json(payload, '{_MESSAGE}').number AS {number}"
            return files.selectExpr(number_of, f"timestamp_micros(time_ns DIV 1000) AS {time}").withWatermark(
                time, delay
            )

        views = f"orders_{minutes}", f"shipments_{minutes}"
        sent("madrid", "ordered", "ordered_at").createOrReplaceTempView(views[0])
        sent("valencia", "shipped", "shipped_at").createOrReplaceTempView(views[1])
        rows = spark.sql(
            f"SELECT shipped, ordered FROM {views[1]} LEFT JOIN {views[0]} ON shipped = ordered "
            f"AND ordered_at BETWEEN shipped_at - INTERVAL {minutes} MINUTES AND shipped_at"
        )
        writer = rows.writeStream.foreachBatch(self.take)
        self.query = writer.option("checkpointLocation", str(directory / f"checkpoint-{minutes}")).start()

    def take(self, batch: Any, _: int) -> None:
        self.found += [(row.shipped, row.ordered is not None) for row in batch.select("shipped", "ordered").collect()]

    def catch_up(self) -> None:
        super().catch_up()
        for progress in self.query.recentProgress[-3:]:
            held = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
            self.held = max(self.held, held)
