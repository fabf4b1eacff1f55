"""The audit of runs that no single task can hold, in Spark SQL alone: no row of the trace passes through Python.

It shares no code with the audit by numpy, and gives the same verdicts and counts. Every stage is spread by message, by
stretch of a log or by block of a chain, never by run. One judge per property, in `SQL_JUDGES`: what can be summed over
messages is summed for all judges in one scan (`figures`); what cannot, each finds out for itself (`conclude`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import DELIVER
from isthmus.pipeline.audit.findings import FINDINGS, WITNESSES, Finding, Key
from isthmus.pipeline.audit.sql.chains import causal_chains
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
)
from isthmus.pipeline.audit.sql.total import judge_total
from isthmus.pipeline.audit.sql.views import judge_views

MEMBERS_AT_A_TIME = 32
"""More columns than that make plans that take longer to compile than to run."""


def _flag(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False)).cast("bigint")


class SqlFacts:
    """The runs as tables, and what several judges ask about them. There is at least one application process."""

    def __init__(self, rows: DataFrame, logs: Logs, runs: list[str], width: int) -> None:
        self.rows = rows
        self.logs = logs
        self.runs = runs
        self.spark: SparkSession = rows.sparkSession
        self.members = range(width)
        self.blocks = [
            range(start, min(start + MEMBERS_AT_A_TIME, width)) for start in range(0, width, MEMBERS_AT_A_TIME)
        ]
        self.codes = {(row.run, row.member): row.process for row in logs.members.collect()}
        self.messages = computed(with_owed(place_messages(read_messages(rows, logs, width)), logs))
        self.wholes = [f.coalesce(member_fact(each, "complete"), f.lit(False)) for each in self.members]
        self.owed = [is_for(each) & ~member_fact(each, "gone") & owes(each) for each in self.members]
        self.absent = [self.owed[each] & delivered_at(each).isNull() for each in self.members]
        self.there = [delivered_at(each).isNotNull() for each in self.members]
        """By number of member, conditions on a row of `known`."""
        self.regular = False
        """Every message is on its sender's chain, by its number."""
        self.simple: set[str] = set()
        """Runs in which every message is for everyone and every log is whole: there direct causes are enough."""

    @cached_property
    def known(self) -> DataFrame:
        """The messages with what is known of their run: logs that are lost, who is open, whether they are due."""
        known = self.messages.join(f.broadcast(self.logs.runs), "run")
        lost = f.when(f.col("addressed").isNotNull(), f.size(f.array_except("addressed", "processes"))).otherwise(0)
        open_logs = total_of([_flag(is_for(each) & ~self.wholes[each]) for each in self.members])
        return (
            known.withColumn("lost", lost)
            .withColumn("due", (f.col("deliveries") > 0) | (f.col("sender_complete") & ~f.col("sender_crashed")))
            .withColumn("first", total_of([_flag(each) for each in self.there]))
            .withColumn("open", open_logs + f.col("lost"))
        )

    def past_is_open(self) -> Column:
        """A message was delivered and sent after things that we do not see."""
        sent_at = f.col("sent_at")
        past_is_known = sent_at.isNotNull() & (sent_at < f.col("sender_gap"))
        return _flag((f.col("deliveries") > 0) & ~past_is_known & ~f.col("never_sent"))

    def sums(self, figures: Mapping[str, Column]) -> list[Row]:
        """Run by run, these figures over all messages; on the way, what makes a run a simple one."""
        ours = {
            "addressed": _flag(f.col("addressed").isNotNull()),
            "irregular": _flag((f.col("chain") != f.col("origin")) | (f.col("rank") + 1 != f.col("seq"))),
        }
        columns = [column.alias(name) for name, column in {**ours, **figures}.items()]
        table = self.known.select("run", *columns)
        totals = table.groupBy("run").agg(*(f.sum(name).alias(name) for name in table.columns if name != "run"))
        rows = totals.collect()
        self.regular = all(row.irregular == 0 for row in rows)
        whole = "members is null or forall(members, each -> not each.joined and each.gap = 9223372036854775807)"
        assert NEVER == 9223372036854775807
        simple = {row.run for row in self.logs.runs.where(whole).select("run").collect()}
        self.simple = simple - {row.run for row in rows if row.addressed}
        return rows

    @cached_property
    def states(self) -> list[DataFrame]:
        return [computed(chain_states(self.messages, self.logs.runs, block)) for block in self.blocks]

    @cached_property
    def own_edges(self) -> DataFrame:
        return own_edges(self.messages)

    def only(self, table: DataFrame, wanted: set[str]) -> DataFrame:
        if len(wanted) == len(self.runs):
            return table
        names = self.spark.createDataFrame([(run,) for run in sorted(wanted)], "run string")
        return table.join(f.broadcast(names), "run", "left_semi")


class SqlJudge:
    """Judges one property of all runs."""

    def __init__(self, judged: str, runs: Iterable[str]) -> None:
        self.found = {run: Finding(judged) for run in runs}

    def figures(self, facts: SqlFacts) -> dict[str, Column]:
        """Expressions over a row of `facts.known` for `checked`, `violations` and `unknown`. Their sums are taken."""
        return {}

    def conclude(self, facts: SqlFacts) -> None:
        """What no sum over messages says, and witnesses."""

    def any_violated(self) -> bool:
        return any(finding.violations for finding in self.found.values())

    def describe(self, run: str, *about: Any, **more: Any) -> None:
        """A violation that was counted before."""
        if self.found[run].room > 0:
            self.found[run].witness(*about, **more)


SqlJudges: TypeAlias = Mapping[str, type[SqlJudge] | None]
"""Property to its judge; None where nobody can judge it here."""


def sql_judges_of(properties: Iterable[str]) -> SqlJudges:
    return {each: SQL_JUDGES.get(each) for each in properties}


def audit_in_sql(rows: DataFrame, judges: SqlJudges) -> DataFrame:
    """Verdicts and witnesses of all runs in these coded rows. The result is small and local."""
    logs = read_logs(rows)
    width = members_at_most(logs)
    runs = sorted(row.run for row in logs.runs.select("run").collect())
    at_work = {name: judge(name, runs) for name, judge in judges.items() if judge is not None}
    if width:
        _judge(SqlFacts(rows, logs, runs, width), list(at_work.values()))
    unjudged = [name for name in judges if name not in at_work]
    found = [(run, judge.found[run]) for run in runs for judge in at_work.values()]
    found += [(run, Finding(name, unknown=True)) for run in runs for name in unjudged]
    columns = [field.name for field in FINDINGS.fields]
    tuples = [tuple(row.get(name) for name in columns) for run, each in found for row in each.rows(run)]
    return rows.sparkSession.createDataFrame(tuples, FINDINGS)


def _judge(facts: SqlFacts, judges: list[SqlJudge]) -> None:
    asked = [(judge, name, column) for judge in judges for name, column in judge.figures(facts).items()]
    for row in facts.sums({f"figure_{place}": column for place, (_, _, column) in enumerate(asked)}):
        for place, (judge, name, _) in enumerate(asked):
            value = row[f"figure_{place}"]
            setattr(judge.found[row.run], name, value > 0 if name == "unknown" else value)
    for judge in judges:
        judge.conclude(facts)


# Single messages ------------------------------------------------------------------------------------------------------


class _OfMessages(SqlJudge):
    """A judge of single messages, all of whose figures are sums."""

    def show(self, parts: list[DataFrame]) -> None:
        """Describe the first few violations of each kind in these tables, which are those of `_wrong`."""
        for part in parts:
            for row in _some_per_run(part, "member", "seq"):
                at = (row["index"], row.again)
                self.describe(row.run, row.process, (row.origin, row.seq), at=at, kind=row.kind)


def _wrong(facts: SqlFacts, kind: str | None, conditions: list[Column]) -> DataFrame:
    """Each message once per member for which its condition is true."""
    numbers = f.array_compact(f.array(*(f.when(conditions[each], f.lit(each)) for each in facts.members)))
    one = facts.known.select("run", "origin", "seq", "at", f.explode(numbers).alias("member"))
    return one.join(f.broadcast(_processes(facts)), ["run", "member"]).select(
        *("run", f.lit(kind).cast("string").alias("kind"), "member", "process", "origin", "seq"),
        f.get("at", f.col("member")).alias("index"),
        f.lit(None).cast("bigint").alias("again"),
    )


def _processes(facts: SqlFacts) -> DataFrame:
    return facts.logs.members.select("run", "member", "process")


class SqlIntegrity(_OfMessages):
    def figures(self, facts: SqlFacts) -> dict[str, Column]:
        deliveries, first, never_sent = f.col("deliveries"), f.col("first"), f.col("never_sent")
        strangers = total_of([_flag(facts.there[each] & ~is_for(each)) for each in facts.members])
        early = total_of([_flag(each) for each in self._early(facts)])
        return {
            "checked": deliveries,
            "violations": deliveries - first + f.when(never_sent, first).otherwise(0) + early + strangers,
            "unknown": _flag((deliveries > 0) & f.col("sent_at").isNull() & ~never_sent),
        }

    def conclude(self, facts: SqlFacts) -> None:
        if self.any_violated():
            nobody = _wrong(facts, "nobody", [each & f.col("never_sent") for each in facts.there])
            early = _wrong(facts, "early", self._early(facts))
            stranger = _wrong(facts, "stranger", [facts.there[each] & ~is_for(each) for each in facts.members])
            self.show([nobody, early, stranger, self._again(facts)])

    def _early(self, facts: SqlFacts) -> list[Column]:
        """By number of member: it is the sender, and delivered the message before it sent it."""
        return [
            (member_fact(each, "process") == f.col("origin")) & (delivered_at(each) < f.col("sent_at"))
            for each in facts.members
        ]

    def _again(self, facts: SqlFacts) -> DataFrame:
        """Messages that some member delivered more often than once, and where."""
        several = facts.known.where(f.col("deliveries") > f.col("first")).select("run", "origin", "seq").limit(1000)
        rows = facts.rows.where(f.col("app") & (f.col("kind") == DELIVER)).join(
            f.broadcast(several), ["run", "origin", "seq"]
        )
        twice = rows.groupBy("run", "process", "origin", "seq").agg(
            f.sort_array(f.collect_list("index")).alias("places")
        )
        named = twice.where(f.size("places") > 1).join(f.broadcast(_processes(facts)), ["run", "process"])
        return named.select(
            *("run", f.lit("again").alias("kind"), "member", "process", "origin", "seq"),
            f.get("places", f.lit(0)).alias("index"),
            f.get("places", f.lit(1)).alias("again"),
        )


class SqlAgreement(_OfMessages):
    def figures(self, facts: SqlFacts) -> dict[str, Column]:
        owed, absent, wholes, members = facts.owed, facts.absent, facts.wholes, facts.members
        due, lost, open_logs = f.col("due"), f.col("lost"), f.col("open")
        sender_lives = ~f.col("sender_crashed")
        may_be_due = any_of([owed[each] & ((open_logs > _flag(~wholes[each])) | sender_lives) for each in members])
        may_be_lost = (lost > 0) & ((open_logs > 1) | sender_lives)
        is_open = any_of([absent[each] & ~wholes[each] for each in members]) | (lost > 0)
        missing = total_of([_flag(absent[each] & wholes[each]) for each in members])
        return {
            "checked": f.when(due, total_of([_flag(each) for each in owed]) + lost).otherwise(0),
            "violations": f.when(due, missing).otherwise(0),
            "unknown": _flag(f.when(due, is_open).otherwise(may_be_due | may_be_lost)),
        }

    def conclude(self, facts: SqlFacts) -> None:
        if self.any_violated():
            missing = [facts.absent[each] & facts.wholes[each] & f.col("due") for each in facts.members]
            self.show([_wrong(facts, None, missing)])


# Order ----------------------------------------------------------------------------------------------------------------


class SqlFifo(SqlJudge):
    def figures(self, facts: SqlFacts) -> dict[str, Column]:
        return {"checked": f.col("first"), "unknown": facts.past_is_open()}

    def conclude(self, facts: SqlFacts) -> None:
        for block, state in zip(facts.blocks, facts.states, strict=True):
            self.count(facts, judged(state, facts.logs.runs, block, "before_"), facts.own_edges)

    def count(self, facts: SqlFacts, early: DataFrame, edges: DataFrame, *, describe: bool = True) -> None:
        """Deliveries before something that should have come before them."""
        early = computed(early)
        counts = early.groupBy("run").agg(
            f.sum(f.size("wrong")).alias("violations"), f.sum(f.size("unsure")).alias("unsure")
        )
        wrong = False
        for row in counts.collect():
            finding = self.found[row.run]
            finding.violations += row.violations
            finding.unknown |= row.unsure > 0
            wrong |= row.violations > 0
        if wrong and describe:
            self._describe_early(facts, early, edges)

    def _describe_early(self, facts: SqlFacts, early: DataFrame, edges: DataFrame) -> None:
        each = early.select("run", "chain", "rank", "origin", "seq", "at", f.explode("wrong").alias("member"))
        each = each.withColumn("index", f.get("at", f.col("member"))).drop("at")
        some = facts.spark.createDataFrame(
            [tuple(row) for row in _some_per_run(each, "member", "index")],
            "run string, chain bigint, rank bigint, origin bigint, seq bigint, member int, index bigint",
        )
        of_members = facts.logs.members.select("run", "member", "process", "joined", "gap")
        wrong = some.join(f.broadcast(of_members), ["run", "member"])
        causes = causes_of(wrong, edges, facts.messages)
        rows = wrong.join(causes, ["run", "chain", "rank", "member"]).collect()
        for row, chain in zip(rows, self.chains(facts, rows), strict=True):
            cause = row.cause
            first, second = (cause.first_origin, cause.first_seq), (row.origin, row.seq)
            self.describe(row.run, row.process, first, second, (cause.first_index, row["index"]), chain=chain)

    def chains(self, facts: SqlFacts, rows: Sequence[Row]) -> list[list[Key]]:
        """The chain of causes of each of these violations, where it is more than two messages of one sender."""
        return [[] for _ in rows]


class SqlCausal(SqlFifo):
    def chains(self, facts: SqlFacts, rows: Sequence[Row]) -> list[list[Key]]:
        pairs = [
            ((row.run, row.cause.first_origin, row.cause.first_seq), (row.run, row.origin, row.seq)) for row in rows
        ]
        return [
            [(origin, seq) for _, origin, seq in chain] for chain in causal_chains(facts.messages, facts.logs, pairs)
        ]

    def conclude(self, facts: SqlFacts) -> None:
        messages, runs = facts.messages, facts.logs.runs
        edges = computed(direct_edges(facts.rows, messages, facts.regular).unionByName(facts.own_edges))
        simple = facts.only(edges, facts.simple)
        for block, state in zip(facts.blocks, facts.states, strict=True):
            early = judged(causal_states(state, simple, block), runs, block, "past_")
            self.count(facts, early, simple, describe=False)
        # Where direct causes were not there, whole pasts say how many deliveries came too early.
        again = {run for run in facts.simple if self.found[run].violations}
        for run in again:
            self.found[run].violations = 0
        rest = (set(facts.runs) - facts.simple) | again
        if rest:
            whole = computed(closed_edges(facts.only(edges, rest), facts.only(messages, rest)))
            for block, state in zip(facts.blocks, facts.states, strict=True):
                self.count(facts, judged(causal_states(state, whole, block), runs, block, "past_"), whole)


class SqlTotal(SqlJudge):
    def figures(self, facts: SqlFacts) -> dict[str, Column]:
        return {"checked": f.col("first")}

    def conclude(self, facts: SqlFacts) -> None:
        judge_total(facts.messages, facts.logs, self.found)


class SqlSameView(SqlJudge):
    def __init__(self, judged: str, runs: Iterable[str]) -> None:
        self.found = {run: Finding(judged, unknown=True) for run in runs}

    def conclude(self, facts: SqlFacts) -> None:
        judge_views(facts.rows, facts.messages, facts.logs, self.found)


SQL_JUDGES: dict[str, type[SqlJudge]] = {
    "integrity": SqlIntegrity,
    "agreement": SqlAgreement,
    "fifo": SqlFifo,
    "causal": SqlCausal,
    "total": SqlTotal,
    "same-view": SqlSameView,
}


def _some_per_run(rows: DataFrame, *order: str) -> list[Row]:
    """The first few of each run."""
    place = f.row_number().over(Window.partitionBy("run").orderBy(*order))
    return rows.withColumn("_place", place).where(f.col("_place") <= WITNESSES).drop("_place").collect()
