"""`isthmus bench soak`: the long simulated campaign over the examples, for as long as there is time.

Prints one row per topology: seeds, violations, and the rare cases; then the command that replays each failure.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, table

if TYPE_CHECKING:
    from isthmus.lab.soak import Tally

SAY_EVERY = 20.0
"""Seconds between two words on how it goes."""


def bench(
    examples: Annotated[Path, typer.Option(help="The directory of the examples.", metavar="DIR")] = Path("examples"),
    seed: Annotated[int, typer.Option(help="The first seed of every topology.", min=0)] = 1,
    runs: Annotated[int, typer.Option(help="Runs in all, shared evenly among the topologies.", min=1)] = 10_000,
    minutes: Annotated[float | None, typer.Option(help="Begin nothing new after this long.", min=0)] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 is one per core.", min=0)] = 0,
    only: Annotated[str | None, typer.Option(help="Topologies, by name, separated by commas.", metavar="LIST")] = None,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Simulate many seeds of every example, by turns. Exit code 1: a promise was broken."""
    from isthmus.lab.soak import soak, sources

    if not examples.is_dir():
        fail(f"--examples {examples}: there is no such directory; give that of a clone, or run this at its root")
    files = sources(examples)
    if only is not None:
        names = {Path(file).stem for _, file in files}
        unknown = sorted(set(only.split(",")) - names)
        if unknown:
            fail(f"--only {only}: there is no {unknown[0]!r}; the campaign has {', '.join(sorted(names))}")
        files = [source for source in files if Path(source[1]).stem in only.split(",")]
    began = said = time.monotonic()
    tallies: list[Tally] = []
    for tallies in soak(files, seed, runs, jobs or os.cpu_count() or 1, None if minutes is None else 60 * minutes):
        if time.monotonic() > said + SAY_EVERY:
            said = time.monotonic()
            failed = [f"{tally.name} {outcome.seed}" for tally in tallies for outcome in tally.failures]
            which = f": {', '.join(failed[:8])}" if failed else ""
            done = sum(tally.runs for tally in tallies)
            err.print(f"{said - began:6.0f} s  {done:,} runs, {len(failed)} violations{which}")
    done = sum(tally.runs for tally in tallies)
    violations = sum(len(tally.failures) for tally in tallies)
    if output is Output.HUMAN:
        _print(tallies)
        verdict = f"{violations} of {done:,} runs violate a promise" if violations else f"no violation in {done:,} runs"
        cut_short = f" of {runs:,} asked for" if done < runs else ""
        out.print(f"{verdict}{cut_short}, in {time.monotonic() - began:,.0f} s")
    figures = {"runs": done, "violations": violations, "topologies": [_figures(tally) for tally in tallies]}
    return figures, VIOLATED if violations else HOLDS


def _figures(tally: Tally) -> dict[str, Any]:
    return {
        "topology": tally.name,
        "runs": tally.runs,
        "deliveries": tally.deliveries,
        "outside": tally.outside,
        "failing_seeds": [outcome.seed for outcome in tally.failures],
        "sometimes": tally.sometimes,
        "never_reached": tally.never(),
    }


def _print(tallies: list[Tally]) -> None:
    from isthmus.simulator.checks.sometimes import CASES

    if not out.is_terminal:
        out.console.width = 160
    listing = table("campaign", "topology", "seeds", "violations", "left the model", "deliveries", "never reached")
    total: Counter[str] = Counter()
    for tally in tallies:
        total.update(tally.sometimes)
        counts = (tally.runs, len(tally.failures), tally.outside, tally.deliveries)
        listing.add_row(tally.name, *(f"{count:,}" for count in counts), ", ".join(tally.never()))
    out.print(listing)
    columns = [tally.name for tally in tallies]
    for start in range(0, len(columns), 6):
        reached = table("sometimes: how often the rare cases were reached", "case", *columns[start : start + 6])
        for case in CASES:
            row = [
                f"{tally.sometimes[case]:,}" if case in tally.expected or tally.sometimes[case] else ""
                for tally in tallies[start : start + 6]
            ]
            if total[case]:
                reached.add_row(case, *row)
        out.print(reached)
    for tally in tallies:
        for outcome in tally.failures[:5]:
            reasons = [violation.why for violation in outcome.report.violations[:2]]
            reasons += [reason for reason in (outcome.broken, outcome.stuck) if reason]
            out.print(f"{tally.name} seed {outcome.seed}: {'; '.join(reasons)}", markup=False)
            out.print(f"  replay: isthmus simulate {tally.file} --seed {outcome.seed} --trace DIR", markup=False)
