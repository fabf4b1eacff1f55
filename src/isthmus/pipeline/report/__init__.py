"""The report of traces: ingest, audit, measure, pictures of the witnesses, one page. See docs/design/report.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from isthmus.pipeline.audit import audit
from isthmus.pipeline.ingest import SPARK_FAILURES, TraceTable, ingest, open_table, spark_reason, table_named
from isthmus.pipeline.mapping import Mapped, Traces
from isthmus.pipeline.measure import measured
from isthmus.pipeline.places import room_for_a_table
from isthmus.pipeline.problems import in_words, refuse_target
from isthmus.pipeline.progress import Stage, tell
from isthmus.pipeline.report.page import Content, Shown, page
from isthmus.pipeline.report.witness import MOST_PICTURES, choose, witnesses
from isthmus.pipeline.stores import use_settings_of
from isthmus.trace.places import Place, place, write_whole
from isthmus.trace.properties import expected_properties
from isthmus.trace.schema import Report, TraceError

MOST_RUNS = 6
"""Whose figures are on the page. Verdicts are of all runs; those with violations come first."""


@contextmanager
def clean_table(spark: SparkSession, paths: Traces, run: str | None = None) -> Iterator[TraceTable]:
    """The table of these traces, or of one run: the one that is named, or one that lives as long as the block."""
    use_settings_of(spark)
    named = table_named(paths)
    if named is not None:
        yield open_table(named).only(run)
        return
    with room_for_a_table(spark) as room:
        yield ingest(spark, paths, room).only(run)


def write_report(
    spark: SparkSession,
    paths: Traces,
    target: str | Place,
    *,
    expected: Sequence[str] | None = None,
    pictures: int = MOST_PICTURES,
    bits_per_second: float | None = None,
    run: str | None = None,
) -> Report:
    """Audit and measure traces and write the page. The verdicts, for whoever does not want to read it."""
    use_settings_of(spark)
    refuse_target(target)
    wanted = expected_properties() if expected is None else expected
    with clean_table(spark, paths, run) as table:
        content = _content(spark, table, paths, wanted, pictures, bits_per_second)
    _write(place(target), page(content))
    return content.report


def _content(
    spark: SparkSession,
    table: TraceTable,
    paths: Traces,
    expected: Sequence[str],
    pictures: int,
    bits_per_second: float | None,
) -> Content:
    report = audit(spark, table, expected=expected)
    rows = table.rows(spark)
    with measured(spark, rows, bits_per_second=bits_per_second) as tables:
        figures = tables.figures(runs_to_show(report))
    wrong = [each for each in report.violations if each.property in expected]
    try:
        tell(Stage("drawing witnesses", 0, 1))
        shown = [Shown(each.violation, each.picture) for each in witnesses(rows, choose(wrong, pictures))]
        return Content(
            traces=[str(paths)] if isinstance(paths, Mapped) else [str(path) for path in paths],
            report=report,
            expected=list(expected),
            figures=figures,
            shown=shown,
            quarantined=table.worst(spark),
            torn=table.torn_files(spark),
        )
    except SPARK_FAILURES as error:
        raise in_words(error, spark_reason(error), "give it more memory, or a larger master") from error


def runs_to_show(report: Report, most: int = MOST_RUNS) -> list[str]:
    """The runs with violations, then the others, as many as a page bears."""
    bad = {each.run for each in report.violated}
    runs = sorted({each.run for each in report.verdicts}, key=lambda run: (run not in bad, run))
    return runs[:most]


def _write(path: Place, text: str) -> None:
    """All of the page or none of it: a report that stops in the middle can look like a good one."""
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise TraceError(path, f"cannot write: {error.strerror}", "choose another file") from error
