"""The plots of the report: plain values in, SVG out. Knows no Spark.

Every plot says in words what it shows, every mark has its figures as a title, and no two series differ by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from isthmus.core.units import count, duration
from isthmus.drawing.svg import (
    SERIES,
    Markup,
    Scale,
    drawing,
    drawn_width,
    join,
    label,
    log_ticks,
    number,
    shortened,
    tag,
    ticks,
)
from isthmus.pipeline.measure.rows import bin_edges

WIDTH = 1040.0
_LABELS = 200.0
_FIGURES = 215.0
_ROW = 46.0


class Distribution(Struct, frozen=True):
    """Latencies of one pair of systems: bins of the histogram with their counts, and the percentiles to mark."""

    name: str
    bins: dict[int, int]
    p50: float
    p99: float


class RateSeries(Struct, frozen=True):
    """One series over time: a rate per slice."""

    name: str
    rates: list[float]


class Part(Struct, frozen=True):
    """One part of a bar. `words` are its figures in full."""

    name: str
    value: float
    words: str


class Bar(Struct, frozen=True):
    """One bar with its parts, and the figures that stand behind it."""

    name: str
    parts: list[Part]
    figures: str


def latency_chart(distributions: Sequence[Distribution], name: str) -> Markup:
    """Histograms over one logarithmic axis, one below the other."""
    used = [each for row in distributions for each in row.bins]
    low, high = bin_edges(min(used))[0], bin_edges(max(used))[1]
    marks = log_ticks(low, high, 11)
    x = Scale(marks[0], marks[-1], _LABELS, WIDTH - _FIGURES, logarithmic=True)
    # A bar of less than 3 pixels is a hair: merge bins until they are wider.
    merge = next(each for each in (1, 2, 5, 10, 25, 50) if _bin_width(x, min(used), each) >= 3 or each == 50)
    bottom = 10 + len(distributions) * _ROW
    rows = [_histogram(each, place, x, merge) for place, each in enumerate(distributions)]
    words = "; ".join(
        f"{each.name}: half within {duration(each.p50)}, 99 % within {duration(each.p99)}" for each in distributions
    )
    return drawing(
        WIDTH,
        bottom + 28,
        "Latency from send to delivery",
        f"Histograms over a logarithmic axis. {words}.",
        *(_grid_line(x(each), 6, bottom, duration(each)) for each in marks),
        *rows,
        name=name,
    )


def _bin_width(x: Scale, first: int, merged: int) -> float:
    low, high = bin_edges(first)[0], bin_edges(first + merged - 1)[1]
    return x(high) - x(low)


def merged_bins(bins: dict[int, int], merge: int) -> dict[int, int]:
    """Bins put together, so many to one: the first of each, and their count."""
    found: dict[int, int] = {}
    for each, deliveries in bins.items():
        first = each // merge * merge
        found[first] = found.get(first, 0) + deliveries
    return found


def _histogram(row: Distribution, place: int, x: Scale, merge: int) -> Markup:
    base = 10 + (place + 1) * _ROW - 6
    tall = _ROW - 14
    bins = merged_bins(row.bins, merge)
    most = max(bins.values())
    bars = []
    for first, deliveries in sorted(bins.items()):
        low, high = bin_edges(first)[0], bin_edges(first + merge - 1)[1]
        height = max(1.5, tall * deliveries / most)
        words = tag("title", f"{row.name}: {deliveries:,} within {duration(low)} to {duration(high)}")
        wide = max(1.5, x(high) - x(low) - 0.6)
        bars.append(
            tag("rect", words, x=x(low), y=base - height, width=wide, height=height, class_=f"s{place % SERIES}")
        )
    return join(
        label(_LABELS - 14, base - 8, shortened(row.name, _LABELS - 20), "name", "end", row.name),
        tag("line", x1=_LABELS, y1=base, x2=WIDTH - _FIGURES, y2=base, class_="base"),
        *bars,
        *(tag("line", x1=x(at), y1=base - tall - 3, x2=x(at), y2=base + 3, class_=kind)
          for at, kind in ((row.p50, "p50"), (row.p99, "p99"))),
        label(WIDTH - _FIGURES + 14, base - 8, f"p50 {duration(row.p50)} · p99 {duration(row.p99)}", "figures"),
    )  # fmt: skip


def _grid_line(x: float, top: float, bottom: float, words: str) -> Markup:
    return join(
        tag("line", x1=x, y1=top, x2=x, y2=bottom, class_="grid"), label(x, bottom + 18, words, "tick", "middle")
    )


def throughput_chart(lines: Sequence[RateSeries], slice_ns: int, name: str) -> Markup:
    """Deliveries per second over time, a line for each pair."""
    left, right, top, height = 64.0, 16.0, 12.0, 230.0
    slices = max((len(each.rates) for each in lines), default=1)
    marks = ticks(max((max(each.rates, default=0.0) for each in lines), default=0.0), 5)
    y = Scale(0, marks[-1], top + height, top)
    x = Scale(0, slices, left, WIDTH - right)
    times = [each for each in ticks(slices * slice_ns, 8) if each <= slices * slice_ns * 1.001]
    legend, legend_height = _legend([each.name for each in lines], top + height + 46)
    peak = "; ".join(f"{each.name}: at most {count(max(each.rates, default=0))} per second" for each in lines)
    return drawing(
        WIDTH,
        top + height + 46 + legend_height,
        "Throughput over time",
        f"Deliveries per second in slices of {duration(slice_ns)}. {peak}.",
        *(join(tag("line", x1=left, y1=y(each), x2=WIDTH - right, y2=y(each), class_="grid"),
               label(left - 8, y(each) + 4, count(each), "tick", "end")) for each in marks),
        *(label(x(each / slice_ns), top + height + 18, duration(each), "tick", "middle") for each in times),
        *(_curve(each, place, x, y) for place, each in enumerate(lines)),
        legend,
        name=name,
    )  # fmt: skip


def _curve(line: RateSeries, place: int, x: Scale, y: Scale) -> Markup:
    points = " ".join(f"{number(x(slot + 0.5))},{number(y(rate))}" for slot, rate in enumerate(line.rates))
    words = tag("title", f"{line.name}: at most {count(max(line.rates, default=0))} deliveries per second")
    kind = f"s{place % SERIES}"
    if len(line.rates) == 1:
        return tag("circle", words, cx=x(0.5), cy=y(line.rates[0]), r=4.0, class_=f"dot {kind}")
    return tag("polyline", words, points=points, class_=f"curve {kind}")


def _legend(names: Sequence[str], top: float) -> tuple[Markup, float]:
    x, y = 64.0, top
    parts = []
    for place, each in enumerate(names):
        shown = shortened(each, 300)
        wide = 52 + drawn_width(shown)
        if x + wide > WIDTH and x > 64:
            x, y = 64.0, y + 20
        points = f"{number(x)},{number(y - 4)} {number(x + 26)},{number(y - 4)}"
        parts.append(tag("polyline", points=points, class_=f"curve s{place % SERIES}"))
        parts.append(label(x + 32, y, shown, "name", title=each))
        x += wide
    return join(*parts), y - top + 12


def bar_chart(
    bars: Sequence[Bar], name: str, title: str, description: str, *, whole: bool = False, labelled: bool = False
) -> Markup:
    """Horizontal bars with parts. `whole`: every bar has the full length; `labelled`: names stand in the parts."""
    left, right, row = _LABELS, _FIGURES, 34.0
    longest = max((sum(part.value for part in bar.parts) for bar in bars), default=0.0)
    drawn = []
    for place, bar in enumerate(bars):
        full = sum(part.value for part in bar.parts)
        x = Scale(0, (full if whole else longest) or 1.0, left, WIDTH - right)
        top = 6 + place * row
        drawn.append(label(left - 14, top + 17, shortened(bar.name, left - 20), "name", "end", bar.name))
        so_far = 0.0
        for number_, part in enumerate(bar.parts):
            start, end = x(so_far), x(so_far + part.value)
            so_far += part.value
            drawn.append(_bar_part(part, number_, start, end, top, labelled))
        drawn.append(label(WIDTH - right + 14, top + 17, bar.figures, "figures"))
    words = "; ".join(f"{bar.name}: {', '.join(part.words for part in bar.parts)}" for bar in bars)
    return drawing(WIDTH, 12 + len(bars) * row, title, f"{description} {words}.", *drawn, name=name)


def _bar_part(part: Part, place: int, start: float, end: float, top: float, labelled: bool) -> Markup:
    wide = max(0.0, end - start - 1.5) if part.value else 0.0
    kind = f"s{place % SERIES}"
    box = tag("rect", tag("title", part.words), x=start, y=top, width=wide, height=24.0, rx=2.0, class_=kind)
    words = next((each for each in (part.words, part.name) if drawn_width(each) <= wide - 8), "")
    if not labelled or not words:
        return box
    return join(box, label((start + end) / 2, top + 16, words, f"inside {kind}", "middle"))
