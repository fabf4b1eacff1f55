"""The audit: which properties every run of a table keeps, and a witness where it does not.

Runs that fit a task are audited in one, many at a time; a larger run goes through the same functions with files in
between, spread over all tasks. See docs/design/audit.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from isthmus.pipeline.audit.spread import SpreadRun, store_beside
from isthmus.pipeline.engine.finding import Finding
from isthmus.pipeline.engine.judges import Judges, judges_of
from isthmus.pipeline.engine.logs import Block
from isthmus.pipeline.engine.run import Run
from isthmus.pipeline.engine.store import InMemory
from isthmus.pipeline.ingest import SPARK_FAILURES, TraceTable, spark_reason
from isthmus.pipeline.ingest.table import TableRows
from isthmus.pipeline.places import require_readable
from isthmus.pipeline.problems import TABLE_MARK, in_words
from isthmus.pipeline.stores import use_settings_of
from isthmus.pipeline.tasks import in_tasks
from isthmus.trace.properties import PROPERTIES, audited_properties, violation
from isthmus.trace.schema import Report, Verdict

ROWS_PER_TASK = 2_000_000
"""A run with more rows than this is spread over tasks. In memory a row takes about 60 bytes."""

MOST_WITNESSES = 1000
"""That are described in a report, over all runs. All violations are counted."""


def audit(
    spark: SparkSession, table: TraceTable, *, expected: Iterable[str] = (), rows_per_task: int = ROWS_PER_TASK
) -> Report:
    """Audit a table by the properties that are always judged and by those that are expected."""
    judges = judges_of(audited_properties(expected))
    use_settings_of(spark)
    require_readable(spark, [table.path / TABLE_MARK])
    runs: dict[str, list[Block]] = {}
    for block in table.blocks():
        runs.setdefault(block.run, []).append(block)
    small = {run for run, blocks in runs.items() if _rows(blocks) <= rows_per_task}
    rows = TableRows(table.path)
    try:
        found = _together(spark, [runs[run] for run in sorted(small)], rows, judges)
        for run in sorted(runs.keys() - small):
            # Beside the rows, because whoever sees these sees that.
            with store_beside(spark, table.path) as store:
                found[run] = SpreadRun(spark, run, runs[run], rows, store).judge(judges)
    except SPARK_FAILURES as error:
        raise in_words(error, spark_reason(error), "give it more memory, or a larger master") from error
    return _report(found, sum(map(_rows, runs.values())), table.quarantined(spark))


def _rows(blocks: Iterable[Block]) -> int:
    return sum(block.rows for block in blocks)


def _together(
    spark: SparkSession, runs: Sequence[list[Block]], rows: TableRows, judges: Judges
) -> dict[str, list[Finding]]:
    """Runs that fit a task. Neighbours share one, because they share files."""

    def judge(blocks: list[Block]) -> list[Finding]:
        return Run(blocks[0].run, blocks, rows, InMemory()).judge(judges)

    found = in_tasks(spark, judge, runs, list[Finding], stage="judging", rows=[_rows(blocks) for blocks in runs])
    return {blocks[0].run: each for blocks, each in zip(runs, found, strict=True)}


def _report(found: dict[str, list[Finding]], events: int, quarantined: int) -> Report:
    places = {name: place for place, name in enumerate(PROPERTIES)}
    verdicts, violations = [], []
    for run, findings in sorted(found.items()):
        for each in sorted(findings, key=lambda each: places[each.judged]):
            verdicts.append(Verdict(run, each.judged, each.verdict, each.checked, each.violations))
            violations += [violation(run, each.judged, described.mistake) for described in each.described]
    violations.sort(key=lambda each: (each.run, each.property, each.process, each.first, each.second or ""))
    return Report(
        runs=len(found), events=events, verdicts=verdicts, violations=violations[:MOST_WITNESSES],
        quarantined=quarantined,
    )  # fmt: skip
