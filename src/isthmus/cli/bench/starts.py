"""`isthmus bench starts`: whether anybody is excluded at birth when members start one by one on a busy machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, out, progress_bar, table


def bench(
    starts: Annotated[int, typer.Option(help="How many starts.", min=1)] = 50,
    members: Annotated[int, typer.Option(help="Members of the group, one OS process each.", min=2)] = 4,
    load: Annotated[int, typer.Option(help="Busy loops beside them.", min=0)] = 8,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Start a group over and over under load. Exit code 1: somebody was excluded, or did not get going."""
    import asyncio

    from isthmus.lab.benchmarks.starts import measure

    with tempfile.TemporaryDirectory(prefix="isthmus-starts-") as directory, progress_bar() as progress:
        task = progress.add_task("starting", total=starts)
        outcomes = asyncio.run(measure(Path(directory), starts, members, load, lambda: progress.advance(task)))
    bad = [each for each in outcomes if not each.good]
    if output is Output.HUMAN:
        times = [each.seconds for each in outcomes]
        title = f"one OS process per member, {members} members, {load} busy loops beside them"
        listing = table(title, "starts", "somebody excluded", "failed otherwise", "seconds, median and worst")
        excluded = sum(bool(each.excluded) for each in bad)
        taken = f"{median(times):.1f}, {max(times):.1f}"
        listing.add_row(str(starts), str(excluded), str(len(bad) - excluded), taken)
        out.print(listing)
        for each in bad[:5]:
            out.print(f"  {each.failure or 'excluded: ' + ', '.join(each.excluded)}", markup=False)
    return outcomes, VIOLATED if bad else HOLDS
