"""`isthmus bench kafka`: the Kafka adapter beside a producer without transactions, and a consumer that only counts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked


def bench(
    megabytes: Annotated[int, typer.Option(min=1, help="MiB of bodies for each figure.")] = 64,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Messages per second into and out of one topic, and what each costs the gateway."""
    from isthmus.lab.benchmarks import kafka

    figures = []
    listing = table("one topic, one server", "", "size", "batch", "messages/s", "µs each", "bare/s", "µs each", "ratio")
    for figure in tracked(kafka.measure(megabytes), 2 * len(kafka.SIZES), "measuring"):
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
        out.print("bare: the same batches flushed without a transaction; messages counted, and none looked into")
    return figures, HOLDS
