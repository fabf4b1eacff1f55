"""What an export has to keep: the messages that the far side has not confirmed, by origin and in order of delivery.

Every origin's messages are delivered in order and without gaps, so a message is found by its sequence number, a stretch
of them is three integers (a *run*), and "everything up to here" is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from isthmus.core.ids import ProcessId
from isthmus.core.message import Message

Run: TypeAlias = tuple[ProcessId, int, int]
"""(origin, first sequence number, how many)."""


class OriginLog:
    """The unconfirmed messages of one origin: sequence numbers `first` .. `last` without a gap."""

    __slots__ = ("_messages", "_skipped", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self._messages: list[Message] = []
        self._skipped = 0

    @property
    def last(self) -> int:
        return self.first + len(self._messages) - self._skipped - 1

    def append(self, message: Message) -> None:
        self._messages.append(message)

    def prepend(self, messages: list[Message]) -> None:
        """Put earlier messages in front: a new gateway hears of the past after the present."""
        self._messages = messages + self._messages[self._skipped :]
        self._skipped = 0
        self.first -= len(messages)

    def span(self, first: int, count: int) -> list[Message]:
        start = first - self.first + self._skipped
        return self._messages[start : start + count]

    def drop_through(self, seq: int) -> None:
        count = min(seq, self.last) - self.first + 1
        if count > 0:
            self._skipped += count
            self.first += count
            if self._skipped * 2 >= len(self._messages):
                del self._messages[: self._skipped]
                self._skipped = 0


class Outstanding:
    """All unconfirmed messages of one direction of a join. `final` is what the far side had when the epoch began."""

    __slots__ = ("_order", "confirmed", "final", "logs")

    def __init__(self) -> None:
        self.logs: dict[ProcessId, OriginLog] = {}
        self.confirmed: dict[ProcessId, int] = {}
        self.final: Mapping[ProcessId, int] = {}
        self._order: deque[Run] = deque()

    def forget_deliveries(self) -> None:
        """Start over with what is delivered from now on. What is confirmed stays so."""
        self.logs.clear()
        self._order.clear()

    def add(self, messages: Sequence[Message]) -> list[Run]:
        """Messages that were delivered here, in this order. Returns them as runs; what is known already is left out."""
        runs: list[Run] = []
        current, first, due = -1, 0, 0
        for message in messages:
            origin, seq = message.origin, message.seq
            if origin != current:
                # Origins change rarely from one message to the next, so that a run is made of two comparisons and an
                # `append` each: 0.18 µs per message instead of 0.92.
                if due > first:
                    runs.append((current, first, due - first))
                log = self.logs.get(origin)
                if log is None:
                    log = self.logs[origin] = OriginLog(seq)
                current, append = origin, log.append
                first = due = log.last + 1
            if seq == due:
                append(message)
                due += 1
        if due > first:
            runs.append((current, first, due - first))
        self._order.extend(runs)
        return runs

    def add_earlier(self, messages: Sequence[Message]) -> None:
        """What was delivered here before this gateway came."""
        earlier = Outstanding()
        runs = earlier.add(messages)
        for origin, log in earlier.logs.items():
            mine = self.logs.get(origin)
            if mine is None:
                self.logs[origin] = log
            else:
                mine.prepend(log.span(log.first, max(0, mine.first - log.first)))
        self._order.extendleft(reversed(runs))

    def delivered(self) -> Iterator[tuple[ProcessId, int]]:
        """Of each origin the last message that was delivered here."""
        return ((origin, log.last) for origin, log in self.logs.items())

    def take_as_delivered(self, marks: Iterable[tuple[ProcessId, int]]) -> None:
        """Count the messages up to these marks as delivered, without keeping any: it was before this gateway came."""
        for origin, seq in marks:
            if origin not in self.logs:
                self.logs[origin] = OriginLog(seq + 1)

    def has_delivered(self, origin: ProcessId, seq: int) -> bool:
        log = self.logs.get(origin)
        return log is not None and log.last >= seq

    def has(self, run: Run) -> bool:
        origin, first, count = run
        return self.has_delivered(origin, first + count - 1)

    def messages(self, runs: Iterable[Run]) -> list[Message]:
        found: list[Message] = []
        for origin, first, count in runs:
            found += self.logs[origin].span(first, count)
        return found

    def confirm(self, marks: Iterable[tuple[ProcessId, int]]) -> bool:
        """The far side has finished with these. Says whether that was news."""
        news = False
        for origin, seq in marks:
            if seq > self.confirmed.get(origin, 0):
                self.confirmed[origin] = seq
                news = True
                log = self.logs.get(origin)
                if log is not None:
                    log.drop_through(seq)
        if news:
            order, confirmed = self._order, self.confirmed
            while order and order[0][1] + order[0][2] - 1 <= confirmed.get(order[0][0], 0):
                order.popleft()
        return news

    def is_confirmed(self, origin: ProcessId, seq: int) -> bool:
        return seq <= self.confirmed.get(origin, 0)

    def last_number(self) -> int:
        """How many messages beyond `final` have been delivered here, whatever has become of them since.

        Out of a log, where everybody delivers in one order, that is the place of the last one in it. It takes no memory
        of what was confirmed, and so it makes no difference who has heard of a confirmation when.
        """
        return sum(log.last for log in self.logs.values()) - sum(self.final.values())

    def numbered(self) -> Iterator[tuple[int, Run]]:
        """What is beyond `final` and not confirmed, in order of delivery, with the place of its first message.

        Counted from the end: what was confirmed is missing, but nothing that matters lies before a part of `final`.
        """
        place = self.last_number() - sum(count for _, _, count in self._order) + 1
        for run in self._order:
            for origin, first, count in beyond(self.final, beyond(self.confirmed, (run,))):
                yield place + first - run[1], (origin, first, count)
            place += run[2]

    def after(self, final: Mapping[ProcessId, int]) -> Iterator[Run]:
        """Everything that is beyond `final` and not confirmed, in order of delivery here."""
        return beyond(final, beyond(self.confirmed, self._order))

    def invariants(self) -> None:
        for origin, log in self.logs.items():
            assert log.first <= log.last + 1, f"{origin}: log from {log.first} to {log.last}"


def beyond(marks: Mapping[ProcessId, int], runs: Iterable[Run]) -> Iterator[Run]:
    """What is left of runs without everything up to the marks of their origins."""
    for origin, first, count in runs:
        start = max(first, marks.get(origin, 0) + 1)
        rest = first + count - start
        if rest > 0:
            yield (origin, start, rest)
