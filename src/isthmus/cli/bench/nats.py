"""`isthmus bench nats`: the NATS adapter beside the same protocol code without claim, record and contents."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked


def bench(
    batches: Annotated[int, typer.Option(min=1, help="Batches of 999 messages.")] = 60,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Entries per second into and out of one JetStream stream, and what each costs the gateway."""
    from isthmus.lab.benchmarks import nats

    figures = []
    listing = table(
        "one stream, one server, batches of 999", "", "size", "messages/s", "µs each", "bare/s", "µs each", "ratio"
    )
    for figure in tracked(nats.measure(batches), 2 * len(nats.SIZES), "measuring"):
        figures.append(figure)
        listing.add_row(
            figure.what,
            f"{figure.size:,} B",
            f"{figure.per_second:,.0f}",
            f"{figure.microseconds:.1f}",
            f"{figure.bare_per_second:,.0f}",
            f"{figure.bare_microseconds:.1f}",
            f"{figure.ratio:.2f}",
        )
    if output is Output.HUMAN:
        out.print(listing)
        out.print("bare: the same batches without record and fence; messages counted as they come, none looked into")
    return figures, HOLDS
