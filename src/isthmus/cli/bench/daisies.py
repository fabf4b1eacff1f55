"""`isthmus bench daisies`: the options of a daisy side by side, with what each saves and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, out, progress_bar, table
from isthmus.core.ids import MILLISECOND

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.daisies import Option

PROMISED = {"plain": 2, "1 on receipt": 2, "2 recipients, k = 1": 1, "2 recipients, k = 2": 2, "3 star": 2}
"""Crashes at once in a group of five that an option has to survive."""


def bench(
    runs: Annotated[int, typer.Option(help="Runs with crashes, of each kind.", min=1)] = 40,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Compare the options of a daisy. Exit code 1: one broke a promise after crashes that it has to survive."""
    from isthmus.lab.benchmarks import daisies

    with progress_bar() as progress:
        task = progress.add_task("crashes at once", total=runs * len(daisies.OPTIONS) * len(daisies.AT_ONCE))
        found = daisies.measure(runs, lambda: progress.advance(task))
    if output is Output.HUMAN:
        _print(found)
    broken = any(trial.broken and trial.at_once <= PROMISED[option.name] for option in found for trial in option.trials)
    return found, VIOLATED if broken else HOLDS


def _print(found: list[Option]) -> None:
    from isthmus.lab.benchmarks import daisies

    title = f"one message in {daisies.GROUPS} groups of {daisies.SIZE}, until everybody has it and knows that it may"
    listing = table(title, "option", "to", "bytes of headers", "copies", "all words", "delay")
    for option in found:
        for where, cost in (("its own group", option.inside), ("another group", option.across)):
            counts = (str(cost.header), str(cost.copies), str(cost.words), f"{cost.delay // MILLISECOND} ms")
            listing.add_row(option.name, where, *counts)
        listing.add_row(option.name, "another, late cause", "", "", "", f"{option.late // MILLISECOND} ms")
    out.print(listing)
    title = f"runs with a promise broken, of {found[0].trials[0].runs} with so many crashes at once in one group"
    listing = table(title, "option", *(str(count) for count in daisies.AT_ONCE), "promised")
    for option in found:
        listing.add_row(option.name, *(str(trial.broken) for trial in option.trials), str(PROMISED[option.name]))
    out.print(listing)
    for option in found:
        for trial in option.trials:
            if trial.broken:
                out.print(f"  {option.name}, {trial.at_once} at once: {trial.why}", markup=False)
