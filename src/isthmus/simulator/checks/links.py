"""What an onlooker beside the links sees: numbers that go too far ahead, and rare cases of joins.

It knows the PDUs that pass and nothing of the state of any gateway, so that a gateway which miscounts cannot
make it miscount too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from isthmus.core.ids import SECOND, LinkId, Nanos
from isthmus.core.wire.join import Block, Epoch, LinkPdu, Open, Progress, Resume, first_epoch
from isthmus.simulator.checks.causes import Causes
from isthmus.simulator.checks.sometimes import Sometimes

MOST_EPOCHS = 200
"""Epochs that one direction of a join may begin in a virtual second. A cut of every link costs two; a dispute of two
leaders over links of 1 ms, 300."""

FEW_EPOCHS = 4
"""Epochs that one direction may begin when all faults have been over, and all views settled, for `QUIET`. None is what
a join needs."""

QUIET: Nanos = SECOND


class TooManyEpochs(Exception):
    """A join begins epoch after epoch: which, in words."""


class LinkWatch:
    """`joins` is the join of each link. A direction is a join and the end, 0 or 1, that sends.

    `_delivered` is, per direction and epoch, the highest number that the far side has ever said to have delivered;
    `_begun`, per direction, the last epoch that began there.
    """

    def __init__(self, joins: Sequence[int], window: int, sometimes: Sometimes) -> None:
        self.joins = joins
        self.window = window
        self.sometimes = sometimes
        self._delivered: dict[tuple[int, int, Epoch], int] = {}
        self._begun: dict[tuple[int, int], Epoch] = {}

    def sent(self, link: LinkId, end: int, pdu: LinkPdu) -> None:
        """A gateway puts this on a link: what is under way has to stay bounded (docs/design/joins.md, Window)."""
        join = self.joins[link]
        if isinstance(pdu, Block) and pdu.first:
            delivered = self._delivered.get((join, end, pdu.epoch), 0)
            assert pdu.first <= delivered + self.window, (
                f"join {join}: number {pdu.first} is under way, the far side has said {delivered}, "
                f"and the window is {self.window}"
            )
            if pdu.first + pdu.segment.messages > delivered + self.window:
                self.sometimes.reach("window full")
        elif isinstance(pdu, Progress):
            direction = (join, 1 - end, pdu.epoch)
            self._delivered[direction] = max(pdu.received, self._delivered.get(direction, 0))
        elif isinstance(pdu, Resume):
            self.sometimes.reach("epoch")
            self._begun[join, 1 - end] = max(pdu.epoch, self._begun.get((join, 1 - end), first_epoch()))

    def arrived(self, link: LinkId, end: int, pdu: LinkPdu) -> None:
        """A gateway takes this off a link."""
        if isinstance(pdu, Block):
            direction = (self.joins[link], 1 - end)
            if pdu.epoch < self._begun.get(direction, first_epoch()):
                self.sometimes.reach("block of an older epoch")
            elif pdu.first > 1 + self._delivered.get((*direction, pdu.epoch), 0):
                self.sometimes.reach("number before its turn")


class EpochWatch:
    """Counts the epochs that each direction of a join opens, and says why there are too many.

    `_opened` has, per direction, the epochs of the last virtual second with their times; `_in_peace` how many have been
    opened since nothing disturbs anybody, which began at `_peace_from`.
    """

    def __init__(self, joins: Sequence[int], causes: Causes) -> None:
        self.joins = joins
        self.causes = causes
        self._opened: dict[tuple[int, int], deque[tuple[Nanos, Epoch]]] = {}
        self._in_peace: Counter[tuple[int, int]] = Counter()
        self._peace_from: Nanos | None = None

    def settle(self, now: Nanos) -> None:
        """The last fault is over."""
        self._peace_from = now + QUIET

    def disturb(self, now: Nanos) -> None:
        """Somebody has gone, or is in a new view: the joins have to find their way again."""
        self._in_peace.clear()
        if self._peace_from is not None:
            self._peace_from = now + QUIET

    def sent(self, link: LinkId, end: int, pdu: LinkPdu, now: Nanos) -> None:
        """A gateway puts this on a link."""
        if not isinstance(pdu, Open):
            return
        direction = (self.joins[link], end)
        opened = self._opened.setdefault(direction, deque())
        if any(epoch == pdu.epoch for _, epoch in opened):
            return
        opened.append((now, pdu.epoch))
        while opened[0][0] <= now - SECOND:
            opened.popleft()
        openers = {epoch.leader for _, epoch in opened}
        if self._peace_from is not None and now >= self._peace_from:
            self._in_peace[direction] += 1
            if self._in_peace[direction] > FEW_EPOCHS:
                self._note(direction[0], openers, "began epoch after epoch when all faults were over")
        if len(opened) > MOST_EPOCHS:
            words = f"began {len(opened)} epochs within a virtual second"
            self._note(direction[0], openers, words)
            raise TooManyEpochs(f"join {direction[0]} {words}, opened by {len(openers)} of its gateways")

    def _note(self, join: int, openers: set[int], words: str) -> None:
        self.causes.note("leaders-duel" if len(openers) > 1 else "epoch-livelock", f"join {join} {words}")
