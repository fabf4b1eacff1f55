"""What nobody can promise, read from the rows of one run: messages that are gone for good, and what waits for them.

A message is *lost* when every process that ever had it (a row of its names the message, whatever it did with it) is
gone at the end, gateways included, and none of them wrote a journal. A message *follows* a lost one when it could only
be delivered after it: in a run that promises causal order if the lost one is in its causal past, in one that promises
FIFO if both are of one sender. And systems of some kinds promise nothing to arrive once one of their processes has
crashed (clusters, Sect. V). All other rows of such a run are judged like those of any other, and order always is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from isthmus.trace.causality import Past, causal_pasts
from isthmus.trace.history import ProcessHistory, RunHistory, histories
from isthmus.trace.oracles import Finding, agreement
from isthmus.trace.schema import Event


class Unpromised(Struct, frozen=True):
    """How many messages some living process has not got that nobody could promise it, by reason; and what is held.

    `lost` and `following` are messages, `after_crash` those of systems that promise nothing to arrive after a crash;
    `held` says in words what the living of such a system still hold.
    """

    lost: int = 0
    following: int = 0
    after_crash: int = 0
    held: str = ""

    def counts(self) -> dict[str, int]:
        """By reason, those that there are."""
        counts = {"lost": self.lost, "following": self.following, "after a crash": self.after_crash}
        return {reason: count for reason, count in counts.items() if count}


class Missing(Finding):
    """Agreement, but for messages that nobody can promise: their absence is counted by itself.

    `lost` are messages without a holder, `after_crash` those of which nobody promises anything any more.
    """

    def __init__(self, history: RunHistory, lost: set[int], after_crash: set[int], promise: str) -> None:
        super().__init__(history, "agreement")
        self._lost = lost
        self._after_crash = after_crash
        self._by_sender = promise == "fifo"
        self.missing: dict[str, set[int]] = {"lost": set(), "following": set(), "after crash": set()}

    def violated(self, process: ProcessHistory, first: int, second: int | None = None, **more: Any) -> None:
        if first in self._after_crash:
            self.missing["after crash"].add(first)
        elif first in self._lost:
            self.missing["lost"].add(first)
        elif self._follows(first, process):
            self.missing["following"].add(first)
        else:
            super().violated(process, first, second, **more)

    def _follows(self, message: int, process: ProcessHistory) -> bool:
        """Whether a lost message comes before this one, in the order that is promised, and is for that process too."""
        history = self.history
        own, place = history.sender[message], history.rank[message]
        for lost in self._lost:
            sender, rank = history.sender[lost], history.rank[lost]
            before = place if sender == own else 0 if self._by_sender else self._pasts[message][0][sender]
            if rank < before and history.is_for(lost, process):
                return True
        return False

    @cached_property
    def _pasts(self) -> list[Past]:
        return causal_pasts(self.history)


def crashed_in(events: Iterable[Event], systems: Collection[str]) -> set[str]:
    """Those of these systems of which a process has crashed."""
    return {row.system for row in events if row.event == "crash" and row.system in systems}


def what_is_missing(
    events: Sequence[Event], *, journals: Collection[str], promises: Mapping[str, str], crashed: Collection[str]
) -> tuple[Unpromised, bool]:
    """What is missing that nobody can promise; and whether anything else is missing, which is a violation.

    `journals` are systems whose gateways write one, `promises` are the orders of the runs, `crashed` are systems that
    promise nothing to arrive any more.
    """
    holders: dict[tuple[str, str | None, str | None, int | None], bool] = {}
    alive = {(row.system, row.process) for row in events if row.event == "end"}
    for row in events:
        if row.origin_seq is not None:
            key = (row.run, row.origin_system, row.origin_process, row.origin_seq)
            kept = (row.system, row.process) in alive or (row.role == "gateway" and row.system in journals)
            holders[key] = holders.get(key, False) or kept
    missing: Counter[str] = Counter()
    otherwise = False
    for history in histories(events):
        lost = {number for number, key in enumerate(history.keys) if not holders[history.run, *key]}
        after_crash = {number for number, key in enumerate(history.keys) if key[0] in crashed}
        found = Missing(history, lost, after_crash, promises[history.run])
        agreement(history, found)
        otherwise = otherwise or bool(found.violations)
        missing.update({reason: len(messages) for reason, messages in found.missing.items()})
    counts = Unpromised(lost=missing["lost"], following=missing["following"], after_crash=missing["after crash"])
    return counts, otherwise
