"""The source in Spark: live logs, restarts, kills, limits, and the job of the example."""

from __future__ import annotations

import json
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from killed_query import PATIENCE, batches_in, child, stop_in, wait_until
from pyspark.errors import StreamingQueryException
from source_harness import Order, Query, Trickle, write

from isthmus.lab.benchmarks import source_join, source_kills
from isthmus.pipeline.source import register
from isthmus.pipeline.source.tables import CutTables
from isthmus.simulator.run import simulate
from isthmus.topology.file import load
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parent.parent.parent
CHILD = Path(__file__).with_name("source_child.py")
WANTED = ("send", "deliver")
SITES = ("madrid", "valencia")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """A simulated run of two joined sites, with faults."""
    directory = tmp_path_factory.mktemp("trace")
    simulate(load(ROOT / "examples/joins/two-sites.toml"), 2, trace=directory)
    return list(read_trace(directory).events())


def places(events: list[Event]) -> set[tuple[str, int]]:
    return {(f"{row.system}/{row.process}", row.index) for row in events if row.event in WANTED and row.role == "app"}


def stream(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    register(spark)
    reader = spark.readStream.format("isthmus").option("events", ",".join(WANTED)).options(**options)
    return reader.option("path", json.dumps([str(directory / site) for site in SITES])).load()


def rows_of(batch: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in batch.collect()), key=lambda row: (row["rank"], row["id"]))


@pytest.mark.real
def test_a_live_run_of_two_sites_never_shows_a_row_before_its_cause(
    spark: SparkSession, events: list[Event], tmp_path: Path
) -> None:
    """A thread lets the logs grow while the query runs: any process, any length, torn anywhere."""
    logs = Trickle(tmp_path, events, Random(1))
    order, wanted = Order(events), places(events)
    problems: list[str] = []
    batches = threading.Semaphore(0)

    probe = Query(*(tmp_path / site for site in SITES), events=",".join(WANTED))

    def grow() -> None:
        for sixth in range(1, 7):
            logs.write_share(sixth / 6)
            if probe.next_batch():
                batches.acquire(timeout=PATIENCE)  # the query is about to see the logs as they are now

    def take(batch: DataFrame, _: int) -> None:
        problems.extend(order.problems(rows_of(batch), wanted))
        batches.release()

    growing = threading.Thread(target=grow)
    query = stream(spark, tmp_path).writeStream.foreachBatch(take).start()
    growing.start()
    growing.join()
    query.processAllAvailable()
    count = query.lastProgress["batchId"] + 1 if query.lastProgress else 0
    query.stop()
    assert problems == []
    assert order.seen == wanted
    assert count > 2, "the logs did not grow while the query ran"


def test_a_batch_that_failed_comes_again_with_the_same_rows(
    spark: SparkSession, events: list[Event], tmp_path: Path
) -> None:
    for site in SITES:
        write(tmp_path / site, [row for row in events if row.system == site])
    attempts: list[tuple[int, list[dict[str, Any]]]] = []
    limit = len(places(events)) // 3

    def take(batch: DataFrame, number: int) -> None:
        attempts.append((number, rows_of(batch)))
        if len(attempts) == 2:
            raise RuntimeError("the sink is away")

    for _ in range(2):
        writer = stream(spark, tmp_path, maxRowsPerBatch=str(limit)).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start()
        if len(attempts) < 2:
            with pytest.raises(StreamingQueryException, match="the sink is away"):
                query.awaitTermination()
        else:
            query.awaitTermination()
    numbers = [number for number, _ in attempts]
    assert numbers == [0, 1, *range(1, numbers[-1] + 1)]
    assert attempts[1] == attempts[2]
    assert {len(rows) for _, rows in attempts[:-1]} == {limit}, "the limit is kept to the row"
    order, wanted = Order(events), places(events)
    assert not [problem for _, rows in [attempts[0], *attempts[2:]] for problem in order.problems(rows, wanted)]
    assert order.seen == wanted


def test_a_batch_read_has_the_same_rows(spark: SparkSession, events: list[Event], tmp_path: Path) -> None:
    write(tmp_path, events)
    register(spark)
    reader = spark.read.format("isthmus").option("events", "send,deliver")
    rows = rows_of(reader.schema("system string, process string, index long, rank long, id string").load(str(tmp_path)))
    assert not Order(events).problems(rows, places(events))
    assert len(rows) == len(places(events))


# Kills ----------------------------------------------------------------------------------------------------------------


def command(mode: str, limit: int, *arguments: Path) -> list[str]:
    return [sys.executable, str(CHILD), mode, str(limit), *map(str, arguments)]


@pytest.mark.real
@pytest.mark.timeout(4 * PATIENCE)
def test_killed_in_a_batch_and_between_batches_the_sink_holds_every_row_once(
    spark: SparkSession, events: list[Event], tmp_path: Path
) -> None:
    """The same query, as a program of its own, as a client of Spark Connect, and here."""
    checkpoint, sink, counted = tmp_path / "checkpoint", tmp_path / "sink", tmp_path / "counted"
    paths = [tmp_path / site for site in SITES]
    logs = Trickle(tmp_path, events, Random(2))
    logs.write_share(2 / 3)
    limit = len(places(events)) // 4

    def planned() -> set[int]:
        return batches_in(checkpoint / "offsets")

    def committed() -> set[int]:
        return batches_in(checkpoint / "commits")

    with child(command("classic", limit, checkpoint, sink, counted, *paths)) as process:
        stop_in(process, lambda: bool(planned() - committed() - {0}), "a batch is under way")

    available = _greatest_cut(paths)
    with child(command("connect", limit, checkpoint, sink, counted, *paths)):
        wait_until(
            lambda: planned() == committed() and _cut_of(checkpoint, max(committed())) == available,
            "everything there is has been read",
        )
    logs.write_share(1)

    writer = stream(spark, tmp_path, maxRowsPerBatch=str(limit)).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start(str(sink)).awaitTermination()

    rows = rows_of(spark.read.parquet(str(sink)))
    assert len(rows) == len({row["id"] for row in rows}), "nothing twice"
    assert int(counted.read_text()) == sum(row["index"] < available.get(_log_of(row), 0) for row in rows)
    order, wanted = Order(events), places(events)
    start: dict[str, int] = {}
    for number in sorted(planned()):
        end = _cut_of(checkpoint, number)
        batch = [row for row in rows if start.get(_log_of(row), 0) <= row["index"] < end.get(_log_of(row), 0)]
        assert not order.problems(batch, wanted)
        start = end
    assert order.seen == wanted, "nothing lost"


def _log_of(row: dict[str, Any]) -> str:
    return str(row["id"]).rpartition("/")[0]


def _cut_of(checkpoint: Path, number: int) -> dict[str, int]:
    offset = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
    return {name: place[0] for name, place in offset["logs"].items()}


def _greatest_cut(paths: list[Path]) -> dict[str, int]:
    query = Query(*paths)
    query.next_batch()
    return query.committed


# Tables under one cut id ----------------------------------------------------------------------------------------------


@pytest.mark.real
def test_a_view_shows_only_cuts_that_all_tables_have(spark: SparkSession, events: list[Event], tmp_path: Path) -> None:
    """The sink dies once before each table and before the mark, and is started again."""
    for site in SITES:
        write(tmp_path / site, [row for row in events if row.system == site])
    deaths = ["sends", "deliveries", "cuts"]
    seen: list[set[str]] = []

    def between(name: str) -> None:
        views = [{row.cut for row in tables.view(each).select("cut").distinct().collect()} for each in made]
        assert all(view <= {row.cut for row in tables.cuts().collect()} for view in views)
        if deaths and name == deaths[0]:
            deaths.pop(0)
            seen.append({path.name for path in (tmp_path / "lake").glob("*/cut=*")})
            raise RuntimeError("killed")
        made.add(name) if name != "cuts" else None

    made: set[str] = set()
    chosen = {"sends": "event = 'send'", "deliveries": "event = 'deliver'"}
    tables = CutTables(spark, str(tmp_path / "lake"), chosen, between)
    limit = len(places(events)) // 3
    for attempt in range(4):
        rows = stream(spark, tmp_path, maxRowsPerBatch=str(limit), checkpointLocation=str(tmp_path / "checkpoint"))
        writer = rows.writeStream.foreachBatch(tables.take)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if attempt < 3:
            with pytest.raises(StreamingQueryException, match="killed"):
                query.awaitTermination()
            made.clear()
        else:
            query.awaitTermination()
    assert not deaths
    assert len(set.union(*seen)) == 1, "the same batch, under the same cut id"
    found = [row.id for name in chosen for row in tables.view(name).select("id").collect()]
    assert len(found) == len(set(found)) == len(places(events))
    batches = [row.batch for row in tables.cuts().orderBy("cut").collect()]
    assert batches == list(range(len(batches)))
    before = sorted(str(path) for path in (tmp_path / "lake").rglob("*.parquet"))
    batch = spark.createDataFrame([(row.cut,) for row in tables.cuts().collect()[:1]], "cut string")
    tables.take(batch, 0)
    assert sorted(str(path) for path in (tmp_path / "lake").rglob("*.parquet")) == before, "a marked cut stays as it is"


@pytest.mark.real
@pytest.mark.timeout(8 * PATIENCE)
def test_killed_while_files_are_rotated_and_damaged_every_row_comes_once_under_one_cut() -> None:
    outcome = source_kills.run(3, seed=3)
    assert outcome.holds
    assert outcome.repeated


@pytest.mark.real
def test_watermarks_lose_what_comes_late_and_the_source_does_not(spark: SparkSession) -> None:
    causal, guessed = source_join.measure(rounds=8, watermarks=[10])
    assert causal.unmatched == 0
    assert causal.matched == causal.shipments == 8 * 2 * source_join.ORDERS
    assert guessed.unmatched > 0


# The example ----------------------------------------------------------------------------------------------------------


def _example(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / f"examples/pipeline/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_the_example_never_sees_a_shipment_without_its_order(spark: SparkSession, tmp_path: Path) -> None:
    example = _example("orders_and_shipments")
    example.ROUNDS = 2
    causal, plain = example.run(spark, tmp_path)
    assert causal.shipments == plain.shipments == 2 * example.ORDERS_PER_ROUND
    assert causal.without_order == 0
    assert plain.without_order > 0


@pytest.mark.real
def test_the_example_of_two_tables_shows_no_cut_that_one_of_them_lacks(spark: SparkSession, tmp_path: Path) -> None:
    example = _example("tables_under_one_cut")
    died, ended = example.run(spark, tmp_path)
    assert died[0] > died[2], "orders were written that no view shows"
    assert died[1] == died[3]
    assert ended == (example.ORDERS,) * 4
