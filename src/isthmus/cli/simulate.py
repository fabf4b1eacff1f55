"""`isthmus simulate TOPOLOGY`: deterministic simulation with faults, many seeds at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    CommandError,
    HolesOption,
    Output,
    OutputOption,
    out,
    print_json,
    tracked,
)
from isthmus.core.units import format_duration

if TYPE_CHECKING:
    from isthmus.core.ids import Nanos
    from isthmus.simulator.run import RunOutcome

MANY_STEPS = 100_000
"""A run of more has taken seconds; then it says with what."""
SHOWN_INPUTS = 5


def simulate(
    topology: Annotated[Path, typer.Argument(help="A topology file with a [simulation] table.")],
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    runs: Annotated[int, typer.Option(help="How many runs, with seeds counting up.", min=1)] = 1,
    trace: Annotated[Path | None, typer.Option(help="Write the trace of seed S to DIR/seed-S.")] = None,
    mutant: Annotated[str | None, typer.Option(help="Commit this mistake of the catalogue, to see it caught.")] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 is one per core.", min=0)] = 0,
    no_invariants: Annotated[
        bool,
        typer.Option(
            "--no-invariants",
            help="Leave out the checks of every process after each of its steps: 7 times faster at n = 32.",
        ),
    ] = False,
    known_holes: HolesOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Simulate with faults. A failing run prints its seed and the command that replays it, byte for byte."""
    from isthmus.cli.seeds import SHOWN_FAILURES, account_of, failed, holes_of, mistake_of, result_of, show, simulated
    from isthmus.simulator.campaign import run_seeds
    from isthmus.trace.account import Account

    loaded = simulated(topology, mutant)
    source = (topology.read_text(), str(topology))
    account = Account()
    holes = holes_of(known_holes)
    held: list[dict[str, object]] = []
    slowest: RunOutcome | None = None
    try:
        seeds, mistake = range(seed, seed + runs), mistake_of(mutant)
        outcomes = run_seeds(source, seeds, mistake=mistake, trace=trace, check=not no_invariants, jobs=jobs)
        for outcome in tracked(outcomes, runs, "simulating"):
            account.add(account_of(outcome))
            if slowest is None or outcome.steps > slowest.steps:
                slowest = outcome
            if outcome.unpromised.held:
                held.append({"seed": outcome.seed, "held": outcome.unpromised.held})
    except OSError as error:
        raise CommandError(
            f"--trace {trace}: {error.strerror or error}; choose a directory that can be written"
        ) from error
    result = result_of(account, loaded, topology, mutant, holes)
    result |= {"held_after_a_crash": held, "invariants": not no_invariants}
    if output is Output.JSON:
        print_json(result)
    else:
        show(result)
        if no_invariants:
            out.print("invariants were not checked")
        if slowest is not None and slowest.steps > MANY_STEPS:
            out.print(where_time_went(slowest, loaded.simulation.duration), markup=False)
        for each in held[:SHOWN_FAILURES]:
            out.print(f"  seed {each['seed']}: {each['held']}", markup=False)
    return VIOLATED if failed(result) else HOLDS


def where_time_went(outcome: RunOutcome, duration: Nanos) -> str:
    """What a run that took many steps was busy with, and how much of its virtual time was recovery."""
    recovery = max(0, outcome.virtual_time - duration)
    often = sorted(outcome.inputs.items(), key=lambda item: -item[1])[:SHOWN_INPUTS]
    sampled = max(1, sum(outcome.inputs.values()))
    shares = ", ".join(f"{round(100 * times / sampled)} % {what}" for what, times in often)
    return (
        f"seed {outcome.seed} took the most: {outcome.steps:,} steps for {format_duration(duration)} of load and "
        f"{format_duration(recovery)} of recovery: {shares}"
    )
