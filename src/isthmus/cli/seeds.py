"""What `simulate` and `campaign` share: what they refuse, what they say of many seeds, and how a seed is replayed."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from isthmus.cli.console import fail, out, table
from isthmus.lab.mutants.catalogue import CATALOGUE, committed
from isthmus.simulator.campaign import Mistake
from isthmus.simulator.run import Outcome
from isthmus.simulator.systems.table import KINDS, expected
from isthmus.topology.file import load
from isthmus.topology.model import Topology
from isthmus.trace.account import Account, Failure
from isthmus.trace.schema import printable

SHOWN_FAILURES = 5


def simulated(file: Path, mutant: str | None) -> Topology:
    """The topology of a file, if it can be simulated with this mistake in it."""
    topology = load(file, allow_unsafe=True)
    if mutant is not None and mutant not in {each.name for each in CATALOGUE}:
        fail(f"--mutant: there is no {mutant!r}; the catalogue has {', '.join(each.name for each in CATALOGUE)}")
    for system in topology.systems:
        if system.kind not in KINDS:
            fail(f"{topology.file}: systems.{system.name}.kind: {system.provider!r} cannot be simulated yet")
    return topology


def mistake_of(mutant: str | None) -> Mistake:
    """Commits a mutant of the catalogue; without a name, nothing."""
    return nullcontext if mutant is None else partial(committed, mutant)


def account_of(outcome: Outcome) -> Account:
    """One run, judged by the simulator's own oracles."""
    account = Account(
        runs=1,
        events=outcome.report.events,
        deliveries=outcome.deliveries,
        outside=bool(outcome.outside),
        sometimes=outcome.sometimes,
    )
    for verdict in outcome.report.verdicts:
        account.add_verdict(verdict.property, verdict.verdict)
    if outcome.violated:
        reasons = [violation.why for violation in outcome.report.violations[:SHOWN_FAILURES]]
        reasons += [reason for reason in (outcome.broken, outcome.stuck and f"stuck: {outcome.stuck}") if reason]
        account.failures.append(
            Failure(outcome.seed, [verdict.property for verdict in outcome.report.violated], reasons)
        )
    return account


def result_of(account: Account, topology: Topology, file: Path, mutant: str | None) -> dict[str, Any]:
    """The object that `-o json` prints."""
    return {
        "topology": str(file),
        "runs": account.runs,
        "deliveries": account.deliveries,
        "verdicts": account.verdicts,
        "violated": len(account.failures),
        "outside": account.outside,
        "failures": [_failure(each, file, mutant) for each in account.failures],
        "sometimes": {case: account.sometimes.get(case, 0) for case in expected(topology)},
    }


def _failure(failure: Failure, file: Path, mutant: str | None) -> dict[str, Any]:
    command = f"isthmus simulate {shlex.quote(str(file))} --seed {failure.seed} --runs 1 --trace DIR"
    return {
        "seed": failure.seed,
        "properties": failure.properties,
        "reasons": failure.reasons,
        "replay": command + (f" --mutant {mutant}" if mutant else ""),
    }


def show(result: dict[str, Any]) -> None:
    """The same for people, with the first few of the failing seeds."""
    reached = table("sometimes: how often the rare cases were reached", "case", "times")
    for case, times in result["sometimes"].items():
        reached.add_row(case, f"{times:,}", style="" if times else "yellow")
    out.print(reached)
    answers = table("verdicts: runs in which a property", "property", "holds", "violated", "unknown")
    for name, counted in result["verdicts"].items():
        answers.add_row(name, *(f"{counted.get(answer, 0):,}" for answer in ("holds", "violated", "unknown")))
    out.print(answers)
    runs, failures = result["runs"], result["failures"]
    for failure in failures[:SHOWN_FAILURES]:
        what = f"violates {', '.join(failure['properties'])}" if failure["properties"] else "fails"
        out.print(f"[red]seed {failure['seed']} {what}[/red]")
        for reason in failure["reasons"]:
            out.print(f"  {printable(reason)}", markup=False)
        out.print(f"  replay: {failure['replay']}", markup=False)
    if len(failures) > SHOWN_FAILURES:
        out.print(f"… and {len(failures) - SHOWN_FAILURES:,} more failing seeds")
    verdict = f"[red]{len(failures):,} of {runs:,} runs failed[/red]" if failures else "[green]no violation[/green]"
    out.print(f"{verdict} in {runs:,} runs, {result['deliveries']:,} deliveries")
    if result["outside"]:
        out.print(
            f"{result['outside']:,} of the runs left the model (no quorum, no gateway, or a crash among clusters): "
            "nothing is promised there"
        )
