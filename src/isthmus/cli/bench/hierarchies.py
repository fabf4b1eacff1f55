"""`isthmus bench hierarchies`: daisies with servers killed, one that changes, one that is joined; and clusters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    Output,
    OutputOption,
    fail,
    out,
    progress_bar,
    show_witnesses,
    table,
    verdicts_of,
)
from isthmus.core.ids import SECOND

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.hierarchies import HierarchyOutcome


def bench(
    traces: Annotated[Path | None, typer.Option(help="Keep the traces in this new directory.", metavar="DIR")] = None,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Kill servers of daisies under load, over real sockets, and judge the traces. Exit code 1: a promise broken."""
    import asyncio

    from isthmus.lab.benchmarks import hierarchies, joined_daisies
    from isthmus.lab.harness.os_process import ChildFailed

    with _place(traces) as directory, progress_bar() as progress:
        kills = len(hierarchies.VICTIMS) + len(joined_daisies.VICTIMS)
        task = progress.add_task("killing servers", total=kills + 3)
        try:
            outcomes = asyncio.run(_measure(directory, lambda: progress.advance(task)))
        except ChildFailed as failure:
            fail(f"{failure}; a machine that is busy with other things can do that: try again when it is not")
    if output is Output.HUMAN:
        _print(outcomes)
        if traces is not None:
            for outcome in outcomes:
                out.print(f"for Spark: isthmus audit {outcome.trace}")
    violated = any(outcome.report.violated for outcome in outcomes)
    return outcomes, VIOLATED if violated else HOLDS


async def _measure(directory: Path, progress: Callable[[], None]) -> list[HierarchyOutcome]:
    from isthmus.lab.benchmarks import hierarchies, joined_daisies

    outcomes = await hierarchies.measure(directory, progress)
    (directory / "joined").mkdir()
    return [*outcomes, await joined_daisies.run_joined(directory / "joined", progress=progress)]


@contextmanager
def _place(traces: Path | None) -> Iterator[Path]:
    if traces is None:
        with tempfile.TemporaryDirectory(prefix="isthmus-hierarchies-") as directory:
            yield Path(directory)
        return
    if traces.exists() and any(traces.iterdir()):
        fail(f"--traces {traces}: there is something in it already; choose a directory that is empty or not there yet")
    yield traces


def _print(outcomes: list[HierarchyOutcome]) -> None:
    columns = ("system", "processes", "OS processes", "messages", "deliveries", "header", "verdicts")
    listing = table("hierarchies over real sockets, under load", *columns)
    for outcome in outcomes:
        listing.add_row(
            outcome.system,
            str(outcome.processes),
            str(outcome.os_processes),
            f"{outcome.messages:,}",
            f"{outcome.deliveries:,}",
            f"{outcome.header:.0f} B",
            verdicts_of(outcome.report),
        )
    out.print(listing)
    listing = table("kill -9 of servers of daisies", "system", "killed", "noticed after", "flowing again after")
    for system, kill in [(outcome.system, kill) for outcome in outcomes for kill in outcome.kills]:
        listing.add_row(system, kill.victim, f"{kill.noticed / SECOND:.2f} s", f"{kill.flowing / SECOND:.2f} s")
    out.print(listing)
    listing = table("generations of the daisy that changes", "generation", "local groups", "longest pause")
    for change in [change for outcome in outcomes for change in outcome.changes]:
        groups = "; ".join(" ".join(group) for group in change.groups)
        listing.add_row(str(change.generation), groups, f"{change.pause / SECOND:.2f} s")
    out.print(listing)
    show_witnesses(outcome.report for outcome in outcomes)
