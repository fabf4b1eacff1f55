"""The first half of the audit in SQL: logs and messages as tables.

Everything about a message ends up in one row: when it was sent, for whom, its place on its chain, and at which index
each member delivered it first (`at`, an array by number of member). Facts about members and runs are small and are
broadcast.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import CRASH, DELIVER, END, JOIN, LEAVE, SEND
from isthmus.pipeline.blocks import places, running_maxima

NEVER = (1 << 63) - 1
MESSAGE = ("run", "origin", "seq")
_PIVOT = 64
"""Members up to which a column each is the faster way to gather deliveries."""


def never() -> Column:
    return f.lit(NEVER).cast("bigint")


def computed(table: DataFrame) -> DataFrame:
    """The same table, computed now and kept on the disks of the workers until nobody refers to it.

    Unlike a cache this also cuts off its plan. Plans here refer to earlier tables several times each, and would grow
    beyond all bounds.
    """
    return table.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


class Logs(NamedTuple):
    """`members` has a row per application log, `runs` the same as arrays by number of member, `senders` all logs."""

    all: DataFrame
    members: DataFrame
    runs: DataFrame


def read_logs(rows: DataFrame) -> Logs:
    """How far each log can be trusted, and what became of its process."""
    app = f.col("app")
    kind = f.col("kind")
    facts = rows.groupBy("run", "process").agg(
        f.count("*").alias("rows"),
        f.max("index").alias("last"),
        f.max_by("kind", "index").alias("last_kind"),
        f.max("app").alias("app"),
        f.max(app & (kind == JOIN)).alias("joined"),
        f.max(app & (kind == CRASH)).alias("crashed"),
        f.max(app & kind.isin(CRASH, LEAVE)).alias("gone"),
    )
    # Only logs with a gap have to be put in order to find the first: indices are distinct, so counting finds the rest.
    gapped = facts.where(f.col("rows") <= f.col("last")).select("run", "process")
    holed = rows.select("run", "process", "index").join(f.broadcast(gapped), ["run", "process"])
    placed = places(holed, ["run", "process"], "index", "place")
    gaps = placed.where(f.col("place") != f.col("index")).groupBy("run", "process").agg(f.min("place").alias("gap"))
    logs = facts.join(gaps, ["run", "process"], "left").withColumn("gap", f.coalesce("gap", never()))
    complete = (f.col("gap") == NEVER) & f.col("last_kind").isin(CRASH, LEAVE, END)
    logs = logs.withColumn("complete", complete).select(
        "run", "process", "app", "joined", "crashed", "gone", "gap", "complete"
    )
    logs = computed(logs)
    number = f.row_number().over(Window.partitionBy("run").orderBy("process")) - 1
    members = logs.where("app").withColumn("member", number)
    facts_of = f.struct("member", "process", "joined", "gone", "gap", "complete")
    runs = members.groupBy("run").agg(f.array_sort(f.collect_list(facts_of)).alias("members"))
    everybody = logs.groupBy("run").agg(f.collect_set("process").alias("processes"))
    return Logs(logs, members, computed(everybody.join(runs, "run", "left")))


def members_at_most(logs: Logs) -> int:
    found = logs.runs.agg(f.max(f.size(f.coalesce("members", f.array()))).alias("most")).collect()
    return max(int(found[0].most or 0), 0)


def read_messages(rows: DataFrame, logs: Logs, width: int) -> DataFrame:
    """One row per message. One shuffle by message, and another only where a sender's numbers are not 1, 2, 3, …"""
    about = rows.where(f.col("app") & f.col("kind").isin(SEND, DELIVER))
    about = about.join(f.broadcast(logs.members.select("run", "process", "member")), ["run", "process"])
    sends, delivers = f.col("kind") == SEND, f.col("kind") == DELIVER
    said = f.struct("index", "audience", "destinations")
    by_delivery = f.struct("name", "index", "audience", "destinations")
    aggregates = [
        f.min(f.when(sends, f.col("index"))).alias("sent_at"),
        f.count(f.when(delivers, 1)).alias("deliveries"),
        f.min_by(said, f.when(sends, f.col("index"))).alias("said"),
        f.min_by(by_delivery, f.when(delivers & (f.col("audience") != 0), f.struct("name", "index"))).alias(
            "by_delivery"
        ),
    ]
    if width <= _PIVOT:
        firsts = [f.min(f.when(delivers & (f.col("member") == each), f.col("index"))) for each in range(width)]
        grouped = about.groupBy(*MESSAGE).agg(*aggregates, f.array(*firsts).alias("at"))
    else:
        pairs = f.collect_list(f.when(delivers, f.struct(f.col("index"), f.col("member"))))
        grouped = about.groupBy(*MESSAGE).agg(*aggregates, pairs.alias("pairs"))
        # Latest first, so that the earliest of several deliveries is the one that is kept.
        sorted_pairs = f.reverse(f.array_sort("pairs"))
        by_member = f.aggregate(
            sorted_pairs,
            f.array_repeat(f.lit(None).cast("bigint"), f.lit(width)),
            lambda at, pair: f.concat(
                f.slice(at, f.lit(1), pair["member"]),
                f.array(pair["index"]),
                f.slice(at, pair["member"] + 2, f.lit(width)),
            ),
        )
        grouped = grouped.withColumn("at", by_member).drop("pairs")
    unsent = f.col("sent_at").isNull()
    audience = f.when(unsent, f.col("by_delivery")).otherwise(
        f.when(f.col("said.audience") != 0, f.struct(f.lit(None).cast("string").alias("name"), "said.*"))
    )
    grouped = grouped.withColumn("addressed", audience["destinations"]).drop("said", "by_delivery")
    sender = f.broadcast(
        logs.all.select(
            "run",
            f.col("process").alias("origin"),
            f.col("complete").alias("sender_complete"),
            f.col("crashed").alias("sender_crashed"),
            f.col("gap").alias("sender_gap"),
        )
    )
    known = grouped.join(sender, ["run", "origin"], "left").fillna(
        {"sender_complete": False, "sender_crashed": False, "sender_gap": 0}
    )
    return known.withColumn("never_sent", unsent & f.col("sender_complete"))


def place_messages(messages: DataFrame) -> DataFrame:
    """Chain and rank of each message: see `run_arrays`.

    Where a sender's messages are numbered 1, 2, 3, … in the order of sending, which is every sound trace, a rank is a
    number less one. Other senders' messages have to be put in order.
    """
    # A sender is regular if a message was sent later exactly if its number is higher, and all numbers are there.
    sent = messages.where(f.col("sent_at").isNotNull()).select(*MESSAGE, "sent_at")
    latest = running_maxima(sent, ["run", "origin"], "seq", {"latest": f.col("sent_at")}, before=True)
    falls = f.coalesce(f.col("latest") > f.col("sent_at"), f.lit(False))
    monotone = latest.groupBy("run", "origin").agg((~f.max(falls)).alias("monotone"))
    numbers = messages.groupBy("run", "origin").agg(
        (f.count("*") == f.max("seq")).alias("dense"), (~f.max("never_sent")).alias("all_sent")
    )
    senders = numbers.join(monotone, ["run", "origin"], "left").withColumn(
        "monotone", f.coalesce("monotone", f.lit(True))
    )
    senders = senders.withColumn("regular", f.col("dense") & f.col("all_sent") & f.col("monotone"))
    joined = messages.join(f.broadcast(senders.select("run", "origin", "monotone", "regular")), ["run", "origin"])
    regular = joined.where("regular").select(
        *messages.columns,
        f.lit(True).alias("placed"),
        f.col("origin").alias("chain"),
        (f.col("seq") - 1).alias("rank"),
    )
    placed = f.col("sent_at").isNotNull() | (~f.col("sender_complete") & f.col("monotone"))
    other = joined.where(~f.col("regular")).withColumn("placed", placed)
    # What has no place is a chain of its own, and needs no place among others like it.
    key = f.when(f.col("monotone") | ~f.col("placed"), f.col("seq")).otherwise(f.col("sent_at"))
    in_order = places(other.withColumn("key", key), ["run", "origin", "placed"], "key", "place")
    rank = f.when(f.col("placed"), f.col("place")).otherwise(0)
    chain = f.when(f.col("placed"), f.col("origin")).otherwise(f.xxhash64("origin", "seq", f.lit("unplaced")))
    irregular = in_order.withColumn("rank", rank).withColumn("chain", chain)
    return regular.unionByName(irregular.select(*regular.columns))


def with_owed(messages: DataFrame, logs: Logs) -> DataFrame:
    """`owed_from`: by number of member, the rank from which on it owes messages of this sender. Null: nothing."""
    joined = logs.members.where("joined").select("run", "process", "member")
    if joined.isEmpty():
        return messages.withColumn("owed_from", f.lit(None).cast("map<int,bigint>"))
    placed = messages.where("placed").select("run", "origin", "rank", f.posexplode("at").alias("member", "index"))
    first = (
        placed.where(f.col("index").isNotNull())
        .join(f.broadcast(joined), ["run", "member"])
        .groupBy("run", "origin", "member")
        .agg((f.min_by("rank", "index") + 1).alias("owed_from"))
    )
    entries = f.map_from_entries(f.collect_list(f.struct("member", "owed_from")))
    owed = first.groupBy("run", "origin").agg(entries.alias("owed_from"))
    return messages.join(f.broadcast(owed), ["run", "origin"], "left")


# What one member owes and has: conditions on a row of messages joined with `Logs.runs` -------------------------------


def member_fact(number: int, name: str) -> Column:
    """A fact about a member. Null where the run has no such member."""
    return f.get("members", f.lit(number))[name]


def delivered_at(number: int) -> Column:
    return f.get("at", f.lit(number))


def is_for(number: int) -> Column:
    process = member_fact(number, "process")
    return process.isNotNull() & is_for_process(f.coalesce(process, f.lit(0)))


def is_for_process(process: Column) -> Column:
    return f.col("addressed").isNull() | f.array_contains("addressed", process)


def owes(number: int) -> Column:
    """Or would, if the message is for it."""
    return is_owed_by(f.lit(number), f.coalesce(member_fact(number, "joined"), f.lit(False)))


def is_owed_by(member: Column, joined: Column) -> Column:
    owed_from = f.coalesce(f.try_element_at(f.col("owed_from"), member), never())
    return ~joined | (f.col("placed") & (f.col("rank") >= owed_from))


def any_of(conditions: list[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, f.lit(False))


def total_of(counts: list[Column]) -> Column:
    return reduce(lambda one, other: one + other, counts, f.lit(0).cast("bigint"))
