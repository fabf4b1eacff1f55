"""`isthmus measure TRACE…`: the figures of traces, on the terminal and as Parquet. Spark comes in only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, err, fail, out, print_json
from isthmus.cli.console import table as listing_of
from isthmus.cli.spark import (
    ConfOption,
    LinkRateOption,
    MapOption,
    MasterOption,
    MemoryOption,
    RunOption,
    ScratchOption,
    TableOption,
    TracesOrNone,
    Way,
    link_rate,
    shown_progress,
    traces_to_read,
    way_to_spark,
)
from isthmus.trace.places import Place, place
from isthmus.trace.schema import printable

if TYPE_CHECKING:
    from isthmus.pipeline.mapping import Traces
    from isthmus.pipeline.measure.rows import Figures

_MOST_ROWS = 40
"""Of a table on the terminal."""


def measure(
    traces: TracesOrNone = None,
    to: Annotated[
        str | None, typer.Option(help="Write all tables as Parquet into this directory.", metavar="DIR")
    ] = None,
    rate: LinkRateOption = None,
    master: MasterOption = None,
    scratch: ScratchOption = None,
    memory: MemoryOption = None,
    conf: ConfOption = None,
    run: RunOption = None,
    table: TableOption = None,
    mapping: MapOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Measure traces with Spark: latency, throughput, hold-back, links, overhead, processes."""
    way = way_to_spark(master, memory, conf)
    figures = _figures(traces_to_read(traces, table, mapping), to, link_rate(rate), way, scratch, run)
    if output is Output.JSON:
        print_json(figures)
    else:
        show(figures)
        if to is not None:
            out.print(printable(f"all tables as Parquet: {to}"), markup=False)
    return HOLDS


def _figures(
    traces: Traces,
    to: str | None,
    bits_per_second: float | None,
    way: Way,
    scratch: str | None,
    run: str | None,
) -> Figures:
    from isthmus.pipeline.session import require_packages

    require_packages()
    from isthmus.pipeline.ingest import session_for
    from isthmus.pipeline.measure import measured
    from isthmus.pipeline.places import require_writable, use_scratch
    from isthmus.pipeline.report import clean_table

    target = None if to is None else place(to)
    if isinstance(target, Path):
        _refuse_what_is_there(target)
    with shown_progress():
        spark = session_for(traces, *way)
        use_scratch(spark, scratch)
        if target is not None:
            _refuse_what_is_there(target)
            require_writable(spark, target, "the tables")
        with (
            clean_table(spark, traces, run) as clean,
            measured(spark, clean.rows(spark), bits_per_second=bits_per_second) as tables,
        ):
            if target is not None:
                tables.write(target)
            return tables.figures()


def _refuse_what_is_there(target: Place) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        fail(f"{target}: is there already and not an empty directory; choose another for the tables")


def show(figures: Figures) -> None:
    """The figures for people: what fits a terminal of 80 columns. All of them are in `-o json` and in Parquet."""
    from isthmus.core.units import bit_rate, count, duration, percent, size

    _print(
        "latency, throughput, hold-back",
        ("from → to", "deliveries", "p50", "p99", "most", "per s", "held p99", "control"),
        [
            (
                each.run, f"{each.origin_system} → {each.system}", count(each.deliveries),
                *map(duration, (each.latency_p50_ns, each.latency_p99_ns, each.latency_max_ns)),
                count(each.deliveries_per_second), duration(each.held_p99_ns),
                size(each.control_bytes / each.deliveries),
            )
            for each in figures.pairs
        ],
    )  # fmt: skip
    _print(
        "what was waited for",
        ("at, by", "awaited", "waits", "total", "p50", "p99", "most"),
        [
            (
                each.run, f"{each.system}, {each.role}", each.awaited or "–", count(each.waits),
                *map(duration, (each.waited_ns, each.waited_p50_ns, each.waited_p99_ns, each.waited_max_ns)),
            )
            for each in sorted(figures.waits, key=lambda row: (row.run, -row.waited_ns))
        ],
    )  # fmt: skip
    _print(
        "links",
        ("direction", "link", "on", "off", "bytes", "share", "mean", "peak", "used"),
        [
            (
                each.run, f"{each.from_system} → {each.to_system or '?'}", each.link, count(each.transfers),
                count(each.accepted), size(each.payload_bytes + each.control_bytes), percent(each.share),
                bit_rate(each.bytes_per_second), bit_rate(each.peak_bytes_per_second), percent(each.utilisation),
            )
            for each in figures.links
        ],
    )  # fmt: skip
    _print(
        "messages handled",
        ("process", "role", "sent", "delivered", "held", "onto links", "off links"),
        [
            (
                each.run, f"{each.system}/{each.process}", each.role, count(each.sent), count(each.delivered),
                count(each.held), count(each.transferred), count(each.accepted),
            )
            for each in figures.processes
        ],
    )  # fmt: skip


def _print(title: str, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table. Rows begin with their run, which is shown where there are several. Names from files are text only."""
    if not rows:
        return
    from rich.text import Text

    several = len({row[0] for row in rows}) > 1
    listing = listing_of(title, *(("run", *names) if several else names))
    for row in rows[:_MOST_ROWS]:
        listing.add_row(*(Text(printable(cell)) for cell in row[0 if several else 1 :]))
    out.print(listing)
    if len(rows) > _MOST_ROWS:
        err.print(f"{len(rows) - _MOST_ROWS:,} more: -o json, or --to DIR")
