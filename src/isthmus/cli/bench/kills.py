"""`isthmus bench kills`: how soon messages flow again after kill -9 of processes at one of two sites."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    Output,
    OutputOption,
    out,
    progress_bar,
    show_witnesses,
    table,
    verdicts_of,
)
from isthmus.core.ids import SECOND, Nanos

if TYPE_CHECKING:
    from rich.table import Table

    from isthmus.lab.benchmarks.kills import KillsOutcome


def bench(
    rounds: Annotated[int, typer.Option(help="How many kills of each kind.", min=1)] = 20,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Kill processes under load and judge the traces. Exit code 1: a promise was broken."""
    from isthmus.lab.benchmarks import kills
    from isthmus.runtime.loop import run as run_loop

    with tempfile.TemporaryDirectory(prefix="isthmus-kills-") as directory, progress_bar() as progress:
        task = progress.add_task("killing", total=rounds * len(kills.CASES))
        outcomes = run_loop(kills.measure(Path(directory), rounds, lambda: progress.advance(task)))
    if output is Output.HUMAN:
        out.print(_table(outcomes))
        show_witnesses(outcome.report for outcome in outcomes)
    figures = [
        {
            "victim": each.victim,
            "queues": each.queues,
            "messages": each.messages,
            "kills": each.kills,
            "verdicts": each.report.verdicts,
        }
        for each in outcomes
    ]
    return figures, VIOLATED if any(outcome.report.violated for outcome in outcomes) else HOLDS


def _table(outcomes: list[KillsOutcome]) -> Table:
    columns = (
        "killed",
        "queues",
        "times",
        "noticed after",
        "flowing again after",
        "of that, since noticed",
        "messages",
        "verdicts",
    )
    listing = table("kill -9 under load, two sites, both ways; median and worst", *columns)
    for outcome in outcomes:
        listing.add_row(
            outcome.victim,
            "no lines" if outcome.queues == "none" else outcome.queues,
            str(len(outcome.kills)),
            _median_and_worst([kill.noticed for kill in outcome.kills]),
            _median_and_worst([kill.flowing for kill in outcome.kills]),
            _median_and_worst([kill.recovery for kill in outcome.kills]),
            f"{outcome.messages:,}",
            verdicts_of(outcome.report),
        )
    return listing


def _median_and_worst(times: list[Nanos]) -> str:
    return f"{median(times) / SECOND:.2f} s, {max(times) / SECOND:.2f} s"
