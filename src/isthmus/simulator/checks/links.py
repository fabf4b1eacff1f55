"""What an onlooker beside the links sees: numbers that go too far ahead, and rare cases of joins.

It knows the PDUs that pass and nothing of the state of any gateway, so that a gateway which miscounts cannot
make it miscount too.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.ids import LinkId
from isthmus.core.wire.join import Block, LinkPdu, Progress, Resume
from isthmus.simulator.checks.sometimes import Sometimes


class LinkWatch:
    """`joins` is the join of each link. A direction is a join and the end, 0 or 1, that sends.

    `_delivered` is, per direction and epoch, the highest number that the far side has ever said to have delivered;
    `_begun`, per direction, the last epoch that began there.
    """

    def __init__(self, joins: Sequence[int], window: int, sometimes: Sometimes) -> None:
        self.joins = joins
        self.window = window
        self.sometimes = sometimes
        self._delivered: dict[tuple[int, int, int], int] = {}
        self._begun: dict[tuple[int, int], int] = {}

    def sent(self, link: LinkId, end: int, pdu: LinkPdu) -> None:
        """A gateway puts this on a link: what is under way has to stay bounded (docs/design/joins.md, Window)."""
        join = self.joins[link]
        if isinstance(pdu, Block) and pdu.first:
            delivered = self._delivered.get((join, end, pdu.epoch), 0)
            assert pdu.first <= delivered + self.window, (
                f"join {join}: number {pdu.first} is under way, the far side has said {delivered}, "
                f"and the window is {self.window}"
            )
            if pdu.first + len(pdu.messages) > delivered + self.window:
                self.sometimes.reach("window full")
        elif isinstance(pdu, Progress):
            direction = (join, 1 - end, pdu.epoch)
            self._delivered[direction] = max(pdu.received, self._delivered.get(direction, 0))
        elif isinstance(pdu, Resume):
            self.sometimes.reach("epoch")
            self._begun[join, 1 - end] = max(pdu.epoch, self._begun.get((join, 1 - end), 0))

    def arrived(self, link: LinkId, end: int, pdu: LinkPdu) -> None:
        """A gateway takes this off a link."""
        if isinstance(pdu, Block):
            direction = (self.joins[link], 1 - end)
            if pdu.epoch < self._begun.get(direction, 0):
                self.sometimes.reach("block of an older epoch")
            elif pdu.first > 1 + self._delivered.get((*direction, pdu.epoch), 0):
                self.sometimes.reach("number before its turn")
