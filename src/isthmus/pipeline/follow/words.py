"""What a streaming audit says: violations in the sentences of the batch audit, each counted, and reported once."""

from __future__ import annotations

from hashlib import blake2b

from isthmus.pipeline.follow.state import Message, RunState
from isthmus.trace.schema import Property, Violation

DESCRIBED = 1000
"""Violations that are described, per run and property. All are counted."""


class Words:
    """Names of a run, and what was found about it since rows came last."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.violations: list[Violation] = []
        self.warnings: list[str] = []
        self._overtaken: list[tuple[Property, int, Message, int, Message]] = []

    def name(self, message: Message) -> str:
        return f"{self.state.logs[self.state.chains[message.chain].origin].name}/{message.seq}"

    def violated(self, judged: Property, process: str, first: str, second: str | None, why: str, key: str) -> None:
        """Count it, and report it unless that was done before the run was read again. `key` tells it from others."""
        counts, reported = self.state.counts, self.state.reported
        counts[judged] = counts.get(judged, 0) + 1
        code = int.from_bytes(blake2b(f"{judged} {key}".encode(), digest_size=8).digest())
        if code not in reported and counts[judged] <= DESCRIBED:
            reported.add(code)
            self.violations.append(Violation(self.state.run, judged, process, first, second, why))

    def stranger(self, number: int, message: Message, index: int) -> None:
        name, process = self.name(message), self.state.logs[number].name
        why = f"{name} was delivered at index {index}, but was not for {process}"
        self.violated("integrity", process, name, None, why, f"stranger {process} {index}")

    def sent_by_nobody(self, number: int, message: Message, index: int) -> None:
        name, process = self.name(message), self.state.logs[number].name
        why = f"{name} was delivered at index {index}, but nobody sent it"
        self.violated("integrity", process, name, None, why, f"nobody {process} {index}")

    def order_differs(
        self,
        number: int,
        other: int,
        message: Message,
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
        second, first = self.name(message), self.name(Message(latest[2], latest[3]))
        why = (
            f"{here} delivered {first} at index {latest[1]} before {second} at index {index}, but {there} delivered "
            f"{second} at index {other_index} before {first} at index {latest[0]}"
        )
        self.violated("total", here, first, second, why, " ".join(sorted((here, there))))

    def overtaken(self, judged: Property, number: int, message: Message, index: int, first: Message) -> None:
        """`first` was not there before the message. What became of it is said when all rows of the feed are read."""
        self._overtaken.append((judged, number, message, index, first))

    def say_overtaken(self) -> None:
        for judged, number, message, index, first in self._overtaken:
            log = self.state.logs[number]
            relation = "its cause" if judged == "causal" else "the earlier"
            if number in first.at:
                place = f" at index {first.at[number]}"
            else:
                place = ", which was never delivered there" if log.complete else ", which was not there yet"
            cause, effect = self.name(first), self.name(message)
            why = f"{effect} was delivered at index {index} before {relation} {cause}{place}"
            self.violated(judged, log.name, cause, effect, why, f"{log.name} {index}")
        self._overtaken = []
