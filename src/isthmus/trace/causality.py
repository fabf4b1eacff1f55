"""What caused what, in two forms.

The **direct causes** of a message, sent by s, are s's previous send and, per sender, the latest of its messages that
s delivered since. Every other cause is a cause of one of these, so in a run of broadcasts it is enough to look at
them: where each message stands after its direct causes, it stands after all of them, by induction.

That induction needs every cause to be visible at the place that is judged. It is not where a message was not for
that place, or was delivered before that process came, or in a gap of its log. There the whole **causal past** is
needed. It holds a prefix of every sender's messages, so one count per sender says it all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from isthmus.core.clocks import merge
from isthmus.trace.history import UNPLACED, RunHistory

Past: TypeAlias = tuple[list[int], frozenset[int]]
"""Per sender how many of its messages, and the messages that have no place in any sender's order."""


def direct_causes(history: RunHistory) -> list[list[int]]:
    """The direct causes of every message.

    A trace can claim that a message was delivered where it was sent before it was sent, or other circles; then
    messages are causes of themselves here, as they are by definition.
    """
    rank, sender, order = history.rank, history.sender, history.order
    causes: list[list[int]] = [
        [order[sender[message]][place - 1]] if place > 0 else [] for message, place in enumerate(rank)
    ]
    for process in history.members:
        latest: dict[int, int] = {}
        unplaced: list[int] = []
        for step in process.steps:
            if step >= 0:
                place = rank[step]
                if place == UNPLACED:
                    unplaced.append(step)
                    continue
                other = latest.get(sender[step])
                if other is None or place > rank[other]:
                    latest[sender[step]] = step
            elif latest or unplaced:
                message = ~step
                own = latest.get(sender[message])
                if own is not None and rank[own] < rank[message]:
                    del latest[sender[message]]  # the previous send stands for it
                causes[message] += latest.values()
                causes[message] += unplaced
                latest = {}
                unplaced = []
    return causes


def causal_pasts(history: RunHistory) -> list[Past]:
    """The causal past of every message, worked out from direct causes."""
    causes = direct_causes(history)
    effects: list[list[int]] = [[] for _ in causes]
    unmet = [len(each) for each in causes]
    for message, own_causes in enumerate(causes):
        for cause in own_causes:
            effects[cause].append(message)

    nothing: Past = ([0] * len(history.senders), frozenset())
    pasts = [nothing] * len(causes)
    ready = [message for message, count in enumerate(unmet) if not count]
    for message in ready:  # grows while it is read
        pasts[message] = _union(history, pasts, causes[message])
        for effect in effects[message]:
            unmet[effect] -= 1
            if not unmet[effect]:
                ready.append(effect)

    # What is left lies on circles or behind them. Pasts only grow, so going round until nothing changes ends.
    rest = [message for message, count in enumerate(unmet) if count]
    changed = True
    while changed:
        changed = False
        for message in rest:
            past = _union(history, pasts, causes[message])
            changed = changed or past != pasts[message]
            pasts[message] = past
    return pasts


def _union(history: RunHistory, pasts: list[Past], causes: Iterable[int]) -> Past:
    counts = [0] * len(history.senders)
    unplaced: frozenset[int] = frozenset()
    for cause in causes:
        more_counts, more_unplaced = pasts[cause]
        merge(counts, more_counts)
        place = history.rank[cause]
        if place == UNPLACED:
            more_unplaced = more_unplaced | {cause}
        elif place >= counts[history.sender[cause]]:
            counts[history.sender[cause]] = place + 1
        unplaced = unplaced | more_unplaced if unplaced else more_unplaced
    return counts, unplaced
