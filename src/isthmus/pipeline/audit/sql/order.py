"""The second half of the audit in SQL: who had to come before whom, and did.

An **edge** says that the first `count` messages of some chain are in the causal past of a message. Where everyone gets
every message and every log is whole, edges to direct causes are enough (see `trace.causality`). Elsewhere, whole pasts
are needed: every past takes in the pasts of the last message that it holds of each chain, until nothing changes.

To judge all members at once, each message carries the latest index at which each member delivered it or anything before
it on its chain. One join brings those to the messages that depend on them; the rest is one comparison per member.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import DELIVER
from isthmus.pipeline.audit.sql.messages import (
    MESSAGE,
    computed,
    delivered_at,
    is_for,
    member_fact,
    never,
    owes,
)
from isthmus.pipeline.blocks import running_maxima

_NODE = ("run", "chain", "rank")


# Edges ----------------------------------------------------------------------------------------------------------------


def direct_edges(rows: DataFrame, messages: DataFrame, regular: bool) -> DataFrame:
    """Per message, for each chain of which its sender delivered something since its previous send, the highest count.

    `regular`: every sender's messages are numbered 1, 2, 3, …, so that a delivery need not look up its rank.
    """
    delivered = rows.where(f.col("app") & (f.col("kind") == DELIVER)).select("run", "process", "index", "origin", "seq")
    if regular:
        ranked = delivered.select(
            "run", "process", "index", f.col("origin").alias("chain"), f.col("seq").alias("count")
        )
    else:
        ranks = messages.select(*MESSAGE, "chain", (f.col("rank") + 1).alias("count"))
        ranked = delivered.join(ranks, list(MESSAGE)).select("run", "process", "index", "chain", "count")
    sends = messages.where(f.col("sent_at").isNotNull()).select(
        "run",
        f.col("origin").alias("process"),
        f.col("sent_at").alias("index"),
        f.lit(None).cast("bigint").alias("chain"),
        f.lit(None).cast("bigint").alias("count"),
        f.col("chain").alias("to_chain"),
        f.col("rank").alias("to_rank"),
    )
    nothing = f.lit(None).cast("bigint")
    log = ranked.withColumn("to_chain", nothing).withColumn("to_rank", nothing).unionByName(sends)
    # Between two sends the index of the last send before is the same, so it names what was delivered in between.
    sent = {"since": f.when(f.col("to_chain").isNotNull(), f.col("index"))}
    log = running_maxima(log, ["run", "process"], "index", sent, before=True)
    log = log.withColumn("since", f.coalesce("since", f.lit(-1)))
    # One place for each stretch of a log: both aggregations then find their rows where they are. The number is asked
    # for, else Spark merges what it takes for little: of 64 processes and 1 million deliveries one task had 98 %.
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    log = log.repartition(partitions, "run", "process", "since")
    stretch = Window.partitionBy("run", "process", "since")
    node = log.withColumn("to", f.max(f.struct("to_chain", "to_rank")).over(stretch))
    return (
        node.where(f.col("chain").isNotNull() & f.col("to.to_chain").isNotNull())
        .groupBy("run", "process", "since", "chain")
        .agg(f.max("count").alias("count"), f.first("to").alias("to"))
        .select("run", f.col("to.to_chain").alias("to_chain"), f.col("to.to_rank").alias("to_rank"), "chain", "count")
    )


def own_edges(messages: DataFrame) -> DataFrame:
    """Everything that a sender sent before is a cause."""
    return messages.where(f.col("placed") & (f.col("rank") > 0)).select(
        "run",
        f.col("chain").alias("to_chain"),
        f.col("rank").alias("to_rank"),
        "chain",
        f.col("rank").alias("count"),
    )


def closed_edges(edges: DataFrame, messages: DataFrame) -> DataFrame:
    """Edges to whole causal pasts. Arrays by chain; each round doubles the length of the chains that are covered."""
    chains = messages.select("run", "chain").distinct()
    number = f.row_number().over(Window.partitionBy("run").orderBy("chain")) - 1
    numbered = chains.withColumn("number", number)
    numbered = computed(numbered)
    table = computed(numbered.groupBy("run").agg(f.sort_array(f.collect_list("chain")).alias("chains")))
    pasts = computed(_first_pasts(edges, messages, numbered))
    while True:
        grown = computed(_grown(pasts, table))
        changed = grown.where("changed").limit(1).count()
        pasts = grown.drop("changed")
        if not changed:
            break
    held = pasts.join(f.broadcast(table), "run").select(
        "run",
        f.col("chain").alias("to_chain"),
        f.col("rank").alias("to_rank"),
        f.posexplode("past").alias("number", "count"),
        "chains",
    )
    return held.where(f.col("count") > 0).select(
        "run", "to_chain", "to_rank", f.get("chains", f.col("number")).alias("chain"), "count"
    )


def _first_pasts(edges: DataFrame, messages: DataFrame, numbered: DataFrame) -> DataFrame:
    """What each sender had seen before each send: what its earlier messages held as well, so a running maximum."""
    entries = (
        edges.groupBy("run", "to_chain", "to_rank", "chain")
        .agg(f.max("count").alias("count"))
        .join(f.broadcast(numbered), ["run", "chain"])
        .select("run", f.col("to_chain").alias("chain"), f.col("to_rank").alias("rank"), "number", "count")
    )
    grid = messages.select(*_NODE).join(f.broadcast(numbered.select("run", "number")), "run")
    filled = grid.join(entries, [*_NODE, "number"], "left")
    running = running_maxima(filled, ["run", "chain", "number"], "rank", {"held": f.col("count")})
    held = f.sort_array(f.collect_list(f.struct("number", f.coalesce("held", f.lit(0).cast("bigint")).alias("held"))))
    return running.groupBy(*_NODE).agg(held["held"].alias("past"))


def _larger(one: Column, other: Column) -> Column:
    return f.greatest(one, other)


def _grown(pasts: DataFrame, table: DataFrame) -> DataFrame:
    held = pasts.join(f.broadcast(table), "run").select(*_NODE, f.posexplode("past").alias("number", "count"), "chains")
    wanted = held.where(f.col("count") > 0).select(
        "run",
        f.col("chain").alias("to_chain"),
        f.col("rank").alias("to_rank"),
        f.get("chains", f.col("number")).alias("chain"),
        (f.col("count") - 1).alias("rank"),
    )
    found = (
        wanted.join(pasts, list(_NODE)).groupBy("run", "to_chain", "to_rank").agg(f.collect_list("past").alias("pasts"))
    )
    back = found.select("run", f.col("to_chain").alias("chain"), f.col("to_rank").alias("rank"), "pasts")
    both = pasts.join(back, list(_NODE), "left")
    merged = f.aggregate(
        f.coalesce("pasts", f.array().cast("array<array<bigint>>")),
        f.col("past"),
        lambda one, other: f.zip_with(one, other, _larger),
    )
    grown = both.select(*_NODE, "past", merged.alias("grown"))
    return grown.select(*_NODE, f.col("grown").alias("past"), (f.col("grown") != f.col("past")).alias("changed"))


# Judging --------------------------------------------------------------------------------------------------------------


def chain_states(messages: DataFrame, runs: DataFrame, members: range) -> DataFrame:
    """Per message and member: the latest index of it and all before it on its chain, and whether one is missing.

    `late_i` and `lacks_i` take in the message itself, `late_before_i` and `lacks_before_i` only those before it.
    """
    known = messages.join(f.broadcast(runs), "run")
    values: dict[str, Column] = {}
    for each in members:
        values[f"late_{each}"] = f.when(is_for(each), delivered_at(each))
        values[f"lacks_{each}"] = f.when(is_for(each) & owes(each) & delivered_at(each).isNull(), 1)
    slim = known.select(
        *_NODE, "seq", "origin", "placed", "at", *(value.alias(f"own_{n}") for n, value in values.items())
    )
    before = running_maxima(
        slim, ["run", "chain"], "rank", {f"before_{name}": f.col(f"own_{name}") for name in values}, before=True
    )
    inclusive = [f.greatest(f"before_{name}", f"own_{name}").alias(name) for name in values]
    return before.select(
        *_NODE, "seq", "origin", "placed", "at", *inclusive, *(f.col(f"before_{name}") for name in values)
    )


def judged(states: DataFrame, runs: DataFrame, members: range, prefix: str) -> DataFrame:
    """Per message arrays of members at which it came too early (`wrong`) and at which nobody can tell (`open`)."""
    known = states.join(f.broadcast(runs), "run")
    wrong, unsure = [], []
    for each in members:
        at = delivered_at(each)
        # Not at the same index: a circle may have a message in its own past, and nothing causes itself.
        late = f.coalesce(f.col(f"{prefix}late_{each}") > at, f.lit(False))
        lacks = f.coalesce(f.col(f"{prefix}lacks_{each}") == 1, f.lit(False)) & at.isNotNull()
        seen = at < f.coalesce(member_fact(each, "gap"), never())
        wrong.append(f.when(late | (lacks & seen), f.lit(each)))
        unsure.append(f.when(~late & lacks & ~seen, f.lit(each)))
    nothing = f.array().cast("array<int>")
    return known.select(
        *_NODE,
        "seq",
        "origin",
        f.coalesce(f.array_compact(f.array(*wrong)), nothing).alias("wrong"),
        f.coalesce(f.array_compact(f.array(*unsure)), nothing).alias("unsure"),
        "at",
    ).where((f.size("wrong") > 0) | (f.size("unsure") > 0))


def causal_states(states: DataFrame, edges: DataFrame, members: range) -> DataFrame:
    """Per message, what its whole past asks of each member: the maximum over its edges."""
    names = [f"{what}_{each}" for each in members for what in ("late", "lacks")]
    causes = states.select("run", "chain", (f.col("rank") + 1).alias("count"), *names)
    met = edges.join(causes, ["run", "chain", "count"])
    asked = met.groupBy("run", "to_chain", "to_rank").agg(*(f.max(name).alias(f"past_{name}") for name in names))
    back = asked.withColumnRenamed("to_chain", "chain").withColumnRenamed("to_rank", "rank")
    return states.select(*_NODE, "seq", "origin", "at").join(back, list(_NODE))


def causes_of(wrong: DataFrame, edges: DataFrame, messages: DataFrame) -> DataFrame:
    """For the few deliveries that are shown: a cause that was not there, the one nearest on its chain.

    `wrong` has run, chain, rank, member, index, gap and the fact `joined` of the member.
    """
    past = wrong.join(
        edges.select(
            "run", f.col("to_chain").alias("chain"), f.col("to_rank").alias("rank"), f.col("chain").alias("on"), "count"
        ),
        list(_NODE),
    )
    causes = messages.select(
        "run",
        f.col("chain").alias("on"),
        f.col("rank").alias("cause_rank"),
        f.col("origin").alias("first_origin"),
        f.col("seq").alias("first_seq"),
        "addressed",
        "owed_from",
        "placed",
        f.col("at").alias("cause_at"),
    )
    pairs = f.broadcast(past).join(causes, ["run", "on"]).where(f.col("cause_rank") < f.col("count"))
    there = f.get("cause_at", f.col("member"))
    for_it = f.col("addressed").isNull() | f.array_contains("addressed", f.col("process"))
    owed_from = f.coalesce(f.try_element_at("owed_from", f.col("member")), never())
    owed = ~f.col("joined") | (f.col("placed") & (f.col("cause_rank") >= owed_from))
    unmet = for_it & f.when(there.isNotNull(), there > f.col("index")).otherwise(owed & (f.col("index") < f.col("gap")))
    found = pairs.where(unmet).withColumn("first_index", there)
    # One that came late tells more than one that never came; of several, the first on its chain.
    choice = f.struct(f.col("first_index").isNull(), "cause_rank", "on")
    shown = f.struct("first_origin", "first_seq", "first_index")
    return found.groupBy("run", "chain", "rank", "member").agg(f.min_by(shown, choice).alias("cause"))
