"""`kill -9` of a streaming query, again and again, while its logs are rotated, compressed, deleted and damaged.

A shop and a warehouse write orders and shipments in parts. A query in a process of its own reads them with the isthmus
source and writes two tables under one cut id (`pipeline.source.tables`). It is killed at moments drawn by a seed: while
a batch is planned, between the writes of its tables, before it is committed, between batches. In between, parts are
compressed, moved and, once they are committed, deleted, and one part is damaged before it was read. In the end the
tables are held against what was written: every row once but those of the damaged part, which are told as a gap, no
shipment in a cut before that of its order, and no view that ever showed a cut which one of the tables lacks.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from isthmus.lab.harness.os_process import SLOWNESS
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.source import register
from isthmus.pipeline.source.journal import losses
from isthmus.pipeline.source.log import DeliveryLog
from isthmus.pipeline.source.tables import MARKS, CutTables
from isthmus.trace.schema import TraceError

ORDERS_PER_ROUND = 15
PATIENCE = 240.0 * SLOWNESS
"""Seconds for one thing to happen."""
STARTS = 3
"""How often a query may be started that ends by itself: Spark gives a Python that starts only ten seconds, however busy
the machine is."""
TABLES = {"orders": "payload LIKE '%order%'", "shipments": "payload LIKE '%shipment%'"}
QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "2"}


class Outcome(Struct, frozen=True):
    """What the tables say in the end."""

    kills: int
    cuts: int
    orders: int
    shipments: int
    twice: int
    missing: int
    """Rows that were written, are in no gap, and are not in the tables."""
    early: int
    """Shipments in a cut before that of their order."""
    gap_rows: int
    repeated: int
    """Cuts that were under way when the query was killed, and came again."""
    half_written: int
    """Cuts that one table had and the other did not, at the moment of a kill."""
    offset_bytes: int
    seconds: float

    @property
    def holds(self) -> bool:
        return not (self.twice or self.missing or self.early) and self.gap_rows > 0


class Business:
    """The two sites, and what the operators do to their files."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory, self.random = directory, random
        self.shop = DeliveryLog(directory / "madrid", "today", "madrid", "shop", parts=True)
        self.warehouse = DeliveryLog(directory / "valencia", "today", "valencia", "warehouse", parts=True)
        self.orders = 0
        self.lost: tuple[int, int] | None = None
        """Rows of the warehouse in the part that was damaged."""
        self._stops: dict[str, tuple[str, int]] = {}

    def work(self) -> None:
        """A round: orders, shipments, one part of each log. Madrid's is late in every other round."""
        for _ in range(ORDERS_PER_ROUND):
            self.orders += 1
            order = json.dumps({"kind": "order", "number": self.orders})
            shipment = json.dumps({"kind": "shipment", "number": self.orders})
            self.shop.sent(self.orders, order)
            self.warehouse.delivered("madrid", "shop", self.orders, order)
            self.warehouse.sent(self.orders, shipment)
            self.shop.delivered("valencia", "warehouse", self.orders, shipment)
        self._flush(self.warehouse)
        if self.random.random() < 0.5:
            self._flush(self.shop)

    def finish(self) -> None:
        for log in (self.shop, self.warehouse):
            log.end()

    def _flush(self, log: DeliveryLog) -> None:
        before = set(log.directory.glob("*.jsonl"))
        log.flush()
        for part in set(log.directory.glob("*.jsonl")) - before:
            self._stops[part.name] = (f"today/{log.system}/{log.process}", log.next_index)

    def damage_a_part(self) -> None:
        """A part of the warehouse with nothing but shipments that nobody has read yet; the query is dead."""
        first = self.warehouse.next_index
        numbers = range(self.orders + 1, self.orders + 6)
        self.orders += 5
        for number in numbers:
            self.shop.sent(number, json.dumps({"kind": "order", "number": number}))
            self.warehouse.sent(number, json.dumps({"kind": "shipment", "number": number}))
        before = set(self.warehouse.directory.glob("*.jsonl"))
        self.warehouse.flush()
        (part,) = set(self.warehouse.directory.glob("*.jsonl")) - before
        part.write_bytes(b"\x00\xfe" * 400 + b"\n")
        self.lost = (first, self.warehouse.next_index)

    def rotate(self, committed: dict[str, Any]) -> None:
        for part in sorted(self.directory.glob("*/*.jsonl*")):
            log, stop = self._stops.get(part.name.removesuffix(".gz"), ("", 0))
            deed = self.random.choice(["compress", "move", "delete", "leave"])
            if not log or deed == "leave":
                continue
            if deed == "delete" and committed.get(log, [0])[0] >= stop:
                part.unlink()
            elif deed == "compress" and part.suffix == ".jsonl":
                packed = part.with_name(f".{part.name}.gz")
                packed.write_bytes(gzip.compress(part.read_bytes()))
                packed.rename(part.with_name(f"{part.name}.gz"))
                part.unlink()
            elif deed == "move":
                target = part.parent / "archive"
                target.mkdir(exist_ok=True)
                part.rename(target / part.name)


def run(kills: int, seed: int = 1) -> Outcome:
    """Kill a query so many times, and look at what it wrote."""
    random = Random(seed)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="isthmus-kills-") as scratch:
        directory = Path(scratch)
        business = Business(directory / "logs", random)
        lake = Lake(directory / "lake")
        half_written = repeated = 0
        for number in range(kills):
            business.work()
            business.work()
            moment = random.choice(["plan", "orders", "shipments", MARKS, "commit", "idle"])
            for _ in range(STARTS):
                with _query(directory, moment) as process:
                    if lake.wait_for(moment, process):
                        break
            else:
                raise RuntimeError(f"the query ended by itself {STARTS} times, with exit code {process.returncode}")
            half_written += lake.half_written()
            repeated += lake.planned() != lake.committed()
            if number == kills // 2:
                business.damage_a_part()
            business.rotate(lake.committed_cut())
        business.work()
        business.finish()
        for _ in range(STARTS):
            with _query(directory, "end") as process:
                process.wait(PATIENCE)
            if not process.returncode:
                break
        else:
            raise RuntimeError(f"the query ended with exit code {process.returncode}, {STARTS} times")
        return _judge(directory, business, lake, kills, half_written, repeated, time.perf_counter() - started)


class Lake:
    """What a query has written so far, as its files say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint = directory / "checkpoint"

    def _cuts(self, table: str) -> set[str]:
        return {path.parent.name for path in (self.directory / table).glob("cut=*/_SUCCESS")}

    def half_written(self) -> int:
        orders, shipments = map(self._cuts, TABLES)
        return len(orders ^ shipments)

    def planned(self) -> int:
        return max((int(file.name) for file in (self.checkpoint / "offsets").glob("[0-9]*")), default=-1)

    def committed(self) -> int:
        return max((int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)

    def committed_cut(self) -> dict[str, Any]:
        offset = self.checkpoint / "offsets" / str(self.committed())
        return dict(json.loads(offset.read_text().splitlines()[-1])["logs"]) if offset.exists() else {}

    def offset_bytes(self) -> int:
        return max(len(file.read_text().splitlines()[-1]) for file in (self.checkpoint / "offsets").glob("[0-9]*"))

    def wait_for(self, moment: str, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the query is where it has to be killed. Says whether it got there, and did not end before."""
        before = self.planned()
        committed = self.committed()
        signal_file = self.directory / "reached"
        signal_file.unlink(missing_ok=True)
        conditions: dict[str, Callable[[], bool]] = {
            "plan": lambda: self.planned() > max(before, committed),
            "commit": lambda: len(self._cuts(MARKS)) > committed + 1,
            "idle": lambda: self.committed() > committed,
        }
        reached = conditions.get(moment, signal_file.exists)
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited in vain for the query to reach: {moment}")
            time.sleep(0.005)
        return True


@contextmanager
def _query(directory: Path, moment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The query as a process with a group of its own, so that a kill takes Python and Java at once."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(directory), moment]
    java = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    process = subprocess.Popen(command, start_new_session=True, env=os.environ | java)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def child(directory: Path, moment: str) -> None:
    """The query that is killed. `moment` is the table before which it stops and waits for that."""
    lake = directory / "lake"

    def between(name: str) -> None:
        if name == moment:
            lake.mkdir(exist_ok=True)
            (lake / "reached").touch()
            time.sleep(PATIENCE)

    spark = spark_session("local[2]", driver_memory="1g", shuffle_partitions=2, settings=QUICK)
    register(spark)
    checkpoint = str(lake / "checkpoint")
    reader = spark.readStream.format("isthmus").option("events", "send").option("failOnDataLoss", "false")
    reader = reader.option("checkpointLocation", checkpoint).option("maxRowsPerBatch", 40)
    rows = reader.schema("id string, payload string, rank long, cut string").load(str(directory / "logs"))
    tables = CutTables(spark, str(lake), TABLES, between)
    writer = rows.writeStream.foreachBatch(tables.take).option("checkpointLocation", checkpoint)
    if moment == "end":
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        writer.start().awaitTermination()


def _judge(
    directory: Path, business: Business, lake: Lake, kills: int, half_written: int, repeated: int, seconds: float
) -> Outcome:
    spark = spark_session("local[2]", driver_memory="1g", shuffle_partitions=2, settings=QUICK)
    tables = CutTables(spark, str(lake.directory), TABLES)
    found: dict[str, list[tuple[int, str]]] = {}
    for name in TABLES:
        view = tables.view(name).selectExpr("CAST(get_json_object(payload, '$.number') AS INT) number", "cut")
        found[name] = [(row.number, row.cut) for row in view.collect()]
    cut_of = dict(found["orders"])
    told = losses(lake.checkpoint)
    gap_rows = sum(gap.stop - gap.first for gap in told.gaps)
    assert business.lost is not None
    if {(gap.first, gap.stop) for gap in told.gaps} != {business.lost} or not told.quarantine:
        raise TraceError("gaps", f"told are {told}, and lost was {business.lost}", "look for what else was lost")
    lost = business.lost[1] - business.lost[0]
    return Outcome(
        kills=kills,
        cuts=tables.cuts().count(),
        orders=len(found["orders"]),
        shipments=len(found["shipments"]),
        twice=sum(len(rows) - len({number for number, _ in rows}) for rows in found.values()),
        missing=2 * business.orders - lost - sum(len({number for number, _ in rows}) for rows in found.values()),
        early=sum(cut < cut_of.get(number, "~") for number, cut in found["shipments"]),
        gap_rows=gap_rows,
        repeated=repeated,
        half_written=half_written,
        offset_bytes=lake.offset_bytes(),
        seconds=seconds,
    )


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2])
