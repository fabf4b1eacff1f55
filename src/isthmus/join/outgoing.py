"""What an export has to keep: the messages that the far side has not confirmed, in order of delivery.

Every origin's messages are delivered in order and without gaps, so "everything up to here" is one number per origin,
and a stretch of messages (a *run*) three integers. Segments are kept as they were delivered, until all of their
messages are confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from isthmus.core.ids import ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Run, Segment, join


class Outstanding:
    """All unconfirmed messages of one direction of a join. `final` is what the far side had when the epoch began.

    `last` is, of each origin, the last message that was delivered here. `_by_origin` are the segments in `_kept` that
    hold unconfirmed messages of an origin, in order.
    """

    __slots__ = ("_by_origin", "_kept", "confirmed", "final", "last")

    def __init__(self, *, late: bool = False) -> None:
        self.last = SlotMarks(late=late)
        self.confirmed = SlotMarks()
        self.final = SlotMarks()
        self._kept: deque[Segment] = deque()
        self._by_origin: dict[ProcessId, deque[Segment]] = {}

    def add(self, segment: Segment) -> Segment:
        """Messages that were delivered here. Returns them without those that are known already."""
        segment = segment.following(self.last.at(segment.marks))
        if segment:
            self.last.update(segment.marks)
            self._kept.append(segment)
            for origin, seq in segment.marks.items():
                # Of what a fellow delivered earlier, the far side may have confirmed more than was delivered here.
                if not self.is_confirmed(origin, seq):
                    self._by_origin.setdefault(origin, deque()).append(segment)
        return segment

    def add_earlier(self, segments: Sequence[Segment]) -> None:
        """What was delivered here before this gateway came."""
        earlier = Outstanding()
        for segment in segments:
            earlier.add(segment)
        # Word that some of it is confirmed may have come before it.
        earlier.confirm(self.confirmed.items())
        self._kept.extendleft(reversed(earlier._kept))
        for origin, found in earlier._by_origin.items():
            self._by_origin.setdefault(origin, deque()).extendleft(reversed(found))
        self.last.update(dict(earlier.delivered()))

    def delivered(self) -> Iterable[tuple[ProcessId, int]]:
        """Of each origin the last message that was delivered here."""
        return self.last.items()

    def take_as_delivered(self, counted: Iterable[tuple[ProcessId, int]]) -> None:
        """Count the messages up to these marks as delivered, without keeping any: it was before this gateway came."""
        self.last.go_on_from(counted)

    def has_delivered(self, origin: ProcessId, seq: int) -> bool:
        return self.last.get(origin, -1) >= seq

    def has(self, run: Run) -> bool:
        origin, first, count = run
        return self.has_delivered(origin, first + count - 1)

    def find(self, runs: Iterable[Run]) -> Segment:
        """The messages of these runs, which are delivered here and not confirmed, in this order."""
        found: list[Segment] = []
        for origin, first, count in runs:
            last = first + count - 1
            for segment in self._by_origin.get(origin, ()):
                if segment.marks[origin] >= first:
                    found.append(segment.stretch(origin, first, last))
                    if segment.marks[origin] >= last:
                        break
        return join(found)

    def confirm(self, marks: Iterable[tuple[ProcessId, int]]) -> bool:
        """The far side has finished with these. Says whether that was news."""
        news = False
        for origin, seq in marks:
            if not self.is_confirmed(origin, seq):
                former = self.confirmed.of(origin)[0]
                self.confirmed.raise_to(origin, seq)
                news = True
                if former != origin:
                    # With it all is confirmed of those that were in its slot before.
                    for over in [each for each in self._by_origin if self.confirmed.is_over(each)]:
                        del self._by_origin[over]
                segments = self._by_origin.get(origin)
                while segments and segments[0].marks[origin] <= seq:
                    segments.popleft()
                if segments is not None and not segments:
                    del self._by_origin[origin]
        if news:
            while self._kept and self._is_confirmed(self._kept[0]):
                self._kept.popleft()
        return news

    def _is_confirmed(self, segment: Segment) -> bool:
        return all(self.is_confirmed(origin, seq) for origin, seq in segment.marks.items())

    def is_confirmed(self, origin: ProcessId, seq: int) -> bool:
        return seq <= self.confirmed.get(origin)

    def last_number(self) -> int:
        """How many messages beyond `final` have been delivered here, whatever has become of them since.

        Out of a log, where everybody delivers in one order, that is the place of the last one in it. It takes no memory
        of what was confirmed, and so it makes no difference who has heard of a confirmation when.
        """
        return self.last.total() - self.final.total()

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        """What is beyond `final` and not confirmed, in order of delivery, with the place of its first message.

        Counted from the end: what was confirmed is missing, but nothing that matters lies before a part of `final`.
        """
        place = self.last_number() - sum([segment.messages for segment in self._kept]) + 1
        for segment in self._kept:
            for part in segment.along(_itself):
                rest = self._open(part, self.final)
                if rest:
                    yield place + part.messages - rest.messages, rest
                place += part.messages

    def after(self, final: SlotMarks) -> Iterator[Segment]:
        """Everything that is beyond `final` and not confirmed, in order of delivery here."""
        for segment in self._kept:
            rest = self._open(segment, final)
            if rest:
                yield rest

    def _open(self, segment: Segment, final: SlotMarks) -> Segment:
        return segment.beyond(self.confirmed.at(segment.marks)).beyond(final.at(segment.marks))

    def invariants(self) -> None:
        for segment in self._kept:
            for origin, seq in segment.marks.items():
                assert seq <= self.last.get(origin), f"{origin}: {seq} is kept, and {self.last.of(origin)} was the last"
        for origin, segments in self._by_origin.items():
            assert segments[0].marks[origin] > self.confirmed.get(origin), f"{origin}: what is confirmed is kept"


def _itself(origin: ProcessId) -> ProcessId:
    return origin
