"""What a joined system holds for its gateways: all that may not have crossed yet, and how far everything has come.

A gateway that comes has to carry on what those before it left undone, whether one of them still lives or not. Every
member of a joined system has delivered it, and keeps it: what was born here until it is stable, which it is not before
it has crossed, and what a gateway brought in until gateways say that it has crossed (docs/design/group.md, "Gateways
that come and go"). So whoever comes asks, one member after the other; those that know the whole past answer, in parts.

Invariant: `held` is what was delivered here since some moment, in order; all before that moment is done with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from isthmus.core.ids import ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.wire.group import AskPast, Crossed, PastPart
from isthmus.ordering.group.patience import FRAME_BYTES
from isthmus.ordering.group.window import Seat

SAID_AGAIN = 5
"""How often a gateway says that a message has crossed. Who misses all of that keeps it until the next one of its origin
has crossed, or a view begins: it costs memory, nothing else."""

ASKED_AGAIN = 50
"""How often one that has told a part of the past is asked for the next. If it is dead the view ends before that."""


class Past:
    """`marks` are, of each origin, the last message that was delivered here; `held` may not have crossed yet.

    `complete`: this process knows of everything that was delivered in this life of its system, because it has been
    there from the beginning or has been told. `whole`: it also knows what former lives were done with, and everybody
    has delivered what they left; until then it counts origin by origin. `later` says that there were former lives, and
    that somebody knows of them: those who keep a journal. `marks_before` are the marks when the present view began, and
    `inherited` what was held then from before the time of a process that came.
    """

    def __init__(self, seats: Sequence[Seat], *, complete: bool, later: bool = False) -> None:
        self.complete = complete
        self.whole = complete and not later
        self.later = later
        self.seats = seats
        self._crossed = [SlotMarks() for _ in seats]
        self._repeats: list[dict[ProcessId, int]] = [{} for _ in seats]
        self.marks = SlotMarks(late=not self.whole)
        self.held: deque[Batch] = deque()
        self.inherited: Sequence[Batch] = ()
        self.marks_before: list[tuple[ProcessId, int]] = []
        self._to_tell: list[Batch] | None = None
        self._earlier: list[Batch] = []
        self._told_whole = False
        self._teller = 0
        self._asked: ProcessId | None = None
        self._unanswered = 0

    def delivered(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.marks.update(batch.segment.marks)
            self.held.append(batch)

    def forget(self, is_stable: Callable[[Batch], bool]) -> None:
        """Nobody will ever need what is stable and has crossed."""
        while self.held and is_stable(self.held[0]) and self._has_crossed(self.held[0]):
            self.held.popleft()

    def _has_crossed(self, batch: Batch) -> bool:
        """Of a sender's own messages its stability says so: gateways confirm them when they have crossed."""
        return all(
            crossed.get(origin) >= seq
            for seat, crossed in zip(self.seats, self._crossed, strict=True)
            for origin, seq in batch.segment.marks.items()
            if origin != batch.sender and slot_of(origin) in seat.exported
        )

    def learn_crossed(self, word: Crossed) -> None:
        if word.join < len(self._crossed):
            self._crossed[word.join].update(dict(word.marks))

    def news_of_crossing(self, view: int, join: int, confirmed: SlotMarks) -> Crossed | None:
        """At a gateway: what the others are to be told. Each mark is said several times, as words get lost."""
        crossed, repeats = self._crossed[join], self._repeats[join]
        for origin, seq in confirmed.items():
            if crossed.raise_to(origin, seq):
                repeats[origin] = SAID_AGAIN
        marks = [mark for mark in crossed.items() if mark[0] in repeats]
        # Of an origin that is over nothing has to be said: the mark of the one that came after it says it all.
        self._repeats[join] = {origin: repeats[origin] - 1 for origin, _ in marks if repeats[origin] > 1}
        return Crossed(view, join, marks) if marks else None

    def enter_view(self) -> None:
        """A view begins, and everybody in it has delivered the same so far. What was asked for in the last is void."""
        self.marks_before = self.marks.counted() if self.whole else self.marks.since()
        self._repeats = [{origin: SAID_AGAIN for origin, _ in crossed.items()} for crossed in self._crossed]
        self._to_tell = None
        self._earlier.clear()

    # One that knows

    def tell(self, ask: AskPast, cut: Mapping[ProcessId, int]) -> PastPart:
        """The part of the past that begins with this place; `cut` is what lies before the view, of each sender.

        A batch is never cut, so a part may be one batch longer than others.
        """
        if self._to_tell is None:
            self._to_tell = [each for each in self.held if each.number <= cut.get(each.sender, each.number)]
        size, last = 0, ask.place
        while last < len(self._to_tell) and size < FRAME_BYTES:
            size += self._to_tell[last].segment.payload_bytes
            last += 1
        marks = [] if ask.place else self.marks_before
        return PastPart(ask.view, ask.place, len(self._to_tell), marks, self._to_tell[ask.place : last], self.whole)

    # One that has come

    def ask(self, view: int, peers: Sequence[ProcessId], heard: Mapping[ProcessId, int]) -> tuple[ProcessId, AskPast]:
        """Whom to ask for what comes next: somebody else, from the beginning, if there was no answer.

        Not everybody knows, some are dead, and no two that know have delivered in the same order. Who has answered
        before is asked again many times, as words get lost. `heard` are the rounds that heartbeats have named.
        """
        self._unanswered += 1
        if self._asked is None or not self._earlier or self._unanswered > ASKED_AGAIN:
            self._teller += 1
            self._asked = peers[self._teller % len(peers)]
            self._earlier.clear()
            self._unanswered = 0
        return self._asked, self.ask_on(view, heard)

    def ask_on(self, view: int, heard: Mapping[ProcessId, int]) -> AskPast:
        """The question for what comes next, to whom was asked last."""
        assert self._asked is not None
        return AskPast(view, len(self._earlier), heard.get(self._asked, 0), whole=self.complete)

    def hear(self, source: ProcessId, part: PastPart, base: Mapping[ProcessId, int]) -> bool:
        """Take the next part, from whom we asked. Says whether it is that; `complete`, whether it was the last.

        The first part is taken from anybody: of those that were asked, some may have to wait for long on their lines.
        `base` is what lies before our first view, of all senders since then.
        """
        if self.complete:
            if self.whole or part.place or not part.whole:
                return False
            self._begin_whole(part.marks, part.marks)
            return True
        if part.place != len(self._earlier) or (self._earlier and source != self._asked):
            return False
        self._asked = source
        self._unanswered = 0
        if not part.place:
            self.marks_before, self._told_whole = part.marks, part.whole
        self._earlier += part.batches
        if len(self._earlier) < part.total:
            return True
        # Of what was told in a later view than our first, we have delivered the end ourselves.
        if self._told_whole:
            self._begin_whole(self.marks_before, self.marks_before)
        else:
            self.marks.follow(self.marks_before)
        self.inherited = [each for each in self._earlier if each.number <= base.get(each.sender, each.number)]
        self.held = deque(chain(self.inherited, self.held))
        self._earlier = []
        self.complete = True
        return True

    # Former lives of the system

    @property
    def awaits_former(self) -> bool:
        """Whether former lives may have left something that is not delivered everywhere yet."""
        return self.later and not self.whole

    def counted_before(self, done: Mapping[ProcessId, int]) -> list[tuple[ProcessId, int]]:
        """The marks when the present view began, for one who knows what former lives were done with."""
        if self.whole:
            return self.marks_before
        marks = SlotMarks(done.items())
        marks.update(dict(self.marks_before))
        return marks.counted()

    def former_are_over(self, done: Mapping[ProcessId, int]) -> None:
        """At one who keeps a journal: everybody has delivered what former lives left, and these were done with that."""
        self._begin_whole(self.counted_before(done), done.items())

    def _begin_whole(self, before: list[tuple[ProcessId, int]], counted: Iterable[tuple[ProcessId, int]]) -> None:
        self.marks_before = before
        self.marks.go_on_from(counted)
        self.whole = True
