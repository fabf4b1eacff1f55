"""Chains of causes in SQL, for the few violations that are shown: `trace.causality` searches, tables answer.

A link costs one scan of the table of messages, for all searches at once; another where a `send` row is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from isthmus.pipeline.audit.sql.messages import Logs
from isthmus.trace.causality import Before, Place, Question, chains_of_causes

Message: TypeAlias = tuple[str, int, int]
"""Run, code of the origin, number."""


class _Known(NamedTuple):
    """Where a message is: its chain, its rank there, and the index of its `send` row."""

    chain: int
    rank: int
    sent_at: int | None
    placed: bool


def causal_chains(messages: DataFrame, logs: Logs, pairs: Sequence[tuple[Message, Message]]) -> list[list[Message]]:
    """For each pair (cause, effect) the messages from one to the other, both included."""
    if not pairs:
        return []
    return chains_of_causes(pairs, _Answers(messages, logs, {each for pair in pairs for each in pair}).answer)


class _Answers:
    """What senders had seen, looked up in the table of messages."""

    def __init__(self, messages: DataFrame, logs: Logs, wanted: set[Message]) -> None:
        self.spark: SparkSession = messages.sparkSession
        self.messages = messages
        self.known: dict[Message, _Known] = {}
        rows = logs.members.select("run", "process", "member").collect()
        self.members = {(row.run, row.process): row.member for row in rows}
        table = self.spark.createDataFrame(sorted(wanted), "run string, origin bigint, seq bigint")
        for row in messages.join(f.broadcast(table), ["run", "origin", "seq"]).collect():
            self._learn(row.run, row)

    def _learn(self, run: str, row: Row) -> Place[Message]:
        message = (run, row.origin, row.seq)
        self.known[message] = _Known(row.chain, row["rank"], row.sent_at, row.placed)
        return Place(row.chain, row["rank"], message)

    def answer(self, questions: Sequence[Question[Message]]) -> list[Before[Message]]:
        latest: dict[int, list[Place[Message]]] = {}
        saw: set[int] = set()
        self._of_sent(questions, latest, saw)
        instead = self._of_lost(questions)
        return [
            Before(
                number in saw or self._is_earlier(each.first, each.message), latest.get(number, []), instead.get(number)
            )
            for number, each in enumerate(questions)
        ]

    def _is_earlier(self, first: Message, message: Message) -> bool:
        one, other = self.known[first], self.known[message]
        return one.placed and one.chain == other.chain and one.rank < other.rank

    def _of_sent(
        self, questions: Sequence[Question[Message]], latest: dict[int, list[Place[Message]]], saw: set[int]
    ) -> None:
        """What was delivered at the sender before the `send` row: of each chain the last."""
        asked = []
        for number, (_, (_, first_origin, first_seq), message) in enumerate(questions):
            run, origin, _ = message
            sent_at = self.known[message].sent_at
            if sent_at is not None:
                asked.append((number, run, self.members[run, origin], sent_at, first_origin, first_seq))
        if not asked:
            return
        schema = "number int, run string, member int, before bigint, first_origin bigint, first_seq bigint"
        table = self.spark.createDataFrame(asked, schema)
        seen = self.messages.join(f.broadcast(table), "run").where(f.get("at", f.col("member")) < f.col("before"))
        is_first = (f.col("origin") == f.col("first_origin")) & (f.col("seq") == f.col("first_seq"))
        last = f.max_by(f.struct("origin", "seq", "chain", "rank", "sent_at", "placed"), "rank")
        found = seen.groupBy("number", "run", "chain").agg(last.alias("last"), f.max(is_first).alias("first"))
        for row in found.collect():
            if row["first"]:
                saw.add(row.number)
            if row.last.placed:
                latest.setdefault(row.number, []).append(self._learn(row.run, row.last))

    def _of_lost(self, questions: Sequence[Question[Message]]) -> dict[int, Message]:
        """Of a message without its `send` row: the last before it on its chain that has one."""
        asked = []
        for number, question in enumerate(questions):
            known = self.known[question.message]
            if known.sent_at is None and known.placed:
                asked.append((number, question.message[0], known.chain, known.rank))
        if not asked:
            return {}
        table = self.spark.createDataFrame(asked, "number int, run string, chain bigint, before bigint")
        earlier = self.messages.join(f.broadcast(table), ["run", "chain"]).where(
            (f.col("rank") < f.col("before")) & f.col("sent_at").isNotNull()
        )
        last = f.max_by(f.struct("origin", "seq", "chain", "rank", "sent_at", "placed"), "rank")
        rows = earlier.groupBy("number", "run").agg(last.alias("last")).collect()
        return {row.number: self._learn(row.run, row.last).message for row in rows}
