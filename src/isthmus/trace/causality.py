"""What caused what, in two forms.

The **direct causes** of a message, sent by s, are s's previous send and, per sender, the latest of its messages that
s delivered since. Every other cause is a cause of one of these, so in a run of broadcasts it is enough to look at
them: where each message stands after its direct causes, it stands after all of them, by induction.

That induction needs every cause to be visible at the place that is judged. It is not where a message was not for
that place, or was delivered before that process came, or in a gap of its log. There the whole **causal past** is
needed. It holds a prefix of every sender's messages, so one count per sender says it all.

A **chain of causes** leads from a message to another that it caused, each link a direct one. `chains_of_causes` finds
them for whoever judges; each says in its own way what the sender of a message had seen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from isthmus.core.clocks import merge
from isthmus.trace.history import NEVER, UNPLACED, RunHistory

Past: TypeAlias = tuple[list[int], frozenset[int]]
"""Per sender how many of its messages, and the messages that have no place in any sender's order."""


def direct_causes(history: RunHistory) -> list[list[int]]:
    """The direct causes of every message.

    A trace can claim that a message was delivered where it was sent before it was sent, or other circles. Then a
    message is among its own causes here, and in its own past: whoever judges leaves it out, nothing causes itself.
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


# Chains of causes -----------------------------------------------------------------------------------------------------

Message = TypeVar("Message", bound=Hashable)


class Question(NamedTuple, Generic[Message]):
    """What had the sender of `message` seen before it sent that, and was `first` among it?"""

    search: int
    """Which of several searches asks."""
    first: Message
    message: Message


class Place(NamedTuple, Generic[Message]):
    """A message, the sender's order that it is in (by whatever names senders), and its rank there."""

    sender: Hashable
    rank: int
    message: Message


class Before(NamedTuple, Generic[Message]):
    """The answer. Of a message whose `send` row is lost, only that the same sender sent others before is known."""

    saw_first: bool
    """The sender had sent or delivered `first`."""
    latest: Sequence[Place[Message]] = ()
    """Of each sender the last in its order that was delivered there before; all its earlier ones lead to that."""
    instead: Message | None = None
    """Of a message whose `send` row is lost: the last before it in its sender's order that has one."""


def chains_of_causes(
    pairs: Sequence[tuple[Message, Message]],
    answer: Callable[[Sequence[Question[Message]]], Sequence[Before[Message]]],
) -> list[list[Message]]:
    """For each pair (cause, effect) the messages of a shortest chain from one to the other, both included.

    Searched backwards from the effects, all at once, one `answer` per link of the longest chain. A sender is visited
    again only where more of its messages count than before, so that circles, which a wrong trace can claim, end. The
    chain is empty where the first is no cause of the second.
    """
    chains: list[list[Message]] = [[] for _ in pairs]
    onward: list[dict[Message, Message | None]] = [{effect: None} for _, effect in pairs]
    reached: list[dict[Hashable, int]] = [{} for _ in pairs]
    questions = [Question(number, cause, effect) for number, (cause, effect) in enumerate(pairs)]
    while questions:
        found: dict[tuple[int, Hashable], Question[Message]] = {}
        behind: list[Question[Message]] = []
        for question, before in zip(questions, answer(questions), strict=True):
            number, first, message = question
            if chains[number]:
                continue
            if before.saw_first:
                chains[number] = [first]
                link: Message | None = message
                while link is not None:
                    chains[number].append(link)
                    link = onward[number][link]
                continue
            if before.instead is not None and before.instead not in onward[number]:
                onward[number][before.instead] = message
                behind.append(Question(number, first, before.instead))
            for place in before.latest:
                if place.rank > reached[number].get(place.sender, -1) and place.message not in onward[number]:
                    reached[number][place.sender] = place.rank
                    onward[number][place.message] = message
                    found[number, place.sender] = Question(number, first, place.message)
        questions = [each for each in (*found.values(), *behind) if not chains[each.search]]
    return chains


def chains_in_history(history: RunHistory, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Chains of causes in a run that is in memory."""
    return chains_of_causes(pairs, lambda questions: [_seen_before(history, each) for each in questions])


def _seen_before(history: RunHistory, question: Question[int]) -> Before[int]:
    _, first, message = question
    rank, sender, sent_at = history.rank, history.sender, history.sent_at
    if rank[message] == UNPLACED:
        return Before(False)
    earlier = sender[first] == sender[message] and UNPLACED < rank[first] < rank[message]
    if sent_at[message] < 0:
        sent = [each for each in history.order[sender[message]][: rank[message]] if sent_at[each] >= 0]
        return Before(earlier, instead=sent[-1] if sent else None)
    deliveries = history.sender_log(message).deliveries
    latest: dict[int, Place[int]] = {}
    for each, index in deliveries.items():
        if index > sent_at[message]:
            break
        if rank[each] != UNPLACED and (sender[each] not in latest or latest[sender[each]].rank < rank[each]):
            latest[sender[each]] = Place(sender[each], rank[each], each)
    return Before(earlier or deliveries.get(first, NEVER) < sent_at[message], list(latest.values()))
