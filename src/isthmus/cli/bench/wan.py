"""`isthmus bench wan`: two sites over emulated lines, by number of links and by the way to share messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.cli.console import HOLDS, Output, OutputOption, out, table, tracked
from isthmus.core.ids import MILLISECOND

if TYPE_CHECKING:
    from rich.table import Table

    from isthmus.lab.benchmarks.wan import Disturbed, Figure, LoadedLatency


def bench(output: OutputOption = Output.HUMAN) -> tuple[Any, int]:
    """What parallel links carry between two sites over emulated lines, beside one link and beside the lines' rate."""
    from isthmus.lab.benchmarks import wan
    from isthmus.runtime.loop import run

    figures = list(tracked(wan.measure(), wan.count(), "two sites over emulated lines"))
    alone = [figure for figure in figures if figure.latency is not None]
    compared = [figure for figure in figures if figure.share is not None and figure.links == wan.COMPARED]
    plain = figures[-1]
    disturbed = run(wan.disturbed())
    loaded = [*run(wan.latencies(wan.LINE)), *run(wan.latencies(wan.FAST_LINE, (0.5,)))]
    if output is Output.HUMAN:
        out.print(_links_table(alone, figures))
        out.print(_loads_table(loaded))
        out.print(_disturbed_table(disturbed))
        out.print(_shares_table(compared, figures))
        out.print(
            f"plain loopback, one join, one link, messages of {plain.size} B, causal, striped: "
            f"{plain.messages_per_second:,.0f} messages/s from end to end"
        )
        cores = " / ".join(f"{core:.2f}" for core in plain.cores[:2])
        out.print(f"  (cores taken by the near and the far site: {cores}; neither waits for a line)")
    speed_ups = {figure.links: wan.speed_up(figure, figures) for figure in alone}
    return {
        "line": str(wan.LINE),
        "figures": figures,
        "speed_up": speed_ups,
        "latencies": loaded,
        "disturbed": disturbed,
    }, HOLDS


def _links_table(alone: list[Figure], figures: list[Figure]) -> Table:
    from isthmus.lab.benchmarks.wan import LINE, SIZE, speed_up

    title = f"two sites, causal, striped, one sender, messages of {SIZE} B; {LINE}"
    columns = ("links", "messages/s", "speed-up", "share of raw", "p50 at 1/4", "p99 at 1/4", "one way", "MB per link")
    listing = table(title, *columns, "cores near/far/lines")
    for figure in alone:
        assert figure.latency is not None and figure.share is not None
        listing.add_row(
            str(figure.links),
            f"{figure.messages_per_second:,.0f}",
            f"{speed_up(figure, figures):.2f} ×",
            f"{figure.share:.1%}",
            f"{figure.latency.p50:.1f} ms",
            f"{figure.latency.p99:.1f} ms",
            f"{LINE.delay / MILLISECOND:g} ms",
            _megabytes(figure),
            " / ".join(f"{core:.2f}" for core in figure.cores),
        )
    return listing


def _loads_table(loaded: list[LoadedLatency]) -> Table:
    from isthmus.lab.benchmarks.wan import MOST_LINKS

    listing = table(f"{MOST_LINKS} links, striped: from send to delivery", "line", "load", "messages/s", "p50", "p99")
    for each in loaded:
        latency = each.latency
        rate, p50, p99 = f"{latency.messages_per_second:,.0f}", f"{latency.p50:.1f} ms", f"{latency.p99:.1f} ms"
        listing.add_row(each.line, f"{each.load:.0%}", rate, p50, p99)
    return listing


def _disturbed_table(disturbed: list[Disturbed]) -> Table:
    from isthmus.lab.benchmarks.wan import MOST_LINKS

    title = f"{MOST_LINKS} links, striped, full load, and something ails one line: shares of what it was before"
    listing = table(title, "that line", "the others carry", "it carries", "delivered")
    for each in disturbed:
        listing.add_row(each.what, f"{each.others:.1%}", f"{each.line:.1%}", f"{each.delivered:.1%}")
    return listing


def _shares_table(compared: list[Figure], figures: list[Figure]) -> Table:
    from isthmus.lab.benchmarks.wan import COMPARED, speed_up

    title = f"how messages are shared among {COMPARED} links"
    listing = table(title, "share", "senders", "messages/s", "over one link", "share of raw", "MB per link")
    for figure in sorted(compared, key=lambda each: (each.senders, each.assign)):
        assert figure.share is not None
        listing.add_row(
            figure.assign,
            str(figure.senders),
            f"{figure.messages_per_second:,.0f}",
            f"{speed_up(figure, figures):.2f} ×",
            f"{figure.share:.1%}",
            _megabytes(figure),
        )
    return listing


def _megabytes(figure: Figure) -> str:
    return " ".join(f"{size / 1e6:.1f}" for size in figure.bytes_per_link.values())
