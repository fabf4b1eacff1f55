"""The audit of runs that no single task can hold, in Spark SQL alone: no row of the trace passes through Python.

It shares no code with the audit by numpy, and gives the same verdicts and counts. Every stage is spread by message, by
stretch of a log or by block of a chain, never by run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import DELIVER
from isthmus.pipeline.audit.findings import FINDINGS, Finding
from isthmus.pipeline.audit.sql.messages import (
    NEVER,
    Logs,
    any_of,
    computed,
    delivered_at,
    is_for,
    member_fact,
    members_at_most,
    owes,
    place_messages,
    read_logs,
    read_messages,
    total_of,
    with_owed,
)
from isthmus.pipeline.audit.sql.order import (
    causal_states,
    causes_of,
    chain_states,
    closed_edges,
    direct_edges,
    judged,
    own_edges,
    union,
)
from isthmus.pipeline.audit.sql.total import judge_total

WITNESSES = 10
MEMBERS_AT_A_TIME = 32
"""More columns than that make plans that take longer to compile than to run."""


def audit_in_sql(rows: DataFrame) -> DataFrame:
    """Verdicts and witnesses of all runs in these coded rows. The result is small and local."""
    found = _SqlAudit(rows).findings()
    columns = [field.name for field in FINDINGS.fields]
    tuples = [tuple(row.get(name) for name in columns) for run, each in found for row in each.rows(run)]
    return rows.sparkSession.createDataFrame(tuples, FINDINGS)


def _flag(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False)).cast("bigint")


class _SqlAudit:
    def __init__(self, rows: DataFrame) -> None:
        self.rows = rows
        self.spark: SparkSession = rows.sparkSession
        self.logs: Logs = read_logs(rows)
        self.width = members_at_most(self.logs)
        self.blocks = [
            range(start, min(start + MEMBERS_AT_A_TIME, self.width))
            for start in range(0, self.width, MEMBERS_AT_A_TIME)
        ]
        self.codes = {(row.run, row.member): row.process for row in self.logs.members.collect()}
        self.runs = sorted(row.run for row in self.logs.runs.select("run").collect())
        self.by_run: defaultdict[str, dict[str, Finding]] = defaultdict(
            lambda: {each: Finding(each, WITNESSES) for each in ("integrity", "agreement", "fifo", "causal", "total")}
        )

    def findings(self) -> list[tuple[str, Finding]]:
        if self.width:
            self.messages = computed(
                with_owed(place_messages(read_messages(self.rows, self.logs, self.width)), self.logs)
            )
            self._single_messages()
            self._order()
            judge_total(self.messages, self.logs, self.by_run)
        return [(run, finding) for run in self.runs for finding in self.by_run[run].values()]

    # Single messages

    def _single_messages(self) -> None:
        members = range(self.width)
        known = self.messages.join(f.broadcast(self.logs.runs), "run")
        lost = f.when(f.col("addressed").isNotNull(), f.size(f.array_except("addressed", "processes"))).otherwise(0)
        known = known.withColumn("lost", lost).withColumn(
            "due", (f.col("deliveries") > 0) | (f.col("sender_complete") & ~f.col("sender_crashed"))
        )
        first = total_of([_flag(delivered_at(each).isNotNull()) for each in members])
        strangers = total_of([_flag(delivered_at(each).isNotNull() & ~is_for(each)) for each in members])
        wholes = [f.coalesce(member_fact(each, "complete"), f.lit(False)) for each in members]
        known = known.withColumn("first", first).withColumn(
            "open", total_of([_flag(is_for(each) & ~wholes[each]) for each in members]) + f.col("lost")
        )
        owed = [is_for(each) & ~member_fact(each, "gone") & owes(each) for each in members]
        absent = [owed[each] & delivered_at(each).isNull() for each in members]
        unsent = f.col("sent_at").isNull()
        delivered = f.col("deliveries") > 0
        sender_lives = ~f.col("sender_crashed")
        may_be_due = any_of([owed[each] & ((f.col("open") > _flag(~wholes[each])) | sender_lives) for each in members])
        may_be_lost = (f.col("lost") > 0) & ((f.col("open") > 1) | sender_lives)
        is_open = any_of([absent[each] & ~wholes[each] for each in members]) | (f.col("lost") > 0)
        past_is_known = ~unsent & (f.col("sent_at") < f.col("sender_gap"))
        missing = total_of([_flag(absent[each] & wholes[each]) for each in members])
        figures = known.select(
            "run",
            f.col("deliveries").alias("integrity_checked"),
            (
                f.col("deliveries")
                - f.col("first")
                + f.when(f.col("never_sent"), f.col("first")).otherwise(0)
                + strangers
            ).alias("integrity_violations"),
            _flag(delivered & unsent & ~f.col("never_sent")).alias("integrity_unknown"),
            f.when(f.col("due"), total_of([_flag(each) for each in owed]) + f.col("lost"))
            .otherwise(0)
            .alias("agreement_checked"),
            f.when(f.col("due"), missing).otherwise(0).alias("agreement_violations"),
            _flag(f.when(f.col("due"), is_open).otherwise(may_be_due | may_be_lost)).alias("agreement_unknown"),
            "first",
            _flag(delivered & ~past_is_known & ~f.col("never_sent")).alias("past_open"),
            _flag(f.col("addressed").isNotNull()).alias("addressed"),
            _flag((f.col("chain") != f.col("origin")) | (f.col("rank") + 1 != f.col("seq"))).alias("irregular"),
        )
        sums = [f.sum(name).alias(name) for name in figures.columns if name != "run"]
        totals = figures.groupBy("run").agg(*sums).collect()
        for row in totals:
            found = self.by_run[row.run]
            for name in ("integrity", "agreement"):
                found[name].checked = row[f"{name}_checked"]
                found[name].violations = row[f"{name}_violations"]
                found[name].unknown = row[f"{name}_unknown"] > 0
            for name in ("fifo", "causal", "total"):
                found[name].checked = row["first"]
            found["fifo"].unknown = found["causal"].unknown = row.past_open > 0
        self.regular = all(row.irregular == 0 for row in totals)
        whole = "members is null or forall(members, each -> not each.joined and each.gap = 9223372036854775807)"
        assert NEVER == 9223372036854775807
        simple = {row.run for row in self.logs.runs.where(whole).select("run").collect()}
        self.simple = simple - {row.run for row in totals if row.addressed}
        self._single_witnesses(known, absent, wholes)

    def _single_witnesses(self, known: DataFrame, absent: list[Column], wholes: list[Column]) -> None:
        members = range(self.width)
        nothing = f.lit(None).cast("bigint")

        def shown(kind: str, condition: list[Column]) -> DataFrame:
            numbers = f.array_compact(f.array(*(f.when(condition[each], f.lit(each)) for each in members)))
            one = known.select("run", "origin", "seq", "at", f.explode(numbers).alias("member"))
            return one.select(
                *("run", f.lit(kind).alias("kind"), "member", "origin", "seq"),
                f.get("at", f.col("member")).alias("index"),
                nothing.alias("again"),
            )

        parts = []
        if any(found["integrity"].violations for found in self.by_run.values()):
            there = [delivered_at(each).isNotNull() for each in members]
            parts.append(shown("nobody", [there[each] & f.col("never_sent") for each in members]))
            parts.append(shown("stranger", [there[each] & ~is_for(each) for each in members]))
            parts.append(self._again(known))
        if any(found["agreement"].violations for found in self.by_run.values()):
            parts.append(shown("missing", [absent[each] & wholes[each] & f.col("due") for each in members]))
        for row in _some_per_run(union(parts), "member", "seq", of="kind") if parts else []:
            name = "agreement" if row.kind == "missing" else "integrity"
            process = self.codes[row.run, row.member]
            at = (row["index"], row.again)
            self._describe(row.run, name, (row.kind, process, (row.origin, row.seq), None, at))

    def _again(self, known: DataFrame) -> DataFrame:
        """Messages that some member delivered more often than once, and where."""
        several = known.where(f.col("deliveries") > f.col("first")).select("run", "origin", "seq").limit(1000)
        rows = self.rows.where(f.col("app") & (f.col("kind") == DELIVER)).join(
            f.broadcast(several), ["run", "origin", "seq"]
        )
        twice = rows.groupBy("run", "process", "origin", "seq").agg(
            f.sort_array(f.collect_list("index")).alias("places")
        )
        named = twice.where(f.size("places") > 1).join(
            f.broadcast(self.logs.members.select("run", "process", "member")), ["run", "process"]
        )
        return named.select(
            *("run", f.lit("again").alias("kind"), "member", "origin", "seq"),
            f.get("places", f.lit(0)).alias("index"),
            f.get("places", f.lit(1)).alias("again"),
        )

    def _describe(self, run: str, name: str, words: tuple[Any, ...]) -> None:
        finding = self.by_run[run][name]
        counted = finding.violations
        if finding.described([None]):
            finding.witness(*words)
        finding.violations = counted  # it was counted before it was described

    # Order

    def _order(self) -> None:
        rows, messages, runs = self.rows, self.messages, self.logs.runs
        states = [computed(chain_states(messages, runs, block)) for block in self.blocks]
        own = own_edges(messages)
        for block, state in zip(self.blocks, states, strict=True):
            self._count("fifo", judged(state, runs, block, "before_"), own)
        edges = computed(direct_edges(rows, messages, self.regular).unionByName(own))
        simple = self._only(edges, self.simple)
        for block, state in zip(self.blocks, states, strict=True):
            early = judged(causal_states(state, simple, block), runs, block, "past_")
            self._count("causal", early, simple, describe=False)
        # Where direct causes were not there, whole pasts say how many deliveries came too early.
        again = {run for run in self.simple if self.by_run[run]["causal"].violations}
        for run in again:
            self.by_run[run]["causal"].violations = 0
        rest = (set(self.runs) - self.simple) | again
        if rest:
            whole = computed(closed_edges(self._only(edges, rest), self._only(messages, rest)))
            for block, state in zip(self.blocks, states, strict=True):
                self._count("causal", judged(causal_states(state, whole, block), runs, block, "past_"), whole)

    def _only(self, table: DataFrame, wanted: set[str]) -> DataFrame:
        if len(wanted) == len(self.runs):
            return table
        names = self.spark.createDataFrame([(run,) for run in sorted(wanted)], "run string")
        return table.join(f.broadcast(names), "run", "left_semi")

    def _count(self, name: str, early: DataFrame, edges: DataFrame, *, describe: bool = True) -> None:
        early = computed(early)
        counts = early.groupBy("run").agg(
            f.sum(f.size("wrong")).alias("violations"), f.sum(f.size("unsure")).alias("unsure")
        )
        wrong = False
        for row in counts.collect():
            finding = self.by_run[row.run][name]
            finding.violations += row.violations
            finding.unknown |= row.unsure > 0
            wrong |= row.violations > 0
        if wrong and describe:
            self._describe_early(name, early, edges)

    def _describe_early(self, name: str, early: DataFrame, edges: DataFrame) -> None:
        each = early.select("run", "chain", "rank", "origin", "seq", "at", f.explode("wrong").alias("member"))
        each = each.withColumn("index", f.get("at", f.col("member"))).drop("at")
        some = self.spark.createDataFrame(
            [tuple(row) for row in _some_per_run(each, "member", "index")],
            "run string, chain bigint, rank bigint, origin bigint, seq bigint, member int, index bigint",
        )
        facts = self.logs.members.select("run", "member", "process", "joined", "gap")
        wrong = some.join(f.broadcast(facts), ["run", "member"])
        causes = causes_of(wrong, edges, self.messages)
        for row in wrong.join(causes, ["run", "chain", "rank", "member"]).collect():
            cause = row.cause
            at = (cause.first_index, row["index"])
            first, second = (cause.first_origin, cause.first_seq), (row.origin, row.seq)
            kind = "absent" if cause.first_index is None else "late"
            self._describe(row.run, name, (kind, row.process, first, second, at))


def _some_per_run(rows: DataFrame, *order: str, of: str = "run") -> list[Row]:
    """The first few of each run, or of each run and whatever else is named."""
    place = f.row_number().over(Window.partitionBy("run", of).orderBy(*order))
    return rows.withColumn("_place", place).where(f.col("_place") <= WITNESSES).drop("_place").collect()
