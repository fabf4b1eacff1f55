"""A small line chart as SVG, written by hand: a few curves, axes with round numbers, names at the ends of curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 640, 400
RIGHT, TOP, BOTTOM = 180, 40, 50
CHARACTER = 7
"""No digit is wider than this at the size of labels."""
COLOURS = ("#1f6fb2", "#c0392b", "#27824a", "#8a5a00", "#6b3fa0", "#00808a", "#b0306a", "#555555")
TICKS = 5
LINE_HEIGHT = 14

Point = tuple[int | float | Fraction, int | float | Fraction]


class Axis(NamedTuple):
    """Round numbers from one end to the other, and whether they grow by steps or by factors."""

    ticks: list[float]
    logarithmic: bool

    def share(self, value: float) -> float:
        """How far along the axis a value is, from 0 to 1."""
        first, last = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            return log10(value / first) / log10(last / first)
        return (value - first) / (last - first)


def line_chart(
    title: str, across: str, up: str, curves: Mapping[str, Sequence[Point]], *, logarithmic: bool = False
) -> str:
    """The chart as one SVG document. Both axes begin at 0, or are logarithmic."""
    points = [(float(x), float(y)) for curve in curves.values() for x, y in curve]
    scale = _powers if logarithmic else _steps
    along, aside = scale([x for x, _ in points]), scale([y for _, y in points])

    margin = 18 + CHARACTER * max(len(up), *(len(_number(tick)) for tick in aside.ticks))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            round(margin + along.share(x) * (WIDTH - margin - RIGHT), 1),
            round(HEIGHT - BOTTOM - aside.share(y) * (HEIGHT - TOP - BOTTOM), 1),
        )

    font = 'font-family="sans-serif" font-size="12"'
    left, bottom = along.ticks[0], aside.ticks[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{margin}" y="22" font-size="14">{escape(title)}</text>',
        _text(margin + (WIDTH - margin - RIGHT) / 2, HEIGHT - BOTTOM, across, dy=38, anchor="middle"),
        _text(margin - 8, TOP - 12, up, anchor="end"),
    ]
    for tick in along.ticks:
        x, y = place(tick, bottom)
        parts.append(_text(x, y, _number(tick), dy=18, anchor="middle"))
    for tick in aside.ticks:
        (x, y), (end, _) = place(left, tick), place(along.ticks[-1], bottom)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(x - 8, y, _number(tick), dy=4, anchor="end"))
    ends: list[tuple[float, float, str, str]] = []
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        placed = [place(float(x), float(y)) for x, y in curve]
        line = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        ends.append((placed[-1][1], placed[-1][0], name, colour))
    above = 0.0
    for y, x, name, colour in sorted(ends):
        # Curves that end close together have their names one below the other.
        above = max(y, above + LINE_HEIGHT)
        parts.append(_text(x + 8, above, name, dy=4, colour=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, dy: int = 0, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x}" y="{round(y + dy, 1)}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _steps(values: Sequence[float]) -> Axis:
    """From 0 in steps of 1, 2 or 5 times a power of ten, about five of them."""
    most = max(values)
    step = 1.0
    while step * TICKS < most:
        step *= 10
    while step * TICKS >= 10 * most:
        step /= 10
    for part in (0.1, 0.2, 0.5, 1.0):
        if step * part * TICKS >= most:
            step *= part
            break
    return Axis([number * step for number in range(round(-(-most // step)) + 1)], False)


def _powers(values: Sequence[float]) -> Axis:
    """Powers of ten around everything."""
    first, last = floor(log10(min(values))), ceil(log10(max(values)))
    return Axis([10.0**power for power in range(first, max(last, first + 1) + 1)], True)
