"""`isthmus bench [NAME]`: benchmarks; each prints ratios measured side by side in one run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from isthmus.cli.bench import acknowledged as bench_acknowledged
from isthmus.cli.bench import audit as bench_audit
from isthmus.cli.bench import daisies as bench_daisies
from isthmus.cli.bench import hierarchies as bench_hierarchies
from isthmus.cli.bench import source as bench_source
from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    Output,
    OutputOption,
    err,
    out,
    print_json,
    progress_bar,
    table,
    tracked,
)
from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.lab.benchmarks import core, daisies, kills, memory, mutants, wan
from isthmus.lab.mutants.catalogue import CATALOGUE
from isthmus.runtime.loop import run as run_loop


class Name(StrEnum):
    CORE = "core"
    MEMORY = "memory"
    MUTANTS = "mutants"
    WAN = "wan"
    KILLS = "kills"
    AUDIT = "audit"
    SOURCE = "source"
    HIERARCHIES = "hierarchies"
    DAISIES = "daisies"
    ACKNOWLEDGED = "acknowledged"


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    name: Annotated[Name | None, typer.Argument(help="Which one; all of them without a name.")] = None,
    deliveries: Annotated[int, typer.Option(help="memory: how many deliveries.", min=1000)] = 5_000_000,
    seeds: Annotated[
        int, typer.Option(help="mutants: seeds after which one has got away.", min=1)
    ] = mutants.SEED_LIMIT,
    rounds: Annotated[int, typer.Option(help="kills: how many of each kind.", min=1)] = 20,
    audit_deliveries: Annotated[int, typer.Option(help="audit: how many deliveries.", min=10_000)] = 10_000_000,
    audit_case: Annotated[str, typer.Option(help="audit: only the case of this name, or those with this in it.")] = "",
    rows: Annotated[int, typer.Option(help="source: how many rows.", min=10_000)] = 1_000_000,
    traces: Annotated[Path | None, typer.Option(help="hierarchies, acknowledged: keep the traces here.")] = None,
    runs: Annotated[int, typer.Option(help="daisies: runs with crashes, of each kind.", min=1)] = daisies.RUNS,
    pdus: Annotated[int, typer.Option(help="acknowledged: PDUs of the long run of TO and of PO.", min=0)] = 20_000,
    within: Annotated[float, typer.Option(help="acknowledged: seconds for each of them to send.", min=1)] = 1800,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Run benchmarks."""
    commands: dict[Name, Callable[[Output], tuple[Any, int]]] = {
        Name.CORE: _core,
        Name.MEMORY: lambda output: _memory(deliveries, output),
        Name.MUTANTS: lambda output: _mutants(seeds, output),
        Name.WAN: _wan,
        Name.KILLS: lambda output: _kills(rounds, output),
        Name.AUDIT: lambda output: bench_audit.bench(audit_deliveries, audit_case, output),
        Name.SOURCE: lambda output: bench_source.bench(rows, output),
        Name.HIERARCHIES: lambda output: bench_hierarchies.bench(traces, output),
        Name.DAISIES: lambda output: bench_daisies.bench(runs, output),
        Name.ACKNOWLEDGED: lambda output: bench_acknowledged.bench(pdus, within, traces, output),
    }
    results: dict[str, Any] = {}
    worst = HOLDS
    for each, command in commands.items():
        if name in (None, each):
            results[each.value], code = command(output)
            worst = max(worst, code)
    if output is Output.JSON:
        print_json(results)
    return worst


def _core(output: Output) -> tuple[Any, int]:
    figures = []
    title = f"causal broadcast, batches of {core.BATCH} messages of {len(core.PAYLOAD)} B, one OS process"
    listing = table(title, "where", "n", "deliveries/s", "µs per delivery", "plain loop/s", "share of plain")
    for figure in tracked(core.measure(), 10, "measuring"):
        figures.append(figure)
        listing.add_row(
            figure.where,
            str(figure.processes),
            f"{figure.deliveries_per_second:,.0f}",
            f"{figure.microseconds:.2f}",
            f"{figure.plain_per_second:,.0f}",
            f"{figure.ratio:.2f}",
        )
    if output is Output.HUMAN:
        out.print(listing)
        out.print("plain: the same frames, without ordering, acknowledgement, views or stability; not even decoded")
    return figures, HOLDS


def _memory(deliveries: int, output: Output) -> tuple[Any, int]:
    def show(sample: memory.Sample) -> None:
        err.print(
            f"{sample.deliveries:>12,} deliveries  {sample.seconds:6.1f} s  {sample.resident_mib:7.1f} MiB resident"
        )

    samples = memory.measure(deliveries, show)
    later = [sample.resident_mib for sample in samples[len(samples) // 4 :]]
    growth = later[-1] / later[0]
    if output is Output.HUMAN:
        out.print(
            f"resident size from a quarter of the run to its end: {later[0]:.1f} to {later[-1]:.1f} MiB "
            f"(× {growth:.3f}), highest {max(later):.1f} MiB"
        )
    return {"samples": samples, "growth": growth}, HOLDS


def _mutants(limit: int, output: Output) -> tuple[Any, int]:
    catches = list(tracked(mutants.hunt_all(limit), len(CATALOGUE), "hunting mutants"))
    if output is Output.HUMAN:
        listing = table("mutants of the protocols", "mutant", "order", "caught after seeds", "by", "mistake")
        for catch in catches:
            seeds = f"{catch.seeds:,}" if catch.seeds else "[red]got away[/red]"
            listing.add_row(catch.mutant, catch.order, seeds, catch.by, catch.mistake)
        out.print(listing)
    return catches, HOLDS if all(catch.seeds for catch in catches) else VIOLATED


def _wan(output: Output) -> tuple[Any, int]:
    figures = list(tracked(wan.measure(), wan.count(), "two sites over emulated lines"))
    alone = [figure for figure in figures if figure.latency is not None]
    compared = [figure for figure in figures if figure.share is not None and figure.links == wan.COMPARED]
    plain = figures[-1]
    if output is Output.HUMAN:
        out.print(_links_table(alone, figures))
        out.print(_shares_table(compared, figures))
        out.print(
            f"plain loopback, one join, one link, messages of {plain.size} B, causal, striped: "
            f"{plain.messages_per_second:,.0f} messages/s from end to end"
        )
        cores = " / ".join(f"{core:.2f}" for core in plain.cores[:2])
        out.print(f"  (cores taken by the near and the far site: {cores}; neither waits for a line)")
    speed_ups = {figure.links: wan.speed_up(figure, figures) for figure in alone}
    return {"line": str(wan.LINE), "figures": figures, "speed_up": speed_ups}, HOLDS


def _kills(rounds: int, output: Output) -> tuple[Any, int]:
    with tempfile.TemporaryDirectory(prefix="isthmus-kills-") as directory, progress_bar() as progress:
        task = progress.add_task("killing", total=rounds * len(kills.VICTIMS))
        outcomes = run_loop(kills.measure(Path(directory), rounds, lambda: progress.advance(task)))
    if output is Output.HUMAN:
        out.print(_kills_table(outcomes))
        for violation in [each for outcome in outcomes for each in outcome.report.violations][:5]:
            out.print(f"  {violation.why}", markup=False)
    figures = [
        {"victim": each.victim, "messages": each.messages, "kills": each.kills, "verdicts": each.report.verdicts}
        for each in outcomes
    ]
    return figures, VIOLATED if any(outcome.report.violated for outcome in outcomes) else HOLDS


def _kills_table(outcomes: list[kills.Outcome]) -> Table:
    columns = (
        "killed",
        "times",
        "noticed after",
        "flowing again after",
        "of that, since noticed",
        "messages",
        "verdicts",
    )
    listing = table("kill -9 under load, two sites, both ways; median and worst", *columns)
    for outcome in outcomes:
        verdicts = {verdict.verdict for verdict in outcome.report.verdicts}
        listing.add_row(
            outcome.victim,
            str(len(outcome.kills)),
            _median_and_worst([kill.noticed for kill in outcome.kills]),
            _median_and_worst([kill.flowing for kill in outcome.kills]),
            _median_and_worst([kill.recovery for kill in outcome.kills]),
            f"{outcome.messages:,}",
            "[green]all hold[/green]" if verdicts == {"holds"} else f"[red]{', '.join(sorted(verdicts))}[/red]",
        )
    return listing


def _median_and_worst(times: list[Nanos]) -> str:
    return f"{median(times) / SECOND:.2f} s, {max(times) / SECOND:.2f} s"


def _links_table(alone: list[wan.Figure], figures: list[wan.Figure]) -> Table:
    title = f"two sites, causal, striped, one sender, messages of {wan.SIZE} B; {wan.LINE}"
    columns = ("links", "messages/s", "speed-up", "share of raw", "p50 at 1/4", "p99 at 1/4", "one way", "MB per link")
    listing = table(title, *columns, "cores near/far/lines")
    for figure in alone:
        assert figure.latency is not None and figure.share is not None
        listing.add_row(
            str(figure.links),
            f"{figure.messages_per_second:,.0f}",
            f"{wan.speed_up(figure, figures):.2f} ×",
            f"{figure.share:.1%}",
            f"{figure.latency.p50:.1f} ms",
            f"{figure.latency.p99:.1f} ms",
            f"{wan.LINE.delay / MILLISECOND:g} ms",
            _megabytes(figure),
            " / ".join(f"{core:.2f}" for core in figure.cores),
        )
    return listing


def _shares_table(compared: list[wan.Figure], figures: list[wan.Figure]) -> Table:
    title = f"how messages are shared among {wan.COMPARED} links"
    listing = table(title, "share", "senders", "messages/s", "over one link", "share of raw", "MB per link")
    for figure in sorted(compared, key=lambda each: (each.senders, each.assign)):
        assert figure.share is not None
        listing.add_row(
            figure.assign,
            str(figure.senders),
            f"{figure.messages_per_second:,.0f}",
            f"{wan.speed_up(figure, figures):.2f} ×",
            f"{figure.share:.1%}",
            _megabytes(figure),
        )
    return listing


def _megabytes(figure: wan.Figure) -> str:
    return " ".join(f"{size / 1e6:.1f}" for size in figure.bytes_per_link.values())
