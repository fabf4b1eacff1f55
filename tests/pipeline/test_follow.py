"""The streaming audit in Spark: files that grow, kills, restarts, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from follow_harness import is_finished
from killed_query import PATIENCE, batches_in, child, stop_in, wait_until
from known_mistakes import invented, large, relayed, repeated
from pyspark.errors import PySparkException
from source_harness import Trickle
from trace_files import all_rows, executions, write_jsonl

from isthmus.pipeline.follow import STARTS, follow, watch
from isthmus.pipeline.follow.files import GrowingFiles, pieces, read_packed, unpack
from isthmus.pipeline.follow.judge import FOLLOWED
from isthmus.pipeline.follow.record import BatchFindings, Summary
from isthmus.pipeline.problems import SparkProblem
from isthmus.trace.oracles import judge
from isthmus.trace.parquet import arrow_schema
from isthmus.trace.schema import TraceError, Violation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMAND = [sys.executable, "-m", "isthmus", "audit", "--follow", "--master", "local[2]", "--memory", "1g"]


class Told:
    """What was told."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.bad_rows: list[str] = []
        self.finished: list[str] = []

    def __call__(self, batch: BatchFindings, summary: Summary) -> None:
        self.violations += batch.violations
        self.bad_rows += batch.bad_rows
        self.finished += [verdicts[0].run for verdicts in batch.finished]


# Files ----------------------------------------------------------------------------------------------------------------


def rows_between(start: dict[str, int], end: dict[str, int]) -> list[int]:
    packs = [pack for piece in pieces(start, end) for pack in read_packed(piece)]
    return [row.index for pack in packs if pack.run for row in unpack(pack.rows)]


def test_a_torn_line_waits_for_its_end_and_a_batch_is_no_longer_than_its_limit(tmp_path: Path) -> None:
    log = next(iter(large("r").values()))
    path = tmp_path / "log.jsonl"
    lines = write_jsonl(path, log).read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    files = GrowingFiles([str(tmp_path)])
    first = files.latest({})
    assert rows_between({}, first) == [0, 1]
    assert files.latest(first) == first
    path.write_bytes(b"".join(lines))
    small = GrowingFiles([str(tmp_path)], batch_bytes=1)
    read, start = [0, 1], first
    while (end := small.latest(start)) != start:
        assert end[str(path)] - start[str(path)] <= 65536
        read += rows_between(start, end)
        start = end
    assert read == [event.index for event in log]
    path.write_bytes(lines[0])
    with pytest.raises(TraceError, match="was cut back"):
        files.latest(start)


def test_a_parquet_file_is_read_when_it_is_whole_and_quarantined_when_it_never_is(tmp_path: Path) -> None:
    log = next(iter(repeated().values()))[:30]
    table = pa.Table.from_pylist([msgspec.to_builtins(event) for event in log], schema=arrow_schema())
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=8)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    files = GrowingFiles([str(tmp_path)])
    first = files.latest({})
    assert rows_between({}, first) == [event.index for event in log]
    assert list(first) == [str(tmp_path / "log.parquet")]
    second = files.latest(first)
    bad = [pack for piece in pieces(first, second) for pack in read_packed(piece)]
    assert [(pack.run, pack.bad) for pack in bad] == [("", 1)]
    assert "not a readable Parquet file" in bad[0].reasons[0]
    assert files.latest(second) == second


# Queries --------------------------------------------------------------------------------------------------------------


def test_logs_that_grow_give_the_verdicts_of_the_batch_audit_over_restarts_and_may_not_shrink(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = {run: events for run, events in executions(range(30)).items() if is_finished(events)}
    traces, checkpoint = tmp_path / "traces", tmp_path / "checkpoint"
    told = Told()
    logs = {run: Trickle(traces / run, events, Random(1)) for run, events in runs.items()}
    for share in (0.6, 1):
        for log in logs.values():
            log.write_share(share)
        if share == 1:
            (traces / "bad.jsonl").write_text('nonsense\n{"run": "x"}\n')
        record = follow(spark, [traces], checkpoint, told, once=True)
    expected = judge([event for events in runs.values() for event in events], FOLLOWED)
    assert [(each.run, each.property, each.verdict, each.checked) for each in record.summary.report([]).verdicts] == [
        (each.run, each.property, each.verdict, each.checked) for each in expected.verdicts
    ]
    found = {(each.run, each.property): each.violations for each in record.summary.report([]).verdicts}
    assert Counter((each.run, each.property) for each in told.violations) == Counter(found)
    # The oracle counts causal violations by direct causes only; test_follow_state compares those with the definition.
    assert {place: count for place, count in found.items() if place[1] != "causal"} == {
        (each.run, each.property): each.violations for each in expected.verdicts if each.property != "causal"
    }
    assert set(told.finished) <= set(runs)
    assert record.violations() == told.violations
    assert record.summary.bad.count == len(told.bad_rows) == 2
    assert "bad.jsonl, line 1" in told.bad_rows[0]

    with pytest.raises(TraceError, match=r"belongs to an audit of .*traces.*; choose another directory"):
        follow(spark, [tmp_path], checkpoint, told, once=True)
    path = next(traces.glob("*/*/*.jsonl"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TraceError, match=r"jsonl: was cut back to 100 bytes.*; logs may only grow"):
        follow(spark, [traces], checkpoint, told, once=True)


# Kills ----------------------------------------------------------------------------------------------------------------


@contextmanager
def following(traces: Path, checkpoint: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*COMMAND, str(traces), "--checkpoint", str(checkpoint), "--trigger", "0", "-o", "json"]
    with (
        open(output, "ab") as file,
        open(output.with_suffix(".err"), "ab") as errors,
        child(command, stdout=file, stderr=errors) as process,
    ):
        yield process


@pytest.mark.real
@pytest.mark.timeout(5 * PATIENCE)
def test_killed_in_a_batch_and_between_batches_every_violation_is_told_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = all_rows(invented()) + all_rows(repeated()) + all_rows(relayed())
    traces, checkpoint = tmp_path / "traces", tmp_path / "checkpoint"
    output, errors = tmp_path / "output", tmp_path / "output.err"
    logs = Trickle(traces, events, Random(2))
    logs.write_share(0.5)

    def planned() -> set[int]:
        return batches_in(checkpoint / "spark" / "offsets")

    def committed() -> set[int]:
        return batches_in(checkpoint / "spark" / "commits")

    with following(traces, checkpoint, output) as process:
        wait_until(lambda: bool(committed()), "a first batch is done")
        logs.write_share(0.7)
        stop_in(process, lambda: bool(planned() - committed()), "a batch is under way")
    with following(traces, checkpoint, output) as process:
        wait_until(lambda: planned() == committed(), "all that is there was read")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: everybody gets it
        assert process.wait(PATIENCE) == 1, "a violation was found"
    assert errors.read_text() == ""
    logs.write_share(1)
    told = Told()
    record = follow(spark, [traces], checkpoint, told, once=True)

    lines = [json.loads(line) for line in output.read_text().splitlines()]
    printed = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == "violation"]
    printed += [{name: getattr(each, name) for name in each.__struct_fields__} for each in told.violations]
    assert Counter(map(json.dumps, printed)) == Counter(
        json.dumps({name: getattr(each, name) for name in each.__struct_fields__}) for each in record.violations()
    ), "everything in the record was printed once"
    assert max(Counter(map(json.dumps, printed)).values()) == 1
    expected = judge(events, FOLLOWED)
    verdicts = record.summary.report([]).verdicts
    assert [(each.run, each.property, each.verdict, each.checked) for each in verdicts] == [
        (each.run, each.property, each.verdict, each.checked) for each in expected.verdicts
    ]
    assert Counter((each["run"], each["property"]) for each in printed) == {
        (each.run, each.property): each.violations for each in verdicts if each.violations
    }


class SlowWorker:
    """A query whose Python worker does not start in time until the third try; then it ends by itself."""

    def __init__(self) -> None:
        self.starts = 0
        self.stops = 0

    def start(self) -> SlowWorker:
        self.starts += 1
        return self

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - Spark's name
        if self.starts < 3:
            raise PySparkException("[STREAM_FAILED] terminated with exception: Python worker failed to connect back.")
        return True

    def stop(self) -> None:
        self.stops += 1


def test_a_query_whose_worker_was_slow_to_start_is_started_again() -> None:
    query = SlowWorker()
    watch(query.start, lambda: True)
    assert (query.starts, query.stops) == (3, 3)


def test_a_query_whose_worker_never_starts_is_given_up_in_words() -> None:
    query = SlowWorker()
    query.starts = -STARTS
    with pytest.raises(SparkProblem, match="failed to connect back"):
        watch(query.start, lambda: True)
    assert query.starts == 0
