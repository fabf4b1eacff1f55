"""What came of some seeds: the small thing that tasks of a campaign send to the driver, and that commands print.

Imports no Spark, because `isthmus simulate` counts in the same way without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from isthmus.trace.schema import Answer


class Failure(Struct, frozen=True):
    """A seed that fails: the properties that its run violates, if it is these, and reasons in words.

    `beside` names what else is wrong with it, that no trace can tell; `causes` what happened to it that is known to end
    badly.
    """

    seed: int
    properties: list[str]
    reasons: list[str]
    beside: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)


class Account(Struct):
    """What came of `runs` seeds. Every run is judged, or has failed before it could be: `judged` counts both."""

    runs: int = 0
    judged: int = 0
    events: int = 0
    deliveries: int = 0
    unpromised: dict[str, int] = field(default_factory=dict)
    """Messages that a living process has not got and that nobody could promise it, by reason."""
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Property to answer to the number of runs."""
    sometimes: dict[str, int] = field(default_factory=dict)
    """How often each rare case was reached."""
    failures: list[Failure] = field(default_factory=list)

    def add_verdict(self, judged: str, answer: Answer, runs: int = 1) -> None:
        answers = self.verdicts.setdefault(judged, {})
        answers[answer] = answers.get(answer, 0) + runs

    def add_cases(self, cases: Mapping[str, int]) -> None:
        for case, times in cases.items():
            self.sometimes[case] = self.sometimes.get(case, 0) + times

    def add(self, other: Account) -> None:
        """Take in what came of other seeds."""
        self.runs += other.runs
        self.events += other.events
        self.deliveries += other.deliveries
        self.judged += other.judged
        self.unpromised = dict(Counter(self.unpromised) + Counter(other.unpromised))
        for judged, answers in other.verdicts.items():
            self.verdicts[judged] = dict(Counter(self.verdicts.get(judged, {})) + Counter(answers))
        self.add_cases(other.sometimes)
        self.failures += other.failures
