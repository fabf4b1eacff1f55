"""A durable log in memory: what a broker does for isthmus, and what a broker may do to it.

It keeps what docs/design/logs.md assumes and promises nothing beyond: one order; append, record and claim in one atomic
step; a token that rises whenever the claim changes hands. And it may do all that brokers do: what is not durable yet is
lost when it dies, entries and record together, from the end; its head is trimmed; somebody deletes it and makes another
one of the same name. Simulator and explorer run it in place of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from isthmus.core.ids import ProcessId

Counted: TypeAlias = tuple[tuple[ProcessId, int], ...]
"""Marks, with what former origins of each slot had, as `SlotMarks.counted` gives them."""


class Superseded(Exception):
    """Somebody else holds the claim, or the record is not the one that was expected."""


class Trimmed(Exception):
    """Entries behind a place are gone that were not read there."""


class Recreated(Exception):
    """This is not the log that a place is in, or it has been set back."""


class LogEntry(NamedTuple):
    """One entry. `origin` and `seq` are what its headers say, which clients copy; 0 where there are none.

    `born` tells it from every other entry that there ever was: what a broker has for that is a time, an id or an offset
    together with an epoch. `part` says in which of the log's streams it is.
    """

    payload: bytes
    born: int
    part: int = 0
    origin: ProcessId = 0
    seq: int = 0


class Place(NamedTuple):
    """A place in a log, behind so many entries, the last of which was that one; `log` tells which log of its name."""

    number: int = 0
    born: int = 0
    log: int = 0


class Checkpoint(NamedTuple):
    """From where a gateway has to read, and the marks there."""

    place: Place = Place()
    marks: Counted = ()


NOWHERE = Checkpoint()


class Kept(NamedTuple):
    """What the broker keeps beside the entries for whoever holds the claim. The first of them sets `checkpoint`."""

    token: int = 0
    record: Counted = ()
    checkpoint: Checkpoint = NOWHERE


class MemoryLog:
    """`first` entries have been trimmed; `entries` are the others, and `kept` is what is kept beside them.

    `_before` are the lengths and what was kept before each change that is not durable yet, oldest first.
    """

    def __init__(self) -> None:
        self.first = 0
        self.entries: list[LogEntry] = []
        self.kept = Kept()
        self._trimmed_at = 0
        self._before: list[tuple[int, Kept]] = []
        self._births = 0
        self._logs = 1

    @property
    def end(self) -> int:
        """How many entries there have been."""
        return self.first + len(self.entries)

    # What clients and gateways do

    def write(self, part: int, payload: bytes, origin: ProcessId = 0, seq: int = 0) -> LogEntry:
        """A client appends, perhaps with headers that it has copied."""
        self._change()
        return self._append(part, payload, origin, seq)

    def claim(self) -> Kept:
        """Take the claim. It is durable when it is taken: one that is lost would be handed out again, token and all.

        So is where the first one begins to read, which says which log that is: else one that is deleted before anything
        else has been noted could not be told from the one that follows it.
        """
        checkpoint = self.kept.checkpoint
        if checkpoint == NOWHERE:
            checkpoint = Checkpoint(Place(self.first, self._trimmed_at, self._logs))
        self.kept = self.kept._replace(token=self.kept.token + 1, checkpoint=checkpoint)
        self.sync()
        return self.kept

    def append(
        self, token: int, entries: Sequence[tuple[ProcessId, int, bytes]], record: Counted, expected: Counted
    ) -> list[LogEntry]:
        """All of these and the record, or nothing: only with the claim, behind the record that is expected."""
        if token != self.kept.token or expected != self.kept.record:
            raise Superseded
        self._change()
        self.kept = self.kept._replace(record=record)
        return [self._append(0, payload, origin, seq) for origin, seq, payload in entries]

    def note(self, token: int, checkpoint: Checkpoint) -> None:
        if token != self.kept.token:
            raise Superseded
        self._change()
        self.kept = self.kept._replace(checkpoint=checkpoint)

    def read(self, after: Place, most: int, *, durable: bool = True) -> list[LogEntry]:
        """The next entries, those that are durable; none if there is nothing new. Leaves nothing out in silence."""
        if after.log != self._logs:
            raise Recreated
        if after.number < self.first:
            raise Trimmed
        place = after.number - self.first
        if place > len(self.entries) or after.born != self._born_before(place):
            raise Recreated
        end = self._before[0][0] - self.first if durable and self._before else len(self.entries)
        return self.entries[place : max(place, min(end, place + most))]

    # What happens to it

    @property
    def changes(self) -> int:
        """How many changes are not durable."""
        return len(self._before)

    @property
    def is_durable(self) -> bool:
        return not self._before

    def sync(self) -> None:
        """Everything up to now survives."""
        self._before.clear()

    def die(self, lost: int) -> list[LogEntry]:
        """The broker dies, and so many of the latest changes that are not durable are lost. Returns those entries."""
        if not min(lost, len(self._before)):
            return []
        end, self.kept = self._before[max(0, len(self._before) - lost)]
        self._before.clear()
        keep = max(0, end - self.first)
        gone, self.entries = self.entries[keep:], self.entries[:keep]
        return gone

    def trim(self, count: int) -> None:
        """So many of the oldest entries go, as retention would have it."""
        if count:
            self._trimmed_at = self.entries[count - 1].born
            self.first += count
            del self.entries[:count]

    def recreate(self) -> None:
        """Somebody deletes the entries, and begins an empty log of the same name; what is kept beside them stays."""
        self.first = self._trimmed_at = 0
        self._logs += 1
        self.entries = []
        self.sync()

    def _change(self) -> None:
        self._before.append((self.end, self.kept))

    def _append(self, part: int, payload: bytes, origin: ProcessId, seq: int) -> LogEntry:
        self._births += 1
        entry = LogEntry(payload, self._births, part, origin, seq)
        self.entries.append(entry)
        return entry

    def _born_before(self, place: int) -> int:
        return self.entries[place - 1].born if place else self._trimmed_at
