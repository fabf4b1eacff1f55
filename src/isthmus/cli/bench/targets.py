"""`isthmus bench targets`: what this code is to carry, and what it carries on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, table, tracked

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.targets import Figure, Measurement


def bench(
    rows: Annotated[str, typer.Option(help="Names of rows, with commas between them; all without it.")] = "",
    seconds: Annotated[float, typer.Option(help="How long each row is measured, after its warm-up.", min=0.1)] = 3.0,
    repeats: Annotated[int, typer.Option(help="Measurements of each row, of which the median counts.", min=1)] = 1,
    profile: Annotated[bool, typer.Option("--profile", help="Profile every OS process; slows all down.")] = False,
    beside: Annotated[str | None, typer.Option(help="An old commit to measure in turn.", metavar="REV")] = None,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """What is wanted and what is reached, row by row. Exit code 1: a row could not be measured."""
    from isthmus.lab.benchmarks import targets

    figures = []
    try:
        chosen = targets.chosen_rows(rows)
        measuring = targets.measure(chosen, seconds, repeats, profile=profile, beside=beside)
        for figure in tracked(measuring, len(chosen), "measuring"):
            figures.append(figure)
            if figure.failure:
                err.print(f"{figure.row.name} cannot be measured: {figure.failure}", markup=False)
    except targets.CannotMeasure as failure:
        fail(str(failure))
    if output is Output.HUMAN:
        _print(figures, beside)
    return [_as_object(figure) for figure in figures], VIOLATED if any(each.new is None for each in figures) else HOLDS


def _print(figures: list[Figure], beside: str | None) -> None:
    compared = () if beside is None else (beside, "ratio")
    columns = ("row", "wanted", "reached", *compared, "CPU µs", "per hop", "cores", "load")
    listing = table("per second, as reached on this machine", *columns)
    for figure in figures:
        row, new, old = figure.row, figure.new, figure.old
        ratio = f"{new.reached / old.reached:.2f}" if new and old and old.reached else "–"
        listing.add_row(
            row.name,
            f"{row.wanted:.0%}" if row.wanted < 1 else f"{row.wanted:,.0f}",
            f"{_reached(new)} [green]✓[/green]" if figure.good else f"{_reached(new)}  ",
            *(() if beside is None else (_reached(old), ratio)),
            "–" if figure.microseconds is None else f"{figure.microseconds:.2f}",
            "–" if figure.microseconds is None else f"{figure.microseconds / row.hops:.2f}",
            "–" if new is None else " ".join(f"{each:.2f}" for each in new.cores.values()),
            "–" if new is None else f"{new.load:.1f}",
        )
    out.print(listing)
    for figure in figures:
        for when, measured in ((beside, figure.old), ("this code", figure.new)):
            for process, text in measured.profiles.items() if measured else ():
                out.print(f"{figure.row.name}, {when}, {process}:\n{text}", markup=False)


def _reached(measured: Measurement | None) -> str:
    if measured is None:
        return "–"
    if measured.pumped:
        return f"{measured.reached:.1%} of {measured.pumped:,.0f}"
    return f"{measured.rate:,.0f}"


def _as_object(figure: Figure) -> dict[str, Any]:
    row = figure.row
    return {
        "row": row.name,
        "what": row.what,
        "wanted": row.wanted,
        "reached": figure.new.reached if figure.new else None,
        "good": figure.good,
        "microseconds": figure.microseconds,
        "microseconds_per_hop": figure.microseconds / row.hops if figure.microseconds is not None else None,
        "new": figure.new,
        "old": figure.old,
        "failure": figure.failure,
    }
