"""`isthmus bench [NAME]`: benchmarks; each prints ratios measured side by side in one run."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from isthmus.benchmarks import core, memory, mutants
from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, out, print_json, table, tracked
from isthmus.simulator.mutants import CATALOGUE


class Name(StrEnum):
    CORE = "core"
    MEMORY = "memory"
    MUTANTS = "mutants"


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    name: Annotated[Name | None, typer.Argument(help="Which one; all of them without a name.")] = None,
    deliveries: Annotated[int, typer.Option(help="memory: how many deliveries.", min=1000)] = 5_000_000,
    seeds: Annotated[
        int, typer.Option(help="mutants: seeds after which one has got away.", min=1)
    ] = mutants.SEED_LIMIT,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Run benchmarks."""
    commands: dict[Name, Callable[[Output], tuple[Any, int]]] = {
        Name.CORE: _core,
        Name.MEMORY: lambda output: _memory(deliveries, output),
        Name.MUTANTS: lambda output: _mutants(seeds, output),
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
