"""The streaming audit: growing traces in, violations out while the runs go on.

One query: packed rows by run (`follow_source`), a state per run in Spark's state store (`follow_state`), what is found
to the record and to the caller (`follow_record`). Spark's checkpoint ties positions in files to versions of states, so
a repeated batch finds the same. The design is in docs/design/follow.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import BinaryType, StructField, StructType

from isthmus.pipeline.artifact import carried
from isthmus.pipeline.follow.files import read_again, unpack
from isthmus.pipeline.follow.judge import Followed, followed_properties
from isthmus.pipeline.follow.record import SHOWN, BatchFindings, Quarantine, Record, Summary
from isthmus.pipeline.follow.relay import FOUND, Relay
from isthmus.pipeline.follow.run import MAX_HELD, feed
from isthmus.pipeline.follow.source import NAME, FollowSource
from isthmus.pipeline.follow.state import Findings, RunState, restore, snapshot
from isthmus.pipeline.ingest import SPARK_FAILURES, spark_reason
from isthmus.pipeline.places import require_readable, require_writable
from isthmus.pipeline.problems import in_words
from isthmus.pipeline.session import is_connect
from isthmus.pipeline.stores import reaching, use_settings_of
from isthmus.pipeline.workers import cores_of, make_ready, takes_code
from isthmus.trace import stores
from isthmus.trace.places import Place, address_for_spark, place
from isthmus.trace.stores import StoreSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

MOST_STATES = 8
"""Partitions of the state store, one per core up to this. Runs are spread over them; each is a task in every batch."""
STARTS = 5
"""How often a query is started before a machine counts as too busy for it."""
_LOOK_SECONDS = 0.2
_STATE = StructType([StructField("snapshot", BinaryType())])

Tell = Callable[[BatchFindings, Summary], None]


def follow(
    spark: SparkSession,
    paths: Iterable[str | Place],
    checkpoint: str | Place,
    tell: Tell,
    *,
    trigger_seconds: float = 1.0,
    once: bool = False,
    max_held: int = MAX_HELD,
    expected: Iterable[str] = (),
    look: Callable[[Summary], bool] = lambda summary: True,
) -> Record:
    """Follow traces until `look` says False; with `once`, until everything that is there now was read.

    What is `expected` is judged besides what always is; a property that no feed of rows can decide is `unknown`.
    `tell` gets what every batch has found, once each; `look` is called several times a second, in this thread.
    """
    settings = use_settings_of(spark)
    given = [str(place(path).absolute()) for path in paths]
    directory = place(checkpoint).absolute()
    require_readable(spark, given)
    require_writable(spark, directory, "states", "give --checkpoint a place that all of them see, as s3a://BUCKET/PATH")
    record = Record(directory, given, max_held)
    for batch in record.unprinted():
        tell(batch, record.summary)
        record.mark_printed(batch.number)
    properties = followed_properties(expected)

    def take(found: DataFrame, number: int) -> None:
        findings, bad = _decoded(found)
        batch = record.add(number, findings, bad)
        if not batch.is_empty() and not record.is_printed(number):
            tell(batch, record.summary)
            record.mark_printed(number)

    make_ready(spark)
    relay = Relay(spark, directory / "relayed", record.summary.batch + 1, take) if is_connect(spark) else None
    found = _found(spark, given, max_held, properties, settings)
    writer = found.writeStream.foreachBatch(take if relay is None else relay.sink()).outputMode("update")
    writer = writer.option("checkpointLocation", address_for_spark(directory / "spark"))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_seconds} seconds")

    def start() -> Any:
        with _settings(spark):
            return writer.start()

    watch(start, lambda: look(record.summary), relay.fetch if relay is not None else _nothing)
    return record


def _nothing(query: Any, ended: bool) -> None:
    pass


def watch(start: Callable[[], Any], look: Callable[[], bool], fetch: Callable[[Any, bool], None] = _nothing) -> None:
    """Start a query, and see it through until `look` says False or nothing is left to read.

    `fetch` is given the query as often as `look` is called, and whether it has ended.

    Spark gives a Python worker of a stream ten seconds to start, a limit that no setting moves; on a busy machine that
    can be too little. Such a query is started again: its checkpoint says how far it was.
    """
    for left in reversed(range(STARTS)):
        query: Any = None
        try:
            query = start()
            ended = False
            while not ended:
                ended = query.awaitTermination(_LOOK_SECONDS)
                fetch(query, ended)
                if not look():
                    return
            return
        except SPARK_FAILURES as error:
            if not left or "failed to connect back" not in str(error):
                raise _in_words(error) from error
        finally:
            if query is not None:
                _stop(query)


def _found(
    spark: SparkSession, paths: list[str], max_held: int, properties: Followed, settings: StoreSettings
) -> DataFrame:
    spark.dataSource.register(reaching(spark, FollowSource))
    packed = spark.readStream.format(NAME).option("path", json.dumps(paths)).load()

    def audit(key: tuple[str], packs: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        stores.use(settings)
        found = _follow_run(key[0], packs, state, max_held, properties) if key[0] else _quarantine(packs, state)
        yield pd.DataFrame({"run": [key[0]], "found": [found]})

    function = carried(audit) if is_connect(spark) and takes_code(spark) else audit
    return packed.groupBy("run").applyInPandasWithState(function, FOUND, _STATE, "update", GroupStateTimeout.NoTimeout)


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """A query keeps the settings it was started with; the session of the caller gets its own back."""
    wanted = {
        "spark.sql.shuffle.partitions": str(max(1, min(MOST_STATES, cores_of(spark)))),
        "spark.sql.streaming.minBatchesToRetain": "10",
    }
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)


def _follow_run(
    run: str, packs: Iterable[pd.DataFrame], state: GroupState, max_held: int, properties: Followed
) -> bytes:
    """In a task: the new rows of one run."""
    known = restore(bytes(state.get[0])) if state.exists else RunState(run, max_held)
    rows = []
    for pack in packs:
        for path, end, packed in zip(pack["path"], pack["end"], pack["rows"], strict=True):
            known.files[path] = max(int(end), known.files.get(path, 0))
            rows += unpack(bytes(packed))
    files = known.files
    known, found = feed(known, rows, lambda: read_again(files, run), properties)
    state.update((snapshot(known),))
    return msgspec.json.encode(found)


def _quarantine(packs: Iterable[pd.DataFrame], state: GroupState) -> bytes:
    """In a task: rows that do not fit the schema."""
    bad = msgspec.json.decode(bytes(state.get[0]), type=Quarantine) if state.exists else Quarantine()
    reasons: list[str] = []
    for pack in packs:
        bad.count += int(pack["bad"].sum())
        for some in pack["reasons"]:
            reasons.extend(map(str, some))
    bad.first = (bad.first + sorted(reasons))[:SHOWN]
    data = msgspec.json.encode(bad)
    state.update((data,))
    return data


def _decoded(found: DataFrame) -> tuple[list[Findings], Quarantine | None]:
    findings, bad = [], None
    for row in sorted(found.collect(), key=lambda row: row.run):
        if row.run:
            findings.append(msgspec.json.decode(bytes(row.found), type=Findings))
        else:
            bad = msgspec.json.decode(bytes(row.found), type=Quarantine)
    return findings, bad


def _stop(query: Any) -> None:
    try:
        query.stop()
    except SPARK_FAILURES:
        pass  # it has failed, which was said, or is being interrupted, which was asked for


def _in_words(error: BaseException) -> Exception:
    """A source or a task that raises comes back as a stack of Python inside a stack of Java."""
    return in_words(error, spark_reason(error), "give it more memory, or a larger master")
