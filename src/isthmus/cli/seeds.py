"""What `simulate` and `campaign` share: what they refuse, what they say of many seeds, and how a seed is replayed."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from isthmus.cli.console import fail, out, table
from isthmus.lab.holes import Holes, HolesError, load_holes
from isthmus.lab.mutants.catalogue import CATALOGUE, committed
from isthmus.simulator.campaign import Mistake
from isthmus.simulator.checks.causes import CAUSES
from isthmus.simulator.checks.sometimes import FAULTS
from isthmus.simulator.run import RunOutcome
from isthmus.simulator.systems.table import KINDS, asked_for, expected, never_happened
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


def holes_of(file: Path | None) -> Holes:
    """The holes that a list knows; without one, none."""
    if file is None:
        return Holes()
    try:
        return load_holes(file)
    except HolesError as error:
        fail(f"--known-holes {error}")


def account_of(outcome: RunOutcome) -> Account:
    """One run, judged by the simulator's own oracles."""
    account = Account(
        runs=1,
        judged=1,
        events=outcome.report.events,
        deliveries=outcome.deliveries,
        unpromised=outcome.missing,
        sometimes=outcome.sometimes,
    )
    for verdict in outcome.report.verdicts:
        account.add_verdict(verdict.property, verdict.verdict)
    if outcome.violated:
        account.failures.append(
            Failure(outcome.seed, outcome.properties, outcome.reasons, outcome.beside, list(outcome.causes))
        )
    return account


def result_of(account: Account, topology: Topology, file: Path, mutant: str | None, holes: Holes) -> dict[str, Any]:
    """The object that `-o json` prints."""
    failures = [_failure(each, file, mutant, holes) for each in account.failures]
    wanted = asked_for(topology)
    return {
        "topology": str(file),
        "runs": account.runs,
        "left_out": account.runs - account.judged,
        "deliveries": account.deliveries,
        "faults": {
            kind: account.sometimes.get(kind, 0) for kind in FAULTS if kind in wanted or kind in account.sometimes
        },
        "never_happened": never_happened(account.sometimes, account.runs, topology),
        "unpromised": account.unpromised,
        "verdicts": account.verdicts,
        "violated": len(failures),
        "known": dict(Counter(each["known"] for each in failures if each["known"])),
        "news": sum(not each["known"] for each in failures),
        "failures": failures,
        "sometimes": {case: account.sometimes.get(case, 0) for case in expected(topology) if case not in FAULTS},
    }


def failed(result: dict[str, Any]) -> bool:
    """Whether a campaign has found something: a failing run without an entry, or a fault that never happened."""
    return bool(result["news"] or result["left_out"] or result["never_happened"])


def _failure(failure: Failure, file: Path, mutant: str | None, holes: Holes) -> dict[str, Any]:
    command = f"isthmus simulate {shlex.quote(str(file))} --seed {failure.seed} --runs 1 --trace DIR"
    return {
        "seed": failure.seed,
        "properties": failure.properties,
        "beside": failure.beside,
        "causes": failure.causes,
        "known": holes.explain([*failure.properties, *failure.beside], failure.causes),
        "reasons": failure.reasons,
        "replay": command + (f" --mutant {mutant}" if mutant else ""),
    }


def show(result: dict[str, Any]) -> None:
    """The same for people, with the first few of the failing seeds."""
    if result["faults"]:
        happened = table("faults: how many of each kind took place", "fault", "times")
        for kind, times in result["faults"].items():
            happened.add_row(kind, f"{times:,}", style="" if times else "yellow")
        out.print(happened)
    reached = table("sometimes: how often the rare cases were reached", "case", "times")
    for case, times in result["sometimes"].items():
        reached.add_row(case, f"{times:,}", style="" if times else "yellow")
    out.print(reached)
    answers = table("verdicts: runs in which a property", "property", "holds", "violated", "unknown")
    for name, counted in result["verdicts"].items():
        answers.add_row(name, *(f"{counted.get(answer, 0):,}" for answer in ("holds", "violated", "unknown")))
    out.print(answers)
    runs, failures = result["runs"], result["failures"]
    news = [failure for failure in failures if not failure["known"]]
    for failure in news[:SHOWN_FAILURES]:
        what = f"violates {', '.join(failure['properties'])}" if failure["properties"] else "fails"
        because = f" ({', '.join(failure['causes'])})" if failure["causes"] else ""
        out.print(f"[red]seed {failure['seed']} {what}[/red]{because}")
        for reason in failure["reasons"]:
            out.print(f"  {printable(reason)}", markup=False)
        out.print(f"  replay: {failure['replay']}", markup=False)
    if len(news) > SHOWN_FAILURES:
        out.print(f"… and {len(news) - SHOWN_FAILURES:,} more failing seeds")
    for cause, count in result["known"].items():
        out.print(f"{count:,} runs failed by a known hole: {cause} ({CAUSES[cause]})", markup=False)
    for kind in result["never_happened"]:
        out.print(f"[red]the file asks for it, and it never happened: {kind}[/red]")
    verdict = f"[red]{len(news):,} of {runs:,} runs failed[/red]" if news else "[green]no violation[/green]"
    out.print(
        f"{verdict} in {runs:,} runs, {result['deliveries']:,} deliveries; verdicts left out: {result['left_out']}"
    )
    if result["unpromised"]:
        counted = ", ".join(f"{count:,} {_UNPROMISED[reason]}" for reason, count in result["unpromised"].items())
        out.print(f"messages that nobody could promise, and that are missing: {counted}")


_UNPROMISED = {
    "lost": "all of whose holders are gone",
    "following": "that follow such a one",
    "after a crash": "of clusters in which a process crashed",
    "of a stopped join": "of systems that are joined with a log whose joins have stopped",
}
