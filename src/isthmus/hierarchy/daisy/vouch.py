"""Does a process still speak for a group that it is the server of? Its members vouch for it (docs/design/daisy.md).

A server that was taken for dead does not know it, and what it tells in a flush is old. So whoever tells something in a
flush has been vouched for since that flush began: by a quorum of its local group, none of whom has promised another
view; and in a servers' group by all who hold seats there, each of whom is vouched for in turn.

Rounds are numbered per group. One that is done answers everybody who has asked for it or for an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus.core.ids import ProcessId
from isthmus.core.wire.daisy import Vouch, Vouched
from isthmus.hierarchy.daisy.local import LocalGroup
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.ordering.group.quorum import is_quorum

Word = tuple[tuple[ProcessId, ...], int, Vouch | Vouched]
"""A PDU to be sent: to whom, about which group, and the PDU."""


class Round(NamedTuple):
    """The latest question to a group: in which view, who has answered, and which round of the group below it needs."""

    number: int
    view: int
    answers: set[ProcessId]
    below: int


class Owed(NamedTuple):
    """An answer that we owe to somebody in the group at this place, once a round of the group below is done."""

    place: int
    to: ProcessId
    question: Vouch
    below: int


class Vouching:
    """`levels` are those of the process: the group at place p is the one whose server holds our seat at place p + 1."""

    def __init__(self, levels: Sequence[LocalGroup | ServersGroup]) -> None:
        self._levels = levels
        self._rounds: dict[int, Round] = {}
        self._done: dict[int, int] = {}
        self._owed: list[Owed] = []
        self.words: list[Word] = []

    def want(self, place: int) -> int:
        """Have the group at this place asked. Returns the number of the round that says so."""
        level = self._levels[place]
        below = self.want(place - 1) if place else 0
        number = self._rounds[place].number + 1 if place in self._rounds else 1
        self._rounds[place] = Round(number, _view_of(level), set(), below)
        self._ask(place)
        return number

    def is_done(self, place: int, number: int) -> bool:
        """Whether the group has vouched for us in this round, or in a later one."""
        current = self._rounds.get(place)
        if current is not None and current.number > self._done.get(place, 0) and self._has_answered(place, current):
            self._done[place] = current.number
        return self._done.get(place, 0) >= number

    def hear(self, place: int, source: ProcessId, word: Vouch | Vouched) -> None:
        level, current = self._levels[place], self._rounds.get(place)
        if isinstance(word, Vouched):
            if current is not None and (word.view, word.number) == (current.view, current.number):
                current.answers.add(source)
        elif word.view == _view_of(level) and source in _fellows(level):
            if isinstance(level, LocalGroup):
                if not level.member.membership.blocked:
                    self.words.append(((source,), level.number, Vouched(word.view, word.number)))
            elif not any((each.to, each.question) == (source, word) for each in self._owed):
                self._owed.append(Owed(place, source, word, self.want(place - 1)))

    def end_step(self) -> None:
        """The end of a step: answer those who wait for a round that is done."""
        for each in list(self._owed):
            if each.place >= len(self._levels) or _view_of(self._levels[each.place]) != each.question.view:
                self._owed.remove(each)
            elif self.is_done(each.place - 1, each.below):
                self._owed.remove(each)
                answer = Vouched(each.question.view, each.question.number)
                self.words.append(((each.to,), self._levels[each.place].number, answer))

    def wake(self) -> None:
        """A heartbeat: ask again, anew where the view is another."""
        for place, current in list(self._rounds.items()):
            if place >= len(self._levels):
                del self._rounds[place]
            elif not self.is_done(place, current.number):
                view = _view_of(self._levels[place])
                if view != current.view:
                    self._rounds[place] = current._replace(view=view, answers=set())
                self._ask(place)

    def _ask(self, place: int) -> None:
        level, current = self._levels[place], self._rounds[place]
        others = tuple(each for each in _fellows(level) if each not in current.answers)
        if others:
            self.words.append((others, level.number, Vouch(current.view, current.number)))

    def _has_answered(self, place: int, current: Round) -> bool:
        level = self._levels[place]
        if _view_of(level) != current.view:
            return False
        if isinstance(level, ServersGroup):
            return current.answers.issuperset(level.others()) and self.is_done(place - 1, current.below)
        members = level.member.view.members
        own = [] if level.member.membership.blocked or level.member.stopped else [level.id]
        return is_quorum([each for each in (*own, *current.answers) if each in members], members)


def _view_of(level: LocalGroup | ServersGroup) -> int:
    """The number of a group's view; of a local group the latest that its members agreed on, in force or not."""
    return level.view_number if isinstance(level, ServersGroup) else level.member.view.number


def _fellows(level: LocalGroup | ServersGroup) -> Iterator[ProcessId]:
    members = level.others() if isinstance(level, ServersGroup) else level.member.view.members
    return (each for each in members if each != level.id)
