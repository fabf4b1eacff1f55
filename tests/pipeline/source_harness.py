"""Plays Spark's part in a streaming query, without Spark: asks for offsets, plans partitions, reads them, commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow
from properties_by_definition import Run, id_of
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from isthmus.pipeline.source import SCHEMA, LogReader, LogStreamReader
from isthmus.pipeline.source.options import parse_options
from isthmus.trace.schema import Event

Rows = list[dict[str, Any]]
Offset = dict[str, Any]


def read_batch(*paths: Path, **options: str) -> Rows:
    """`spark.read`, sorted as a user would sort it."""
    reader = LogReader(parse_options({"path": json.dumps([str(path) for path in paths])} | options), SCHEMA)
    rows = [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["rank"], row["id"]))


class Query:
    """A streaming query with a checkpoint of its own. `restart` is a new process that has only the checkpoint."""

    def __init__(self, *paths: Path, available_now: bool = False, **options: str) -> None:
        self.options = {"path": json.dumps([str(path) for path in paths])} | options
        self.available_now = available_now
        self.offsets: list[Offset] = []
        self.restart()

    def restart(self) -> None:
        self.reader = LogStreamReader(parse_options(self.options), SCHEMA)
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    @property
    def start(self) -> Offset:
        return self.offsets[-1] if self.offsets else self.reader.initialOffset()

    @property
    def committed(self) -> dict[str, int]:
        """Log to the index of the first row that is not committed, as far as the last offset names them."""
        return {name: place[0] for name, place in self.start.get("logs", {}).items()}

    def next_batch(self, limit: int | None = None) -> Rows:
        """One micro-batch; none when there is nothing new."""
        start = self.start
        end = self.reader.latestOffset(start, ReadAllAvailable() if limit is None else ReadMaxRows(limit))
        end = json.loads(json.dumps(end))
        if end == start:
            return []
        rows = self.read(start, end)
        self.reader.commit(start)
        self.offsets.append(end)
        return rows

    def last_batch_again(self) -> Rows:
        return self.read(self.offsets[-2] if len(self.offsets) > 1 else {}, self.offsets[-1])

    def read(self, start: Offset, end: Offset) -> Rows:
        partitions = self.reader.partitions(start, end)
        rows = [row for each in partitions for batch in self.reader.read(each) for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: (row["rank"], row["id"]))

    def ids(self, limit: int | None = None) -> list[str]:
        return [row["id"] for row in self.next_batch(limit)]


def write(directory: Path, rows: Iterable[Event], name: str | None = None) -> None:
    """Append rows to the logs of their processes, or to one file."""
    directory.mkdir(parents=True, exist_ok=True)
    for row in rows:
        file = directory / f"{name or f'{row.system}.{row.process}'}.jsonl"
        with open(file, "ab") as log:
            log.write(msgspec.json.encode(row) + b"\n")


class Trickle:
    """Logs that grow by pieces of random length at random processes, torn anywhere."""

    def __init__(self, directory: Path, events: Iterable[Event], random: Random) -> None:
        self.random = random
        self.rest: dict[Path, bytes] = {}
        for row in sorted(events, key=lambda row: (row.system, row.process, row.index)):
            path = directory / row.system / f"{row.process}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.rest[path] = self.rest.get(path, b"") + msgspec.json.encode(row) + b"\n"
        self.total = self._left()

    def write_share(self, share: float) -> None:
        """Let logs grow until this share of everything is written."""
        while self._left() > self.total * (1 - share):
            self.write_some()

    def _left(self) -> int:
        return sum(map(len, self.rest.values()))

    def write_some(self) -> bool:
        """Let one log grow. False when all are whole."""
        open_logs = sorted(path for path, rest in self.rest.items() if rest)
        if not open_logs:
            return False
        path = self.random.choice(open_logs)
        size = self.random.choice([1, 100, 700, 3000])
        with open(path, "ab") as log:
            log.write(self.rest[path][:size])
        self.rest[path] = self.rest[path][size:]
        return True


class Rotation:
    """Logs in parts of a few rows, which are compressed and moved at any time, and deleted once they are committed."""

    def __init__(self, directory: Path, events: Iterable[Event], random: Random) -> None:
        self.directory, self.random = directory, random
        self.deeds: set[str] = set()
        self._rest: dict[str, list[Event]] = {}
        self._last: dict[Path, tuple[str, int]] = {}
        """Parts that are whole: their log, and the index behind their last row."""
        self._ended: dict[str, int] = {}
        for row in sorted(events, key=lambda row: row.index):
            self._rest.setdefault(f"{row.run}/{row.system}/{row.process}", []).append(row)

    def write_some(self) -> bool:
        """One more part of one log. False when all are whole."""
        logs = sorted(name for name, rows in self._rest.items() if rows)
        if not logs:
            return False
        name = self.random.choice(logs)
        size = self.random.choice([1, 2, 5, 9])
        rows, self._rest[name] = self._rest[name][:size], self._rest[name][size:]
        stem = f"{name.replace('/', '.')}-{rows[0].index:05}"
        write(self.directory, rows, stem)
        self._last[self.directory / f"{stem}.jsonl"] = (name, rows[-1].index + 1)
        return True

    def rotate_some(self, committed: Mapping[str, int]) -> None:
        """Do something to some parts. A log that no offset names any more is committed to its end."""
        self._ended |= {name: count for name, count in committed.items() if not self._rest[name]}
        for path in sorted(self._last):
            if self.random.random() < 0.7:
                continue
            name, stop = self._last[path]
            is_committed = committed.get(name, self._ended.get(name, 0)) >= stop
            deed = self.random.choice(["compressed", "moved", "deleted"])
            if deed == "deleted" and not is_committed:
                continue
            self.deeds.add(deed)
            del self._last[path]
            if deed == "deleted":
                path.unlink()
            elif deed == "moved":
                target = path.parent / "archive" / path.name
                target.parent.mkdir(exist_ok=True)
                self._last[path.rename(target)] = (name, stop)
            elif path.suffix == ".jsonl":
                ending, codec = self.random.choice([(".gz", "gzip"), (".zst", "zstd")])
                packed = path.with_name(path.name + ending)
                with pyarrow.output_stream(str(packed), compression=codec) as stream:
                    stream.write(path.read_bytes())
                path.unlink()
                self._last[packed] = (name, stop)


class Order:
    """Holds batches against the definition of causes: all pairs of messages, closed by brute force."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.run = Run(events)
        self.sends = {(f"{row.system}/{row.process}", row.index): m for m, row in self.run.sends.items()}
        self.causes: dict[tuple[str, str, int], set[tuple[str, str, int]]] = {}
        for cause, effect in self.run.causes:
            self.causes.setdefault(effect, set()).add(cause)
        self.seen: set[tuple[str, int]] = set()

    def row(self, place: tuple[str, int]) -> Event:
        return next(row for row in self.run.logs[place[0]] if row.index == place[1])

    def needed(self, place: tuple[str, int]) -> set[tuple[str, int]]:
        """What must come before a row: its process's past, and the sending of its message and of all its causes."""
        name, index = place
        needed = {(name, row.index) for row in self.run.logs[name] if row.index < index}
        row = self.row(place)
        if row.origin_process is not None:
            message = id_of(row)
            for m in {message} | self.causes.get(message, set()):
                if m in self.run.sends and (row.event != "send" or m != message):
                    sent = self.run.sends[m]
                    needed.add((f"{sent.system}/{sent.process}", sent.index))
        return needed

    def problems(self, batch: Iterable[Mapping[str, Any]], wanted: set[tuple[str, int]]) -> list[str]:
        """What is wrong with the next batch, in the order of ranks, when rows that are not `wanted` are left out."""
        found = []
        for row in batch:
            place = (f"{row['system']}/{row['process']}", row["index"])
            if place in self.seen:
                found.append(f"{place} again")
            missing = (self.needed(place) & wanted) - self.seen
            found += [f"{place} before {each}" for each in sorted(missing)]
            self.seen.add(place)
        return found
