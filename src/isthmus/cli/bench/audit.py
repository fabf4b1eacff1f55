"""`isthmus bench audit`: what the audit costs beside reading and sorting the same table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, err, fail, out, table


def bench(
    deliveries: Annotated[int, typer.Option(help="How many deliveries.", min=10_000)] = 10_000_000,
    case: Annotated[str, typer.Option(help="Only the case of this name, or those with this in it.")] = "",
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """What the audit of all five properties costs beside reading and sorting the same table."""
    from isthmus.lab.benchmarks import audit

    listing = table(
        "all five properties beside reading and sorting the same table",
        *("trace", "deliveries", "ingest s", "sort s", "audit s", "ingest/sort", "audit/sort", "µs", "MiB", "worker"),
        *("busy", "load", "work"),
    )
    figures = []
    if not audit.chosen_cases(deliveries, case):
        names = ", ".join(f"'{each.name}'" for each in audit.cases(deliveries))
        fail(f"--case {case}: there is no such case; known are {names}")
    for figure in audit.measure(deliveries, only=case):
        figures.append(figure)
        listing.add_row(
            figure.name,
            f"{figure.deliveries:,}",
            f"{figure.ingest_seconds:.1f}",
            f"{figure.sort_seconds:.1f}",
            f"{figure.audit_seconds:.1f}",
            f"{figure.ingest_ratio:.2f}",
            f"{figure.ratio:.2f}",
            f"{figure.microseconds:.2f}",
            f"{figure.peak_mib:,.0f}",
            f"{figure.worker_mib:,.0f}",
            f"{figure.busy:.1f}",
            f"{figure.load:.1f}",
            " ".join(f"{ratio:.2f}" for ratio in figure.processor_ratios),
        )
        err.print(
            f"{figure.name}: ingest {figure.ingest_seconds:.1f} s, read and sort {figure.sort_seconds:.1f} s, "
            f"audit {figure.audit_seconds:.1f} s"
        )
    if output is Output.HUMAN:
        out.print(listing)
        out.print("µs: audit per delivery; MiB: most memory of Java and Python together during the audit")
        out.print("worker: MiB of the largest Python worker; busy: cores at work in the audit; load: of the machine")
        out.print("work: ingest and audit over reading and sorting, in processor time of Java and Python")
        by_name = {figure.name: figure for figure in figures}
        if {"one run", "one run, a tenth"} <= by_name.keys():
            growth = by_name["one run"].microseconds / by_name["one run, a tenth"].microseconds
            out.print(f"cost per delivery, the whole over a tenth of it: {growth:.2f}")
    return figures, HOLDS
