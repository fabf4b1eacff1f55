"""Anybody's tables and logs, judged as the trace that they are."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import isthmus
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Report, TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Audits

COLUMNS = {"run": "case", "process": "upper(who)", "order": "at", "event": "what", "message": "id"}
MAPPING: dict[str, Any] = {
    "complete": True,
    "input": [{"columns": COLUMNS, "events": {"S": "send", "R": "deliver", "ping": "ignore"}}],
}
SCHEMA = "case string, who string, at int, what string, id string"


def sound(case: str) -> list[tuple[str, str | None, int | None, str, str | None]]:
    """One sends twice, both get both. Places are offsets: they rise, and have holes."""
    one = [
        (case, "a", at, what, name) for at, what, name in ((3, "S", "x"), (4, "S", "y"), (8, "R", "x"), (9, "R", "y"))
    ]
    return [*one, (case, "b", 100, "ping", None), (case, "b", 1, "R", "x"), (case, "b", 7, "R", "y")]


CASES = {
    "sound": sound("sound"),
    "landed twice": sound("landed twice") * 2,
    "overtaken": [*sound("overtaken")[:5], ("overtaken", "b", 1, "R", "y"), ("overtaken", "b", 2, "R", "x")],
    "lost": sound("lost")[:-1],
    "invented": [*sound("invented"), ("invented", "b", 8, "R", "z")],
    "one place for two": [*sound("one place for two"), ("one place for two", "b", 7, "R", "x")],
    "who did it": [*sound("who did it"), ("who did it", None, 8, "R", "x")],
    "when was it": [*sound("when was it"), ("when was it", "b", None, "R", "x")],
    "what was it": [*sound("what was it"), ("what was it", "b", 8, "Q", "x")],
}
WANTED = {
    "sound": "holds holds holds holds holds",
    "landed twice": "holds holds holds holds holds",
    "overtaken": "holds holds violated violated violated",
    "lost": "holds violated holds holds holds",
    # Other rows of the table do not count, and one of them may have sent it.
    "invented": "unknown violated unknown unknown holds",
    "one place for two": "holds unknown holds holds unknown",
    "who did it": "holds holds unknown unknown holds",
    "when was it": "holds holds holds holds holds",
    "what was it": "holds holds holds holds holds",
}


def answers(report: Report, run: str) -> str:
    found = {each.property: each.verdict for each in report.verdicts if each.run == run}
    return " ".join(found[name] for name, judged in PROPERTIES.items() if judged.by_default)


def test_a_table_with_words_of_its_own_is_judged_in_earnest(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame([row for case in CASES.values() for row in case], SCHEMA)
    with isthmus.audit(spark, table, mapping=MAPPING) as result:
        assert {case: answers(result.report, case) for case in CASES} == WANTED
        overtaken = next(each for each in result.report.violations if each.run == "overtaken")
        assert (overtaken.process, overtaken.first, overtaken.second) == ("system/B", "system/A/1", "system/A/2")
        assert not result.holds
        notes = {(row.origin_seq, row.note) for row in result.rows.where("run = 'sound' and event = 'send'").collect()}
        assert notes == {(1, "x"), (2, "y")}
        reasons = sorted(row.reason for row in result.quarantine.collect())
        assert sum("the same row again" in each for each in reasons) == len(sound("x")) - 1
        assert [each for each in reasons if " is " in each] == [
            "`event` is 'Q', which is no event, and [input.events] does not name it in "
            '{"case":"what was it","who":"b","at":8,"what":"Q","id":"x"}',
            '`order` is null in {"case":"when was it","who":"b","what":"R","id":"x"}',
            '`process` is null in {"case":"who did it","at":8,"what":"R","id":"x"}',
        ]


def test_rows_of_a_trace_are_judged_alike_from_a_dataframe_and_in_sql(
    spark: SparkSession, audits: Audits, in_one_task: Report
) -> None:
    rows = audits.table.rows(spark)
    wanted = sorted(
        (each.run, each.property, each.verdict, each.checked, each.violations) for each in in_one_task.verdicts
    )
    with isthmus.audit(spark, rows, expect=PROPERTIES) as result:
        assert sorted(map(tuple, result.verdicts.collect())) == wanted
    isthmus.register(spark)
    some = [row for row in wanted if row[0] < "x2" and PROPERTIES[row[1]].by_default]
    rows.where("run < 'x2'").createOrReplaceTempView("mapped_trace")
    found = spark.sql("SELECT * FROM isthmus_audit(TABLE(mapped_trace) PARTITION BY run)").collect()
    assert sorted(tuple(row)[:5] for row in found) == some
    assert all(bool(row.witnesses) == (row.verdict == "violated") for row in found)
    with pytest.raises(Exception, match="PARTITION BY run"):
        spark.sql("SELECT * FROM isthmus_audit(TABLE(SELECT /*+ COALESCE(1) */ * FROM mapped_trace))").collect()


def test_text_logs_are_judged_by_their_own_words(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("1 sent x\r\n\n2 sent y\n3 got x\n4 got y\n")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"1 got x\n") + gzip.compress(b"2 got y\n"))
    (tmp_path / "c.log").write_bytes(b"1 got y\nwhat is this?\n2 got x\n3 got \xff\n")
    (tmp_path / "d.log.gz").write_bytes(gzip.compress(b"1 got x\n2 got y\n")[:-9])
    lines = {"pattern": r"(?P<time>\d+) (?P<verb>sent|got) (?P<id>\w+)$", "events": {"sent": "send", "got": "deliver"}}
    columns = {"process": "name", "event": "verb", "message": "id", "time_ns": "time"}
    mapping = {"complete": True, "input": [lines | {"columns": columns}]}
    with isthmus.audit(spark, tmp_path, mapping=mapping) as result:
        assert answers(result.report, "run") == "holds unknown violated violated violated"
        violated = {(each.property, each.process) for each in result.report.violations}
        assert violated == {(name, "system/c") for name in ("fifo", "causal", "total")}
        assert sorted(row.reason for row in result.quarantine.collect()) == [
            "not UTF-8 in c line 4: 3 got \ufffd",
            "the compressed file is cut off in d line 0: ",
            "the pattern does not match in c line 2: what is this?",
        ]
        shown = result.witnesses.where("property = 'fifo'").collect()
        assert {(row.process, row.event, row.note) for row in shown} == {
            *(("a", "send", "x"), ("a", "send", "y"), ("a", "deliver", "x"), ("a", "deliver", "y")),
            *(("c", "deliver", "x"), ("c", "deliver", "y")),
        }


def test_a_pattern_that_would_search_for_ever_is_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.pipeline.mapping.lines import text_lines
    from isthmus.pipeline.mapping.model import Input

    (tmp_path / "a.log").write_text("a" * 40 + "!\nab\n")
    lines = text_lines(spark, [str(tmp_path)], Input(pattern="(?P<x>(a+)+b)", columns={}), seconds=0.2)
    [row] = lines.collect()
    assert (row.line, row.x, "takes too long" in row.isthmus_reason) == (1, None, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"columns": COLUMNS | {"process": "nobody"}},
            '`process` is "nobody", which Spark does not take: .*UNRESOLVED',
        ),
        ({"columns": COLUMNS | {"order": "at +"}}, '`order` is "at \\+", which Spark does not take: .*PARSE_SYNTAX'),
        ({"columns": COLUMNS | {"destinations": "at"}}, "`destinations` is int; give an array"),
        ({"where": "case == "}, "`where` is"),
    ],
    ids=["column", "syntax", "type", "where"],
)
def test_expressions_that_spark_does_not_take_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    table = spark.createDataFrame(sound("x"), SCHEMA)
    with pytest.raises(TraceError, match=words) as refused:
        isthmus.audit(spark, table, mapping=MAPPING | {"input": [MAPPING["input"][0] | change]}, table=tmp_path / "t")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"events": {}},
            "no row is a `deliver`; events are none that count; put aside were 7 rows, the first: `event` is",
        ),
        ({"columns": COLUMNS | {"message": "concat(id, what)"}}, r"deliveries name \?/\?, senders are system/A"),
        ({"where": "case = 'y'"}, "no row of the trace can be used"),
    ],
    ids=["no event", "no message in common", "no row"],
)
def test_a_mapping_that_fits_nothing_is_refused_with_what_shows_it(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    table = spark.createDataFrame(sound("x"), SCHEMA)
    with pytest.raises(TraceError, match=words):
        isthmus.audit(spark, table, mapping=MAPPING | {"input": [MAPPING["input"][0] | change]}, table=tmp_path / "t")
    assert not (tmp_path / "t").exists()
