"""Answers that are large: neither asked for nor given again while the last one may still be on its way.

Nobody knows how much waits on a line before an answer. Where heartbeats go over the line as well, whoever answers knows
that an answer is lost when it is asked again by somebody who has heard a heartbeat that left after it. Where none do,
time decides: whoever asks waits twice as long as the last answer took, and twice as long again after every question in
vain. So of one answer there are few copies on a line at any time. docs/design/group.md, "What is sent again".
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from isthmus.core.ids import Nanos

LONGEST = 16
"""How many times the shortest pause anybody waits at most: of infinitely many tries none is the last."""

FRAME_BYTES = 32 << 10
"""About how much goes at once where much has to go: 26 ms on a line of 10 Mbit/s, between two signs of life."""


class Patience:
    """With one peer, for one kind of question. `tries` of it are unanswered, the last one since `asked_at`.

    `pause` is how long the first one waits; the second one waits twice as long, and so on.
    """

    __slots__ = ("asked_at", "least", "pause", "tries")

    def __init__(self, least: Nanos) -> None:
        self.least = self.pause = least
        self.asked_at: Nanos = 0
        self.tries = 0

    def is_over(self, now: Nanos) -> bool:
        """Whether it is time to ask, for the first time or again."""
        if not self.tries:
            return True
        return now - self.asked_at >= min(self.pause << (self.tries - 1), LONGEST * self.least)

    def asked(self, now: Nanos) -> None:
        self.tries += 1
        self.asked_at = now

    def answered(self, now: Nanos) -> None:
        """How long the answer took is known if there was one question."""
        if self.tries == 1:
            self.pause = max(self.least, 2 * (now - self.asked_at))
        self.tries = 0

    def answered_twice(self) -> None:
        """A question was asked again whose answer was only late."""
        self.pause = min(2 * self.pause, LONGEST * self.least)


class Given(NamedTuple):
    """An answer: in which round, when, and how long it may take to get there."""

    round: int
    at: Nanos
    pause: Nanos


class Answers:
    """What one process has answered lately, by question and by who asked it."""

    __slots__ = ("_given", "_least")

    def __init__(self, least: Nanos) -> None:
        self._least = least
        self._given: dict[Hashable, Given] = {}

    def is_due(self, question: Hashable, heard: int, now: Nanos) -> bool:
        """Whether to answer, if who asks has heard our heartbeats up to this round."""
        given = self._given.get(question)
        return given is None or heard >= given.round or now - given.at >= given.pause

    def give(self, question: Hashable, this_round: int, now: Nanos) -> None:
        given = self._given.get(question)
        pause = self._least if given is None else min(2 * given.pause, LONGEST * self._least)
        self._given[question] = Given(this_round, now, pause)

    def forget(self) -> None:
        self._given.clear()
