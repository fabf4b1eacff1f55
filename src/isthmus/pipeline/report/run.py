"""The figures of one run on the page: latency, throughput, hold-back, links, control information, processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from isthmus.core.units import bit_rate, count, duration, percent, size
from isthmus.drawing.svg import SERIES, Child, Markup, tag
from isthmus.pipeline.measure.rows import Figures, LinkRow, PairRow, WaitRow
from isthmus.pipeline.report.charts import (
    Bar,
    Distribution,
    Part,
    RateSeries,
    bar_chart,
    latency_chart,
    throughput_chart,
)

Item = TypeVar("Item")

_MOST_PAIRS = 12
_MOST_WAITS = 10
_MOST_LISTED = 100
"""Rows of a table. A row is some 250 bytes, and a page of six runs has to stay below two megabytes."""


def figures_section(figures: Figures, place: int, *, alone: bool) -> Markup:
    """All plots and tables of one run. `place` makes ids unique."""
    [run] = figures.runs
    name = f"run-{place}"
    lasted = None if run.first_ns is None or run.last_ns is None else run.last_ns - run.first_ns
    about = (
        f"{run.systems} systems, {run.processes} processes, {run.messages:,} messages, {run.deliveries:,} deliveries "
        f"in {duration(lasted)}."
    )
    heading = tag("h2", "Figures" if alone else f"Run {run.run}", class_="run")
    parts = (_latency, _throughput, _hold_back, _links, _control, _processes)
    return tag("section", heading, tag("p", about, class_="lead"), *(part(figures, name) for part in parts))


def pair_name(pair: PairRow) -> str:
    if pair.origin_system == pair.system:
        return f"within {pair.system}"
    return f"{pair.origin_system} → {pair.system}"


def _largest(pairs: Sequence[PairRow], most: int) -> list[PairRow]:
    """The pairs with most deliveries, in the order in which they came; those between systems first."""
    chosen = sorted(pairs, key=lambda each: -each.deliveries)[:most]
    return sorted(chosen, key=lambda each: (each.origin_system == each.system, each.origin_system, each.system))


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> Markup:
    """A table whose first columns are text and whose others are figures."""
    head = (tag("th", each, scope="col", class_=None if at < text else "figure") for at, each in enumerate(names))
    body = (
        tag("tr", *(tag("td", each, class_=None if at < text else "figure") for at, each in enumerate(row)))
        for row in rows
    )
    return tag("div", tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body)), class_="scroll")


def _block(title: str, lead: str, *children: Child) -> Markup:
    return tag("section", tag("h3", title), tag("p", lead, class_="lead"), *children, class_="block")


def _more(shown: int, there_are: int, what: str) -> str:
    return f" The {shown} largest of {there_are:,} {what} are drawn." if there_are > shown else ""


def _unlisted(there_are: int, what: str) -> str:
    return f" The {_MOST_LISTED} largest of {there_are:,} {what} are listed." if there_are > _MOST_LISTED else ""


# The parts ------------------------------------------------------------------------------------------------------------


def _latency(figures: Figures, name: str) -> Markup | None:
    pairs = [each for each in figures.pairs if each.timed]
    if not pairs:
        return None
    shown = min(len(pairs), _MOST_PAIRS)
    backwards = sum(each.clocks_disagree for each in figures.pairs)
    warning = (
        f" {backwards:,} deliveries seem to come before their send: clocks disagree, and these are left out."
        if backwards
        else ""
    )
    rows = [
        (
            pair_name(each), f"{each.timed:,}",
            *map(duration, (each.latency_min_ns, each.latency_p50_ns, each.latency_p90_ns, each.latency_p99_ns)),
            *map(duration, (each.latency_max_ns, each.latency_mean_ns)),
        )
        for each in _largest(pairs, _MOST_LISTED)
    ]  # fmt: skip
    return _block(
        "Latency",
        "From send to delivery, at every application process. The solid mark is the median, the dashed one the 99th "
        f"percentile.{_more(shown, len(pairs), 'pairs')}{_unlisted(len(pairs), 'pairs')}{warning}",
        tag("figure", latency_drawing(figures, f"{name}-latency")),
        _table(("from → to", "deliveries", "least", "p50", "p90", "p99", "most", "mean"), rows),
    )


def latency_drawing(figures: Figures, name: str) -> Markup | None:
    """The pairs with most deliveries; None where no delivery has a latency."""
    distributions = []
    for each in _largest([each for each in figures.pairs if each.timed], _MOST_PAIRS):
        key = (each.origin_system, each.system)
        bins = {row.bin: row.deliveries for row in figures.latencies if (row.origin_system, row.system) == key}
        distributions.append(Distribution(pair_name(each), bins, each.latency_p50_ns or 0, each.latency_p99_ns or 0))
    return latency_chart(distributions, name) if distributions else None


def throughput_drawing(figures: Figures, name: str) -> Markup | None:
    """Deliveries per second of the one run of these figures; None where there are none."""
    lines, _ = _rates(figures)
    [run] = figures.runs
    return None if run.slice_ns is None or not lines else throughput_chart(lines, run.slice_ns, name)


def _rates(figures: Figures) -> tuple[list[RateSeries], int]:
    """The largest series, and how many there are."""
    [run] = figures.runs
    if not figures.throughput or run.slice_ns is None or run.slices is None:
        return [], 0
    # More pairs than colours would be a tangle: then what each system delivers, from wherever it came.
    by_pair = len(figures.pairs) <= SERIES
    names = {(each.origin_system, each.system): pair_name(each) for each in _largest(figures.pairs, len(figures.pairs))}
    if not by_pair:
        names = {pair: f"at {pair[1]}" for pair in sorted(names)}
    series = {name: [0.0] * run.slices for name in names.values()}
    for row in figures.throughput:
        series[names[row.origin_system, row.system]][row.slice] += row.deliveries * 1e9 / run.slice_ns
    lines = [RateSeries(name, rates) for name, rates in sorted(series.items(), key=lambda each: -sum(each[1]))[:SERIES]]
    return [RateSeries(name, series[name]) for name in series if name in {each.name for each in lines}], len(series)


def _throughput(figures: Figures, name: str) -> Markup | None:
    drawn = throughput_drawing(figures, f"{name}-throughput")
    if drawn is None:
        return None
    lines, series = _rates(figures)
    [run] = figures.runs
    rows = [
        (
            pair_name(each), count(each.messages), count(each.deliveries), count(each.messages_per_second),
            count(each.deliveries_per_second), size(each.payload_bytes),
        )
        for each in _largest(figures.pairs, _MOST_LISTED)
    ]  # fmt: skip
    return _block(
        "Throughput",
        f"Deliveries per second, in slices of {duration(run.slice_ns)}. Rates in the table are from the first send of "
        f"a pair to its last delivery.{_more(len(lines), series, 'lines')}{_unlisted(len(figures.pairs), 'pairs')}",
        tag("figure", drawn),
        _table(("from → to", "messages", "deliveries", "messages/s", "deliveries/s", "payload delivered"), rows),
    )


def _hold_back(figures: Figures, name: str) -> Markup | None:
    held = [each for each in figures.pairs if each.held]
    awaited: dict[str, list[WaitRow]] = {}
    for each in figures.waits:
        if each.role == "app":
            awaited.setdefault(each.awaited or "not said", []).append(each)
    if not held and not awaited:
        return None
    longest = sorted(awaited, key=lambda one: -sum(row.waited_ns for row in awaited[one]))
    bars = []
    for one in longest[:_MOST_WAITS]:
        waits, total = sum(row.waits for row in awaited[one]), sum(row.waited_ns for row in awaited[one])
        parts = [Part("", float(total), f"{duration(total)} in {waits:,} waits")]
        bars.append(Bar(one, parts, f"{duration(total)}, {waits:,} ×"))
    unended = sum(row.unended for row in figures.waits)
    rows = [
        (
            pair_name(each), count(each.held), percent(each.held / each.deliveries),
            *map(duration, (each.held_p50_ns, each.held_p90_ns, each.held_p99_ns, each.held_max_ns)),
        )
        for each in _largest(held, _MOST_LISTED)
    ]  # fmt: skip
    rest = f" {unended:,} waits have no end in the trace." if unended else ""
    rest += _unlisted(len(held), "pairs")
    return _block(
        "Hold-back",
        "How long messages that had arrived waited for their turn at application processes, and for whom, all waits "
        f"added up.{_more(min(_MOST_WAITS, len(bars)), len(longest), 'awaited processes')}{rest}",
        tag(
            "figure",
            bar_chart(bars, f"{name}-waits", "What was waited for", "Total time of waiting per awaited process."),
        )
        if bars
        else None,
        _table(("from → to", "held", "of deliveries", "p50", "p90", "p99", "most"), rows) if held else None,
    )


def _with_most(items: Sequence[Item], size_of: Callable[[Item], float], most: int) -> list[Item]:
    """Those with most of something, in the order in which they came."""
    chosen = sorted(range(len(items)), key=lambda at: -size_of(items[at]))[:most]
    return [items[at] for at in sorted(chosen)]


def _bytes_of(link: LinkRow) -> int:
    return link.payload_bytes + link.control_bytes


def _direction(link: LinkRow) -> str:
    return f"{link.from_system} → {link.to_system or '?'}"


def _links(figures: Figures, name: str) -> Markup | None:
    if not figures.links:
        return None
    directions: dict[str, list[LinkRow]] = {}
    for each in figures.links:
        directions.setdefault(_direction(each), []).append(each)
    bars = []
    drawn = _with_most(list(directions.items()), lambda each: sum(map(_bytes_of, each[1])), _MOST_PAIRS)
    for direction, links in drawn:
        total = sum(map(_bytes_of, links))
        parts = [
            Part(each.link, float(_bytes_of(each)), f"{each.link} {percent(each.share)}")
            for each in _with_most(links, _bytes_of, _MOST_PAIRS)
        ]
        bars.append(Bar(direction, parts, f"{size(total)} on {len(links)} {'link' if len(links) == 1 else 'links'}"))
    rated = any(each.utilisation is not None for each in figures.links)
    rows = [
        (
            _direction(each), each.link, count(each.transfers), count(each.accepted), size(each.payload_bytes),
            size(each.control_bytes), percent(each.share), bit_rate(each.bytes_per_second),
            bit_rate(each.peak_bytes_per_second), percent(each.busy), *([percent(each.utilisation)] if rated else []),
        )
        for each in _with_most(figures.links, _bytes_of, _MOST_LISTED)
    ]  # fmt: skip
    names = ["direction", "link", "on", "off", "payload", "control", "share", "mean rate", "peak rate", "busy"]
    return _block(
        "Links",
        "How the traffic between two systems is shared among their links. On and off: messages that gateways put onto "
        "the link and took off it. Busy: the share of time slices in which anything went."
        + ("" if rated else " What a link can carry is not in a trace; `--link-rate` adds its utilisation.")
        + f"{_more(len(drawn), len(directions), 'directions')}{_unlisted(len(figures.links), 'links')}",
        tag(
            "figure", bar_chart(bars, f"{name}-links", "Shares of links", "Bytes per link.", whole=True, labelled=True)
        ),
        _table([*names, "utilisation"] if rated else names, rows, text=2),
    )


def _control(figures: Figures, name: str) -> Markup | None:
    pairs = [each for each in figures.pairs if each.payload_bytes or each.control_bytes]
    if not pairs:
        return None
    bars = []
    for each in _largest(pairs, _MOST_PAIRS):
        payload, control = each.payload_bytes / each.deliveries, each.control_bytes / each.deliveries
        parts = [
            Part("payload", payload, f"payload {size(payload)}"),
            Part("control", control, f"control {size(control)}"),
        ]
        extra = percent(control / payload) if payload else "all"
        bars.append(Bar(pair_name(each), parts, f"{size(control)} control, {extra}"))
    return _block(
        "Control overhead",
        "Bytes of an average delivery: its payload, and the ordering information that came with it, also as a share of "
        "the payload.",
        tag("figure", bar_chart(bars, f"{name}-control", "Control overhead", "Bytes per delivery.", labelled=True)),
    )


def _processes(figures: Figures, name: str) -> Markup:
    busiest = _with_most(
        figures.processes,
        lambda each: each.sent + each.delivered + each.transferred + each.accepted,
        _MOST_LISTED,
    )
    rows = [
        (
            f"{each.system}/{each.process}", each.role, count(each.sent), count(each.delivered), count(each.held),
            count(each.stable), count(each.transferred), count(each.accepted), size(each.delivered_bytes),
        )
        for each in busiest
    ]  # fmt: skip
    names = ("process", "role", "sent", "delivered", "held", "stable", "onto links", "off links", "payload delivered")
    shown = _unlisted(len(figures.processes), "processes")
    return _block("Processes", f"How many messages each process handled.{shown}", _table(names, rows, text=2))
