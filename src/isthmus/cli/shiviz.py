"""`isthmus shiviz TRACE… --to FILE`: a run, or the witness of a violation, as a log that ShiViz draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from isthmus.cli.console import HOLDS, Output, OutputOption, out, print_json
from isthmus.cli.spark import (
    ConfOption,
    MasterOption,
    MemoryOption,
    TracesArgument,
    Way,
    places_of,
    way_to_spark,
)
from isthmus.pipeline.problems import is_table, refuse_target
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Violation, printable
from isthmus.trace.shiviz.exporter import PARSER, chosen_run, write_log

if TYPE_CHECKING:
    from isthmus.trace.places import Place
    from isthmus.trace.schema import Event

_COMFORTABLE = 5000
"""Rows that a browser still draws with ease."""


class Result(Struct, frozen=True):
    """What `-o json` prints. `parser` is what ShiViz asks for, where a log is pasted and not uploaded."""

    file: str
    run: str
    rows: int
    hosts: int
    parser: str
    violation: Violation | None


def shiviz(
    traces: TracesArgument,
    to: Annotated[Path, typer.Option(help="The log to write, such as run.shiviz.", metavar="FILE")],
    run: Annotated[str | None, typer.Option(help="Which run, where the trace holds several.", metavar="RUN")] = None,
    violation: Annotated[
        int | None,
        typer.Option(help="Only what shows this violation: its number, from 1, in the audit.", metavar="N", min=1),
    ] = None,
    master: MasterOption = None,
    memory: MemoryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Write a log for ShiViz, with vector clocks: a whole run, or the witness of one violation."""
    refuse_target(to, "run.shiviz")
    places = places_of(traces)
    captions: dict[tuple[str, int], str] = {}
    shown: Violation | None = None
    if violation is None and not any(map(is_table, places)):
        rows = _whole_run(places, run)
    else:
        rows, captions, shown = _story(places, run, violation, way_to_spark(master, memory, conf))
    write_log(to, rows, captions)
    hosts = len({(row.system, row.process) for row in rows})
    result = Result(str(to), rows[0].run, len(rows), hosts, PARSER, shown)
    if output is Output.JSON:
        print_json(result)
    else:
        _show(result)
    return HOLDS


def _whole_run(traces: list[Place], run: str | None) -> list[Event]:
    """For this, the seconds of Spark are not needed."""
    trace = read_trace(traces)
    chosen = chosen_run(trace.runs, run)
    return [row for row in trace.events() if row.run == chosen]


def _story(
    traces: list[Place], run: str | None, violation: int | None, way: Way
) -> tuple[list[Event], dict[tuple[str, int], str], Violation | None]:
    from isthmus.pipeline.session import require_packages

    require_packages()
    from isthmus.pipeline.ingest import session_for
    from isthmus.pipeline.shiviz import story

    return story(session_for(traces, *way), traces, run, violation)


def _show(result: Result) -> None:
    if result.violation is not None:
        out.print(printable(f"{result.violation.property}: {result.violation.why}"), markup=False)
    what = f"{result.file}: {result.rows:,} rows of {result.hosts:,} processes, run {result.run}"
    out.print(printable(what), markup=False)
    if result.rows > _COMFORTABLE:
        out.print(f"That is more than {_COMFORTABLE:,} rows: a browser will take its time, or give up.")
    out.print("Upload it to ShiViz; or paste what follows its second line, with this parser expression:")
    out.print(result.parser, markup=False)
