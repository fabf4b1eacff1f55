"""Causal pasts of a run as one matrix, and the order at one process judged against it.

`pasts[m][c]` counts the messages of chain c in the causal past of message m. It begins with what the sender itself had
delivered or sent before; then every past takes in the pasts of the last message it holds of each chain, and again,
until nothing changes. Each round doubles the length of the chains of causes that are covered, so rounds are few: one
where every message goes to everyone and order was kept, a handful for multicast. Circles, which only a wrong trace
has, end as well, because pasts only grow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isthmus.pipeline.audit.task.arrays import NEVER, Array, RunArrays
from isthmus.trace.causality import Before, Place, Question, chains_of_causes

_BLOCK = 1 << 16
"""Deliveries that are judged at a time, so that the matrices in between stay small."""


def own_pasts(run: RunArrays) -> Array:
    """What the sender of each message had sent or delivered before it."""
    pasts = np.zeros((run.messages, run.chains), np.int32)
    for process in range(run.processes):
        sent, sent_at = run.sends[process]
        if not len(sent):
            continue
        own = np.zeros((len(sent), run.chains), np.int32)
        messages, at = run.deliveries[process]
        epoch: Array = np.searchsorted(sent_at, at)
        before = epoch < len(sent)
        messages, epoch = messages[before], epoch[before]
        np.maximum.at(
            own.reshape(-1), epoch * run.chains + run.chain[messages], (run.rank[messages] + 1).astype(np.int32)
        )
        pasts[sent] = np.maximum.accumulate(own, axis=0)
    placed = np.flatnonzero(run.placed)
    mine = pasts[placed, run.chain[placed]]
    pasts[placed, run.chain[placed]] = np.maximum(mine, run.rank[placed].astype(np.int32))
    return pasts


def closed_pasts(run: RunArrays, pasts: Array) -> Array:
    """Whole causal pasts from those that senders saw."""
    while True:
        grown = pasts.copy()
        for chain in range(run.chains):
            held = np.flatnonzero(pasts[:, chain])
            last = run.on_chain[run.base[chain] + pasts[held, chain] - 1]
            grown[held] = np.maximum(grown[held], pasts[last])
        if np.array_equal(grown, pasts):
            return pasts
        pasts = grown


def chain_of_causes(run: RunArrays, first: int, second: int) -> list[int]:
    """The messages from a cause to its effect, each a direct cause of the next."""
    [chain] = chains_of_causes([(first, second)], lambda questions: [_seen_before(run, each) for each in questions])
    return chain


def _seen_before(run: RunArrays, question: Question[int]) -> Before[int]:
    _, first, message = question
    if not run.placed[message]:
        return Before(False)
    chain, rank, sent_at = int(run.chain[message]), int(run.rank[message]), run.sent_at[message]
    earlier = bool(run.chain[first] == chain and run.rank[first] < rank)
    if sent_at < 0:
        on_chain = run.on_chain[run.base[chain] : run.base[chain] + rank]
        sent = on_chain[run.sent_at[on_chain] >= 0]
        return Before(earlier, instead=int(sent[-1]) if len(sent) else None)
    messages, index = run.deliveries[run.log_of_sender[run.sender[message]]]
    messages = messages[index < sent_at]
    top = np.full(run.chains, -1, np.int64)
    np.maximum.at(top, run.chain[messages], run.rank[messages])
    top[run.senders :] = -1  # what nobody sent had no causes
    latest = [
        Place(each, int(top[each]), int(run.on_chain[run.base[each] + top[each]]))
        for each in np.flatnonzero(top >= 0).tolist()
    ]
    return Before(earlier or bool(np.any(messages == first)), latest)


class Unmet(NamedTuple):
    """Deliveries at one process that came too early: their places, and the chain of a message that was not there."""

    late: Array
    late_chains: Array
    missing: Array
    missing_chains: Array


class Channels:
    """What one process has of each chain, so that a whole causal past can be checked against it at once.

    `latest[offset[c] + n]` is the latest place among the first n messages of chain c that are for this process;
    `first_missing[c]` is the rank of the first that is owed but was never delivered.
    """

    def __init__(self, run: RunArrays, process: int) -> None:
        self.run = run
        self.process = process
        messages, self.index = run.deliveries[process]
        self.position = run.positions(process)
        self.first = np.flatnonzero(self.position[messages] == np.arange(len(messages)))
        """Places of first deliveries."""
        self.messages = messages
        self.for_me = run.is_for(process)
        self.owed_from = run.owed_from(process)
        self.offset = run.base[:-1] + np.arange(run.chains)
        on_chain, chain = run.on_chain, run.chain[run.on_chain]
        places = np.where(self.for_me[on_chain], self.position[on_chain], -1)
        span = len(messages) + 2
        values = np.arange(run.chains).repeat(np.diff(run.base) + 1) * span
        values[np.arange(len(on_chain)) + chain + 1] += places + 1
        self.latest = np.maximum.accumulate(values) - np.arange(run.chains).repeat(np.diff(run.base) + 1) * span - 1
        rank = run.rank[on_chain]
        owed = rank >= self.owed_from[chain]
        if run.joined[process]:
            owed &= run.placed[on_chain]
        absent = self.for_me[on_chain] & owed & (self.position[on_chain] < 0)
        self.first_missing = np.full(run.chains, NEVER, np.int64)
        np.minimum.at(self.first_missing, chain[absent], rank[absent])

    @property
    def owes(self) -> Array:
        """Which messages this process owes, or would if they were for it."""
        return self.run.rank >= self.owed_from[self.run.chain]

    def unmet_of_sender(self) -> Unmet:
        """Against the earlier messages of the same sender."""
        run = self.run
        places = self.first[run.placed[self.messages[self.first]]]
        messages = self.messages[places]
        chain, rank = run.chain[messages], run.rank[messages]
        late = self.latest[self.offset[chain] + rank] > places
        missing = ~late & (self.first_missing[chain] < rank)
        return Unmet(places[late], chain[late], places[missing], chain[missing])

    def unmet_of_past(self, pasts: Array) -> Unmet:
        """Against whole causal pasts."""
        parts = [
            self._unmet_block(self.first[start : start + _BLOCK], pasts) for start in range(0, len(self.first), _BLOCK)
        ]
        if not parts:
            nothing = np.zeros(0, np.int64)
            return Unmet(nothing, nothing, nothing, nothing)
        return Unmet(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _unmet_block(self, places: Array, pasts: Array) -> Unmet:
        past = pasts[self.messages[places]]
        # A circle may have a message in its own past. It stands at its own place, and nothing causes itself.
        is_late = self.latest[self.offset + past] > places[:, None]
        late = is_late.any(axis=1)
        is_missing = self.first_missing < past
        missing = is_missing.any(axis=1) & ~late
        return Unmet(places[late], is_late[late].argmax(axis=1), places[missing], is_missing[missing].argmax(axis=1))

    def overtaken(self, chain: int, place: int) -> int:
        """The first message of a chain that was delivered after a place."""
        start, end = self.offset[chain], self.offset[chain] + self.run.base[chain + 1] - self.run.base[chain] + 1
        reached = int(np.searchsorted(self.latest[start:end], place, side="right"))
        return int(self.run.on_chain[self.run.base[chain] + reached - 1])

    def absent(self, chain: int) -> int:
        """The first message of a chain that is owed but missing."""
        return int(self.run.on_chain[self.run.base[chain] + self.first_missing[chain]])
