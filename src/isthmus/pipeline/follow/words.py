"""What a streaming audit says: violations in the sentences of the batch audit, each counted, and reported once."""

from __future__ import annotations

from hashlib import blake2b

from isthmus.pipeline.follow.chains import Chains
from isthmus.pipeline.follow.state import FollowedMessage, RunState
from isthmus.trace.properties import Mistake, violation
from isthmus.trace.schema import Violation

DESCRIBED = 1000
"""Violations that are described, per run and property. All are counted."""


class Words:
    """Names of a run, and what was found about it since rows came last."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.violations: list[Violation] = []
        self.warnings: list[str] = []
        self._overtaken: list[tuple[str, int, FollowedMessage, int, FollowedMessage]] = []

    def name(self, message: FollowedMessage) -> str:
        return f"{self.state.logs[self.state.chains[message.chain].origin].name}/{message.seq}"

    def violated(self, judged: str, mistake: Mistake, key: str) -> None:
        """Count it, and report it unless that was done before the run was read again. `key` tells it from others."""
        if self._is_new(judged, key):
            self.violations.append(violation(self.state.run, judged, mistake))

    def _is_new(self, judged: str, key: str) -> bool:
        """Count a violation. Whether it is to be described."""
        counts, reported = self.state.counts, self.state.reported
        counts[judged] = counts.get(judged, 0) + 1
        code = int.from_bytes(blake2b(f"{judged} {key}".encode(), digest_size=8).digest())
        new = code not in reported and counts[judged] <= DESCRIBED
        if new:
            reported.add(code)
        return new

    def wrong_delivery(
        self, kind: str, process: str, message: str, first: int | None, again: int | None = None
    ) -> None:
        """A delivery that breaks integrity: `again`, of what `nobody` sent, too `early`, or at a `stranger`."""
        mistake = Mistake(process=process, first=message, first_index=first, second_index=again, kind=kind)
        self.violated("integrity", mistake, f"{kind} {process} {first if again is None else again}")

    def stranger(self, number: int, message: FollowedMessage, index: int) -> None:
        self.wrong_delivery("stranger", self.state.logs[number].name, self.name(message), index)

    def not_sent_yet(self, number: int, message: FollowedMessage, index: int) -> None:
        self.wrong_delivery("early", self.state.logs[number].name, self.name(message), index)

    def sent_by_nobody(self, number: int, message: FollowedMessage, index: int) -> None:
        self.wrong_delivery("nobody", self.state.logs[number].name, self.name(message), index)

    def order_differs(
        self,
        number: int,
        other: int,
        message: FollowedMessage,
        index: int,
        other_index: int,
        latest: tuple[int, int, int, int],
    ) -> None:
        """`latest` came before the message here and after it there."""
        pair = (min(number, other), max(number, other))
        if pair in self.state.differing:
            return
        self.state.differing.add(pair)
        logs = self.state.logs
        here, there = logs[number].name, logs[other].name
        mistake = Mistake(
            process=here,
            first=self.name(FollowedMessage(latest[2], latest[3])),
            second=self.name(message),
            first_index=latest[1],
            second_index=index,
            other=there,
            other_first_index=latest[0],
            other_second_index=other_index,
        )
        self.violated("total", mistake, " ".join(sorted((here, there))))

    def overtaken(self, judged: str, number: int, message: FollowedMessage, index: int, first: FollowedMessage) -> None:
        """`first` was not there before the message. What became of it is said when all rows of the feed are read."""
        self._overtaken.append((judged, number, message, index, first))

    def say_overtaken(self) -> None:
        chains = Chains(self.state)
        for judged, number, message, index, first in self._overtaken:
            log = self.state.logs[number]
            if self._is_new(judged, f"{log.name} {index}"):
                mistake = Mistake(
                    process=log.name,
                    first=self.name(first),
                    second=self.name(message),
                    first_index=first.at.get(number),
                    second_index=index,
                    kind=None if log.complete else "awaited",
                    chain=tuple(map(self.name, chains.between(first, message))) if judged == "causal" else (),
                )
                self.violations.append(violation(self.state.run, judged, mistake))
        self._overtaken = []
