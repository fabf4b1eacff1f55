"""`isthmus simulate TOPOLOGY`: deterministic simulation with faults, many seeds at a time."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    CommandError,
    Output,
    OutputOption,
    fail,
    out,
    print_json,
    table,
    tracked,
)
from isthmus.interconnect.topology import Topology
from isthmus.interconnect.topology_file import load
from isthmus.simulator.campaign import run_seeds
from isthmus.simulator.mutants import CATALOGUE
from isthmus.simulator.run import Outcome
from isthmus.simulator.sometimes import expected

SHOWN_FAILURES = 5


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate)


def simulate(
    topology: Annotated[Path, typer.Argument(help="A topology file with a [simulation] table.")],
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    runs: Annotated[int, typer.Option(help="How many runs, with seeds counting up.", min=1)] = 1,
    trace: Annotated[Path | None, typer.Option(help="Write the trace of seed S to DIR/seed-S.")] = None,
    mutant: Annotated[str | None, typer.Option(help="Commit this mistake of the catalogue, to see it caught.")] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 is one per core.", min=0)] = 0,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Simulate with faults. A failing run prints its seed and the command that replays it, byte for byte."""
    loaded = load(topology, allow_unsafe=True)
    if mutant is not None and mutant not in {each.name for each in CATALOGUE}:
        fail(f"--mutant: there is no {mutant!r}; the catalogue has {', '.join(each.name for each in CATALOGUE)}")
    _only_embedded(loaded)
    seeds = range(seed, seed + runs)
    source = (topology.read_text(), str(topology))
    counts: Counter[str] = Counter()
    failures: list[Outcome] = []
    deliveries = outside = 0
    verdicts: dict[str, Counter[str]] = {}
    try:
        outcomes = run_seeds(source, seeds, mutant=mutant, trace=trace, jobs=jobs)
        for outcome in tracked(outcomes, runs, "simulating"):
            counts.update(outcome.sometimes)
            deliveries += outcome.deliveries
            outside += bool(outcome.outside)
            for verdict in outcome.report.verdicts:
                verdicts.setdefault(verdict.property, Counter())[verdict.verdict] += 1
            if outcome.violated:
                failures.append(outcome)
    except OSError as error:
        raise CommandError(
            f"--trace {trace}: {error.strerror or error}; choose a directory that can be written"
        ) from error
    cases = {case: counts[case] for case in expected(loaded)}
    result = {
        "topology": str(topology),
        "runs": runs,
        "deliveries": deliveries,
        "verdicts": {name: dict(answers) for name, answers in verdicts.items()},
        "violated": len(failures),
        "outside": outside,
        "failures": [_failure(outcome, topology, mutant) for outcome in failures],
        "sometimes": cases,
    }
    if output is Output.JSON:
        print_json(result)
    else:
        _print(result, failures, runs)
    return VIOLATED if failures else HOLDS


def _only_embedded(topology: Topology) -> None:
    for system in topology.systems:
        if system.kind != "embedded":
            fail(f"{topology.file}: systems.{system.name}.kind: {system.kind!r} cannot be simulated yet")


def _failure(outcome: Outcome, topology: Path, mutant: str | None) -> dict[str, Any]:
    command = f"isthmus simulate {shlex.quote(str(topology))} --seed {outcome.seed} --runs 1 --trace DIR"
    reasons = [violation.why for violation in outcome.report.violations[:SHOWN_FAILURES]]
    reasons += [reason for reason in (outcome.broken, outcome.stuck and f"stuck: {outcome.stuck}") if reason]
    return {
        "seed": outcome.seed,
        "properties": [verdict.property for verdict in outcome.report.violated],
        "reasons": reasons,
        "replay": command + (f" --mutant {mutant}" if mutant else ""),
    }


def _print(result: dict[str, Any], failures: list[Outcome], runs: int) -> None:
    reached = table("sometimes: how often the rare cases were reached", "case", "times")
    for case, times in result["sometimes"].items():
        reached.add_row(case, f"{times:,}", style="" if times else "yellow")
    out.print(reached)
    answers = table("verdicts: runs in which a property", "property", "holds", "violated", "unknown")
    for name, counted in result["verdicts"].items():
        answers.add_row(name, *(f"{counted.get(answer, 0):,}" for answer in ("holds", "violated", "unknown")))
    out.print(answers)
    for failure in result["failures"][:SHOWN_FAILURES]:
        out.print(f"[red]seed {failure['seed']} violates {', '.join(failure['properties']) or 'progress'}[/red]")
        for reason in failure["reasons"]:
            out.print(f"  {reason}", markup=False)
        out.print(f"  replay: {failure['replay']}", markup=False)
    if len(failures) > SHOWN_FAILURES:
        out.print(f"… and {len(failures) - SHOWN_FAILURES} more failing seeds")
    verdict = f"[red]{len(failures)} of {runs} runs failed[/red]" if failures else "[green]no violation[/green]"
    out.print(f"{verdict} in {runs:,} runs, {result['deliveries']:,} deliveries")
    if result["outside"]:
        out.print(
            f"{result['outside']} of the runs left the model (no quorum, or no gateway): nothing is promised there"
        )
