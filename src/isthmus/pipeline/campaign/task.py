"""What a task of a campaign does: play its seeds, judge their rows by the audit, and account for them.

Whatever plays a seed is handed in, because the pipeline knows traces and nothing else. All that is known of it is said
here: it is called with a seed, and gives the rows of that run and what no trace can tell. See docs/design/campaign.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from isthmus.pipeline.campaign.rows import judge_rows
from isthmus.trace.account import Account, Failure
from isthmus.trace.parquet import write_part
from isthmus.trace.places import Place
from isthmus.trace.schema import Event, Report, Verdict, Violation


class PlayedOutcome(Protocol):
    """What whoever played a run says of it. `report` is its own opinion; it names the properties that are promised.

    `excused` are properties that are violated only by what nobody can promise, which `missing` counts; `beside` names
    what is wrong that no trace can tell.
    """

    @property
    def report(self) -> Report: ...
    @property
    def stuck(self) -> str: ...
    @property
    def broken(self) -> str: ...
    @property
    def early(self) -> str: ...
    @property
    def beside(self) -> Sequence[str]: ...
    @property
    def excused(self) -> Sequence[str]: ...
    @property
    def causes(self) -> Mapping[str, str]: ...
    @property
    def missing(self) -> Mapping[str, int]: ...
    @property
    def sometimes(self) -> Mapping[str, int]: ...
    @property
    def deliveries(self) -> int: ...


class Played(Protocol):
    """One run: its rows, and what is told of it."""

    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def outcome(self) -> PlayedOutcome: ...


class Player(Protocol):
    """Plays a seed. It is pickled to reach the tasks."""

    def __call__(self, seed: int) -> Played: ...


def play_seeds(player: Player, seeds: Sequence[int], trace: Place | None = None) -> Account:
    """All seeds of a task, in order. With `trace`, their rows become one file there, or a `TraceError`."""
    account = Account()
    kept: list[Event] = []
    for seed in seeds:
        try:
            account.add(_play(player, seed, kept if trace is not None else None))
        except Exception as error:  # a campaign of a million seeds must not end because one of them is strange
            reason = str(error).partition("\n")[0]
            failure = Failure(seed, [], [f"it could not be judged: {type(error).__name__}: {reason}"], ["broken"])
            account.add(Account(runs=1, judged=1, failures=[failure]))
    if trace is not None and kept:
        write_part(trace / f"seeds-{seeds[0]}-{seeds[-1]}.parquet", kept)
    return account


def _play(player: Player, seed: int, kept: list[Event] | None) -> Account:
    played = player(seed)
    outcome, events = played.outcome, played.events
    if kept is not None:
        kept.extend(events)
    account = Account(
        runs=1, judged=1, events=len(events), deliveries=outcome.deliveries, unpromised=dict(outcome.missing)
    )
    account.add_cases(outcome.sometimes)
    promised: dict[str, list[Verdict]] = {}
    for verdict in outcome.report.verdicts:
        promised.setdefault(verdict.run, []).append(verdict)
    violated: list[str] = []
    reasons: list[str] = []
    differing: list[str] = []
    for run, verdicts in promised.items():  # every connected part of a topology is a run of its own
        audited = judge_rows([row for row in events if row.run == run], [each.property for each in verdicts])
        for judged, answer in audited.verdicts.items():
            account.add_verdict(judged, answer)
        answers = audited.verdicts.items()
        wrong = [judged for judged, answer in answers if answer == "violated" and judged not in outcome.excused]
        violated += [judged for judged in wrong if judged not in violated]
        reasons += _first_of_each(each for each in audited.violations if each.property in wrong)
        differing += [
            f"two judges differ about {each.property}: {audited.verdicts[each.property]} says the audit, "
            f"{each.verdict} says the simulator"
            for each in verdicts
            if audited.verdicts[each.property] != each.verdict
        ]
    reasons += [
        reason for reason in (outcome.broken, outcome.early, outcome.stuck and f"stuck: {outcome.stuck}") if reason
    ]
    reasons += differing
    if violated or reasons:
        beside = [*outcome.beside, *(["judges"] if differing else [])]
        account.failures.append(Failure(seed, violated, reasons, beside, list(outcome.causes)))
    return account


def _first_of_each(violations: Iterable[Violation]) -> list[str]:
    """One reason for every property: the others are in the trace of a replay."""
    first: dict[str, str] = {}
    for each in violations:
        first.setdefault(each.property, each.why)
    return list(first.values())
