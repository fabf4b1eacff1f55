"""The streaming source beside Spark's own file streams, on the same rows, into a sink that keeps nothing.

Two sites of four processes each send and deliver in bursts; what they did is written once as JSON Lines and once as
Parquet, in parts as a process writes them. Then four queries read everything there is, one after the other, each from
its start to its end: the isthmus source and Spark's file stream, for both formats. Spark's stream knows nothing of
causes. Before that, all four run on a small part, so that nobody pays for a cold machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

from msgspec import Struct

from isthmus.pipeline.session import spark_session
from isthmus.pipeline.source import SCHEMA, register
from isthmus.trace.schema import Event
from isthmus.trace.writer import JsonlSink, ParquetSink

ROWS = 1_000_000
PART_ROWS = 10_000
BURST = 32
FORMATS: tuple[Literal["jsonl"], Literal["parquet"]] = ("jsonl", "parquet")
_NAMES = [("madrid", f"p{number}") for number in range(1, 5)] + [("valencia", f"p{number}") for number in range(1, 5)]

Format = Literal["jsonl", "parquet"]


class Drained(Struct, frozen=True):
    """A query that read everything: seconds from its start to its end, and those that its batches took."""

    rows: int
    batches: int
    seconds: float
    batch_seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


class Figure(Struct, frozen=True):
    """One format, read by the isthmus source and by Spark's own stream."""

    format: Format
    isthmus: Drained
    plain: Drained

    @property
    def ratio(self) -> float:
        """What is left of the speed of Spark's own stream."""
        return self.plain.seconds / self.isthmus.seconds

    @property
    def ratio_in_batches(self) -> float:
        return self.plain.batch_seconds / self.isthmus.batch_seconds


def measure(rows: int = ROWS, max_rows: int | None = None) -> Iterator[Figure]:
    """The figures, one after the other. With `max_rows`, batches of that size; without, everything in one batch."""
    spark = spark_session(shuffle_partitions=2)
    register(spark)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as scratch:
        for name, count in (("warm", min(rows, 20_000)), ("all", rows)):
            for trace_format in FORMATS:
                write_logs(Path(scratch, name, trace_format), trace_format, count)
        for trace_format in FORMATS:
            for reader in (_isthmus, _plain):
                _drain(reader(spark, Path(scratch, "warm", trace_format), trace_format, max_rows))
            logs = Path(scratch, "all", trace_format)
            isthmus = _drain(_isthmus(spark, logs, trace_format, max_rows))
            plain = _drain(_plain(spark, logs, trace_format, max_rows))
            assert isthmus.rows == plain.rows == rows, "both read everything"
            yield Figure(trace_format, isthmus, plain)


def _isthmus(spark: Any, logs: Path, trace_format: Format, max_rows: int | None) -> Any:
    reader = spark.readStream.format("isthmus").option("events", "*").option("roles", "*")
    if max_rows:
        reader = reader.option("maxRowsPerBatch", max_rows)
    return reader.load(str(logs))


def _plain(spark: Any, logs: Path, trace_format: Format, max_rows: int | None) -> Any:
    reader = spark.readStream.schema(SCHEMA)
    if max_rows:
        reader = reader.option("maxFilesPerTrigger", max(1, max_rows // PART_ROWS))
    return reader.json(str(logs)) if trace_format == "jsonl" else reader.parquet(str(logs))


def _drain(rows: Any) -> Drained:
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-checkpoint-") as checkpoint:
        started = time.perf_counter()
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
        done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    in_batches = sum(progress["durationMs"]["triggerExecution"] for progress in done) / 1000
    return Drained(sum(progress["numInputRows"] for progress in done), len(done), seconds, in_batches)


def write_logs(directory: Path, trace_format: Format, rows: int, seed: int = 1) -> None:
    """Logs of a run in which everybody sends bursts, and delivers what others sent some time after they did."""
    directory.mkdir(parents=True)
    random = Random(seed)
    histories: list[list[Event]] = [[] for _ in _NAMES]
    sinks = [_Parts(directory, trace_format, f"{system}.{process}") for system, process in _NAMES]
    sent = [0] * len(_NAMES)
    delivered = [[0] * len(_NAMES) for _ in _NAMES]
    written = 0
    while written < rows:
        who, origin = random.randrange(len(_NAMES)), random.randrange(len(_NAMES))
        if origin == who:
            numbers, event = range(sent[who] + 1, sent[who] + 1 + BURST), "send"
            sent[who] += BURST
        else:
            numbers, event = range(delivered[who][origin] + 1, sent[origin] + 1), "deliver"
            delivered[who][origin] = sent[origin]
        for seq in numbers[: rows - written]:
            histories[who].append(_row(who, len(histories[who]), event, origin, seq))
            written += 1
    for history, sink in zip(histories, sinks, strict=True):
        for at in range(0, len(history), PART_ROWS):
            sink.write(history[at : at + PART_ROWS])


def _row(who: int, index: int, event: str, origin: int, seq: int) -> Event:
    return Event(
        run="bench",
        system=_NAMES[who][0],
        process=_NAMES[who][1],
        role="app",
        index=index,
        event="send" if event == "send" else "deliver",
        origin_system=_NAMES[origin][0],
        origin_process=_NAMES[origin][1],
        origin_seq=seq,
        payload_bytes=100,
        control_bytes=12,
        time_ns=index * 1000,
    )


class _Parts:
    """A log in parts: Spark's file stream takes a file once, so it cannot read one that grows."""

    def __init__(self, directory: Path, trace_format: Format, stem: str) -> None:
        self._directory, self._stem, self._parts = directory, stem, 0
        self._parquet = ParquetSink(directory, stem) if trace_format == "parquet" else None

    def write(self, rows: list[Event]) -> None:
        if self._parquet is not None:
            self._parquet.write(rows)
            return
        with JsonlSink(self._directory / f"{self._stem}-{self._parts:05}.jsonl") as sink:
            sink.write(rows)
        self._parts += 1
