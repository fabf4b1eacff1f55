"""`isthmus bench source`: the streaming source beside Spark's own file streams, on the same rows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, out, table, tracked


def bench(
    rows: Annotated[int, typer.Option(help="How many rows.", min=10_000)] = 1_000_000,
    kills: Annotated[
        int, typer.Option(help="Instead: kill -9 of a query so many times, while its logs are rotated.", min=0, max=200)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Draws the moments of the kills and what happens to files.")] = 1,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Rows per second of the streaming source, and a join of two tables, beside Spark's own file streams."""
    from isthmus.pipeline.session import require_packages

    require_packages()
    if kills:
        return _kills(kills, seed, output)
    from isthmus.lab.benchmarks import source_join, source_restart
    from isthmus.lab.benchmarks.source import FORMATS, measure

    figures = list(tracked(measure(rows), len(FORMATS), "reading streams"))
    joins = source_join.measure()
    restarts = source_restart.measure()
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
        late = source_join.LATE_ROUNDS * source_join.ROUND_MINUTES
        listing = table(
            f"a join of orders and shipments; one log comes up to {late} minutes late",
            *("way", "shipments", "with their order", "without", "rows held"),
        )
        for each in joins:
            held = f"{each.most_held:,}" if each.most_held >= 0 else "-"
            listing.add_row(each.way, f"{each.shipments:,}", f"{each.matched:,}", f"{each.unmatched:,}", held)
        out.print(listing)
        listing = table(
            f"{restarts[0].logs:,} finished logs with {restarts[0].log_bytes:,} bytes",
            *("kept", "bytes of an offset", "of the journal", "of logs read again at a restart", "seconds"),
        )
        for kept in restarts:
            name = "journal" if kept.journal else "offsets alone"
            sizes = (kept.offset_bytes, kept.journal_bytes, kept.read_again)
            listing.add_row(name, *(f"{size:,}" for size in sizes), f"{kept.restart_seconds:.2f}")
        out.print(listing)
    return {"streams": figures, "joins": joins, "restarts": restarts}, HOLDS


def _kills(kills: int, seed: int, output: Output) -> tuple[Any, int]:
    from isthmus.lab.benchmarks.source_kills import run

    outcome = run(kills, seed)
    if output is Output.HUMAN:
        listing = table(
            f"{kills} × kill -9 of a streaming query, seed {seed}, {outcome.seconds:,.0f} s", "what", "count"
        )
        for name, text in (
            ("cuts", "cuts that both tables have"),
            ("orders", "orders in the tables"),
            ("shipments", "shipments in the tables"),
            ("twice", "rows twice"),
            ("missing", "rows missing, but for the gap"),
            ("early", "shipments in a cut before that of their order"),
            ("gap_rows", "rows told as a gap: those of the part that was damaged"),
            ("repeated", "kills with a batch under way, which came again"),
            ("half_written", "kills with a cut that only one table had"),
            ("offset_bytes", "bytes of the largest offset"),
        ):
            listing.add_row(text, f"{getattr(outcome, name):,}")
        out.print(listing)
    return outcome, HOLDS if outcome.holds else VIOLATED
