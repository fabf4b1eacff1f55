"""`isthmus explore TOPOLOGY`: every schedule of a small topology, exhaustively."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, print_json
from isthmus.topology.file import load
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import MAX_CRASHES, MAX_SENDS, MAX_STATES

if TYPE_CHECKING:
    from isthmus.explorer.scenario import Scenario
    from isthmus.explorer.search import SearchOutcome


def explore_topology(
    topology: Annotated[Path, typer.Argument(help="A topology file, with an [exploration] table or without.")],
    messages: Annotated[
        int | None, typer.Option(help="Messages, dealt over all processes in turn.", min=1, max=MAX_SENDS)
    ] = None,
    crashes: Annotated[int | None, typer.Option(help="Gateways that may crash.", min=0, max=MAX_CRASHES)] = None,
    max_states: Annotated[int | None, typer.Option(help="Stop after so many states.", min=1, max=MAX_STATES)] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Look at every schedule. Prints how many states there are, and a shortest counterexample if one exists."""
    from isthmus.explorer.addressed import directed_of
    from isthmus.explorer.kinds import KINDS
    from isthmus.explorer.limits import refusal
    from isthmus.explorer.scenario import scenario_of
    from isthmus.explorer.search import explore
    from isthmus.explorer.world import make_gateways

    loaded = load(topology, allow_unsafe=True)
    refused = refusal(loaded, loaded.exploration.crashes if crashes is None else crashes)
    if refused is not None:
        fail(str(refused))
    for system in loaded.systems:
        kind = KINDS[system.kind]
        if kind.alone is not None:
            with err.status("exploring"):
                outcome = kind.alone(loaded, messages, max_states)
            directed = directed_of(loaded, messages)
            sends = [f"{each.sender} to {' and '.join(map(str, each.destinations))}" for each in directed]
            return _tell(_outcome(topology, loaded, outcome, 0) | {"sends": sends}, outcome, output)
    scenario = scenario_of(loaded, messages, crashes, max_states)
    if not scenario.sends:
        fail(f"{topology}: no system lists a process that could send anything; add processes to one")
    with err.status("exploring") as status:
        outcome = explore(
            loaded,
            make_gateways(loaded),
            scenario,
            lambda states, events: status.update(f"exploring: {states:,} states, schedules of up to {events} events"),
        )
    return _tell(_result(topology, loaded, scenario, outcome), outcome, output)


def _tell(result: dict[str, Any], outcome: SearchOutcome, output: Output) -> int:
    if output is Output.JSON:
        print_json(result)
    else:
        _print(result, outcome)
    return VIOLATED if outcome.counterexample else HOLDS


def _result(file: Path, topology: Topology, scenario: Scenario, outcome: SearchOutcome) -> dict[str, Any]:
    directory = topology.directory()
    return _outcome(file, topology, outcome, scenario.crashes) | {
        "sends": [str(directory.name(sender)) for sender in scenario.sends],
        "stability": scenario.stability,
    }


def _outcome(file: Path, topology: Topology, outcome: SearchOutcome, crashes: int) -> dict[str, Any]:
    from isthmus.explorer.limits import left_out

    found = outcome.counterexample
    return {
        "topology": str(file),
        "promise": topology.promise(),
        "states": outcome.states,
        "transitions": outcome.transitions,
        "ends": outcome.ends,
        "depth": outcome.depth,
        "seconds": round(outcome.seconds, 3),
        "complete": outcome.complete,
        "verdict": "violated" if found else "holds" if outcome.complete else "unknown",
        "violation": found and found.violation._asdict(),
        "crashes": crashes,
        "left_out": left_out(topology, outcome, crashes),
        "schedule": [] if found is None else [str(line).strip() for line in found.lines],
    }


def _print(result: dict[str, Any], outcome: SearchOutcome) -> None:
    crashes = f", up to {result['crashes']} crashes" if result["crashes"] else ""
    heading = f"{result['topology']}: {result['promise']} order; sends: {', '.join(result['sends'])}{crashes}"
    out.print(heading, markup=False, style="bold")
    out.print(
        f"{outcome.states:,} states, {outcome.transitions:,} transitions, {outcome.ends:,} ends, "
        f"depth {outcome.depth}, {outcome.seconds:.1f} s"
    )
    for line in result["left_out"]:
        out.print(f"left out: {line}", markup=False)
    found = outcome.counterexample
    if found is not None:
        for line in found.lines:
            out.print(str(line), markup=False)
        out.print(f"violates {found.violation.property}: {found.violation.why}", markup=False, style="red")
    elif outcome.complete:
        out.print("no violation in any schedule", style="green")
    else:
        out.print(
            "incomplete: no violation so far, but not every schedule was looked at; raise --max-states", style="yellow"
        )
