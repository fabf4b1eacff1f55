"""`isthmus bench core`: causal broadcast in one OS process beside a plain loop."""

from __future__ import annotations

from typing import Any

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked


def bench(output: OutputOption = Output.HUMAN) -> tuple[Any, int]:
    """Deliveries per second of causal broadcast, beside a plain loop over the same frames."""
    from isthmus.lab.benchmarks import core

    figures = []
    title = f"causal broadcast, batches of {core.BATCH} messages of {len(core.PAYLOAD)} B, one OS process"
    listing = table(title, "where", "n", "deliveries/s", "µs per delivery", "plain loop/s", "share of plain")
    for figure in tracked(core.measure(), 10, "measuring"):
        figures.append(figure)
        listing.add_row(
            figure.where,
            str(figure.processes),
            f"{figure.deliveries_per_second:,.0f}",
            f"{figure.microseconds:.2f}",
            f"{figure.plain_per_second:,.0f}",
            f"{figure.ratio:.2f}",
        )
    if output is Output.HUMAN:
        out.print(listing)
        out.print("plain: the same frames, without ordering, acknowledgement, views or stability; not even decoded")
    return figures, HOLDS
