"""Edges: what the sender of each message had delivered before it sent that, and closed pasts made of them.

An edge leads from a message to an address on another chain, and stands for that chain up to there. A message has edges
to those chains only that advanced since the message before on its own chain: what its sender had seen is the running
maximum along the chain. So a run has fewer edges than deliveries. An edge to a message without a place stands for that
message alone.

A chain's edges come in **stretches**, one per block of its sender's log. What the sender had seen before a stretch is
its `cut`: one address per chain, and messages without a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from isthmus.pipeline.engine.chains import Chains
from isthmus.pipeline.engine.logs import DELIVER, SEND, Array, Rows

if TYPE_CHECKING:
    from isthmus.pipeline.engine.run import Run

CLOSED_STRETCH = 1 << 16
_WINDOW = 1 << 13
"""Messages whose pasts are closed at a time, over all chains. For 31,232 messages on 64 chains, 2¹³ take 0.45 s of
processor time and 2¹⁵ 1.65 s: pasts leave the cache. For 250,000 on 8 chains, 2¹² take 0.32 s and 2¹⁵ 0.24 s."""

_NOTHING = np.zeros(0, np.int64)


class Stretch(Struct):
    """The edges of messages `start … stop - 1` of a chain; those of the last few may have none."""

    name: str
    chain: int
    start: int
    stop: int
    cut: list[int]
    """Addresses that the sender had seen when it sent the message before this stretch."""
    fresh: list[int]
    """Addresses of earlier blocks that it delivered since, which are edges of the first message."""


class Edges(NamedTuple):
    """Message number k of a stretch has the edges `to[pointer[k]:pointer[k + 1]]`."""

    pointer: Array
    to: Array


class Walked(Struct):
    """What others need to know of one block of a log: its sends, and how far it had got on each chain."""

    first: int
    """The slots of the first and the last message that it sent; -1: none."""
    last: int
    top_at_last: list[int]
    """Per chain the highest address delivered before the last send, or -1; then over the whole block."""
    top: list[int]
    loose_at_last: list[int]
    loose: list[int]


def walk(run: Run, job: tuple[int, int]) -> Walked:
    """One block of one log: its order of delivery as addresses, and its edges."""
    number, block = job
    log, chains = run.logs[number], run.chains
    rows = run.read(number, block)
    name = f"{number}-{block}"
    at = np.flatnonzero(rows.kind == DELIVER)
    chain = rows.origin[at]
    order = chains.address(chain, rows.seq[at])
    run.put_addresses(f"order-{name}", order)
    own = chains.number.get(log.name, -1)
    sends, slots = _first_sends(rows, chains, own, log.sent_before[block]) if own >= 0 else (_NOTHING, _NOTHING)
    passed = np.zeros(len(rows.kind) + 1, np.int32)
    passed[sends + 1] = 1
    epoch = np.cumsum(passed, dtype=np.int32)[at]
    before_last = int(np.searchsorted(epoch, len(sends)))
    if len(sends):
        pointer, to = _edges(chains, own, slots, epoch[:before_last], chain[:before_last], order[:before_last])
        run.store.put(f"direct-{name}-pointer", pointer)
        run.put_addresses(f"direct-{name}-to", to)
    early = _early(rows, chains, own, at, order, log.sent_before[block] + np.searchsorted(sends, at))
    if early is not None:
        run.store.put(f"early-{name}", early)
    placed = chains.is_placed(order, chain) if chains.loose else np.ones(len(order), bool)
    tops, alone = [], []
    for end in (before_last, len(order)):
        top = np.full(chains.count, -1, np.int64)
        np.maximum.at(top, chain[:end][placed[:end]], order[:end][placed[:end]])
        tops.append(top.tolist())
        alone.append(np.unique(order[:end][~placed[:end]]).tolist())
    first, last = (int(slots[0]), int(slots[-1])) if len(slots) else (-1, -1)
    return Walked(first, last, *tops, *alone)


def _first_sends(rows: Rows, chains: Chains, own: int, sent_before: int) -> tuple[Array, Array]:
    """The rows of first sends, and the slots of their messages, which rise: by order of sending, or by number."""
    sends = np.flatnonzero(rows.kind == SEND)
    if chains.plain[own]:
        return sends, sent_before + np.arange(len(sends))
    slots = chains.slot(own, rows.seq[sends])
    first = chains.sent_at(own)[slots] == rows.index[sends]
    return sends[first], slots[first]


def _edges(chains: Chains, own: int, slots: Array, epoch: Array, chain: Array, order: Array) -> Edges:
    """`epoch` counts the sends before each delivery, all of which come before the last send."""
    size = int(slots[-1] - slots[0]) + 1
    if not len(order):
        return Edges(np.zeros(size + 1, np.int64), _NOTHING)
    by_chain = np.argsort(chain.astype(np.uint16) if chains.count < 1 << 16 else chain, kind="stable")
    seen, of_chain, when = order[by_chain], chain[by_chain], epoch[by_chain]
    loose = None
    if chains.loose:
        loose = ~chains.is_placed(seen, of_chain)
        seen = np.where(loose, chains.base[of_chain] - 1, seen)
    np.maximum.accumulate(seen, out=seen)  # bases grow with chains, so that no chain starts with the last one's
    last = np.append((when[1:] != when[:-1]) | (of_chain[1:] != of_chain[:-1]), True)
    kept = np.flatnonzero(last)
    value, of_kept = seen[kept], of_chain[kept]
    first = np.append(True, of_kept[1:] != of_kept[:-1])
    before = np.where(first, chains.base[of_kept] - 1, np.append(-1, value[:-1]))
    advanced = value > before
    # Its own earlier messages are on its chain anyhow, and nothing is a cause of itself.
    advanced &= (of_kept != own) | (value > chains.base[own] + slots[when[kept]])
    found = np.full(len(order), -1, np.int64)
    found[by_chain[kept[advanced]]] = value[advanced]
    there = np.flatnonzero(found >= 0)
    to, of_epoch = found[there], epoch[there]
    if loose is not None:
        alone = by_chain[loose]
        to, of_epoch = np.concatenate([to, order[alone]]), np.concatenate([of_epoch, epoch[alone]])
        by_epoch = np.argsort(of_epoch, kind="stable")
        to, of_epoch = to[by_epoch], of_epoch[by_epoch]
    pointer = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(slots[of_epoch] - slots[0], minlength=size), out=pointer[1:])
    return Edges(pointer, to)


def _early(rows: Rows, chains: Chains, own: int, at: Array, order: Array, sent: Array) -> Array | None:
    """Own messages that are delivered before their `send` row: addresses, and numbers of deliveries in this block."""
    mine = np.flatnonzero(rows.origin[at] == own) if own >= 0 else _NOTHING
    if not len(mine):
        return None
    slot = order[mine] - chains.base[own]
    early = slot >= sent[mine] if chains.plain[own] else chains.sent_at(own)[slot] > rows.index[at[mine]]
    return np.stack([order[mine[early]], mine[early]]) if early.any() else None


def stretches(chains: Chains, walked: Sequence[tuple[int, Sequence[tuple[str, Walked]]]]) -> list[Stretch]:
    """The stretches of all chains, from the blocks of each log in order. Every placed message is in one."""
    found: list[Stretch] = []
    for chain, blocks in walked:
        mine: list[Stretch] = []
        cut, top = np.full(chains.count, -1, np.int64), np.full(chains.count, -1, np.int64)
        cut_loose: set[int] = set()
        loose: set[int] = set()
        for name, block in blocks:
            if block.first >= 0:
                fresh = [*top[top > cut].tolist(), *sorted(loose - cut_loose)]
                cuts = [*cut[cut >= 0].tolist(), *sorted(cut_loose)]
                mine.append(Stretch(f"direct-{name}", chain, block.first, block.last + 1, cuts, fresh))
                cut = np.maximum(top, np.array(block.top_at_last))
                cut_loose = loose | set(block.loose_at_last)
            top = np.maximum(top, np.array(block.top))
            loose |= set(block.loose)
        found += _tiled(mine, chain, int(chains.placed[chain]))
    walked_chains = {chain for chain, _ in walked}
    for chain in range(chains.count):
        if chain not in walked_chains:
            found += _tiled([], chain, int(chains.placed[chain]))
    return found


def _tiled(mine: list[Stretch], chain: int, placed: int) -> list[Stretch]:
    """Messages whose `send` row is lost lie between stretches, or before or behind all: they have no edges."""
    if placed and (not mine or mine[0].start > 0):
        mine.insert(0, Stretch("", chain, 0, 0, [], []))
    for stretch, stop in zip(mine, [*(each.start for each in mine[1:]), placed], strict=False):
        stretch.stop = stop
    return mine


def edges_of(run: Run, stretch: Stretch) -> Edges:
    """The edges of a stretch, those of earlier blocks included."""
    size = stretch.stop - stretch.start
    if not stretch.name:
        return Edges(np.zeros(size + 1, np.int64), _NOTHING)
    pointer, to = run.store.get(f"{stretch.name}-pointer"), run.store.get(f"{stretch.name}-to")
    if stretch.fresh:
        pointer, to = pointer + len(stretch.fresh), np.concatenate([np.array(stretch.fresh, to.dtype), to])
        pointer[0] = 0
    if len(pointer) <= size:
        pointer = np.concatenate([pointer, np.full(size + 1 - len(pointer), pointer[-1])])
    return Edges(pointer, to)


# Closed pasts ---------------------------------------------------------------------------------------------------------


class Chain:
    """All edges of one chain, for any part of it."""

    def __init__(self, run: Run, mine: Sequence[Stretch]) -> None:
        self._run, self._stretches = run, mine
        self._at_hand: tuple[str, Edges] = ("", Edges(_NOTHING, _NOTHING))

    def _edges(self, stretch: Stretch) -> Edges:
        """Parts are asked for in order, so the last stretch is likely to be the next one."""
        if self._at_hand[0] != stretch.name or not stretch.name:
            self._at_hand = stretch.name, edges_of(self._run, stretch)
        return self._at_hand[1]

    def between(self, start: int, stop: int) -> Edges:
        """The edges of messages `start … stop - 1`."""
        counts, found = [np.zeros(1, np.int64)], [_NOTHING]
        for stretch in self._stretches:
            low, high = max(start, stretch.start), min(stop, stretch.stop)
            if low < high:
                pointer, to = self._edges(stretch)
                counts.append(np.diff(pointer[low - stretch.start : high - stretch.start + 1]))
                found.append(np.asarray(to[pointer[low - stretch.start] : pointer[high - stretch.start]], np.int64))
        return Edges(np.cumsum(np.concatenate(counts)), np.concatenate(found))

    def seen_before(self, slot: int) -> Array:
        """Addresses that stand for all that the sender had delivered when it sent a message."""
        for stretch in self._stretches:
            if stretch.start <= slot < stretch.stop:
                pointer, to = self._edges(stretch)
                part = np.asarray(to[: pointer[slot - stretch.start + 1]], np.int64)
                return np.concatenate([np.array(stretch.cut, np.int64), part])
        return _NOTHING


def close(run: Run, direct: Sequence[Stretch]) -> list[Stretch]:
    """Stretches with the edges of whole causal pasts.

    `pasts[m][c]` counts the messages of chain c in the past of the placed message m: every past takes in the pasts of
    the last message that it holds of each chain, until nothing changes. This goes along a moving cut, some thousand
    messages at a time, whose edges all lead behind the cut or to each other. Circles, in wrong traces only, widen the
    window; pasts only grow, so they end as well.
    """
    chains = run.chains
    by_chain = [Chain(run, [each for each in direct if each.chain == chain]) for chain in range(chains.count)]
    pasts = run.store.empty("pasts", (chains.messages, chains.count), np.int32)
    done = np.zeros(chains.count, np.int64)
    least = window = max(64, _WINDOW // max(1, chains.count))
    longest = int(chains.placed.max(initial=0))
    while (done < chains.placed).any():
        end = np.minimum(done + window, chains.placed)
        asked = {
            chain: _counts(chains, by_chain[chain].between(int(done[chain]), int(end[chain])))
            for chain in np.flatnonzero(end > done).tolist()
        }
        if window < longest:
            _shrink(asked, done, end)
        if (end == done).all():
            window = min(8 * window, longest)
            continue
        window = least
        for chain, (pointer, of, count) in asked.items():
            size = int(end[chain] - done[chain])
            used = pointer[size]
            rows = np.zeros((size, chains.count), np.int32)
            when = np.repeat(np.arange(size), np.diff(pointer[: size + 1]))
            np.maximum.at(rows, (when, of[:used]), count[:used])
            start = int(chains.base[chain] + done[chain])
            if size:
                rows[:, chain] = np.maximum(rows[:, chain], np.arange(done[chain], end[chain]))
                if done[chain]:
                    rows[0] = np.maximum(rows[0], pasts[start - 1])
                pasts[start : start + size] = np.maximum.accumulate(rows, axis=0)
        parts = [np.arange(start, stop) for start, stop in zip(done, end, strict=True)]
        _grow(pasts, chains, np.concatenate([part + base for part, base in zip(parts, chains.base, strict=False)]))
        done = end
    first_holders = _first_holders(chains, pasts, by_chain)
    return [
        each
        for chain in range(chains.count)
        for start in range(0, int(chains.placed[chain]), CLOSED_STRETCH)
        for each in [_closed(run, pasts, first_holders, chain, start)]
    ]


def _counts(chains: Chains, edges: Edges) -> tuple[Array, Array, Array]:
    """Edges as chain and count; those without a place count nothing."""
    of = chains.chain_at(edges.to)
    count = edges.to - chains.base[of] + 1
    if chains.loose:
        count = np.where(chains.is_placed(edges.to, of), count, 0)
    return edges.pointer, of, count.astype(np.int32)


def _shrink(asked: dict[int, tuple[Array, Array, Array]], done: Array, end: Array) -> None:
    """Pull the end of a window back until no message in it has an edge beyond."""
    changed = True
    while changed:
        changed = False
        for chain, (pointer, of, count) in asked.items():
            used = pointer[end[chain] - done[chain]]
            beyond = np.flatnonzero(count[:used] > end[of[:used]])
            if len(beyond):
                end[chain] = done[chain] + np.searchsorted(pointer, beyond[0], side="right") - 1
                changed = True


def _grow(pasts: Array, chains: Chains, window: Array) -> None:
    old = pasts[window]
    while True:
        grown = old.copy()
        for chain in range(chains.count):
            held = np.flatnonzero(old[:, chain])
            if len(held):
                grown[held] = np.maximum(grown[held], pasts[chains.base[chain] + old[held, chain] - 1])
        if np.array_equal(grown, old):
            return
        pasts[window] = old = grown


def _first_holders(chains: Chains, pasts: Array, by_chain: Sequence[Chain]) -> tuple[Array, Array]:
    """Messages without a place that are causes, and for each and every chain the first slot that has it in its past.

    They are sources, so a message has one in its past if it has the first message of some chain that saw it.
    """
    seen = [each.between(0, int(chains.placed[chain])) for chain, each in enumerate(by_chain)] if chains.loose else []
    loose = [edges.to[~chains.is_placed(edges.to, chains.chain_at(edges.to))] for edges in seen]
    found = np.unique(np.concatenate([_NOTHING, *loose]))
    direct = np.full((len(found), chains.count), np.iinfo(np.int32).max, np.int64)
    for chain, edges in enumerate(seen):
        there = np.flatnonzero(np.isin(edges.to, found))[::-1]
        slots = np.searchsorted(edges.pointer, there, side="right") - 1
        direct[np.searchsorted(found, edges.to[there]), chain] = slots
    closed = direct.copy()
    for chain in range(chains.count):
        mine = pasts[chains.span(chain)]
        for other in range(chains.count) if len(found) else ():
            held = np.searchsorted(mine[:, other], direct[:, other], side="right")
            closed[:, chain] = np.minimum(closed[:, chain], np.where(held < len(mine), held, closed[:, chain]))
    return found, closed


def _closed(run: Run, pasts: Array, first_holders: tuple[Array, Array], chain: int, start: int) -> Stretch:
    """A stretch of closed edges: only what advanced since the message before."""
    chains = run.chains
    stop = min(start + CLOSED_STRETCH, int(chains.placed[chain]))
    base = int(chains.base[chain])
    mine = np.array(pasts[base + start : base + stop])
    before = np.concatenate([pasts[base + start - 1 : base + start] if start else np.zeros_like(mine[:1]), mine[:-1]])
    advanced = mine > before
    advanced[:, chain] &= mine[:, chain] > np.arange(start, stop) + 1
    slot, of = np.nonzero(advanced)
    to = chains.base[of] + mine[slot, of] - 1
    loose, holders = first_holders
    if len(loose):
        here = np.flatnonzero((holders[:, chain] >= start) & (holders[:, chain] < stop))
        slot, to = np.concatenate([slot, holders[here, chain] - start]), np.concatenate([to, loose[here]])
        order = np.argsort(slot, kind="stable")
        slot, to = slot[order], to[order]
    pointer = np.zeros(stop - start + 1, np.int64)
    np.cumsum(np.bincount(slot, minlength=stop - start), out=pointer[1:])
    name = f"closed-{chain}-{start}"
    run.store.put(f"{name}-pointer", pointer)
    run.put_addresses(f"{name}-to", to)
    cut = []
    if start:
        counts = pasts[base + start - 1].astype(np.int64)
        cut = [*(chains.base[:-1] + counts - 1)[counts > 0].tolist(), *loose[holders[:, chain] < start].tolist()]
    return Stretch(name, chain, start, stop, cut, [])
