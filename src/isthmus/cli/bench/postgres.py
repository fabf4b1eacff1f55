"""`isthmus bench postgres`: the PostgreSQL adapter beside COPY, and beside a slot that nobody looks into."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked


def bench(
    megabytes: Annotated[int, typer.Option(min=1, help="MiB of bodies for each figure.")] = 32,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Rows per second into and out of one table, and what each costs the gateway."""
    from isthmus.lab.benchmarks import postgres

    figures = []
    listing = table("one table, one server", "", "size", "batch", "rows/s", "µs each", "bare/s", "µs each", "ratio")
    for figure in tracked(postgres.measure(megabytes), 2 * len(postgres.SIZES), "measuring"):
        figures.append(figure)
        listing.add_row(
            figure.what,
            f"{figure.size:,} B",
            f"{figure.batch:,}",
            f"{figure.per_second:,.0f}",
            f"{figure.microseconds:.1f}",
            f"{figure.bare_per_second:,.0f}",
            f"{figure.bare_microseconds:.1f}",
            f"{figure.ratio:.2f}",
        )
    if output is Output.HUMAN:
        out.print(listing)
        out.print("bare: COPY of the same batches without record; rows taken off a slot, and none looked into")
    return figures, HOLDS
