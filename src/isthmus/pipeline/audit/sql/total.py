"""Total order in SQL: do any two members deliver any two messages in different orders?

Most runs are settled by little. Where order differs at all, it usually differs between every two members within their
first few thousand rows. Where it does not, all logs are usually part of the longest, and one comparison with that
settles every pair. Only pairs that neither settles are compared over their whole logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.findings import Finding
from isthmus.pipeline.audit.sql.messages import NEVER, Logs, is_for_process, is_owed_by
from isthmus.pipeline.blocks import running_maxima

FIRST_LOOK = 4096
"""Rows of a log."""

Pair = tuple[str, int, int]


def judge_total(messages: DataFrame, logs: Logs, found: Mapping[str, Finding]) -> None:
    """Count the pairs of members of each run that differ, and describe some of them."""
    codes = {(row.run, row.member): row.process for row in logs.members.collect()}
    members: dict[str, list[int]] = {}
    for run, member in sorted(codes):
        members.setdefault(run, []).append(member)
    undecided: set[Pair] = {(run, one, two) for run, each in members.items() for one, two in combinations(each, 2)}
    if not undecided:
        return
    undecided -= _differing(messages, undecided, found, codes, FIRST_LOOK)
    if undecided:
        sound = _part_of_longest(messages, {run for run, _, _ in undecided})
        undecided = {(run, one, two) for run, one, two in undecided if not {(run, one), (run, two)} <= sound}
    if undecided:
        _differing(messages, undecided, found, codes, None)
    _what_is_open(messages, logs, found)


def _differing(
    messages: DataFrame,
    pairs: set[Pair],
    found: Mapping[str, Finding],
    codes: Mapping[tuple[str, int], int],
    rows: int | None,
) -> set[Pair]:
    """Those of the pairs whose orders differ, within so many rows of the first one's log."""
    spark = messages.sparkSession
    wanted = spark.createDataFrame(sorted(pairs), "run string, one int, two int")
    grouped = wanted.groupBy("run").agg(f.collect_list(f.struct("one", "two")).alias("pairs"))
    looked_at = messages
    if rows is not None:
        looked_at = messages.where(f.exists("at", lambda index: f.coalesce(index < rows, f.lit(False))))
    each = looked_at.join(f.broadcast(grouped), "run").select(
        "run", "origin", "seq", "at", f.explode("pairs").alias("pair")
    )
    each = each.select(
        *("run", "origin", "seq", "pair.one", "pair.two"),
        f.get("at", f.col("pair.one")).alias("at_one"),
        f.get("at", f.col("pair.two")).alias("at_two"),
    ).where(f.col("at_one").isNotNull() & f.col("at_two").isNotNull())
    if rows is not None:
        each = each.where(f.col("at_one") < rows)
    pair = ["run", "one", "two"]
    # Up to the first that differs, the latest place so far is that of the message before.
    latest = f.struct("at_two", "at_one", "origin", "seq")
    if rows is not None:  # no longer than the look, so one window will do
        earlier = Window.partitionBy(*pair).orderBy("at_one").rowsBetween(Window.unboundedPreceding, -1)
        seen = each.withColumn("before", f.max(latest).over(earlier))
    else:
        seen = running_maxima(each, pair, "at_one", {"before": latest}, before=True)
    fallen = seen.where(f.col("before.at_two") > f.col("at_two"))
    shown = f.struct("before", "origin", "seq", "at_one", "at_two")
    differing = fallen.groupBy(*pair).agg(f.min_by(shown, "at_one").alias("shown")).collect()
    for row in sorted(differing, key=lambda each: (each.run, each.one, each.two)):
        finding = found[row.run]
        if finding.described([None]):
            first, second = row.shown.before, row.shown
            one, two = codes[row.run, row.one], codes[row.run, row.two]
            at, other_at = (first.at_one, second.at_one), (first.at_two, second.at_two)
            keys = (first.origin, first.seq), (second.origin, second.seq)
            finding.witness(one, *keys, at, two, other_at)
    return {(row.run, row.one, row.two) for row in differing}


def _part_of_longest(messages: DataFrame, runs: set[str]) -> set[tuple[str, int]]:
    """Members whose log is part of the longest of their run, the longest itself included."""
    spark = messages.sparkSession
    names = spark.createDataFrame([(run,) for run in sorted(runs)], "run string")
    ours = messages.join(f.broadcast(names), "run", "left_semi")
    each = ours.select("run", f.posexplode("at").alias("member", "index"), "at").where(f.col("index").isNotNull())
    lengths = each.groupBy("run", "member").count()
    longest = lengths.groupBy("run").agg(f.max_by("member", f.struct("count", -f.col("member"))).alias("longest"))
    compared = each.join(f.broadcast(longest), "run").select(
        "run", "member", "index", f.get("at", f.col("longest")).alias("there")
    )
    compared = running_maxima(compared, ["run", "member"], "index", {"latest": f.col("there")}, before=True)
    falls = f.col("there").isNull() | f.coalesce(f.col("latest") > f.col("there"), f.lit(False))
    strays = compared.groupBy("run", "member").agg(f.max(falls).alias("stray"))
    return {(row.run, row.member) for row in strays.collect() if not row.stray}


def _what_is_open(messages: DataFrame, logs: Logs, found: Mapping[str, Finding]) -> None:
    """Could a member whose log is not complete have delivered what it misses in another order than someone else?

    A message that is missing before a common one may have come later; one that is missing after, earlier in a gap.
    """
    is_open = logs.members.where(~f.col("complete"))
    runs = {row.run for row in is_open.select("run").distinct().collect()}
    runs = {run for run in runs if not found[run].violations}
    if not runs:
        return
    open_logs = is_open.where(f.col("run").isin(sorted(runs))).select("run", "member", "process", "joined", "gap")
    there = f.get("at", f.col("member"))
    missing = there.isNull() & is_for_process(f.col("process")) & is_owed_by(f.col("member"), f.col("joined"))
    each = messages.join(f.broadcast(open_logs), "run").select(
        *("run", "member"),
        there.isNotNull().alias("common"),
        missing.alias("missing"),
        (f.col("gap") != NEVER).alias("gapped"),
        f.posexplode("at").alias("other", "index"),
    )
    seen = each.where(f.col("index").isNotNull() & (f.col("other") != f.col("member")))
    ends = seen.groupBy("run", "member", "other", "gapped").agg(
        f.min(f.when(f.col("missing"), f.col("index"))).alias("first_missing"),
        f.max(f.when(f.col("missing"), f.col("index"))).alias("last_missing"),
        f.min(f.when(f.col("common"), f.col("index"))).alias("first_common"),
        f.max(f.when(f.col("common"), f.col("index"))).alias("last_common"),
    )
    may_differ = (f.col("first_missing") < f.col("last_common")) | (
        f.col("gapped") & (f.col("first_common") < f.col("last_missing"))
    )
    for row in ends.where(may_differ).select("run").distinct().collect():
        found[row.run].unknown = True
