"""`isthmus bench soak`: the long explorations, then the long simulated campaign, for as long as there is time.

Prints one row per topology: seeds, faults by kind, failures by known cause and others, and the rare cases; then the
command that replays each failure that no entry of the list explains. Before that,
one row per exploration: states, and whether they are as many as they should be.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, HolesOption, Output, OutputOption, err, fail, out, table

if TYPE_CHECKING:
    from isthmus.lab.explorations import Explored
    from isthmus.lab.soak import SoakTally

SAY_EVERY = 20.0
"""Seconds between two words on how it goes."""


def bench(
    examples: Annotated[Path, typer.Option(help="The directory of the examples.", metavar="DIR")] = Path("examples"),
    seed: Annotated[int, typer.Option(help="The first seed of every topology.", min=0)] = 1,
    runs: Annotated[int, typer.Option(help="Runs in all, shared evenly among the topologies.", min=1)] = 10_000,
    minutes: Annotated[float | None, typer.Option(help="Begin nothing new after this long.", min=0)] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 is one per core.", min=0)] = 0,
    only: Annotated[str | None, typer.Option(help="Topologies, by name, separated by commas.", metavar="LIST")] = None,
    known_holes: HolesOption = Path("tests/known-holes.toml"),
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Explore the large examples, then simulate many seeds of every example, by turns.

    Exit code 1: a run failed as no known hole makes it, or an exploration is not what it was.
    """
    from isthmus.cli.seeds import holes_of
    from isthmus.lab.explorations import PINNED, explorations
    from isthmus.lab.soak import soak, sources

    if not examples.is_dir():
        fail(f"--examples {examples}: there is no such directory; give that of a clone, or run this at its root")
    files = sources(examples)
    large = {path: PINNED[path.stem] for path in sorted(examples.rglob("*.toml")) if path.stem in PINNED}
    if only is not None:
        names = {Path(file).stem for _, file in files} | set(PINNED)
        unknown = sorted(set(only.split(",")) - names)
        if unknown:
            fail(f"--only {only}: there is no {unknown[0]!r}; the campaign has {', '.join(sorted(names))}")
        files = [source for source in files if Path(source[1]).stem in only.split(",")]
        large = {path: states for path, states in large.items() if path.stem in only.split(",")}
    holes = holes_of(known_holes)
    began = said = time.monotonic()
    end = None if minutes is None else began + 60 * minutes
    jobs = jobs or os.cpu_count() or 1
    explored: list[Explored] = []
    for each in explorations(large, jobs, _left(end)):
        explored.append(each)
        err.print(f"{time.monotonic() - began:6.0f} s  explored {each.name}: {each.states:,} states", markup=False)
    tallies: list[SoakTally] = []
    for tallies in soak(files, seed, runs, jobs, holes, _left(end)) if files else ():
        if time.monotonic() > said + SAY_EVERY:
            said = time.monotonic()
            failed = [f"{tally.name} {outcome.seed}" for tally in tallies for outcome in tally.failures]
            which = f": {', '.join(failed[:8])}" if failed else ""
            done = sum(tally.runs for tally in tallies)
            err.print(f"{said - began:6.0f} s  {done:,} runs, {len(failed)} failures without an entry{which}")
    figures = _totals(tallies) | {"explored": explored, "not_explored": len(large) - len(explored)}
    if output is Output.HUMAN:
        _print_explored(explored, len(large))
    if output is Output.HUMAN and files:
        _print(tallies)
        done, news = figures["runs"], figures["violations"]
        cut_short = f" of {runs:,} asked for" if done < runs else ""
        for kind, times in figures["faults"].items():
            out.print(f"  {times:>9,}  {kind}")
        for cause, count in figures["known"].items():
            out.print(f"  {count:>9,}  runs failed by a known hole: {cause}")
        for reason, count in figures["unpromised"].items():
            out.print(f"  {count:>9,}  messages missing that nobody could promise: {reason}")
        verdict = f"{news:,} of {done:,} runs failed without an entry" if news else f"no violation in {done:,} runs"
        out.print(
            f"{verdict}{cut_short}, verdicts left out: {figures['left_out']}, in {time.monotonic() - began:,.0f} s"
        )
    wrong = any(each.wrong for each in explored) or any(tally.failed for tally in tallies)
    return figures, VIOLATED if wrong else HOLDS


def _left(end: float | None) -> float | None:
    """Seconds until then."""
    return None if end is None else end - time.monotonic()


def _totals(tallies: list[SoakTally]) -> dict[str, Any]:
    from isthmus.simulator.checks.sometimes import FAULTS

    sometimes: Counter[str] = Counter()
    known: Counter[str] = Counter()
    unpromised: Counter[str] = Counter()
    for tally in tallies:
        sometimes.update(tally.sometimes)
        known.update(tally.known)
        unpromised.update(tally.unpromised)
    return {
        "runs": sum(tally.runs for tally in tallies),
        "left_out": sum(tally.runs - tally.judged for tally in tallies),
        "violations": sum(len(tally.failures) for tally in tallies),
        "faults": {kind: sometimes[kind] for kind in FAULTS if sometimes[kind]},
        "known": dict(known),
        "unpromised": dict(unpromised),
        "topologies": [_figures(tally) for tally in tallies],
    }


def _figures(tally: SoakTally) -> dict[str, Any]:
    return {
        "topology": tally.name,
        "runs": tally.runs,
        "deliveries": tally.deliveries,
        "known": tally.known,
        "never_happened": tally.never_happened(),
        "failing_seeds": [outcome.seed for outcome in tally.failures],
        "sometimes": tally.sometimes,
        "never_reached": tally.never(),
    }


def _print_explored(explored: list[Explored], asked_for: int) -> None:
    if explored:
        listing = table("explorations", "topology", "states", "pinned", "seconds", "")
        for each in explored:
            figures = (f"{each.states:,}", f"{each.pinned:,}", f"{each.seconds:,.0f}")
            listing.add_row(each.name, *figures, "differs" if each.wrong else "holds")
        out.print(listing)
    for each in explored:
        if each.wrong:
            out.print(f"{each.name}: {each.wrong}", markup=False)
            out.print(f"  replay: isthmus explore {each.file}", markup=False)
    if len(explored) < asked_for:
        out.print(f"{asked_for - len(explored)} of {asked_for} explorations were not begun: there was no time left")


def _print(tallies: list[SoakTally]) -> None:
    from isthmus.simulator.checks.sometimes import CASES

    if not out.is_terminal:
        out.console.width = 160
    listing = table(
        "campaign", "topology", "seeds", "failures", "known", "deliveries", "never happened", "never reached"
    )
    total: Counter[str] = Counter()
    for tally in tallies:
        total.update(tally.sometimes)
        counts = (tally.runs, len(tally.failures), tally.known.total(), tally.deliveries)
        lacking = (", ".join(tally.never_happened()), ", ".join(tally.never()))
        listing.add_row(tally.name, *(f"{count:,}" for count in counts), *lacking)
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
            causes = f" ({', '.join(outcome.causes)})" if outcome.causes else ""
            out.print(f"{tally.name} seed {outcome.seed}{causes}: {'; '.join(outcome.reasons)}", markup=False)
            out.print(f"  replay: isthmus simulate {tally.file} --seed {outcome.seed} --trace DIR", markup=False)
