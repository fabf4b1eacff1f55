"""Addresses: where each message of a run stands.

Each sender is a **chain**. Its messages with a place in the order of sending come first, in that order; behind them
come those that have none, which nobody sent. An **address** is the base of the chain plus the slot of the message on
it. A chain whose messages are numbered 1, 2, 3, … needs no table: the slot is the number less one. Any other is
**odd**, and so is that of a sender whose messages are due only where somebody delivered them: of these it is noted,
number by number, what was sent and delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from isthmus.pipeline.engine.logs import DELIVER, SEND, Array, Log
from isthmus.pipeline.engine.store import Store

if TYPE_CHECKING:
    from isthmus.pipeline.engine.run import Run

_ROOMY = 1000
"""A table by number may have so many empty cells, and four times as many cells as messages."""


class Settled(Struct):
    """What became of an odd chain."""

    placed: int
    slots: int
    open_past: bool
    """Somebody delivered a message of which we do not see all that its sender had done before."""
    open_message: bool
    """Somebody delivered a message that has no `send` row, and the log of its sender is not complete."""


class Chains:
    """All chains of a run. What is said per chain is an array over them."""

    def __init__(self, logs: Sequence[Log], names: Sequence[str], store: Store) -> None:
        self.names = names
        self.number = {name: number for number, name in enumerate(names)}
        self.count = len(names)
        self._store = store
        self.log_of = np.full(self.count, -1)
        highest = np.zeros(self.count, np.int64)
        for number, log in enumerate(logs):
            if log.name in self.number:
                self.log_of[self.number[log.name]] = number
            for block in log.blocks:
                for name, top in block.highest.items():
                    highest[self.number[name]] = max(highest[self.number[name]], top)
        mine = [logs[number] if number >= 0 else None for number in self.log_of]
        self.complete = np.array([log is not None and log.complete for log in mine], bool)
        self.crashed = np.array([log is not None and log.crashed for log in mine], bool)
        self.first_gap = np.array([0 if log is None else log.first_gap for log in mine], np.int64)
        self.sends = np.array([0 if log is None else log.sends for log in mine], np.int64)
        contiguous = np.array([log is not None and log.contiguous for log in mine], bool)
        self.plain = self.complete & contiguous & (highest <= self.sends)
        """Sent without a hole, and nobody delivered what was not sent."""
        self.sure = self.complete & ~self.crashed
        """All its messages are due."""
        self.placed = np.where(self.plain, self.sends, 0)
        self.slots = self.placed.copy()
        """How many messages have a place, and how many there are."""
        self.odd = [int(each) for each in np.flatnonzero(~(self.plain & self.sure))]
        self.open_past = self.open_message = False
        self._finish()

    def _finish(self) -> None:
        self.base = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.slots)])
        self.messages = int(self.base[-1])
        self.loose = bool((self.slots > self.placed).any())
        """Some message has no place."""
        self._tables = [each for each in self.odd if self._store.has(f"numbers-{each}")]

    def settle(self, settled: Sequence[Settled]) -> None:
        """What the closer look at odd chains has found, in their order."""
        for chain, each in zip(self.odd, settled, strict=True):
            self.placed[chain], self.slots[chain] = each.placed, each.slots
            self.open_past |= each.open_past
            self.open_message |= each.open_message
        self._finish()

    # Addresses

    def slot(self, chain: int, seq: Array) -> Array:
        """Numbers of one chain to slots."""
        if chain not in self._tables:
            return seq - 1
        if self._store.has(f"slots-{chain}"):
            return self._store.get(f"slots-{chain}")[seq]
        by_number = self._store.get(f"sorted-{chain}")
        return by_number[1][np.searchsorted(by_number[0], seq)]

    def address(self, chain: Array, seq: Array) -> Array:
        found = self.base[chain] + seq - 1
        for each in self._tables:
            mine = chain == each
            found[mine] = self.base[each] + self.slot(each, seq[mine])
        return found

    def chain_at(self, address: Array) -> Array:
        return np.searchsorted(self.base, address, side="right") - 1

    def is_placed(self, address: Array, chain: Array) -> Array:
        return address - self.base[chain] < self.placed[chain]

    def text(self, address: int) -> str:
        """The id of a message."""
        chain = int(self.chain_at(address))
        slot = int(address - self.base[chain])
        seq = int(self._store.get(f"numbers-{chain}")[slot]) if chain in self._tables else slot + 1
        return f"{self.names[chain]}/{seq}"

    def span(self, chain: int, *, placed: bool = True) -> slice:
        """The addresses of a chain."""
        start = int(self.base[chain])
        return slice(start, start + int(self.placed[chain] if placed else self.slots[chain]))

    # Of odd chains, by slot

    def sent_at(self, chain: int) -> Array:
        """The index of the first `send` row, or -1."""
        return self._store.get(f"sent-{chain}")

    def delivered(self, chain: int) -> Array:
        """Whether anybody delivered it."""
        return self._store.get(f"delivered-{chain}")

    def never_sent(self, chain: int) -> Array | None:
        """Whether nobody sent it, where we would know; None: all were sent, or we would not."""
        return self.sent_at(chain) < 0 if chain in self.odd and self.complete[chain] else None


# A closer look at odd chains, in two passes ---------------------------------------------------------------------------


def note_numbers(run: Run, number: int) -> None:
    """One log: what it delivered of odd chains, and what it sent, if its own chain is odd."""
    log, chains = run.logs[number], run.chains
    is_odd = np.zeros(chains.count + 1, bool)
    is_odd[chains.odd] = True
    delivered: dict[int, list[Array]] = {chain: [] for chain in chains.odd}
    sent: list[Array] = []
    for block in range(len(log.blocks)):
        rows = run.read(number, block)
        mine = np.flatnonzero((rows.kind == DELIVER) & is_odd[rows.origin])
        for chain in chains.odd:
            delivered[chain].append(np.unique(rows.seq[mine[rows.origin[mine] == chain]]))
        sends = rows.kind == SEND
        sent.append(np.stack([rows.seq[sends], rows.index[sends]]))
    for chain, parts in delivered.items():
        run.store.put(f"got-{chain}-{number}", np.unique(np.concatenate(parts)))
    if chains.number.get(log.name) in chains.odd:
        run.store.put(f"sends-{chains.number[log.name]}", np.concatenate(sent, axis=1))


def settle(run: Run, chain: int) -> Settled:
    """One odd chain: which messages it has, in which order."""
    chains, store = run.chains, run.store
    seq, at = store.get(f"sends-{chain}") if store.has(f"sends-{chain}") else np.zeros((2, 0), np.int64)
    _, first = np.unique(seq, return_index=True)
    first.sort()
    seq, at = seq[first], at[first]  # of several `send` rows of one message the first counts
    delivered = np.unique(np.concatenate([store.get(f"got-{chain}-{log}") for log in range(len(run.logs))]))
    unsent = np.setdiff1d(delivered, seq)
    complete = bool(chains.complete[chain])
    if not complete and (seq[1:] > seq[:-1]).all():
        placed, unplaced = np.union1d(seq, unsent), unsent[:0]
    else:
        placed, unplaced = seq, unsent
    order = np.concatenate([placed, unplaced])
    count = len(order)
    by_number = np.argsort(order, kind="stable")
    if not np.array_equal(order, np.arange(1, count + 1)):
        store.put(f"numbers-{chain}", order)
        if order.max() <= 4 * count + _ROOMY:
            slots = np.zeros(int(order.max()) + 1, np.int64)
            slots[order] = np.arange(count)
            store.put(f"slots-{chain}", slots)
        else:
            store.put(f"sorted-{chain}", np.stack([order[by_number], by_number]))

    def slot(some: Array) -> Array:
        return by_number[np.searchsorted(order, some, sorter=by_number)]

    sent_at = np.full(count, -1, np.int64)
    sent_at[slot(seq)] = at
    anywhere = np.zeros(count, bool)
    anywhere[slot(delivered)] = True
    store.put(f"sent-{chain}", sent_at)
    store.put(f"delivered-{chain}", anywhere)
    lost = anywhere & (sent_at < 0) & (not complete)
    behind_a_gap = anywhere & (sent_at >= chains.first_gap[chain])
    return Settled(len(placed), count, bool((lost | behind_a_gap).any()), bool(lost.any()))
