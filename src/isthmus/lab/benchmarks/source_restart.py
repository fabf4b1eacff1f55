"""What a query of many finished logs costs: bytes of its offsets, and what a restart reads again.

Runs of eight processes come and end, a hundred logs in each batch. The source is asked as Spark asks it, without Spark.
With `checkpointLocation` it keeps a journal, without it nothing but offsets.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from isthmus.pipeline.source import SCHEMA, LogStreamReader
from isthmus.pipeline.source.options import parse_options
from isthmus.trace.schema import Event
from isthmus.trace.writer import JsonlSink

LOGS = 6_000
BATCH_LOGS = 100
PROCESSES = 8
MESSAGES = 5


class Restart(Struct, frozen=True):
    """One way to keep what is known, after all logs were read."""

    journal: bool
    logs: int
    log_bytes: int
    offset_bytes: int
    journal_bytes: int
    """Of all its files."""
    read_again: int
    """Bytes of logs that a restart reads before it can go on."""
    restart_seconds: float


def measure(logs: int = LOGS) -> list[Restart]:
    """Without a journal, and with it."""
    return [_measure(logs, journal) for journal in (False, True)]


def _measure(logs: int, journal: bool) -> Restart:
    with tempfile.TemporaryDirectory(prefix="isthmus-restart-") as scratch:
        directory, checkpoint = Path(scratch, "logs"), Path(scratch, "checkpoint")
        directory.mkdir()
        given = {"path": str(directory)} | ({"checkpointLocation": str(checkpoint)} if journal else {})
        options = parse_options(given)
        reader = LogStreamReader(options, SCHEMA)
        offset = reader.initialOffset()
        for number in range(0, logs, BATCH_LOGS):
            for place in range(number, min(number + BATCH_LOGS, logs)):
                _write(directory, place)
            offset = json.loads(json.dumps(reader.latestOffset(offset, reader.getDefaultReadLimit())))
        started = time.perf_counter()
        again = LogStreamReader(options, SCHEMA)
        assert again.latestOffset(offset, reader.getDefaultReadLimit()) == offset, "there is nothing new"
        seconds = time.perf_counter() - started
        return Restart(
            journal=journal,
            logs=logs,
            log_bytes=sum(file.stat().st_size for file in directory.iterdir()),
            offset_bytes=len(json.dumps(offset, separators=(",", ":"))),
            journal_bytes=sum(file.stat().st_size for file in checkpoint.rglob("*.json")),
            read_again=again.index.bytes_read,
            restart_seconds=seconds,
        )


def _write(directory: Path, place: int) -> None:
    """The log of one process: everybody delivers what the first process of its run sent."""
    run, process = f"run{place // PROCESSES:05}", f"p{place % PROCESSES}"
    rows = [("start", 0)]
    for seq in range(1, MESSAGES + 1):
        rows += [("send", seq)] if process == "p0" else []
        rows += [("deliver", seq)]
    rows.append(("end", 0))
    with JsonlSink(directory / f"{run}.madrid.{process}.jsonl") as sink:
        sink.write([_row(run, process, index, event, seq) for index, (event, seq) in enumerate(rows)])


def _row(run: str, process: str, index: int, event: str, seq: int) -> Event:
    return Event(
        run=run,
        system="madrid",
        process=process,
        role="app",
        index=index,
        event=event,  # type: ignore[arg-type]
        origin_system="madrid" if seq else None,
        origin_process="p0" if seq else None,
        origin_seq=seq or None,
        time_ns=index,
    )
