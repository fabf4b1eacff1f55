"""Witnesses in words: names for codes, sentences for kinds, and the chain of causes between two messages.

All of it is looked up in Spark for the few witnesses that are shown; the trace stays where it is.

A chain is found backwards from the later message m2. Whatever its sender did or delivered before sending it is one step
away; per process from whom it had delivered something, the last such message says how far that process had come, and so
on, until the earlier message m1 is among what somebody had seen. Every step is a scan of the run's rows, and there are
as many steps as the shortest chain has links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec.structs import replace
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.audit.codes import DELIVER, SEND, code
from isthmus.trace.properties import Mistake, violation
from isthmus.trace.schema import Violation

LONGEST_CHAIN = 8
CHAINS = 20
"""Witnesses for which the chain of causes is looked up; each step is one job for all of them."""

Message: TypeAlias = tuple[int, int]
"""Code of the origin, sequence number."""


class Reached(NamedTuple):
    """How far into a process's log everything is a cause: up to the place where this message was sent."""

    sent_at: int
    message: Message
    onward: int | None
    """The process that delivered that message, or None at the end of the chain."""


def violations_in_words(
    rows: DataFrame, coded: DataFrame, logs: DataFrame, witnesses: Sequence[Row]
) -> list[Violation]:
    """The rows of witnesses as the report shows them."""
    if not witnesses:
        return []
    names = _names(rows, logs, witnesses)
    causal = [each for each in witnesses if each.property == "causal"][:CHAINS]
    chains = causal_chains(coded, causal)
    names |= _names_of(rows, logs, (origin for chain in chains.values() for origin, _ in chain), names)
    chain_of = {id(each): chains.get(number, []) for number, each in enumerate(causal)}
    violations = [violation_in_words(each, names, chain_of.get(id(each), [])) for each in witnesses]
    return sorted(violations, key=lambda each: (each.run, each.property, each.process, each.first, each.second or ""))


def _names(rows: DataFrame, logs: DataFrame, witnesses: Iterable[Row]) -> dict[int, str]:
    columns = ("process", "other", "first_origin", "second_origin")
    return _names_of(rows, logs, (getattr(each, column) for each in witnesses for column in columns), {})


def _names_of(
    rows: DataFrame, logs: DataFrame, codes: Iterable[int | None], known: Mapping[int, str]
) -> dict[int, str]:
    wanted = {each for each in codes if each is not None} - known.keys()
    if not wanted:
        return {}
    found = logs.where(f.col("code").isin(*wanted)).select("code", "system", "process").distinct().collect()
    names = {row.code: f"{row.system}/{row.process}" for row in found}
    lost = wanted - names.keys()
    if lost:  # only mentioned as the origin of a message: there is no log of it
        origins = rows.select(code("origin_system", "origin_process").alias("code"), "origin_system", "origin_process")
        for row in origins.where(f.col("code").isin(*lost)).distinct().collect():
            names[row.code] = f"{row.origin_system}/{row.origin_process}"
    return names


def violation_in_words(row: Row, names: Mapping[int, str], chain: Sequence[Message]) -> Violation:
    def text(origin: int | None, seq: int | None) -> str:
        return f"{names[cast(int, origin)]}/{seq}"

    mistake = Mistake(
        process=names[row.process],
        first=text(row.first_origin, row.first_seq),
        second=None if row.second_origin is None else text(row.second_origin, row.second_seq),
        first_index=row.first_index,
        second_index=row.second_index,
        other=None if row.other is None else names[row.other],
        other_first_index=row.other_first_index,
        other_second_index=row.other_second_index,
        kind=row.kind,
        detail=row.detail,
    )
    found = violation(row.run, row.property, mistake)
    if len(chain) > 2:
        links = ", ".join(text(*message) for message in chain)
        found = replace(found, why=f"{found.why}; the chain of causes: {links}")
    return found


# Chains of causes -----------------------------------------------------------------------------------------------------


def causal_chains(coded: DataFrame, witnesses: Sequence[Row]) -> dict[int, list[Message]]:
    """Per witness (by place) the messages from the cause to the effect, both included. None where a log is lost."""
    if not witnesses:
        return {}
    spark = coded.sparkSession
    rows = coded.where(f.col("run").isin(*{each.run for each in witnesses}) & f.col("app"))
    search = _Search(spark, rows, witnesses)
    for _ in range(LONGEST_CHAIN):
        search.look()
        if not search.step():
            break
    return search.chains


class _Search:
    """All searches at once: they share their scans of the trace."""

    def __init__(self, spark: SparkSession, rows: DataFrame, witnesses: Sequence[Row]) -> None:
        self.spark = spark
        self.sends = rows.where(f.col("kind") == SEND).select("run", "origin", "seq", "index")
        self.deliveries = rows.where(f.col("kind") == DELIVER).select("run", "process", "origin", "seq", "index")
        self.runs = [each.run for each in witnesses]
        self.causes: list[Message] = [(each.first_origin, each.first_seq) for each in witnesses]
        effects: list[Message] = [(each.second_origin, each.second_seq) for each in witnesses]
        self.chains: dict[int, list[Message]] = {}
        self.reached: dict[int, dict[int, Reached]] = {}
        for number, message, index in self._sent(list(enumerate(effects))):
            self.reached[number] = {message[0]: Reached(index, message, None)}

    def _sent(self, wanted: Sequence[tuple[int, Message]]) -> list[tuple[int, Message, int]]:
        """Where these messages of these searches were sent."""
        if not wanted:
            return []
        asked = [(number, self.runs[number], *message) for number, message in wanted]
        table = self.spark.createDataFrame(asked, "number int, run string, origin bigint, seq bigint")
        found = self.sends.join(f.broadcast(table), ["run", "origin", "seq"])
        best = found.groupBy("number", "origin", "seq").agg(f.min("index").alias("index")).collect()
        return [(row.number, (row.origin, row.seq), row["index"]) for row in best]

    def _open(self) -> dict[int, dict[int, Reached]]:
        return {number: reached for number, reached in self.reached.items() if number not in self.chains}

    def look(self) -> None:
        """Has somebody seen the cause before the place that was reached in its log?"""
        searches = self._open()
        if not searches:
            return
        causes = [(number, self.runs[number], *self.causes[number]) for number in searches]
        table = self.spark.createDataFrame(causes, "number int, run string, origin bigint, seq bigint")
        sends = self.sends.withColumn("process", f.col("origin")).select(*self.deliveries.columns)
        seen = self.deliveries.unionByName(sends).join(f.broadcast(table), ["run", "origin", "seq"])
        first = seen.groupBy("number", "process").agg(f.min("index").alias("index")).collect()
        for row in sorted(first, key=lambda each: (each.number, each.process)):
            reached = self.reached[row.number].get(row.process)
            if reached is not None and row["index"] < reached.sent_at and row.number not in self.chains:
                self.chains[row.number] = self._walk(row.number, row.process)

    def _walk(self, number: int, process: int | None) -> list[Message]:
        chain = [self.causes[number]]
        while process is not None:
            reached = self.reached[number][process]
            if reached.message not in chain:
                chain.append(reached.message)
            process = reached.onward
        return chain

    def step(self) -> bool:
        """One link further back: from every place that was reached to those who had sent what was delivered there."""
        searches = self._open()
        limits: list[tuple[Any, ...]] = [
            (number, self.runs[number], process, reached.sent_at)
            for number, processes in searches.items()
            for process, reached in processes.items()
        ]
        if not limits:
            return False
        table = self.spark.createDataFrame(limits, "number int, run string, process bigint, limit bigint")
        before = self.deliveries.join(f.broadcast(table), ["run", "process"]).where(f.col("index") < f.col("limit"))
        # A sender numbers its messages as it sends them, so the highest number is the latest message.
        latest = before.groupBy("number", "process", "origin").agg(f.max("seq").alias("seq")).collect()
        via = {
            (row.number, (row.origin, row.seq)): row.process for row in sorted(latest, key=lambda each: each.process)
        }
        grown = False
        for number, message, index in sorted(self._sent(list(via))):
            known = self.reached[number].get(message[0])
            if known is None:
                self.reached[number][message[0]] = Reached(index, message, via[number, message])
                grown = True
        return grown
