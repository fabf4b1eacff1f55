"""`isthmus bench scale`: thousands of simulated processes, beside what the planner forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, table

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.scale import Figure


def bench(
    only: Annotated[str, typer.Option(help="Scenarios, with commas between them; all without it.")] = "",
    processes: Annotated[int | None, typer.Option(help="Processes of each scenario.", min=4, max=60_000)] = None,
    systems: Annotated[int | None, typer.Option(help="Into how many systems the joined ones go.", min=1)] = None,
    seconds: Annotated[float, typer.Option(help="How long they send, in virtual time.", min=0.1)] = 30.0,
    burst: Annotated[int, typer.Option(help="Processes send one to so many messages at a time.", min=1)] = 1,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Large systems in the simulator. Exit code 1: a promise was not kept."""
    from isthmus.lab.benchmarks import scale

    every = scale.scenarios(processes, systems, seconds, burst)
    wanted = [name.strip() for name in only.split(",") if name.strip()] or [each.name for each in every]
    for name in wanted:
        if name not in [each.name for each in every]:
            fail(f"--only {name}: there is no such scenario; there are {', '.join(each.name for each in every)}")
    figures = []
    for scenario in (each for each in every if each.name in wanted):
        if scenario.size < 2:
            fail(f"{scenario.name}: {scenario.processes} processes are too few for {scenario.parts} parts")
        figures.append(scale.measure(scenario))
        if output is Output.HUMAN:
            _print(figures[-1])
    return figures, VIOLATED if any(figure.violations for figure in figures) else HOLDS


def _print(figure: Figure) -> None:
    scenario = figure.scenario
    title = f"{scenario.name}: {scenario.parts} × {scenario.size} processes, {scenario.seconds:g} virtual seconds"
    listing = table(title, "", "simulated", "forecast")
    for value in figure.values:
        listing.add_row(
            value.what, f"{value.simulated:,.1f}", "–" if value.forecast is None else f"{value.forecast:,.1f}"
        )
    out.print(listing)
    per_delivery = 1e6 * figure.cpu_seconds / max(1, figure.deliveries)
    out.print(
        f"{figure.messages:,} messages, {figure.deliveries:,} deliveries, {figure.steps:,} steps; "
        f"{figure.cpu_seconds:.1f} s of processor time ({per_delivery:.1f} µs per delivery), "
        f"{figure.build_cpu_seconds:.1f} s to build and {figure.judge_cpu_seconds:.1f} s to judge; "
        f"{figure.wall_seconds:.1f} s in all, at most {figure.resident_mib:,.0f} MiB, load {figure.load:.1f}"
    )
    out.print(figure.checked)
    for violation in figure.violations:
        out.print(f"violated: {violation}", markup=False)
