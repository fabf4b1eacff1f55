"""A small line chart as SVG, written by hand: a few curves, axes with round numbers, names at the ends of curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 180, 40, 50
COLOURS = ("#1f6fb2", "#c0392b", "#27824a", "#8a5a00")
TICKS = 5

Point = tuple[int | float | Fraction, int | float | Fraction]


def line_chart(title: str, across: str, up: str, curves: Mapping[str, Sequence[Point]]) -> str:
    """The chart as one SVG document. Both axes begin at 0."""
    points = [(float(x), float(y)) for curve in curves.values() for x, y in curve]
    most_x, step_x = _scale(max(x for x, _ in points))
    most_y, step_y = _scale(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            round(LEFT + x / most_x * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - y / most_y * (HEIGHT - TOP - BOTTOM), 1),
        )

    font = 'font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        _text(*place(most_x / 2, 0), across, dy=38, anchor="middle"),
        _text(LEFT, TOP - 6, up, anchor="middle"),
    ]
    for number in range(round(most_x / step_x) + 1):
        x, y = place(number * step_x, 0)
        parts.append(_text(x, y, f"{number * step_x:g}", dy=18, anchor="middle"))
    for number in range(round(most_y / step_y) + 1):
        (x, y), (end, _) = place(0, number * step_y), place(most_x, 0)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(x - 8, y, f"{number * step_y:g}", dy=4, anchor="end"))
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        placed = [place(float(x), float(y)) for x, y in curve]
        line = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(placed[-1][0] + 8, placed[-1][1], name, dy=4, colour=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, dy: int = 0, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x}" y="{round(y + dy, 1)}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _scale(most: float) -> tuple[float, float]:
    """The end of an axis and the distance of its ticks: 1, 2 or 5 times a power of ten, about five of them."""
    step = 1.0
    while step * TICKS < most:
        step *= 10
    while step * TICKS >= 10 * most:
        step /= 10
    for part in (0.1, 0.2, 0.5, 1.0):
        if step * part * TICKS >= most:
            step *= part
            break
    ticks = -(-most // step)
    return ticks * step, step
