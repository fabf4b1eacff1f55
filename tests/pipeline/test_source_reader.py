"""The source without Spark: files in, micro-batches out, held against the definition of causes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec
import pyarrow.parquet
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StructField, StructType
from random_executions import number, row, sound_execution
from source_harness import Order, Query, Trickle, read_batch, write

from isthmus.lab.benchmarks.source import FORMATS, write_logs
from isthmus.pipeline.source import SCHEMA, LogStreamReader
from isthmus.pipeline.source.log import DeliveryLog
from isthmus.pipeline.source.options import parse_options
from isthmus.trace.parquet import arrow_schema
from isthmus.trace.reader import read_trace
from isthmus.trace.rows import MAX_LINE
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.writer import ParquetSink


def execution(seed: int, steps: int = 60) -> list[Event]:
    logs = sound_execution(Random(seed), steps)
    number(logs)
    return [event for log in logs.values() for event in log]


def log(name: str, *rows: tuple[str, tuple[str, int]] | str) -> list[Event]:
    """The log of one process: events, and those about messages with their ids."""
    events = [row(name, each) if isinstance(each, str) else row(name, *each) for each in rows]
    return [msgspec.structs.replace(event, index=index) for index, event in enumerate(events)]


ASK, ANSWER = ("a/p1", 1), ("b/p1", 1)
SHOP = log("a/p1", "start", ("send", ASK), ("deliver", ASK), ("deliver", ANSWER), "end")
WAREHOUSE = log("b/p1", "start", ("deliver", ASK), ("send", ANSWER), ("deliver", ANSWER), "end")
"""A question of one process, the answer of another."""

EVERYTHING = {"events": "*", "roles": "*"}


def ids(rows: Sequence[Any]) -> list[str]:
    return [each["id"] for each in rows]


# The promise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_live_logs_of_two_sites_never_show_a_row_before_its_cause(seed: int, tmp_path: Path) -> None:
    """Logs grow in any order and are torn anywhere; batches are small; the reader dies now and then."""
    random = Random(seed)
    events = execution(seed)
    wanted_events = random.choice(["*", "send,deliver", "deliver", "send"])
    wanted = {
        (f"{each.system}/{each.process}", each.index)
        for each in events
        if wanted_events == "*" or each.event in wanted_events.split(",")
    }
    order = Order(events)
    logs = Trickle(tmp_path, events, random)
    query = Query(tmp_path / "a", tmp_path / "b", events=wanted_events)
    growing = True
    while growing:
        growing = logs.write_some()
        batch = query.next_batch(random.choice([1, 3, 20, None]))
        assert not order.problems(batch, wanted)
        if batch and random.random() < 0.2:
            query.restart()
            assert query.last_batch_again() == batch
    before = None
    while query.start != before:
        before = query.start
        assert not order.problems(query.next_batch(3), wanted)
    assert order.seen == wanted


def test_sorted_by_rank_a_batch_is_in_causal_order(tmp_path: Path) -> None:
    events = execution(4, steps=200)
    write(tmp_path, events)
    wanted = {(f"{each.system}/{each.process}", each.index) for each in events}
    assert not Order(events).problems(read_batch(tmp_path, **EVERYTHING), wanted)


def test_the_check_of_the_promise_can_fail() -> None:
    order = Order([*SHOP, *WAREHOUSE])
    wanted = {(f"{each.system}/{each.process}", each.index) for each in (*SHOP, *WAREHOUSE)}
    assert order.problems([{"system": "b", "process": "p1", "index": 0}], wanted) == []
    assert order.problems([{"system": "b", "process": "p1", "index": 1}], wanted) == ["('b/p1', 1) before ('a/p1', 1)"]
    assert "('b/p1', 0) again" in order.problems([{"system": "b", "process": "p1", "index": 0}], wanted)


# Logs that are late, torn or damaged ----------------------------------------------------------------------------------


def test_a_log_that_lags_holds_back_its_effects_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:1])
    write(tmp_path, WAREHOUSE)
    query = Query(tmp_path, **EVERYTHING)
    assert query.ids() == ["r/a/p1/0", "r/b/p1/0"]
    assert query.ids() == []
    assert query.reader.reportLatestOffset() == {"r/a/p1": 1, "r/b/p1": 5}
    write(tmp_path, SHOP[1:])
    assert len(query.ids()) == 8


def test_a_site_that_has_not_started_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "b", WAREHOUSE)
    query = Query(tmp_path / "a", tmp_path / "b")
    assert query.ids() == []
    write(tmp_path / "a", SHOP)
    assert len(query.ids()) == 4


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    line = msgspec.json.encode(SHOP[0]) + b"\n"
    file = tmp_path / "log.jsonl"
    file.write_bytes(line[:40])
    query = Query(tmp_path, **EVERYTHING)
    assert query.ids() == []
    file.write_bytes(line)
    assert query.ids() == ["r/a/p1/0"]


def test_a_last_line_without_its_newline_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, SHOP[:2])))
    query = Query(tmp_path, **EVERYTHING)
    assert query.ids() == ["r/a/p1/0", "r/a/p1/1"]
    with open(tmp_path / "log.jsonl", "ab") as file:
        file.write(b"\n" + msgspec.json.encode(SHOP[2]) + b"\n")
    assert query.ids() == ["r/a/p1/2"]


def test_a_newline_may_come_by_itself(tmp_path: Path) -> None:
    line = msgspec.json.encode(SHOP[0])
    (tmp_path / "log.jsonl").write_bytes(line)
    query = Query(tmp_path, **EVERYTHING)
    assert query.ids() == ["r/a/p1/0"]
    (tmp_path / "log.jsonl").write_bytes(line + b"\n")
    assert query.ids() == []
    (tmp_path / "log.jsonl").write_bytes(line + b"\n" + msgspec.json.encode(SHOP[1]) + b"\n")
    assert query.ids() == ["r/a/p1/1"]


def test_rows_that_are_lost_fail_the_query_or_are_left_out(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(each) for each in SHOP]
    lines[1] = b'{"damaged": tru'
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(TraceError, match=r"rows 1 to 1 of r/a/p1 are missing .*no row.*failOnDataLoss"):
        Query(tmp_path).next_batch()
    query = Query(tmp_path, failOnDataLoss="false", outside="b", **EVERYTHING)
    assert query.ids() == ["r/a/p1/0", "r/a/p1/2", "r/a/p1/3", "r/a/p1/4"]


def test_a_message_whose_send_row_is_lost_holds_nobody_up(tmp_path: Path) -> None:
    write(tmp_path, [*SHOP[:1], *SHOP[2:], *WAREHOUSE])
    assert len(read_batch(tmp_path, failOnDataLoss="false")) == 4


def test_a_part_that_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:1], "log-00000")
    write(tmp_path, SHOP[2:3], "log-00002")
    query = Query(tmp_path, **EVERYTHING)
    assert query.ids() == ["r/a/p1/0"]
    assert query.ids() == []
    write(tmp_path, SHOP[1:2], "log-00001")
    assert query.ids() == ["r/a/p1/1", "r/a/p1/2"]


def test_a_log_that_was_cut_back_before_it_was_read_fails_the_query(tmp_path: Path) -> None:
    write(tmp_path, SHOP)
    query = Query(tmp_path, outside="b", **EVERYTHING)
    query.next_batch(2)
    (tmp_path / "a.p1.jsonl").write_bytes(b"")
    with pytest.raises(TraceError, match=r"data loss: .*a\.p1\.jsonl: has gone before all its rows were committed"):
        query.next_batch()


def test_a_checkpoint_without_its_logs_fails_the_query(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:3])
    query = Query(tmp_path)
    query.next_batch()
    (tmp_path / "a.p1.jsonl").unlink()
    query.restart()
    with pytest.raises(TraceError, match="checkpoint"):
        query.last_batch_again()


def test_a_process_that_died_with_its_last_rows_is_given_up_after_some_time(tmp_path: Path) -> None:
    """It was killed before its log was flushed: the others delivered a message of which nobody will see the sending."""
    write(tmp_path, SHOP[:1])
    write(tmp_path, WAREHOUSE)
    query = Query(tmp_path, patienceSeconds="30")
    now = [0.0]
    query.reader.index.clock = lambda: now[0]
    assert query.ids() == []
    now[0] = 29
    assert query.ids() == []
    now[0] = 31
    batch = query.next_batch()
    assert ids(batch) == ["r/b/p1/1", "r/b/p1/3"]
    query.restart()
    assert query.last_batch_again() == batch, "what was decided once is not waited for again"


def test_a_log_that_still_grows_is_not_given_up(tmp_path: Path) -> None:
    views = [row("a/p1", "view", index=index, peer="1", destinations=()) for index in range(1, 4)]
    write(tmp_path, SHOP[:1])
    write(tmp_path, WAREHOUSE)
    query = Query(tmp_path, patienceSeconds="30")
    now = [0.0]
    query.reader.index.clock = lambda: now[0]
    for view in views:
        query.ids()
        now[0] += 20
        write(tmp_path, [view])
    assert query.ids() == []
    assert query.start["logs"]["r/b/p1"][0] == 1


def test_rows_that_come_twice_count_once(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:3], "one")
    write(tmp_path, SHOP, "two")
    assert Query(tmp_path, outside="b", **EVERYTHING).ids() == [f"r/a/p1/{index}" for index in range(5)]


# Files ----------------------------------------------------------------------------------------------------------------


def test_many_processes_may_share_a_file(tmp_path: Path) -> None:
    events = execution(5)
    Random(5).shuffle(events)
    write(tmp_path / "mixed", events, "all")
    write(tmp_path / "apart", sorted(events, key=lambda each: each.index))
    mixed = read_batch(tmp_path / "mixed", **EVERYTHING)
    assert mixed == read_batch(tmp_path / "apart", **EVERYTHING)
    assert len(mixed) == len(events)


def test_parquet_gives_the_same_rows_as_json(tmp_path: Path) -> None:
    events = execution(6)
    write(tmp_path / "json", events)
    (tmp_path / "parquet").mkdir()
    for name in {each.process + each.system for each in events}:
        sink = ParquetSink(tmp_path / "parquet", name)
        rows = [each for each in events if each.process + each.system == name]
        for at in range(0, len(rows), 4):
            sink.write(rows[at : at + 4])
    query = Query(tmp_path / "parquet", **EVERYTHING)
    rows = [each for _ in range(100) for each in query.next_batch(7)]
    assert rows == read_batch(tmp_path / "json", **EVERYTHING)


def test_a_torn_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TraceError, match=r"x\.parquet: not a readable Parquet file"):
        Query(tmp_path).next_batch()


def test_a_parquet_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(TraceError, match=r"x\.parquet: not a trace: it has no column `run`"):
        Query(tmp_path).ids()


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"origin_seq": -1}, "Expected `int` >= 1 - at `$.origin_seq`"),
        ({"origin_seq": None}, "the message id is incomplete"),
        ({"origin_process": "p2"}, "a process sends messages of its own only"),
        ({"payload_bytes": -1}, "Expected `int` >= 0 - at `$.payload_bytes`"),
        ({"event": "explode"}, "Invalid enum value 'explode'"),
        ({"event": "view"}, "a `view` row has no message"),
    ],
)
def test_a_row_that_does_not_count_is_lost_whatever_the_format(
    tmp_path: Path, suffix: str, change: dict[str, Any], reason: str
) -> None:
    rows = [msgspec.to_builtins(each) for each in SHOP]
    rows[1] |= change
    if suffix == "jsonl":
        (tmp_path / "log.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=arrow_schema()), tmp_path / "log.parquet")
    place = f"log.{suffix}, {'line' if suffix == 'jsonl' else 'row'} 2: {reason}"
    with pytest.raises(TraceError, match=rf"rows 1 to 1 of r/a/p1 are missing .*{re.escape(place)}"):
        Query(tmp_path).next_batch()
    kept = ids(read_batch(tmp_path, failOnDataLoss="false", outside="b", **EVERYTHING))
    assert kept == [f"r/a/p1/{index}" for index in (0, 2, 3, 4)]


def test_a_line_that_is_too_long_is_lost_and_others_are_not(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(each) for each in SHOP]
    lines[1] = lines[1][:-1] + b',"payload":"' + b"x" * MAX_LINE + b'"}'
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(TraceError, match=rf"log\.jsonl, line .*: longer than {MAX_LINE} bytes"):
        Query(tmp_path).next_batch()
    kept = ids(read_batch(tmp_path, failOnDataLoss="false", outside="b", **EVERYTHING))
    assert kept == [f"r/a/p1/{index}" for index in (0, 2, 3, 4)]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(each) for each in SHOP[:2]]
    (tmp_path / "log.jsonl").write_bytes(b"\n\n".join(lines) + b"\n \n")
    assert Query(tmp_path, **EVERYTHING).ids() == ["r/a/p1/0", "r/a/p1/1"]


def test_an_application_log_carries_payloads(tmp_path: Path) -> None:
    with DeliveryLog(tmp_path / "parts", "r", "a", "p1", parts=True, clock=lambda: 5) as parts:
        parts.sent(1, '{"order": "ñ"}')
        parts.flush()
        parts.delivered("a", "p1", 1, '{"order": "ñ"}')
    with DeliveryLog(tmp_path / "one", "r", "a", "p1", clock=lambda: 5) as one:
        one.sent(1, '{"order": "ñ"}')
        one.flush()
        one.delivered("a", "p1", 1, '{"order": "ñ"}')
    rows = read_batch(tmp_path / "parts", events="send,deliver")
    assert [each["payload"] for each in rows] == ['{"order": "ñ"}'] * 2
    assert rows == read_batch(tmp_path / "one", events="send,deliver")
    assert len(list((tmp_path / "parts").glob("*.jsonl"))) == 2
    assert not read_trace(tmp_path / "one").quarantined
    with pytest.raises(TraceError, match="already a log"):
        DeliveryLog(tmp_path / "one", "r", "a", "p1")


@pytest.mark.parametrize("trace_format", FORMATS)
def test_the_logs_of_the_benchmark_are_whole(trace_format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", trace_format, 3000)
    assert len(read_batch(tmp_path / "logs", **EVERYTHING)) == 3000


# Options --------------------------------------------------------------------------------------------------------------


def test_filters_choose_rows_and_not_causes(tmp_path: Path) -> None:
    write(tmp_path, WAREHOUSE)
    write(tmp_path, SHOP[:1])
    query = Query(tmp_path, systems="b")
    assert query.ids() == [], "its cause is in a log that is filtered out, and not there yet"
    write(tmp_path, SHOP[1:])
    assert query.ids() == ["r/b/p1/1", "r/b/p1/3"]
    assert ids(read_batch(tmp_path, processes="a/p1", events="send")) == ["r/a/p1/1"]
    assert ids(read_batch(tmp_path, processes="p1", runs="r", events="start")) == ["r/a/p1/0", "r/b/p1/0"]
    assert read_batch(tmp_path, runs="another") == []
    assert read_batch(tmp_path, roles="gateway") == []


def test_a_batch_read_without_the_senders_log_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, WAREHOUSE)
    with pytest.raises(TraceError, match=r"r/a/p1: others delivered.* option outside"):
        read_batch(tmp_path)
    for outside in ("a", "a/p1", "*"):
        assert ids(read_batch(tmp_path, outside=outside)) == ["r/b/p1/1", "r/b/p1/3"]


def test_available_now_stops_where_the_logs_ended_when_it_began(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:3])
    query = Query(tmp_path, available_now=True)
    write(tmp_path, [*SHOP[3:], *WAREHOUSE])
    assert query.ids() == ["r/a/p1/2"]
    assert query.ids() == []
    query.restart()
    assert len(query.ids()) == 3


def test_a_least_number_of_rows_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:3])
    reader = Query(tmp_path).reader
    assert reader.latestOffset({}, ReadMinRows(2)) == {}
    assert reader.latestOffset({}, ReadMinRows(1))["logs"] == {"r/a/p1": [3, 1, 0]}


def test_the_limit_is_an_option(tmp_path: Path) -> None:
    limited = LogStreamReader(parse_options({"path": str(tmp_path), "maxrowsperbatch": "7"}), SCHEMA)
    assert limited.getDefaultReadLimit() == ReadMaxRows(7)


def test_rows_are_shared_out_to_tasks(tmp_path: Path) -> None:
    write(tmp_path, [*SHOP, *WAREHOUSE])
    query = Query(tmp_path, rowsPerPartition="4")
    assert len(query.reader.partitions({}, query.reader.latestOffset({}, ReadMaxRows(100)))) == 2
    assert len(query.next_batch()) == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "path: no path given"),
        ({"path": "[1]"}, "path: not a list"),
        ({"path": '["here", "s3://bucket/traces"]'}, "s3://bucket/traces: no kind of store"),
        ({"path": "x", "event": "deliver"}, "event: no such option"),
        ({"path": "x", "events": "deliver,arrive"}, "events: no such value: arrive"),
        ({"path": "x", "events": ","}, "events: no value given"),
        ({"path": "x", "maxRowsPerBatch": "0"}, "maxRowsPerBatch: not a number to count with: 0"),
        ({"path": "x", "failOnDataLoss": "maybe"}, "failOnDataLoss: neither true nor false"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        parse_options(options)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(TraceError, match="column causes: the source has no such column"):
        LogStreamReader(parse_options({"path": "x"}), StructType([StructField("causes", LongType())]))
