"""`isthmus bench memory`: whether memory grows in a long run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, err, out

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.memory import Sample


def bench(
    deliveries: Annotated[int, typer.Option(help="How many deliveries.", min=1000)] = 5_000_000,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """The resident size of a process over a long run of causal broadcast."""
    from isthmus.lab.benchmarks import memory

    def show(sample: Sample) -> None:
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
