"""`isthmus report TRACE… --to report.html`: verdicts, plots and a diagram of each witness, in one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, out, print_json
from isthmus.cli.spark import (
    COLOURS,
    ConfOption,
    ExpectOption,
    LinkRateOption,
    MapOption,
    MasterOption,
    MemoryOption,
    RunOption,
    ScratchOption,
    TableOption,
    TracesOrNone,
    Way,
    link_rate,
    shown_progress,
    traces_to_read,
    way_to_spark,
)
from isthmus.pipeline.mapping import Traces
from isthmus.pipeline.problems import refuse_target
from isthmus.trace.places import place
from isthmus.trace.properties import expected_properties
from isthmus.trace.schema import Report, Verdict, printable


class Result(Struct, frozen=True):
    """What `-o json` prints. Everything else is on the page."""

    report: str
    runs: int
    events: int
    quarantined: int
    verdicts: list[Verdict]


def report(
    traces: TracesOrNone = None,
    to: Annotated[str, typer.Option(help="The page to write.", metavar="FILE")] = "report.html",
    expect: ExpectOption = None,
    pictures: Annotated[int, typer.Option(help="Witnesses that are drawn, at most.", min=0, max=200)] = 6,
    rate: LinkRateOption = None,
    master: MasterOption = None,
    scratch: ScratchOption = None,
    memory: MemoryOption = None,
    conf: ConfOption = None,
    run: RunOption = None,
    table: TableOption = None,
    mapping: MapOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Write a page about traces: verdicts, latency, throughput, links, overhead, and a diagram of each witness."""
    read = traces_to_read(traces, table, mapping)
    way = way_to_spark(master, memory, conf)
    found, expected = _written(read, to, expect, pictures, link_rate(rate), way, scratch, run)
    if output is Output.JSON:
        print_json(Result(str(to), found.runs, found.events, found.quarantined, found.verdicts))
    else:
        _show(found, expected, to)
    return VIOLATED if any(each.property in expected for each in found.violated) else HOLDS


def _written(
    traces: Traces,
    to: str,
    expect: str | None,
    pictures: int,
    bits_per_second: float | None,
    way: Way,
    scratch: str | None,
    run: str | None,
) -> tuple[Report, tuple[str, ...]]:
    from isthmus.pipeline.session import require_packages

    require_packages()
    from isthmus.pipeline.ingest import session_for
    from isthmus.pipeline.places import use_scratch
    from isthmus.pipeline.report import write_report

    expected = expected_properties(expect)
    if isinstance(place(to), Path):  # an address needs the settings of the session
        refuse_target(to)
    with shown_progress():
        spark = session_for(traces, *way)
        use_scratch(spark, scratch)
        found = write_report(
            spark, traces, to, expected=expected, pictures=pictures, bits_per_second=bits_per_second, run=run
        )
    return found, expected


def _show(found: Report, expected: tuple[str, ...], to: str) -> None:
    for kind in dict.fromkeys(each.property for each in found.verdicts):
        answer = found.verdict(kind)
        aside = "" if kind in expected else " (not expected)"
        out.print(f"{kind}: [{COLOURS[answer]}]{answer}[/]{aside}")
    out.print(printable(f"{found.runs:,} runs, {found.events:,} events: {to}"), markup=False)
