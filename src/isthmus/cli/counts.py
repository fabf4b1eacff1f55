"""`isthmus counts`: what the papers say that a broadcast costs, beside what the simulator counts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, print_json, table, tracked
from isthmus.core.ids import MILLISECOND
from isthmus.drawing.line_chart import line_chart

if TYPE_CHECKING:
    from isthmus.lab.counts.table import CountRow, Section, Unit


def counts(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which counts; all of them without a name.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write Fig. 7 of cluster (loads over b), as counted, to this SVG file.")
    ] = None,
    plot_headers: Annotated[
        Path | None, typer.Option(help="Write header bytes over n, for all kinds of systems, to this SVG file.")
    ] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Count what the papers count, and compare. Exit code 1: a count differs from its formula."""
    from isthmus.lab.counts import clusters, daisies
    from isthmus.lab.counts.sections import SECTIONS

    known = {section.name: section for section in SECTIONS}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        fail(f"there is no count {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] if names else list(SECTIONS)
    counted = [(section, section.count()) for section in tracked(chosen, len(chosen), "counting")]
    if plot is not None:
        title = f"Message arrival rates at coordinators versus b (cluster, Fig. 7; n = {clusters.FIGURE_7_SENDERS})"
        _write("--plot", plot, line_chart(title, "b, clusters of layer 1", "λ", clusters.figure_7()))
    if plot_headers is not None:
        title = "Header bytes of one message over all its hops, in an idle system"
        chart = line_chart(title, "n, processes", "bytes", daisies.curves(), logarithmic=True)
        _write("--plot-headers", plot_headers, chart)
    wrong = [row for _, rows in counted for row in rows if not row.holds]
    if output is Output.JSON:
        print_json({"holds": not wrong, "counts": [_result(section, rows) for section, rows in counted]})
    else:
        for section, rows in counted:
            _print(section, rows)
        _print_verdict(sum(len(rows) for _, rows in counted), len(wrong))
    return VIOLATED if wrong else HOLDS


def _write(option: str, file: Path, chart: str) -> None:
    try:
        file.write_text(chart, encoding="utf-8")
    except OSError as error:
        fail(f"{option} {file}: {error.strerror or error}; choose a file that can be written")


def _result(section: Section, rows: list[CountRow]) -> dict[str, Any]:
    return {
        "name": section.name,
        "what": section.what,
        "paper": section.paper,
        "formula": section.formula,
        "rows": [
            {
                "setting": row.setting,
                "unit": row.unit,
                "relation": _relation(row),
                "formula": _number(row.expected),
                "counted": _number(row.counted),
                **({} if row.printed is None else {"printed": _number(row.printed)}),
                "holds": row.holds,
                "also_sent": row.also,
            }
            for row in rows
        ],
    }


def _print(section: Section, rows: list[CountRow]) -> None:
    from isthmus.lab.counts.table import HEARTBEAT

    unit = "ms" if rows[0].unit == "nanoseconds" else rows[0].unit
    title = f"{section.what}\n{section.formula}   ({section.paper}; {unit})"
    if any(row.printed is not None for row in rows):
        _print_beside(title, rows)
        return
    listing = table(title, "setting", "formula", "counted", "", "also sent", "heartbeats")
    for row in rows:
        heartbeats = row.also.get(HEARTBEAT, 0)
        others = sum(row.also.values()) - heartbeats
        listing.add_row(
            row.setting,
            _text(row.expected, row.unit),
            _text(row.counted, row.unit),
            _relation(row) if row.holds else "[red]differs[/red]",
            f"{others:,}" if row.also else "–",
            f"{heartbeats:,}" if row.also else "–",
        )
    out.print(listing)
    out.print()


def _print_beside(title: str, rows: list[CountRow]) -> None:
    """What the paper prints, what is exact, what was counted."""
    listing = table(title, "setting", "printed", "exact", "counted", "")
    for row in rows:
        printed = "–" if row.printed is None else _text(row.printed, row.unit)
        differs = row.printed is not None and row.printed != row.expected
        listing.add_row(
            row.setting,
            f"[yellow]{printed}[/yellow]" if differs else printed,
            _text(row.expected, row.unit),
            _text(row.counted, row.unit),
            _relation(row) if row.holds else "[red]differs[/red]",
        )
    out.print(listing)
    out.print()


def _print_verdict(rows: int, wrong: int) -> None:
    out.print("also sent: acknowledgements, words between gateways and whatever else no paper counts; docs/counts.md")
    if wrong:
        out.print(f"{wrong} of {rows} counts differ from their formula", style="red")
    else:
        out.print(f"all {rows} counts are as the formulas say", style="green")


def _relation(row: CountRow) -> str:
    return ">" if row.above else "="


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _text(value: Fraction, unit: Unit) -> str:
    return f"{float(value / MILLISECOND):.6g}" if unit == "nanoseconds" else f"{_rounded(value):,}"


def _rounded(value: Fraction) -> int | float:
    """For people: three digits behind the point are enough."""
    number = _number(value)
    return number if isinstance(number, int) else round(number, 3)
