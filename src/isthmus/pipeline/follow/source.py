"""Growing trace files as a Spark source for the streaming audit: packed rows by run, in order of arrival.

Unlike the source of `pipeline.source` it waits for nobody: a broken trace has no closed cut, and a violation has to be
reported when its last row is there. What Spark moves are not rows but packs of them, one for every piece of a file and
run, because a row costs Spark and pandas several times as much as the audit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from isthmus.pipeline.artifact import CarriedSource
from isthmus.pipeline.follow.files import (
    BATCH_BYTES,
    PIECE_BYTES,
    GrowingFiles,
    Positions,
    pieces,
    read_packed,
)
from isthmus.trace.rows import Stretch

NAME = "isthmus-follow"
SCHEMA = StructType(
    [
        StructField("run", StringType(), False),
        StructField("path", StringType(), False),
        StructField("end", LongType(), False),
        StructField("rows", BinaryType(), False),
        StructField("bad", LongType(), False),
        StructField("reasons", ArrayType(StringType()), False),
    ]
)
_ARROW = to_arrow_schema(SCHEMA, timezone="UTC")


class FollowSource(CarriedSource):
    """`format("isthmus-follow")`, with options `path` (a JSON list) and `batchBytes`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return FollowReader(json.loads(self.options["path"]), int(self.options.get("batchBytes", BATCH_BYTES)))


class PiecesPartition(InputPartition):
    """What one task reads: a large piece, or many small ones, because a task costs more than a small piece."""

    def __init__(self, pieces: list[Stretch]) -> None:
        super().__init__(None)
        self.pieces = pieces


class FollowReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver as long as the query does; a copy of it reads in every task."""

    def __init__(self, paths: list[str], batch_bytes: int) -> None:
        self._files = GrowingFiles(paths, batch_bytes)

    def initialOffset(self) -> Positions:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._files.freeze()

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:  # noqa: N802
        return self._files.latest(start)

    def partitions(self, start: Positions, end: Positions) -> Sequence[InputPartition]:
        gathered: list[list[Stretch]] = []
        size = PIECE_BYTES
        for piece in pieces(start, end):
            if size >= PIECE_BYTES:
                gathered.append([])
                size = 0
            gathered[-1].append(piece)
            size += PIECE_BYTES if piece.is_parquet or piece.end is None else piece.end - piece.start
        return [PiecesPartition(each) for each in gathered]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for piece in partition.pieces if isinstance(partition, PiecesPartition) else ():
            packed = list(read_packed(piece))
            if packed:
                columns = [list(column) for column in zip(*packed, strict=True)]
                arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
