"""Vector clocks for the rows of a run, which has none of its own.

A row comes after the earlier rows of its process, and a row about a message after the `send` row of it: the causes of
docs/design/source.md. Its clock counts, per host, how many rows are among its causes, itself included. So one row
happened before another exactly where its clock is smaller, and every host counts 1, 2, 3, … whatever gaps its indices
have.

Rows come out in an order that keeps causes first, one by one. Each costs a comparison, and one pass over all hosts when
it learns something new. Memory, besides the rows: one clock per host, and one per message until the last row about it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from isthmus.core.clocks import merge
from isthmus.trace.history import MessageKey
from isthmus.trace.schema import Event


class Stamped(NamedTuple):
    """A row and its clock: by host, in the order of the mapping of logs. The list is used again for the next row.

    `circular`: the log has it before the `send` row of its message, or in a circle of such rows. No clock can say so,
    and this row goes without that cause.
    """

    host: int
    row: Event
    clock: list[int]
    circular: bool


def message_of(row: Event) -> MessageKey | None:
    if row.origin_system is None or row.origin_process is None or row.origin_seq is None:
        return None
    return row.origin_system, row.origin_process, row.origin_seq


def is_origin(row: Event) -> bool:
    """Whether this is the row with which its message came into the world. A gateway's `send` is not."""
    return row.event == "send" and (row.origin_system, row.origin_process) == (row.system, row.process)


def stamped(logs: Mapping[str, Sequence[Event]]) -> Iterator[Stamped]:
    """The rows of one run with their clocks. Each log is one host, sorted by index."""
    return _Clocks(list(logs.values())).rows()


class _Clocks:
    """Every log goes on until a row needs a `send` row that did not have its turn, and waits there for it."""

    def __init__(self, logs: Sequence[Sequence[Event]]) -> None:
        self.logs = logs
        self.next = [0] * len(logs)
        self.clocks = [[0] * len(logs) for _ in logs]
        self.origins: dict[MessageKey, tuple[int, int]] = {}
        """Message to the host and the place there of its `send` row."""
        for host, log in enumerate(logs):
            for place, row in enumerate(log):
                key = message_of(row)
                if key is not None and is_origin(row):
                    self.origins.setdefault(key, (host, place))
        self.uses = Counter(
            key
            for host, log in enumerate(logs)
            for key in map(message_of, log)
            if key is not None and self.origins.get(key, (host,))[0] != host
        )
        self.sent: dict[MessageKey, list[int]] = {}
        """Clocks of `send` rows that had their turn and are still needed."""
        self.waiting: dict[MessageKey, list[int]] = {}
        self.ready = deque(range(len(logs)))

    def rows(self) -> Iterator[Stamped]:
        while True:
            while self.ready:
                yield from self._advance(self.ready.popleft())
            waits = {host: key for key, hosts in self.waiting.items() for host in hosts}
            if not waits:
                return
            stuck = self._on_a_circle(waits)
            self.waiting[waits[stuck]].remove(stuck)
            yield self._take(stuck, waits[stuck], None, circular=True)
            self.ready.append(stuck)

    def _on_a_circle(self, waits: Mapping[int, MessageKey]) -> int:
        """Who waits for itself by way of others. Whom anybody waits for waits too, or its row would have come."""
        host = min(waits)
        passed: set[int] = set()
        while host not in passed:
            passed.add(host)
            host = self.origins[waits[host]][0]
        return host

    def _advance(self, host: int) -> Iterator[Stamped]:
        log = self.logs[host]
        while self.next[host] < len(log):
            key = message_of(log[self.next[host]])
            origin = self.origins.get(key) if key is not None else None
            if key is None or origin is None:
                yield self._take(host, None, None)
            elif origin[0] == host:
                yield self._take(host, key, None, circular=self.next[host] < origin[1])
            elif self.clocks[host][origin[0]] > origin[1]:
                yield self._take(host, key, None)
            elif key in self.sent:
                yield self._take(host, key, self.sent[key])
            else:
                self.waiting.setdefault(key, []).append(host)
                return

    def _take(self, host: int, key: MessageKey | None, cause: list[int] | None, *, circular: bool = False) -> Stamped:
        place = self.next[host]
        clock = self.clocks[host]
        if cause is not None:
            merge(clock, cause)
        self.next[host] = clock[host] = place + 1
        if key is not None:
            if self.origins[key] == (host, place):
                if self.uses[key]:
                    self.sent[key] = clock.copy()
                self.ready.extend(self.waiting.pop(key, ()))
            elif self.origins[key][0] != host:
                self.uses[key] -= 1
                if not self.uses[key]:
                    self.sent.pop(key, None)
        return Stamped(host, self.logs[host][place], clock, circular)
