"""`isthmus report TRACE… --to report.html`: verdicts, plots and a diagram of each witness, in one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, print_json
from isthmus.cli.measure import link_rate
from isthmus.pipeline.problems import SparkProblem
from isthmus.trace.schema import Report, Verdict, printable

if TYPE_CHECKING:
    from isthmus.trace.schema import Property


class Result(Struct, frozen=True):
    """What `-o json` prints. Everything else is on the page."""

    report: str
    runs: int
    events: int
    quarantined: int
    verdicts: list[Verdict]


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE…", help="Trace directories or files, or one table.")],
    to: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path("report.html"),
    expect: Annotated[
        str | None,
        typer.Option(help="Properties that must hold, such as fifo,causal. Without it: all but total.", metavar="LIST"),
    ] = None,
    pictures: Annotated[int, typer.Option(help="Witnesses that are drawn, at most.", min=0, max=200)] = 6,
    rate: Annotated[
        str | None, typer.Option("--link-rate", help="What each link can carry, as in 20Mbit, for utilisation.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs; all cores of this machine if not given.")
    ] = None,
    memory: Annotated[str, typer.Option(help="For Spark's driver, as in 2g.")] = "2g",
    output: OutputOption = Output.HUMAN,
) -> int:
    """Write a page about traces: verdicts, latency, throughput, links, overhead, and a diagram of each witness."""
    try:
        found, expected = _written(traces, to, expect, pictures, link_rate(rate), master, memory)
    except SparkProblem as problem:
        fail(str(problem))
    if output is Output.JSON:
        print_json(Result(str(to), found.runs, found.events, found.quarantined, found.verdicts))
    else:
        _show(found, expected, to)
    return VIOLATED if any(each.property in expected for each in found.violated) else HOLDS


def _written(
    traces: list[Path],
    to: Path,
    expect: str | None,
    pictures: int,
    bits_per_second: float | None,
    master: str | None,
    memory: str,
) -> tuple[Report, tuple[Property, ...]]:
    from isthmus.pipeline.session import require_packages, spark_session

    require_packages()
    from isthmus.pipeline.audit import expected_properties
    from isthmus.pipeline.files import find_files
    from isthmus.pipeline.ingest import is_table
    from isthmus.pipeline.report import EXPECTED, refuse_target, write_report

    expected = EXPECTED if expect is None else expected_properties(expect)
    refuse_target(to)
    if not (len(traces) == 1 and is_table(traces[0])):
        find_files(traces)  # what is wrong with the arguments is said before the seconds that Spark takes to start
    spark = spark_session(master, driver_memory=memory)
    found = write_report(spark, traces, to, expected=expected, pictures=pictures, bits_per_second=bits_per_second)
    return found, expected


def _show(found: Report, expected: tuple[Property, ...], to: Path) -> None:
    for kind in dict.fromkeys(each.property for each in found.verdicts):
        answer = found.verdict(kind)
        colour = {"holds": "green", "violated": "red", "unknown": "yellow"}[answer]
        aside = "" if kind in expected else " (not expected)"
        out.print(f"{kind}: [{colour}]{answer}[/]{aside}")
    out.print(printable(f"{found.runs:,} runs, {found.events:,} events: {to}"), markup=False)
