"""A table on disk: what `ingest` writes and others read.

`rows/` holds the sound rows as Parquet, each log in blocks that are in order of index, with one column more than the
trace has: `audience` numbers the sets of destinations of a file, which `sets/` spells out. A file of blocks,
`blocks-N.msgpack`, has the facts of every block. `quarantine/` holds the place and the reason of every other row, and
`table.json` says where all of it came from and which file of blocks counts. What neither of these two names is no part
of the table: it was left by an ingest that died, or was replaced by a later one and may still be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from isthmus.pipeline.columns import spark_schema
from isthmus.pipeline.engine.logs import CODED_COLUMNS, Audiences, Block, Rows, coded
from isthmus.pipeline.failures import SPARK_FAILURES, spark_reason
from isthmus.pipeline.ingest.parts import Disputed, Part
from isthmus.pipeline.problems import TABLE_MARK, in_words
from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.parquet import open_parquet
from isthmus.trace.places import Place, address_for_spark, place
from isthmus.trace.reader import Quarantined
from isthmus.trace.schema import TraceError

VERSION = 3
WORDS = [column.name for column in TRACE_COLUMNS if column.type == "string"]
"""Columns that are read and written by dictionary."""

TORN = "torn"
"""The reason of a last line that a crash tore off: it marks its file and is no bad row."""


class Mark(Struct):
    """What `table.json` holds. `version` changes when the layout does."""

    version: int
    ingests: int = 1
    """How many made it."""
    mapped: bool = False
    """Its rows come from other tables than traces."""
    files: list[str] = []
    sizes: list[int] = []
    """Of the files, in bytes: a file of the same name and size is not read again."""
    bad_files: list[tuple[int, str]] = []
    bad_rows: int = 0
    """Rows in quarantine."""
    aside: list[str] = []
    """The files of the quarantine."""

    @property
    def blocks(self) -> str:
        """The file of blocks that counts."""
        return f"blocks-{self.ingests}.msgpack"


class Contents(Struct):
    """What a file of blocks holds."""

    parts: list[Part] = []
    disputed: list[Disputed] = []


class TraceTable(NamedTuple):
    """A table on disk, and the files that it was made of."""

    path: Place
    mark: Mark
    run: str | None = None
    """The only run that is looked at."""

    @property
    def files(self) -> list[str]:
        """The files that it was made of."""
        return self.mark.files

    def only(self, run: str | None) -> TraceTable:
        """The same table, of which only the blocks of one run are read; with None, all of it."""
        if run is not None:
            runs = sorted({block.run for block in self.blocks()})
            if run not in runs:
                more = f" and {len(runs) - 5:,} more" if len(runs) > 5 else ""
                raise TraceError(f"run '{run}'", "no such run", f"there are {', '.join(runs[:5])}{more}")
        return self._replace(run=run)

    def blocks(self) -> list[Block]:
        """The facts of all blocks, by run and log."""
        return [part.block for part in self.contents().parts if self.run in (None, part.block.run)]

    def contents(self) -> Contents:
        """All that is known of its rows without reading them."""
        return msgspec.msgpack.decode((self.path / self.mark.blocks).read_bytes(), type=Contents)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The sound rows, with the columns of the trace."""
        files = sorted({block.path for block in self.blocks()})
        read = _read(spark, spark_schema(TRACE_COLUMNS), *(self.path / "rows" / file for file in files))
        return read if self.run is None else read.where(f.col("run") == self.run)

    def quarantine(self, spark: SparkSession) -> DataFrame:
        """File, line and reason of everything that does not count. Line 0 stands for a whole file."""
        names = spark.createDataFrame(list(enumerate(self.files)), "file bigint, name string")
        schema = "file bigint, line bigint, reason string"
        aside = list(self._aside())
        rows = _read(spark, schema, *aside) if aside else spark.createDataFrame([], schema)
        if self.mark.bad_files:
            whole = [(number, 0, reason) for number, reason in self.mark.bad_files]
            rows = rows.unionByName(spark.createDataFrame(whole, schema))
        return rows.join(f.broadcast(names), "file", "left").select(f.col("name").alias("file"), "line", "reason")

    def _aside(self) -> Iterator[Place]:
        yield from (self.path / "quarantine" / name for name in self.mark.aside)

    def first_bad(self) -> Quarantined | None:
        """The first row in quarantine, found without Spark; None if it is empty."""
        for part in self._aside():
            with open_parquet(part) as file:
                rows = [row for row in file.read().to_pylist() if row["reason"] != TORN]
            if rows:
                first = min(rows, key=lambda row: (row["file"], row["line"]))
                return Quarantined(self.files[first["file"]], first["line"], first["reason"])
        return None

    def quarantined(self, spark: SparkSession) -> int:
        """How many rows and whole files do not count."""
        return self.mark.bad_rows + len(self.mark.bad_files)

    def torn_files(self, spark: SparkSession) -> list[str]:
        """Files whose last line a crash tore off."""
        found = self.quarantine(spark).where(f.col("reason") == TORN).select("file").distinct().collect()
        return sorted(row.file for row in found)

    def worst(self, spark: SparkSession, most: int = 20) -> list[Quarantined]:
        """The first rows in quarantine, by file and line."""
        found = self.quarantine(spark).where(f.col("reason") != TORN).orderBy("file", "line").limit(most).collect()
        return [Quarantined(row.file, row.line, row.reason) for row in found]


def _read(spark: SparkSession, schema: StructType | str, *where: Place) -> DataFrame:
    try:
        return spark.read.schema(schema).parquet(*map(address_for_spark, where))
    except SPARK_FAILURES as error:
        raise in_words(error, spark_reason(error), "check that the table is still there") from error


def open_table(path: str | Place) -> TraceTable:
    """A table that `ingest` has written."""
    where = place(path).absolute()
    try:
        mark = msgspec.json.decode((where / TABLE_MARK).read_bytes(), type=Mark)
    except (OSError, ValueError) as error:
        raise TraceError(path, f"not a table of isthmus: {error}", "ingest the traces again") from error
    if mark.version != VERSION:
        raise TraceError(path, "a table of another version of isthmus", "ingest the traces again")
    return TraceTable(where, mark)


class TableRows:
    """The rows of blocks out of a table, for an audit. Small blocks share a row group, so the last one is kept."""

    def __init__(self, path: Place) -> None:
        self._path = path
        self._at_hand: tuple[tuple[str, int], Rows] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_at_hand": None}

    def rows(self, block: Block) -> Rows:
        key = (block.path, block.group)
        if self._at_hand is None or self._at_hand[0] != key:
            with open_parquet(self._path / "rows" / block.path, read_dictionary=WORDS, memory_map=True) as file:
                table = file.read_row_group(block.group, columns=[*CODED_COLUMNS, "audience"], use_threads=False)
            self._at_hand = key, coded(table)
        return self._at_hand[1].part(block.start, block.start + block.rows)

    def audiences(self, path: str) -> Audiences:
        try:
            return msgspec.msgpack.decode((self._path / "sets" / path).read_bytes(), type=Audiences)
        except FileNotFoundError:
            return Audiences()
