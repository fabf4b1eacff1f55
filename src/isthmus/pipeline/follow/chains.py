"""Chains of causes in the state of a run, for what is reported: `trace.causality` searches, the state answers.

Whatever has a message in its past that is not settled is held itself (see `judge`), so every link of a chain is there:
until a run holds so much that this courtesy ends. Then a chain may be empty.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from isthmus.pipeline.follow.state import UNSENT, FollowedMessage, RunState
from isthmus.trace.causality import Before, Place, Question, chains_of_causes


class Chains:
    """What every process had delivered before it sent a message, by the rows that were read."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    @cached_property
    def deliveries(self) -> dict[int, list[tuple[int, int]]]:
        """Log to index and identity of what was delivered there, by index."""
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for identity, message in self.state.messages.items():
            for log, index in message.at.items():
                found[log].append((index, identity))
        return {log: sorted(each) for log, each in found.items()}

    def between(self, cause: FollowedMessage, effect: FollowedMessage) -> list[FollowedMessage]:
        """The messages from one to the other, both included."""
        pair = self._identity(cause), self._identity(effect)
        [chain] = chains_of_causes([pair], lambda questions: list(map(self._seen_before, questions)))
        return [self.state.messages[identity] for identity in chain]

    def _identity(self, message: FollowedMessage) -> int:
        origin = self.state.logs[self.state.chains[message.chain].origin]
        return self.state.chains[origin.chain].by_seq[message.seq]

    def _seen_before(self, question: Question[int]) -> Before[int]:
        messages, chains = self.state.messages, self.state.chains
        first, message = messages[question.first], messages[question.message]
        if message.rank == UNSENT or chains[message.chain].loose:
            return Before(False)
        sender = chains[message.chain].origin
        latest: dict[int, Place[int]] = {}
        for index, identity in self.deliveries.get(sender, ()):
            if index > message.sent_at:
                break
            each = messages[identity]
            known = latest.get(each.chain)
            if each.rank != UNSENT and not chains[each.chain].loose and (known is None or known.rank < each.rank):
                latest[each.chain] = Place(each.chain, each.rank, identity)
        earlier = first.chain == message.chain and first.rank < message.rank
        there = first.at.get(sender)
        return Before(earlier or (there is not None and there < message.sent_at), list(latest.values()))
