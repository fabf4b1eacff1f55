"""`isthmus audit TRACE…`: the Spark audit of traces. Spark is imported only when this command runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.audit_follow import follow_traces
from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, print_json
from isthmus.cli.console import table as listing
from isthmus.cli.spark import (
    COLOURS,
    ConfOption,
    ExpectOption,
    MapOption,
    MasterOption,
    MemoryOption,
    RunOption,
    ScratchOption,
    TableOption,
    TracesOrNone,
    Way,
    shown_progress,
    traces_to_read,
    way_to_spark,
)
from isthmus.trace.places import place
from isthmus.trace.properties import expected_properties
from isthmus.trace.schema import printable

if TYPE_CHECKING:
    from isthmus.pipeline.mapping import Traces
    from isthmus.trace.schema import Report

_MOST_RUNS = 20
_MOST_WITNESSES = 20


def audit(
    traces: TracesOrNone = None,
    expect: ExpectOption = None,
    master: MasterOption = None,
    keep: Annotated[
        str | None, typer.Option(help="Keep the clean table and the quarantine in this directory.", metavar="DIR")
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add the traces to the table that --keep names, and audit all of it.")
    ] = False,
    scratch: ScratchOption = None,
    memory: MemoryOption = None,
    conf: ConfOption = None,
    run: RunOption = None,
    table: TableOption = None,
    mapping: MapOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Audit while traces grow, until Ctrl-C.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="With --follow: where to go on from when started again.", metavar="DIR")
    ] = None,
    trigger: Annotated[
        float | None, typer.Option(help="With --follow: seconds between looks at the files; 1.", metavar="SECONDS")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="With --follow: read what is there, and end.")] = False,
    max_held: Annotated[
        int | None, typer.Option(help="With --follow: messages per run that may be unstable; 1000000.", metavar="N")
    ] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Audit traces with Spark: which properties every run keeps, and a witness for each violation."""
    only_following = {"--checkpoint": checkpoint, "--trigger": trigger, "--once": once or None, "--max-held": max_held}
    not_following = {
        "--keep": keep,
        "--append": append or None,
        "--scratch": scratch,
        "--run": run,
        "--table": table or None,
        "--map": mapping,
    }
    for name, value in (not_following if follow else only_following).items():
        if value is not None:
            fail(f"{name} is for an audit {'of traces that are finished' if follow else 'with --follow'}; leave it out")
    if append and keep is None:
        fail("--append adds to a table, and none is named; give --keep DIR")
    way = way_to_spark(master, memory, conf)
    if follow:
        return follow_traces(
            traces or fail("Missing argument 'TRACE…'; give the traces to follow"),
            _expected(expect),
            checkpoint=checkpoint,
            trigger=1.0 if trigger is None else trigger,
            once=once,
            max_held=1_000_000 if max_held is None else max_held,
            way=way,
            output=output,
        )
    report, expected = _report(traces_to_read(traces, table, mapping), expect, way, keep, append, scratch, run)
    if output is Output.JSON:
        print_json(report)
    else:
        _show(report)
    return VIOLATED if any(each.property in expected for each in report.violated) else HOLDS


def _report(
    traces: Traces, expect: str | None, way: Way, keep: str | None, append: bool, scratch: str | None, run: str | None
) -> tuple[Report, tuple[str, ...]]:
    expected = _expected(expect)
    from isthmus.pipeline.ingest import session_for
    from isthmus.pipeline.places import use_scratch
    from isthmus.pipeline.result import audit_given

    target = None if keep is None else place(keep)  # what is wrong with it is said before Spark starts
    with shown_progress():
        spark = session_for(traces, *way)
        use_scratch(spark, scratch)
        with audit_given(spark, traces, expected=expected, table=target, append=append, run=run) as result:
            return result.report, expected


def _expected(expect: str | None) -> tuple[str, ...]:
    """What counts for the exit code. Without the packages of Spark nothing here works, so they are asked for first."""
    from isthmus.pipeline.session import require_packages

    require_packages()
    return expected_properties(expect)


def _show(report: Report) -> None:
    runs = sorted({each.run for each in report.verdicts})
    summary = listing(
        f"{report.runs:,} runs, {report.events:,} events, {report.quarantined:,} quarantined",
        *("property", "holds", "violated", "unknown", "checked", "violations"),
    )
    for judged in dict.fromkeys(each.property for each in report.verdicts):
        rows = [each for each in report.verdicts if each.property == judged]
        count = Counter(each.verdict for each in rows)
        figures = [f"[{COLOURS[answer]}]{count[answer]:,}[/]" if count[answer] else "0" for answer in COLOURS]
        totals = (f"{sum(each.checked for each in rows):,}", f"{sum(each.violations for each in rows):,}")
        summary.add_row(judged, *figures, *totals)
    out.print(summary)
    wrong = [run for run in runs if any(each.run == run for each in report.violated)]
    if len(runs) > 1 and wrong:
        more = f" and {len(wrong) - _MOST_RUNS:,} more" if len(wrong) > _MOST_RUNS else ""
        out.print(printable(f"runs with violations: {', '.join(wrong[:_MOST_RUNS])}{more}"), markup=False)
    for violation in report.violations[:_MOST_WITNESSES]:
        line = f"{violation.run}: {violation.property} at {violation.process}: {violation.why}"
        out.print(printable(line), markup=False)
    if len(report.violations) > _MOST_WITNESSES:
        err.print(f"{len(report.violations) - _MOST_WITNESSES:,} more witnesses: -o json")
