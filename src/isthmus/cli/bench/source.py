"""`isthmus bench source`: the streaming source beside Spark's own file streams, on the same rows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked


def bench(
    rows: Annotated[int, typer.Option(help="How many rows.", min=10_000)] = 1_000_000,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Rows per second of the streaming source, beside Spark's own file streams on the same rows."""
    from isthmus.pipeline.session import require_packages

    require_packages()
    from isthmus.lab.benchmarks.source import FORMATS, measure

    figures = list(tracked(measure(rows), len(FORMATS), "reading streams"))
    if output is Output.HUMAN:
        listing = table(
            f"{rows:,} rows into a sink that keeps nothing",
            *("logs", "isthmus rows/s", "Spark's own rows/s", "share", "the same without the start of the query"),
        )
        for figure in figures:
            listing.add_row(
                figure.format,
                f"{figure.isthmus.rows_per_second:,.0f}",
                f"{figure.plain.rows_per_second:,.0f}",
                f"{figure.ratio:.2f}",
                f"{figure.ratio_in_batches:.2f}",
            )
        out.print(listing)
        out.print("Spark's own stream takes rows in any order; the isthmus source never gives one before its cause")
    return figures, HOLDS
