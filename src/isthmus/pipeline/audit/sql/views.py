"""Views in SQL: did those who went from one view to the same next one deliver the same messages between the two?

A **stay** is a process between two views. There are few of them, so they are compared on the driver, each by how many
messages it has and by one hash of all of them; only for the few stays that are shown is a message looked up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import VIEW
from isthmus.pipeline.audit.findings import Finding
from isthmus.pipeline.audit.sql.messages import NEVER, Logs, computed

_STAY = ["run", "process", "start", "end"]


def judge_views(rows: DataFrame, messages: DataFrame, logs: Logs, found: Mapping[str, Finding]) -> None:
    """Count the pairs of stays that differ, and describe some of them. A run without views stays unknown."""
    views = computed(
        rows.where(f.col("app") & (f.col("kind") == VIEW)).select("run", "process", "index", "origin", "name")
    )
    for row in views.select("run").distinct().collect():
        found[row.run].unknown = False
    same: defaultdict[tuple[str, int, str, str], list[Row]] = defaultdict(list)
    for row in _stays(views, rows, messages, logs):
        found[row.run].checked += 1
        same[row.run, row.group, row.number, row.next_number].append(row)
    differing: list[tuple[Row, Row]] = []
    for stays in same.values():
        for one, two in combinations(stays, 2):
            if (one.delivered, one.hashed) == (two.delivered, two.hashed):
                continue
            finding = found[one.run]
            if one.gap or two.gap:
                finding.unknown = True
                continue
            finding.violations += 1
            if finding.violations <= finding.room:
                differing.append((one, two))
    _describe(messages, differing, found)


def _stays(views: DataFrame, rows: DataFrame, messages: DataFrame, logs: Logs) -> list[Row]:
    """All stays in order, with how much was delivered in each, and whether its log has a gap there."""
    along = Window.partitionBy("run", "process").orderBy("index")
    stays = views.select(
        *("run", "process", f.col("index").alias("start"), f.lead("index").over(along).alias("end")),
        *(
            f.col("origin").alias("group"),
            f.col("name").alias("number"),
            f.lead("name").over(along).alias("next_number"),
        ),
    )
    stays = stays.where(f.col("end").isNotNull()).join(
        f.broadcast(logs.members.select("run", "process", "member", "gap")), ["run", "process"]
    )
    stays = computed(stays)
    at = messages.select("run", "origin", "seq", f.posexplode("at").alias("member", "index"))
    inside = at.join(f.broadcast(stays.select(*_STAY, "member")), ["run", "member"]).where(_inside("index"))
    # Every message is there once, so the hashes of two different sets differ as surely as hashes do.
    delivered = inside.groupBy(*_STAY).agg(
        f.count("*").alias("delivered"), f.bit_xor(f.xxhash64("origin", "seq")).alias("hashed")
    )
    holed = stays.where(f.col("gap") != NEVER).select(*_STAY)
    kept = rows.join(f.broadcast(holed), ["run", "process"]).where(_inside("index"))
    counted = kept.groupBy(*_STAY).agg(f.count("*").alias("rows"))
    between = f.col("end") - f.col("start") - 1
    has_gap = (f.col("gap") != NEVER) & (f.coalesce("rows", f.lit(0)) < between)
    known = stays.join(delivered, _STAY, "left").join(counted, _STAY, "left").withColumn("gap", has_gap)
    return known.orderBy("run", "group", "start", "process").collect()


def _inside(index: str) -> Column:
    return (f.col(index) > f.col("start")) & (f.col(index) < f.col("end"))


def _describe(messages: DataFrame, differing: list[tuple[Row, Row]], found: Mapping[str, Finding]) -> None:
    """Name a message that only one of each two delivered."""
    if not differing:
        return
    spark = messages.sparkSession
    asked = [
        (number, one.run, one.member, one.start, one.end, two.member, two.start, two.end)
        for number, (one, two) in enumerate(differing)
    ]
    table = spark.createDataFrame(
        asked,
        "number int, run string, one int, start bigint, end bigint, two int, other_start bigint, other_end bigint",
    )
    here, there = f.get("at", f.col("one")), f.get("at", f.col("two"))
    in_one = f.coalesce((here > f.col("start")) & (here < f.col("end")), f.lit(False))
    in_two = f.coalesce((there > f.col("other_start")) & (there < f.col("other_end")), f.lit(False))
    apart = messages.join(f.broadcast(table), "run").select(
        "number", "origin", "seq", in_one.alias("in_one"), in_two.alias("in_two")
    )
    first = f.min_by(f.struct("origin", "seq", "in_one"), f.struct("origin", "seq")).alias("message")
    shown = apart.where(f.col("in_one") != f.col("in_two")).groupBy("number").agg(first).collect()
    for row in sorted(shown, key=lambda each: each.number):
        one, two = differing[row.number]
        lacking, having = (two, one) if row.message.in_one else (one, two)
        detail = f"between view {one.number} and view {one.next_number}"
        key = (row.message.origin, row.message.seq)
        found[one.run].witness(lacking.process, key, other=having.process, detail=detail)
