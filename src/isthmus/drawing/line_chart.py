"""A line chart that stands alone in a file: a few curves, axes with round numbers, names at the ends of the curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from isthmus.core.units import count
from isthmus.drawing.svg import Markup, Scale, drawing, drawn_width, join, label, number, powers_of_ten, tag, ticks

WIDTH, HEIGHT = 640.0, 400.0
RIGHT, TOP, BOTTOM = 180.0, 40.0, 50.0
COLOURS = ("#1f6fb2", "#c0392b", "#27824a", "#8a5a00", "#6b3fa0", "#00808a", "#b0306a", "#555555")
MOST_TICKS = 5
LINE_HEIGHT = 14.0
STYLE = "svg{background:white;font:12px sans-serif;fill:#333}polyline{fill:none;stroke-width:2}line{stroke:#ddd}"

Point = tuple[int | float | Fraction, int | float | Fraction]


def line_chart(
    title: str, across: str, up: str, curves: Mapping[str, Sequence[Point]], *, logarithmic: bool = False
) -> str:
    """The chart as one SVG document. Both axes begin at 0, or are logarithmic."""
    along, aside = ([float(point[axis]) for curve in curves.values() for point in curve] for axis in (0, 1))
    marks_along, marks_aside = (
        powers_of_ten(min(values), max(values)) if logarithmic else ticks(max(values), MOST_TICKS)
        for values in (along, aside)
    )
    left = 18 + drawn_width(max(up, *map(count, marks_aside), key=len))
    x = Scale(marks_along[0], marks_along[-1], left, WIDTH - RIGHT, logarithmic=logarithmic)
    y = Scale(marks_aside[0], marks_aside[-1], HEIGHT - BOTTOM, TOP, logarithmic=logarithmic)
    lines, names = [], []
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        placed = [(x(float(across)), y(float(up))) for across, up in curve]
        points = " ".join(f"{number(at)},{number(height)}" for at, height in placed)
        lines.append(tag("polyline", points=points, stroke=colour))
        lines += [tag("circle", cx=at, cy=height, r=3, fill=colour) for at, height in placed]
        names.append((placed[-1][1], placed[-1][0], name, colour))
    return (
        drawing(
            WIDTH,
            HEIGHT,
            title,
            f"{up} over {across}: {', '.join(curves)}.",
            tag("style", Markup(STYLE)),
            label(left, 22, title),
            label((left + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 38, across, anchor="middle"),
            label(left - 8, TOP - 12, up, anchor="end"),
            *(label(x(each), HEIGHT - BOTTOM + 18, count(each), anchor="middle") for each in marks_along),
            *(
                join(
                    tag("line", x1=left, y1=y(each), x2=WIDTH - RIGHT, y2=y(each)),
                    label(left - 8, y(each) + 4, count(each), anchor="end"),
                )
                for each in marks_aside
            ),
            *lines,
            *_names(names),
            name="chart",
        )
        + "\n"
    )


def _names(ends: Sequence[tuple[float, float, str, str]]) -> list[Markup]:
    """Curves that end close together have their names one below the other."""
    drawn, above = [], 0.0
    for y, x, name, colour in sorted(ends):
        above = max(y, above + LINE_HEIGHT)
        drawn.append(tag("g", label(x + 8, above + 4, name), fill=colour))
    return drawn
