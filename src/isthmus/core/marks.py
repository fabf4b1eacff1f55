"""Marks: how far the messages of each origin have come, in memory that does not grow when processes come back.

Every origin's messages come in order and without gaps, so "everything up to here" is one number per origin. A process
that comes back is a new origin; but all that is ever delivered of the one before it is delivered before anything of
its own, everywhere (docs/design/group.md, "State that ends"). So the origins of one slot are one **stream**, and the
mark of the latest of them says all: whatever the others sent lies before it.

Joins also count messages. So marks remember of each stream how many messages its former origins had, all together, and
their total is the same as if there was a mark for every origin there ever was. Written down (`counted`), that number
stands at the first id of the stream, where no mark is needed any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from isthmus.core.ids import ProcessId, slot_of

EVERYTHING = 1 << 62
"""The mark of an origin that is over: no message of it lies beyond."""


class SlotMarks:
    """`_latest` is, of each stream, its latest origin and the mark of that; `_over` what former origins had, together.

    Streams are known by their slot, which is their first id. Marks of somebody who came `late` do not know what lies
    before them: until they are told (`go_on_from`), `_since` holds them origin by origin.
    """

    __slots__ = ("_latest", "_over", "_since")

    def __init__(self, counted: Iterable[tuple[ProcessId, int]] = (), *, late: bool = False) -> None:
        self._latest: dict[ProcessId, tuple[ProcessId, int]] = {}
        self._over: dict[ProcessId, int] = {}
        self._since: dict[ProcessId, int] | None = {} if late else None
        for origin, seq in sorted(counted):
            self.raise_to(origin, seq)

    # Looking

    def of(self, origin: ProcessId) -> tuple[ProcessId, int]:
        """The mark of a stream: its latest origin, and how far that one has come. Of two, the later one is greater."""
        stream = slot_of(origin)
        return self._latest.get(stream, (stream, 0))

    def get(self, origin: ProcessId, default: int = 0) -> int:
        """Up to which number everything of an origin lies before these marks."""
        mark = self._latest.get(slot_of(origin))
        if mark is None or origin > mark[0]:
            return default
        return mark[1] if origin == mark[0] else EVERYTHING

    def is_over(self, origin: ProcessId) -> bool:
        """Whether a later origin of its stream has a mark, so that nothing of this one is ever to come."""
        return origin < self.of(origin)[0]

    def at(self, origins: Iterable[ProcessId]) -> dict[ProcessId, int]:
        """The marks of those of these origins that have any."""
        return {origin: seq for origin in origins if (seq := self.get(origin, -1)) >= 0}

    def items(self) -> list[tuple[ProcessId, int]]:
        """Of each stream the latest origin and its mark, sorted."""
        return sorted(self._latest.values())

    def counted(self) -> list[tuple[ProcessId, int]]:
        """The same, and with it how many messages the former origins of each stream had."""
        return sorted([*self._over.items(), *self._latest.values()])

    def total(self) -> int:
        """How many messages lie before these marks."""
        return sum(self._over.values()) + sum([seq for _, seq in self._latest.values()])

    def __bool__(self) -> bool:
        return bool(self._latest)

    # Raising

    def raise_to(self, origin: ProcessId, seq: int) -> bool:
        """Everything of an origin up to this number is known now. Old news is harmless. Says whether it was news."""
        stream = slot_of(origin)
        latest, before = self._latest.get(stream, (origin, -1))
        if (origin, seq) <= (latest, before):
            return False
        if origin != latest:
            self._over[stream] = self._over.get(stream, 0) + before
        self._latest[stream] = (origin, seq)
        if self._since is not None:
            self._since[origin] = seq
        return True

    def update(self, marks: Mapping[ProcessId, int]) -> bool:
        """Raise several. Says whether there was any news."""
        news = False
        for origin, seq in sorted(marks.items()) if len(marks) > 1 else marks.items():
            news = self.raise_to(origin, seq) or news
        return news

    def go_on_from(self, counted: Iterable[tuple[ProcessId, int]]) -> None:
        """What there was before we came; our own marks, which may be part of that, follow."""
        own = self._since if self._since is not None else dict(self.items())
        whole = SlotMarks(counted)
        whole.update(own)
        self._latest, self._over, self._since = whole._latest, whole._over, None

    def since(self) -> list[tuple[ProcessId, int]]:
        """The marks of somebody who came late and has not been told, origin by origin."""
        return sorted((self._since or {}).items())

    def follow(self, since: Iterable[tuple[ProcessId, int]]) -> None:
        """What others counted who know no more than we of what lies before, but were there sooner."""
        own, self._since = self._since or {}, {}
        self.clear()
        self.update(dict(since))
        self.update(own)

    def merge(self, counted: Iterable[tuple[ProcessId, int]]) -> None:
        """What somebody else knows who was there from the beginning: of each stream, whoever is further is right."""
        other = SlotMarks(counted)
        for stream, mark in other._latest.items():
            if mark >= self._latest.get(stream, mark):
                self._latest[stream] = mark
                self._over.pop(stream, None)
                if stream in other._over:
                    self._over[stream] = other._over[stream]

    def clear(self) -> None:
        self._latest.clear()
        self._over.clear()

    # Copies

    def copy(self) -> Self:
        copied = type(self)()
        copied._latest = self._latest.copy()
        copied._over = self._over.copy()
        copied._since = None if self._since is None else self._since.copy()
        return copied

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()
