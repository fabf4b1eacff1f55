"""What nobody can promise, read from the rows of one run: messages that are gone for good, and what waits for them.

A message is *lost* when every process that ever had it (a row of its names the message, whatever it did with it) is
gone at the end, gateways included, and none of them wrote a journal. But a process must not deliver what too few hold
(docs/design/group.md, "uniform"), and who leaves in good order sees its messages through: what is lost by that is
missing like anything else. A message *follows* a lost one when it could only be delivered after it: in a run that
promises causal order if the lost one is in its causal past, in one that promises FIFO if both are of one sender. And
systems of some kinds promise nothing to arrive once one of their processes has crashed (clusters, Sect. V). And where
the joins of a log have stopped, because it was trimmed or deleted before they had read it, nothing crosses it until a
person says so; and whatever is joined to it, near or far, goes on only until windows are full of what is not confirmed.
All other rows of such a run are judged like those of any other, and order always is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct

from isthmus.trace.causality import Past, causal_pasts
from isthmus.trace.history import ProcessHistory, RunHistory, histories
from isthmus.trace.oracles import OracleFinding, agreement
from isthmus.trace.schema import Event

Key: TypeAlias = tuple[str, str, str, int]
"""A run and a message."""

Enough: TypeAlias = Callable[[Sequence[int], Sequence[int]], bool]
"""Whether these of the members of a view, by their places in it, are enough to hold what one of them delivers."""


class Unpromised(Struct, frozen=True):
    """How many messages some living process has not got that nobody could promise it, by reason; and what is held.

    `lost` and `following` are messages, `after_crash` those of systems that promise nothing to arrive after a crash,
    `stopped` those of parts in which the joins of a log have stopped; `held` says in words what the living of such a
    system still hold.
    """

    lost: int = 0
    following: int = 0
    after_crash: int = 0
    stopped: int = 0
    held: str = ""

    def counts(self) -> dict[str, int]:
        """By reason, those that there are."""
        counts = {"lost": self.lost, "following": self.following}
        counts |= {"after a crash": self.after_crash, "of a stopped join": self.stopped}
        return {reason: count for reason, count in counts.items() if count}


class Missing(OracleFinding):
    """Agreement, but for messages that nobody can promise: their absence is counted by itself.

    `lost` are messages without a holder, `after_crash` and `stopped` those of which nobody promises anything any more.
    """

    def __init__(
        self, history: RunHistory, lost: set[int], after_crash: set[int], stopped: set[int], promise: str
    ) -> None:
        super().__init__(history, "agreement")
        self._lost = lost
        self._after_crash = after_crash
        self._by_sender = promise == "fifo"
        self._stopped = stopped
        self.missing: dict[str, set[int]] = {"lost": set(), "following": set(), "after crash": set(), "stopped": set()}

    def violated(self, process: ProcessHistory, first: int, second: int | None = None, **more: Any) -> None:
        if first in self._after_crash:
            self.missing["after crash"].add(first)
        elif first in self._stopped:
            self.missing["stopped"].add(first)
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
    events: Sequence[Event],
    *,
    journals: Collection[str],
    promises: Mapping[str, str],
    crashed: Collection[str],
    enough: Mapping[str, Enough],
    stopped: Collection[str] = (),
) -> tuple[Unpromised, bool]:
    """What is missing that nobody can promise; and whether anything else is missing, which is a violation.

    `journals` are systems whose gateways write one, `promises` are the orders of the runs, `crashed` are systems that
    promise nothing to arrive any more, `enough` says of some systems who has to hold what is delivered there, `stopped`
    are systems that are joined, near or far, with one whose joins have stopped.
    """
    alive = {(row.system, row.process) for row in events if row.event == "end"}
    holders: defaultdict[Key, dict[str, int]] = defaultdict(dict)
    kept: set[Key] = set()
    for row in events:
        if row.origin_seq is not None:
            key = _key(row)
            holders[key].setdefault(f"{row.system}/{row.process}", row.time_ns)
            if (row.system, row.process) in alive or (row.role == "gateway" and row.system in journals):
                kept.add(key)
    careless = _given_away(events, holders, enough)
    missing: Counter[str] = Counter()
    otherwise = False
    for history in histories(events):
        keys = [(history.run, *key) for key in history.keys]
        lost = {number for number, key in enumerate(keys) if key not in kept and key not in careless}
        after_crash = {number for number, key in enumerate(history.keys) if key[0] in crashed}
        waiting = {number for number, key in enumerate(history.keys) if key[0] in stopped}
        found = Missing(history, lost, after_crash, waiting, promises[history.run])
        agreement(history, found)
        otherwise = otherwise or bool(found.violations)
        missing.update({reason: len(messages) for reason, messages in found.missing.items()})
    counts = Unpromised(
        lost=missing["lost"],
        following=missing["following"],
        after_crash=missing["after crash"],
        stopped=missing["stopped"],
    )
    return counts, otherwise


def _key(row: Event) -> Key:
    assert row.origin_system is not None and row.origin_process is not None and row.origin_seq is not None
    return row.run, row.origin_system, row.origin_process, row.origin_seq


def _given_away(
    events: Iterable[Event], holders: Mapping[Key, Mapping[str, int]], enough: Mapping[str, Enough]
) -> set[Key]:
    """Messages that were delivered when too few of the view held them, and those of senders that left in good order."""
    views: dict[tuple[str, str], tuple[str, ...]] = {}
    left = {(row.system, row.process) for row in events if row.event == "leave"}
    given_away = {key for key in holders if (key[1], key[2]) in left}
    for row in events:
        if row.event == "view":
            views[row.system, row.process] = row.destinations or ()
        elif row.event == "deliver" and row.system in enough:
            key, members = _key(row), views.get((row.system, row.process), ())
            had = holders[key]
            held = [place for place, each in enumerate(members) if had.get(each, row.time_ns + 1) <= row.time_ns]
            if members and not enough[row.system](held, range(len(members))):
                given_away.add(key)
    return given_away
