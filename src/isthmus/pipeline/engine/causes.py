"""Chains of causes of the violations that are shown, found by looking back along edges."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from isthmus.pipeline.engine.edges import Chain
from isthmus.pipeline.engine.finding import Described
from isthmus.pipeline.engine.run import Run
from isthmus.trace.causality import Before, Place, Question, chains_of_causes


class _Seen:
    """What senders had seen, from direct edges: per chain only the last message, which all earlier ones lead to."""

    def __init__(self, run: Run) -> None:
        self._chains = run.chains
        self._by_chain = [
            Chain(run, [each for each in run.direct if each.chain == chain]) for chain in range(run.chains.count)
        ]

    def before(self, question: Question[int]) -> Before[int]:
        _, first, message = question
        chains = self._chains
        chain = int(chains.chain_at(message))
        slot = message - int(chains.base[chain])
        if slot >= chains.placed[chain]:
            return Before(False)
        first_placed = bool(chains.is_placed(first, chains.chain_at(first)))
        earlier = first_placed and int(chains.base[chain]) <= first < message
        if chain in chains.odd:
            sent = chains.sent_at(chain)[: slot + 1] >= 0
            if not sent[-1]:
                there = np.flatnonzero(sent)
                return Before(earlier, instead=int(chains.base[chain] + there[-1]) if len(there) else None)
        seen = self._by_chain[chain].seen_before(slot)
        of = chains.chain_at(seen)
        placed = chains.is_placed(seen, of)
        top = np.full(chains.count, -1, np.int64)
        np.maximum.at(top, of[placed], seen[placed])
        latest = [
            Place(each, int(top[each] - chains.base[each]), int(top[each]))
            for each in np.flatnonzero(top >= 0).tolist()
        ]
        return Before(earlier or bool((seen == first).any()), latest)


def describe_chains(run: Run, described: Sequence[Described]) -> list[Described]:
    """The same mistakes, each with the messages from its cause to its effect."""
    seen = _Seen(run)
    pairs = [(each.first, each.second) for each in described]
    found = chains_of_causes(pairs, lambda questions: list(map(seen.before, questions)))
    return [
        Described(msgspec.structs.replace(each.mistake, chain=tuple(map(run.chains.text, _short(run, chain)))))
        for each, chain in zip(described, found, strict=True)
    ]


def _short(run: Run, chain: Sequence[int]) -> list[int]:
    """Without the second message, where it only stands for the first: the sender of the third delivered that itself."""
    if len(chain) > 2 and run.delivered_before_sending(chain[0], chain[2]):
        return [chain[0], *chain[2:]]
    return list(chain)
