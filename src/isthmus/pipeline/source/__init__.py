"""Delivery logs as a Spark source: `spark.readStream.format("isthmus")`, and `spark.read` for what is there now.

Promise: every micro-batch ends at a causally closed cut. No row comes in a batch unless all its causes came in the same
batch or before; within a batch, `rank` sorts every row behind its causes. Offsets are `{process: index}`; a batch that
is repeated after a failure has the same rows. The design is in docs/design/source.md.

    from isthmus.pipeline.source import register

    register(spark)
    rows = spark.readStream.format("isthmus").option("path", '["madrid", "valencia"]').load()

Needs Spark 4.2: before that, a source in Python could neither keep a read limit nor know `Trigger.AvailableNow`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from isthmus.pipeline.artifact import CarriedSource
from isthmus.pipeline.columns import spark_schema
from isthmus.pipeline.source.files import SOURCE_COLUMNS, BlockReader, where_is
from isthmus.pipeline.source.index import LogIndex, Slice
from isthmus.pipeline.source.offset import BEGINNING, Offset, read_offset
from isthmus.pipeline.source.options import SourceOptions, parse_options
from isthmus.pipeline.stores import reaching
from isthmus.pipeline.workers import make_ready
from isthmus.trace.places import place
from isthmus.trace.rows import Stretch
from isthmus.trace.schema import TraceError, printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("isthmus.pipeline.source")

NAME = "isthmus"


SCHEMA = StructType(
    [
        *spark_schema(SOURCE_COLUMNS, strict=True),
        StructField("rank", LongType(), False),
        StructField("id", StringType(), False),
        StructField("cut", StringType(), False),
    ]
)
"""The columns of the trace, then `payload` where the log has it, `rank`, `id` (run/system/process/index), and the id
of the cut at which the batch ends."""


def register(spark: SparkSession | None = None) -> None:
    """Make `format("isthmus")` known to a session, or to the active one. Doing it again does no harm."""
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
    make_ready(spark)
    spark.dataSource.register(reaching(spark, IsthmusSource))


class IsthmusSource(CarriedSource):
    """What Spark asks for when a query says `format("isthmus")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return LogStreamReader(parse_options(self.options), schema)


class LogPartition(InputPartition):
    """The rows of one task."""

    def __init__(self, slices: list[Slice], cut: str) -> None:
        super().__init__(None)
        self.slices = slices
        self.cut = cut


class RowMaker:
    """Makes rows of slices, in a task. Small, because Spark carries it to every one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.events = pa.array(sorted(options.events), pa.string())
        self.roles = pa.array(sorted(options.roles), pa.string())
        self.fail_on_data_loss = options.fail_on_data_loss
        self.schema = to_arrow_schema(schema, timezone="UTC")
        wrong = [field for field in schema if field.name not in SCHEMA.names]
        wrong += [field for field in schema if field not in wrong and field.dataType != SCHEMA[field.name].dataType]
        if wrong:
            raise TraceError(
                f"column {wrong[0].name}",
                f"the source has no such column of type {wrong[0].dataType.simpleString()}",
                f"choose from {SCHEMA.simpleString()}",
            )
        ours = {column.name for column in SOURCE_COLUMNS}
        self.columns = [name for name in schema.names if name in ours]

    def batches(self, partition: InputPartition | None) -> Iterator[Any]:
        """A record batch for each slice. Slices of one block come one after the other, and it is decoded once."""
        if partition is None:  # what Spark makes of no partition at all
            return
        assert isinstance(partition, LogPartition)
        needed = dict.fromkeys([*self.columns, "index", "event", "role"])
        reader = BlockReader()
        decoded, block = None, None
        for each in partition.slices:
            if each.block != decoded:
                decoded, block = each.block, self._rows(reader, each.block, needed)
            if block is not None:
                yield from self._batch(block, each, partition.cut)

    def _rows(self, reader: BlockReader, block: Stretch, needed: Iterable[str]) -> Any:
        try:
            return reader.rows(block, needed)
        except TraceError:
            if self.fail_on_data_loss or where_is(block.path):
                raise
            logger.warning("lost: %s has gone before its rows were committed", printable(block.path))
            return None

    def _batch(self, block: Any, each: Slice, cut: str) -> Iterator[Any]:
        places = each.places
        ranks = pa.array(np.frombuffer(each.ranks, dtype=np.int64))
        if isinstance(places, range):
            rows = block.slice(places.start, len(places))
        else:
            rows = block.take(pa.array(np.frombuffer(places, dtype=np.int32)))
        kept = pc.and_(
            pc.is_in(rows.column("event"), value_set=self.events), pc.is_in(rows.column("role"), value_set=self.roles)
        )
        if not kept.true_count:
            return
        columns = {name: rows.column(name) for name in self.columns}
        columns["rank"] = ranks
        if "id" in self.schema.names:
            index = pc.cast(rows.column("index"), pa.string())
            columns["id"] = pc.binary_join_element_wise(pa.scalar(each.log), index, "/")
        if "cut" in self.schema.names:
            columns["cut"] = pa.repeat(pa.scalar(cut), rows.num_rows)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        yield batch if kept.true_count == len(kept) else batch.filter(kept)


class LogReader(DataSourceReader):
    """All rows of the greatest closed cut there is now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.rows = RowMaker(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        _refuse_what_is_not_there(self.options)
        index = LogIndex(msgspec.structs.replace(self.options, checkpoint=None))
        index.freeze()
        index.settle(BEGINNING)
        index.poll(None)
        absent = index.absent_senders()
        if absent:
            raise TraceError(
                ", ".join(absent[:5]),
                "others delivered their messages, and their logs are not here",
                "add their paths, or name them (or their systems) in the option outside",
            )
        return _partitions(index, index.plan(None), self.options.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.rows.batches(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver, as long as the query does; a copy of it, without an index, reads in every task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.rows = RowMaker(options, schema)
        self._index: LogIndex | None = None
        self._available_now = False

    @property
    def index(self) -> LogIndex:
        if self._index is None:
            self._index = LogIndex(self.options)
        return self._index

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return BEGINNING.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True
        self.index.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch. Spark asks when the batch that ended at `start` is committed, and not before."""
        self.index.settle(read_offset(start))
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self.index.poll(rows)
        if isinstance(limit, ReadMinRows) and not self._available_now:
            if self.index.histories.available() < limit.min_rows:
                return start
        return self.index.plan(rows).to_json()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """How far the logs were read: in the progress of a query, what this is ahead of its end waits for a cause."""
        return {name: each.read for name, each in sorted(self.index.histories.by_name.items()) if each.read}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = read_offset(end)
        self.index.settle(read_offset(start), planned)
        self.index.poll_to(planned)
        return _partitions(self.index, planned, self.options.rows_per_partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: `latestOffset` hears of it, and earlier where nothing new comes."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.rows.batches(partition)


def _refuse_what_is_not_there(options: SourceOptions) -> None:
    """For a batch, a wrong path would be a table without rows. A stream waits for sites that have not started."""
    for path in options.paths:
        if not place(path).exists():
            raise TraceError(path, "no such file or directory", "check the option path")


def _partitions(index: LogIndex, end: Offset, rows: int) -> list[InputPartition]:
    """Slices in order of their blocks, so that neighbours of one block are read together."""
    partitions: list[InputPartition] = []
    gathered: list[Slice] = []
    count = 0
    for each in sorted(index.slices(end), key=lambda each: (each.block, each.log)):
        gathered.append(each)
        count += len(each.places)
        if count >= rows:
            partitions.append(LogPartition(gathered, end.cut))
            gathered, count = [], 0
    if gathered:
        partitions.append(LogPartition(gathered, end.cut))
    return partitions
