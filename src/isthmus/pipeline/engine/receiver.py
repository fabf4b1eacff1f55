"""One process of a run: what it delivered, where, and what should have come before.

`place[address]` is the number of the first delivery of a message, or -1. `latest[address]` is the latest place of what
is for this process on a chain up to there; it is beyond every place from the first message on that is owed and missing.
A message came too early iff the latest place of anything in its past is beyond its own. Where the log has a gap, a
message that is missing may be in the gap: `lack[address]` says that one is missing on the chain up to there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isthmus.pipeline.engine.edges import Stretch, edges_of
from isthmus.pipeline.engine.logs import EVERYONE, NEVER, Array

if TYPE_CHECKING:
    from isthmus.pipeline.engine.run import Run

MISSING = np.iinfo(np.int32).max
_EDGES = 1 << 20
"""Edges that are looked at in one go."""
_MANY = 4
"""Edges per message from which on each is looked at by itself first: with 64, that takes 0.2 ns per edge, not 3."""


class Unmet(NamedTuple):
    """Deliveries of one chain, from a slot on, that came before something that should have come before them."""

    first: int
    late: Array
    """Something came later, or never, and there is no gap."""
    lacking: Array
    """Something is missing, and nothing is late."""
    places: Array


def _greatest(values: Array, stops: Array, carried: Array) -> Array:
    """The greatest of `carried` and of all values before each stop. The last stop is behind all values."""
    if len(values) < _MANY * len(stops):
        running = np.append(carried, values)
        return np.maximum.accumulate(running, out=running)[stops]
    starts = np.append(0, stops[:-1])
    found = np.full(len(stops), carried)
    some = stops > starts  # `reduceat` would take the next value for none
    found[some] = np.maximum.reduceat(values, starts[some])
    found[0] = max(found[0], carried)
    return np.maximum.accumulate(found, out=found)


class Receiver:
    def __init__(self, run: Run, number: int) -> None:
        self.run, self.number = run, number
        self.log, self.chains = run.logs[number], run.chains
        self.orders = run.orders(number)
        self.deliveries = self.log.deliveries
        self.place = np.full(self.chains.messages, -1, np.int32)
        for start, order in zip(self.log.delivered_before, self.orders, strict=False):
            self.place[order] = np.arange(start, start + len(order), dtype=np.int32)
        self.distinct = int(np.count_nonzero(self.place >= 0))
        if self.distinct < self.deliveries:  # the first delivery counts: once more, backwards
            for start, order in reversed(list(zip(self.log.delivered_before, self.orders, strict=False))):
                self.place[order[::-1]] = np.arange(start + len(order) - 1, start - 1, -1, dtype=np.int32)

    @property
    def name(self) -> str:
        return self.log.name

    @cached_property
    def order(self) -> Array:
        """Addresses of first deliveries, in their order."""
        order = np.concatenate([np.zeros(0, np.int64), *self.orders])
        return order if self.distinct == self.deliveries else order[self._is_first(order)]

    def _is_first(self, order: Array) -> Array:
        return self.place[order] == np.arange(len(order))

    def again(self) -> tuple[Array, Array]:
        """Addresses and places of deliveries after the first."""
        if self.distinct == self.deliveries:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        order = np.concatenate(self.orders)
        places = np.flatnonzero(~self._is_first(order))
        return order[places], places

    def early(self) -> Array:
        """Addresses of own messages whose first delivery comes before their `send` row."""
        found = [np.zeros(0, np.int64)]
        for block, start in enumerate(self.log.delivered_before[:-1]):
            if self.run.store.has(f"early-{self.number}-{block}"):
                address, place = self.run.store.get(f"early-{self.number}-{block}")
                found.append(address[self.place[address] == place + start])
        return np.concatenate(found)

    def index_of(self, address: int) -> int | None:
        """The index of the first delivery of a message."""
        place = int(self.place[address])
        return None if place < 0 else self.run.index_at(self.number, place)

    # What it owes

    @cached_property
    def for_me(self) -> Array | None:
        """Which messages are for this process; None: all are."""
        if not self.run.multicast:
            return None
        allowed = np.append(self.run.audiences[:, self.number], True)  # the last is for EVERYONE
        assert EVERYONE == -1
        return allowed[self.run.store.get("audience")]

    @cached_property
    def owed_from(self) -> Array | None:
        """Chain to the slot from which on this process owes its messages; None: it was there from the start."""
        if not self.log.joined:
            return None
        owed = np.full(self.chains.count, NEVER, np.int64)
        for order in self.orders:
            address = np.asarray(order, np.int64)
            chain = self.chains.chain_at(address)
            fresh = np.flatnonzero(self.chains.is_placed(address, chain) & (owed[chain] == NEVER))[::-1]
            owed[chain[fresh]] = address[fresh] - self.chains.base[chain[fresh]] + 1
        return owed

    def owes(self, chain: int) -> Array:
        """Which messages of a chain this process owes: of one that came later, only those with a place."""
        span = self.chains.span(chain, placed=False)
        owed = np.ones(span.stop - span.start, bool)
        if self.for_me is not None:
            owed &= self.for_me[span]
        if self.owed_from is not None:
            owed[: min(int(self.owed_from[chain]), len(owed))] = False
            owed[int(self.chains.placed[chain]) :] = False
        return owed

    # Order

    @cached_property
    def _order_of_chains(self) -> tuple[Array, Array | None]:
        chains, place = self.chains, self.place
        latest = place.copy() if self.for_me is None else np.where(self.for_me, place, np.int32(-1))
        lack = np.zeros(chains.messages, bool) if self.log.has_gap else None
        for chain in range(chains.count):
            span = chains.span(chain)
            part = latest[span]
            np.maximum.accumulate(part, out=part)
            if self.distinct == chains.messages:
                continue
            every = chains.span(chain, placed=False)
            absent = np.flatnonzero(self.owes(chain) & (place[every] < 0))
            placed = absent[: np.searchsorted(absent, chains.placed[chain])]
            alone = absent[len(placed) :] + every.start
            if lack is not None:
                lack[alone] = True
                if len(placed):
                    lack[span][placed[0] :] = True
            else:
                latest[alone] = MISSING
                if len(placed):
                    part[placed[0] :] = MISSING
        return latest, lack

    @property
    def latest(self) -> Array:
        return self._order_of_chains[0]

    @property
    def lack(self) -> Array | None:
        return self._order_of_chains[1]

    def unmet_of_sender(self, chain: int) -> Unmet | None:
        """Deliveries of a chain against its own earlier messages."""
        span = self.chains.span(chain)
        places = self.place[span][1:]
        if not len(places):
            return None
        late = (self.latest[span][:-1] > places) & (places >= 0)
        lacking = np.zeros(0, bool) if self.lack is None else self.lack[span][:-1] & (places >= 0) & ~late
        return Unmet(1, late, lacking, places)

    def unmet(self, stretch: Stretch) -> Iterator[Unmet]:
        """Deliveries of a stretch of a chain against all that their sender had seen."""
        latest, lack = self.latest, self.lack
        span = self.chains.span(stretch.chain)
        own, places = latest[span], self.place[span]
        pointer, to = edges_of(self.run, stretch)
        cut = np.array(stretch.cut, np.int64)
        carried = int(latest[cut].max(initial=-1))
        carried_lack = lack is not None and bool(lack[cut].any())
        start, size = 0, stretch.stop - stretch.start
        while start < size:
            low = int(pointer[start])
            end = int(np.searchsorted(pointer, low + _EDGES, side="right")) - 1
            end = max(start + 1, min(end, start + _EDGES, size))
            some = to[low : int(pointer[end])]
            upto = np.asarray(pointer[start + 1 : end + 1] - low)
            first = stretch.start + start
            here = places[first : stretch.start + end]
            before = slice(max(first - 1, 0), stretch.start + end - 1)
            with_before = slice(0 if first else 1, None)  # the first message of a chain has none before it
            reach = _greatest(latest.take(some, mode="clip"), upto, np.int32(carried))
            carried = int(reach[-1])
            np.maximum(reach[with_before], own[before], out=reach[with_before])
            # A circle may have a message in its own past. It stands at its own place, and nothing causes itself.
            late = (reach > here) & (here >= 0)
            lacking = np.zeros(0, bool)
            if lack is not None:
                lacking = _greatest(lack[some], upto, np.bool_(carried_lack))
                carried_lack = bool(lacking[-1])
                lacking[with_before] |= lack[span][before]
                lacking &= (here >= 0) & ~late
            yield Unmet(first, late, lacking, here)
            start = end

    def misses(self, past: Array, place: int) -> Array:
        """Which of these addresses stand for something that was not there before a place."""
        wrong = self.latest[past] > place
        return self.lack[past] if self.lack is not None and not wrong.any() else wrong

    def cause_of(self, past: Array, place: int) -> int:
        """Of addresses that stand for a past, a message for this process that was not there before a place."""
        top = int(past[np.argmax(self.misses(past, place))])
        chain = int(self.chains.chain_at(top))
        slot = top - int(self.chains.base[chain])
        alone = slot >= self.chains.placed[chain]
        span = slice(top if alone else int(self.chains.base[chain]), top + 1)
        places = self.place[span]
        mine = np.ones(len(places), bool) if self.for_me is None else self.for_me[span]
        late = np.flatnonzero(mine & (places > place))
        if len(late):
            return span.start + int(late[0])
        owed = self.owes(chain)[slot - len(places) + 1 : slot + 1]
        return span.start + int(np.flatnonzero(owed & (places < 0))[0])

    # Whether direct edges are enough

    @cached_property
    def _is_open(self) -> bool:
        """Some message may be invisible here: not for this process, from before it came, or in a gap."""
        return self.run.multicast or self.log.joined or self.log.has_gap

    @cached_property
    def _visible(self) -> tuple[Array, Array, Array]:
        """Which messages are judged here by their own causes; which count as causes; the first of these per chain."""
        owed = np.concatenate([np.zeros(0, bool), *map(self.owes, range(self.chains.count))])
        delivered = self.place >= 0
        if self.for_me is not None:
            delivered &= self.for_me
        counts = owed | delivered
        first = np.full(self.chains.count, NEVER, np.int64)
        for chain in range(self.chains.count):
            there = np.flatnonzero(counts[self.chains.span(chain)])
            first[chain] = there[0] if len(there) else NEVER
        return delivered if self.log.has_gap else counts, counts, first

    def hides(self, stretch: Stretch) -> bool:
        """Is there a message that is invisible here, with a direct cause that counts? Then chains of causes may lead
        through it, and what senders saw is not enough to judge by."""
        if not self._is_open or not stretch.name:
            return False
        visible, counts, first = self._visible
        span = self.chains.span(stretch.chain)
        unseen = ~visible[span][stretch.start : stretch.stop]
        pointer, to = edges_of(self.run, stretch)
        behind = np.asarray(to[np.repeat(unseen, np.diff(pointer))], np.int64)
        chain = self.chains.chain_at(behind)
        placed = self.chains.is_placed(behind, chain)
        shows = placed & (behind - self.chains.base[chain] >= first[chain])
        return bool(shows.any() or counts[behind[~placed]].any())
