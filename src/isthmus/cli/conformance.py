"""`isthmus conformance`: try an adapter on a real broker, one promise after the other."""

from __future__ import annotations

import importlib
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, print_json, table

if TYPE_CHECKING:
    from isthmus.adapters.conformance import Outcome, Verdict

OUR_TRIALS = {
    "redis": "isthmus.lab.brokers.redis:RedisTrial",
    "nats": "isthmus.lab.brokers.nats:NatsTrial",
    "kafka": "isthmus.lab.brokers.kafka:KafkaTrial",
    "postgres": "isthmus.lab.brokers.postgres:PostgresTrial",
}
_COLOURS: dict[Verdict, str] = {"holds": "green", "broken": "red", "not possible": "yellow"}


def conformance(
    trial: Annotated[
        str,
        typer.Argument(metavar="MODULE:CLASS", help=f"What starts a broker to try; or {', '.join(OUR_TRIALS)}: ours."),
    ],
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This check alone; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat the chances of another run.")] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Try what an adapter promises, on a broker of its own. Exit code 1: a promise is broken."""
    from isthmus.adapters.conformance import CHECKS, run_suite
    from isthmus.runtime.loop import run

    names = [check.name for check in CHECKS]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        fail(f"there is no check {unknown[0]!r}; there are {', '.join(names)}")
    checks = [check for check in CHECKS if not only or check.name in only]
    made = _made(trial)
    chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    outcomes = run(run_suite(made, checks, chosen, _tell))
    counted = Counter(outcome.verdict for outcome in outcomes)
    if output is Output.JSON:
        print_json({"trial": trial, "seed": chosen, "holds": not counted["broken"], "checks": outcomes})
    else:
        _print(trial, chosen, outcomes, counted)
    return VIOLATED if counted["broken"] else HOLDS


def _made(where: str) -> Any:
    module, colon, name = OUR_TRIALS.get(where, where).partition(":")
    if not colon or not module or not name:
        fail(f"{where!r} names no trial; write MODULE:CLASS, or one of {', '.join(OUR_TRIALS)}")
    # As `python -m` would find it: whoever writes an adapter need not install it first.
    sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        fail(f"{module} cannot be imported: {error}")
    made = getattr(found, name, None)
    if not callable(made):
        fail(f"{module} has no class {name}")
    try:
        return made()
    except TypeError as error:
        fail(f"{name} of {module} is no trial, which is made without arguments: {error}")


def _tell(outcome: Outcome) -> None:
    if err.is_terminal:
        err.print(f"{outcome.verdict:12} {outcome.seconds:5.1f} s  {outcome.name}", style=_COLOURS[outcome.verdict])


def _print(trial: str, seed: int, outcomes: list[Outcome], counted: Mapping[Verdict, int]) -> None:
    listing = table(f"{trial}, seed {seed}", "check", "", "seconds", "promise")
    for column in listing.columns:
        column.justify = "right" if column.header == "seconds" else "left"
    for outcome in outcomes:
        colour = _COLOURS[outcome.verdict]
        words = _plain(outcome.promise) + (f"\n[{colour}]{_plain(outcome.why)}[/]" if outcome.why else "")
        listing.add_row(outcome.name, f"[{colour}]{outcome.verdict}[/]", f"{outcome.seconds:.1f}", words)
    out.print(listing)
    out.print(", ".join(f"{counted[verdict]} {verdict}" for verdict in _COLOURS))
    broken = [outcome.name for outcome in outcomes if outcome.verdict == "broken"]
    if broken:
        again = " ".join(f"--only {name}" for name in broken)
        out.print(f"again: isthmus conformance {trial} --seed {seed} {again}", markup=False)


def _plain(text: str) -> str:
    """Brackets in it are no colours."""
    return text.replace("[", "\\[")
