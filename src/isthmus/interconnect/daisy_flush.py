"""The flush of a servers' group: from what its seats tell, the one order in which all of them go on.

Each seat tells the messages that are not settled there, with what may be their causes. Of a message that comes from
below a seat only that seat is believed: behind it are those who know. What comes from above the group has no seat in
it, and comes by one stream at a time, so of that everybody is believed who has had it in this group. That these do not
contradict each other, and that no cause is missed, is argued in docs/design/daisy.md, "The flush".

A message that its own seat does not tell is settled: a seat forgets nothing else. One that came from above, and that no
holder has had in this group, is left out, and so is what follows from it: others from above that came before it may be
lost with a server, and the group above will send all of them again, in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import Addressed
from isthmus.interconnect.daisy_record import Causes, Told, id_of
from isthmus.interconnect.daisy_tree import NONE


class State(NamedTuple):
    """What one seat tells. The first `delivered` its holder has had in this group."""

    told: Sequence[Told]
    delivered: int


class Agreement(NamedTuple):
    """All that the view begins with, causes before effects; what has to wait; what is settled."""

    agreed: list[Told]
    waiting: list[Told]
    settled: list[Addressed]


def agree(states: Sequence[State], seat_of: Callable[[ProcessId], int]) -> Agreement:
    """Equal states give equal answers."""
    messages: dict[MessageId, Addressed] = {}
    causes: dict[MessageId, Causes] = {}
    rest: dict[MessageId, Addressed] = {}
    delivered: set[MessageId] = set()
    for seat, (told, count) in enumerate(states):
        delivered.update(id_of(message) for message, _ in told[:count])
        for place, (message, before) in enumerate(told):
            each, comes_from = id_of(message), seat_of(message.origin)
            if comes_from not in (seat, NONE):
                rest.setdefault(each, message)
                continue
            messages[each] = message
            known = causes.setdefault(each, {})
            if comes_from == NONE and place >= count:
                continue  # The order in which a dead server passed on what came from above binds nobody.
            for origin, seq in before.items():
                known[origin] = max(seq, known.get(origin, 0))
    by_origin: dict[ProcessId, list[int]] = {}
    for each in sorted(messages):
        by_origin.setdefault(each.origin, []).append(each.seq)
    order = _Order(causes, by_origin)
    for each in messages:
        order.place(each)
    agreed, waiting = [], []
    first_waiting: Causes = {}
    for each in order.ordered:
        message, before = messages[each], causes[each]
        waits = seat_of(message.origin) == NONE or any(
            seq >= first_waiting.get(origin, seq + 1) for origin, seq in before.items()
        )
        if waits and each not in delivered:
            waiting.append(Told(message, before))
            first_waiting[each.origin] = min(each.seq, first_waiting.get(each.origin, each.seq))
        else:
            agreed.append(Told(message, before))
    return Agreement(agreed, waiting, [message for each, message in rest.items() if each not in messages])


class _Order:
    """Puts messages into an order, each behind everything that it may depend on."""

    def __init__(self, causes: dict[MessageId, Causes], by_origin: dict[ProcessId, list[int]]) -> None:
        self.ordered: dict[MessageId, None] = {}
        self._causes = causes
        self._by_origin = by_origin

    def place(self, first: MessageId) -> None:
        path = [first]
        begun: set[MessageId] = set()
        while path:
            each = path[-1]
            missing = [] if each in self.ordered else self._missing(each)
            if each in begun:
                # Whoever is still missing is on this path: two seats contradict each other, which they do only over
                # messages that are settled and that not everybody knows to be. All drop the same word.
                missing = []
            if not missing:
                self.ordered.setdefault(each)
                path.pop()
                continue
            begun.add(each)
            path += reversed(missing)

    def _missing(self, message: MessageId) -> list[MessageId]:
        """Of each origin the latest cause, if it has no place yet. Those before it are causes of it."""
        missing = []
        for origin, seq in self._causes[message].items():
            seqs = self._by_origin.get(origin, [])
            place = bisect_right(seqs, seq)
            if place and (cause := MessageId(origin, seqs[place - 1])) not in self.ordered:
                missing.append(cause)
        return missing
