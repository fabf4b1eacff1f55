"""`isthmus counts`: what the papers say that a broadcast costs, beside what the simulator counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, print_json, table, tracked
from isthmus.core.ids import MILLISECOND
from isthmus.simulator import counts_of_joins
from isthmus.simulator.counts import HEARTBEAT, Row, Section, Unit

SECTIONS: tuple[Section, ...] = (*counts_of_joins.SECTIONS,)
"""Every claim that is counted, in the order of the table."""


def register(app: typer.Typer) -> None:
    app.command("counts")(counts)


def counts(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which counts; all of them without a name.")
    ] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Count what the papers count, and compare. Exit code 1: a count differs from its formula."""
    known = {section.name: section for section in SECTIONS}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        fail(f"there is no count {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] if names else list(SECTIONS)
    counted = [(section, section.count()) for section in tracked(chosen, len(chosen), "counting")]
    wrong = [row for _, rows in counted for row in rows if not row.holds]
    if output is Output.JSON:
        print_json({"holds": not wrong, "counts": [_result(section, rows) for section, rows in counted]})
    else:
        for section, rows in counted:
            _print(section, rows)
        _print_verdict(sum(len(rows) for _, rows in counted), len(wrong))
    return VIOLATED if wrong else HOLDS


def _result(section: Section, rows: list[Row]) -> dict[str, Any]:
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
                "holds": row.holds,
                "also_sent": row.also,
            }
            for row in rows
        ],
    }


def _print(section: Section, rows: list[Row]) -> None:
    unit = "ms" if rows[0].unit == "nanoseconds" else rows[0].unit
    title = f"{section.what}\n{section.formula}   ({section.paper}; {unit})"
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


def _print_verdict(rows: int, wrong: int) -> None:
    out.print("also sent: acknowledgements, words between gateways and whatever else no paper counts; docs/counts.md")
    if wrong:
        out.print(f"{wrong} of {rows} counts differ from their formula", style="red")
    else:
        out.print(f"all {rows} counts are as the formulas say", style="green")


def _relation(row: Row) -> str:
    return ">" if row.above else "="


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _text(value: Fraction, unit: Unit) -> str:
    return f"{float(value / MILLISECOND):.6g}" if unit == "nanoseconds" else f"{_number(value):,}"
