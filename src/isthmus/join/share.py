"""How the messages of one direction are shared among the links: four answers, one interface.

A share is told what its own system delivers, which links work and which are ready, and how far the far side is. What it
decides stands in `placed`: parcels, each with the link that it goes by. It knows nothing of epochs but that everything
starts over when one begins, and it can be wrong about links without harm: whatever may have been lost with one goes by
another as well, and the far side takes every message once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.segment import Marks, Segment, take
from isthmus.core.wire.join import BLOCK_BYTES, Line
from isthmus.join.outgoing import Outstanding
from isthmus.join.parcel import Parcel
from isthmus.join.plan import JoinPlan

BLOCK_MESSAGES = 4096
STRIPE = 64
"""Consecutive numbers that fall to one link where everybody counts alike."""

WINDOW = 65_536
WINDOW_BYTES = 64 << 20
"""Messages and bytes under way beyond what the far side has delivered."""

LEAST_PATIENCE: Nanos = 100 * MILLISECOND
FIRST_PATIENCE: Nanos = SECOND
GUESSED_RATE = 5 << 20
"""How much later than expected a block may come before it goes by another link as well: at least, and while nobody
knows how late they usually are. Bytes per second of a line while nobody knows any of them."""


class Start(NamedTuple):
    """How an epoch begins: what waits, in order; what came in so far; the links that work; whether we lead."""

    waiting: Sequence[Segment]
    came_in: Marks
    links: Sequence[LinkId]
    leading: bool


class Share(Protocol):
    """Decides by which link each message of one direction goes, and when. Every epoch starts with `begin`."""

    placed: list[tuple[LinkId, Parcel]]
    """What is to go by which link, of this gateway or of a fellow. Whoever calls takes it out."""

    by_readiness: bool
    """Whether the sequencer has to know which links are ready, those of fellows too."""

    def begin(self, start: Start, now: Nanos) -> None: ...

    def add(self, segment: Segment, now: Nanos) -> None:
        """Messages that the own system has just delivered here, to be carried over."""

    def came_in(self, marks: Marks) -> None:
        """The own system delivered messages of the far side: what is added from now on may be an answer to them."""

    def ready(self, link: LinkId, line: Line, now: Nanos) -> None:
        """A link (of a fellow, where this gateway leads) can take a block."""

    def relink(self, links: Sequence[LinkId], now: Nanos) -> None:
        """These links work now; what is under way on any other may be lost."""

    def progress(self, received: int, now: Nanos) -> None:
        """The far side has delivered everything up to this number."""

    def wake(self, now: Nanos) -> None: ...

    def deadline(self) -> Nanos | None: ...


class ByOrigin:
    """FIFO joins and paths: the messages of an origin go by its link, as soon as they are delivered (Fig. 2).

    Its home is the gateway at the far end of that link, also while they go by another one. Whoever comes to carry an
    origin sends all that nobody has confirmed: he does not know how far the one before him got. So what comes over a
    link, from then on, has no gap.
    """

    by_readiness = False

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, mine: Collection[LinkId]) -> None:
        self._plan = plan
        self._outstanding = outstanding
        self._mine = mine
        self._links: tuple[LinkId, ...] = tuple(end.link for end in plan.links)
        self._home = {end.link: end.far for end in plan.links}
        self.placed: list[tuple[LinkId, Parcel]] = []

    def begin(self, start: Start, now: Nanos) -> None:
        self._links = tuple(start.links)
        self._place(start.waiting, self._own_links())

    def add(self, segment: Segment, now: Nanos) -> None:
        self._place((segment,), self._own_links())

    def relink(self, links: Sequence[LinkId], now: Nanos) -> None:
        before = self._own_links()
        self._links = tuple(links)
        taken_over = {own: link for own, link in self._own_links().items() if before.get(own) != link}
        if taken_over:
            self._place(tuple(self._outstanding.after(self._outstanding.final)), taken_over)

    def _own_links(self) -> dict[LinkId, LinkId]:
        """Of the links of origins those that we carry, and by which of ours."""
        ways = {own: way(own, self._links) for own in dict.fromkeys(self._plan.carriers.values())}
        return {own: link for own, link in ways.items() if link is not None and link in self._mine}

    def _place(self, segments: Sequence[Segment], ours: Mapping[LinkId, LinkId]) -> None:
        carriers = self._plan.carriers
        for own, link in ours.items():
            for segment in segments:
                going = segment.only(lambda origin, own=own: carriers.get(slot_of(origin)) == own)  # type: ignore[misc]
                if going:
                    self.placed.append((link, Parcel(0, going, self._home[own])))

    def came_in(self, marks: Marks) -> None:
        """Nothing to do: a FIFO join promises nothing about answers."""

    def ready(self, link: LinkId, line: Line, now: Nanos) -> None:
        """Nothing to do: messages are put on their link when they are delivered, and wait there."""

    def progress(self, received: int, now: Nanos) -> None:
        """Nothing to do: there are no numbers."""

    def wake(self, now: Nanos) -> None:
        """Nothing to do: a link that is lost says so."""

    def deadline(self) -> Nanos | None:
        return None


class _UnderWay(Struct):
    """A parcel that the far side has not delivered, the link that it went by last, and when word of it should be here.

    `own` is the link of its origins, with sets. `link` is none once that one is gone: should it come back, it is as
    good as any. `expected` is 0 where nothing is known of the line. `again` says that it went by more than one link.
    """

    parcel: Parcel
    own: LinkId | None
    link: LinkId | None
    expected: Nanos = 0
    again: bool = False


class Sequenced:
    """Causal joins with a sequencer. With `sets` the origin decides the link, as in Fig. 5; striped, what is ready.

    Striped, a block goes where it arrives first, by what the links have said of their lines. What the far side has not
    delivered is kept in `_under_way`; when a link is lost, or the number that everybody waits for is overdue by far,
    what went by that link goes by another as well.
    """

    window = WINDOW
    window_bytes = WINDOW_BYTES
    block_messages = BLOCK_MESSAGES

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, mine: Collection[LinkId]) -> None:
        self._plan = plan
        self._mine = mine
        self.by_readiness = plan.share == "striped"
        self._leading = False
        self._links: tuple[LinkId, ...] = tuple(end.link for end in plan.links)
        self._home = {end.link: end.far for end in plan.links}
        self._waiting: deque[Segment] = deque()
        self._waiting_bytes = 0
        self._unnamed: dict[ProcessId, int] = {}
        self._under_way: deque[_UnderWay] = deque()
        self._bytes_under_way = 0
        self._lost: deque[_UnderWay] = deque()
        self._next_number = 1
        self._received = 0
        self._free: dict[LinkId, Line] = {}
        self._busy_until: dict[LinkId, Nanos] = {}
        self._fastest = 0
        self._usually_late: Nanos = 0
        self._spread: Nanos = FIRST_PATIENCE // 4
        self._patience = FIRST_PATIENCE
        self.placed: list[tuple[LinkId, Parcel]] = []

    def begin(self, start: Start, now: Nanos) -> None:
        self._links = tuple(start.links)
        self._leading = start.leading
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unnamed = dict(start.came_in) if start.leading else {}
        self._under_way.clear()
        self._bytes_under_way = 0
        self._lost.clear()
        self._next_number = 1
        self._received = 0
        self._free.clear()
        self._busy_until.clear()
        if start.leading:
            for segment in start.waiting:
                self._wait(segment)
            self._pump(now)

    def add(self, segment: Segment, now: Nanos) -> None:
        if self._leading:
            self._wait(segment)
            self._pump(now)

    def _wait(self, segment: Segment) -> None:
        """Have messages numbered when it is their turn. With sets, those that go by one link wait together."""
        self._waiting.extend([segment] if self.by_readiness else segment.along(self._own_link))
        self._waiting_bytes += segment.payload_bytes

    def _own_link(self, origin: ProcessId) -> LinkId | None:
        return self._plan.carriers.get(slot_of(origin))

    def came_in(self, marks: Marks) -> None:
        if self._leading:
            self._unnamed.update(marks)

    def ready(self, link: LinkId, line: Line, now: Nanos) -> None:
        if self._leading and self.by_readiness and link in self._links:
            self._free[link] = line
            self._fastest = max(line.rate, self._fastest)
            self._busy_until[link] = max(now + line.wait, self._busy_until.get(link, 0))
            self._pump(now)

    def relink(self, links: Sequence[LinkId], now: Nanos) -> None:
        gone = set(self._links).difference(links)
        self._links = tuple(links)
        for link in gone:
            self._free.pop(link, None)
            self._busy_until.pop(link, None)
        if gone:
            self._send_again(gone)
            for lost in self._lost:
                lost.link = None if lost.link in gone else lost.link
        if self._leading:
            self._pump(now)

    def progress(self, received: int, now: Nanos) -> None:
        if received <= self._received:
            return
        self._received = received
        under_way = self._under_way
        while under_way and under_way[0].parcel.last <= received:
            arrived = under_way.popleft()
            self._bytes_under_way -= arrived.parcel.segment.payload_bytes
            if arrived.expected and not arrived.again:
                self._has_arrived(now - arrived.expected)
        self._patience = max(LEAST_PATIENCE, self._usually_late + 4 * self._spread)
        while self._lost and self._lost[0].parcel.last <= received:
            self._lost.popleft()
        self._pump(now)

    # Numbers

    def _pump(self, now: Nanos) -> None:
        """Send again what is lost, and number what waits, as long as the window and (striped) a ready link allow."""
        while self._lost:
            lost = self._lost[0]
            link = self._choose(lost.own, lost.parcel.segment.payload_bytes, now, besides=lost.link)
            if link is None:
                break
            self._lost.popleft()
            lost.again = True
            self._send(lost, link, now)
        while self._may_number():
            own = self._own_link_of(self._waiting[0])
            link = self._choose(own, min(self._waiting_bytes, BLOCK_BYTES), now)
            if link is None:
                return
            room = self._free[link].room if link in self._free else BLOCK_BYTES
            home = None if own is None else self._home[own]
            parcel = Parcel(self._next_number, self._take(room), home, self._unnamed)
            self._next_number = parcel.last + 1
            self._unnamed = {}
            sent = _UnderWay(parcel, own, link)
            self._under_way.append(sent)
            self._bytes_under_way += parcel.segment.payload_bytes
            self._send(sent, link, now)

    def _may_number(self) -> bool:
        return (
            bool(self._waiting)
            and self._next_number <= self._received + self.window
            and self._bytes_under_way < self.window_bytes
        )

    def _choose(self, own: LinkId | None, size: int, now: Nanos, besides: LinkId | None = None) -> LinkId | None:
        """Striped, the ready link by which so many bytes arrive first; among equals our own: it takes no word."""
        if own is not None:
            return way(own, self._links)
        best: tuple[Nanos, bool, LinkId] | None = None
        for link, line in self._free.items():
            if link != besides or len(self._links) == 1:
                arrives = self._through(link, line, size, now) + line.delay
                if best is None or (arrives, link not in self._mine) < best[:2]:
                    best = (arrives, link not in self._mine, link)
        return None if best is None else best[2]

    def _own_link_of(self, segment: Segment) -> LinkId | None:
        """With sets, the link of all messages that wait together."""
        return None if self.by_readiness else self._own_link(next(iter(segment.marks)))

    def _take(self, room: int) -> Segment:
        """The next block off `_waiting`; with sets, as far as it goes by the same link."""
        waiting = self._waiting
        if not self.by_readiness:
            own = self._own_link_of(waiting[0])
            waiting = deque(takewhile(lambda segment: self._own_link_of(segment) == own, waiting))
            for _ in waiting:
                self._waiting.popleft()
        segment = take(waiting, self.block_messages, room, room)
        if not self.by_readiness:
            self._waiting.extendleft(reversed(waiting))
        self._waiting_bytes -= segment.payload_bytes
        return segment

    def _send(self, parcel: _UnderWay, link: LinkId, now: Nanos) -> None:
        parcel.link = link
        line = self._free.pop(link, None)
        if line is not None:
            self._busy_until[link] = self._through(link, line, parcel.parcel.segment.payload_bytes, now)
            parcel.expected = self._busy_until[link] + 2 * line.delay if line.delay else 0
        self.placed.append((link, parcel.parcel))

    def _through(self, link: LinkId, line: Line, size: int, now: Nanos) -> Nanos:
        """When a line will be through with so many bytes more. One of which nothing is known is taken for the best."""
        rate = line.rate or self._fastest or GUESSED_RATE
        return max(now, self._busy_until.get(link, 0)) + size * SECOND // rate

    # What may be lost

    def _send_again(self, links: Collection[LinkId | None]) -> None:
        """Whatever is under way on these links goes by others as well, lowest numbers first."""
        known = {id(each) for each in self._lost}
        lost = [each for each in self._under_way if each.link in links and id(each) not in known]
        self._lost = deque(sorted([*self._lost, *lost], key=lambda each: each.parcel.first))

    def _has_arrived(self, late: Nanos) -> None:
        """A block was delivered so much later than expected: as round trips are smoothed in TCP (RFC 6298)."""
        self._spread += (abs(late - self._usually_late) - self._spread) // 4
        self._usually_late += (late - self._usually_late) // 8

    def wake(self, now: Nanos) -> None:
        """Everybody waits for the lowest number. If it is overdue by far, its link is no good."""
        due = self.deadline()
        if due is not None and now >= due:
            self._patience *= 2
            self._send_again({self._under_way[0].link})
            self._pump(now)

    def deadline(self) -> Nanos | None:
        if len(self._links) < 2 or not self._under_way or self._lost or not self._under_way[0].expected:
            return None
        return self._under_way[0].expected + self._patience


class Counted:
    """Causal joins out of a log: all gateways see one order, so everybody numbers for itself.

    `_waiting` are segments with their first number and with what came in before them: since the segment before, or,
    where an epoch begins, ever. So whoever carries a number, it and those below it name all that came in before it.
    """

    by_readiness = False
    window = WINDOW
    stripe = STRIPE

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, mine: Collection[LinkId]) -> None:
        self._outstanding = outstanding
        self._mine = mine
        self._all = tuple(end.link for end in plan.links)
        self._links = self._all
        self._waiting: deque[Parcel] = deque()
        self._came_in: dict[ProcessId, int] = {}
        self._unnamed: dict[ProcessId, int] = {}
        self._received = 0
        self._placed_to = 0
        self.placed: list[tuple[LinkId, Parcel]] = []

    def begin(self, start: Start, now: Nanos) -> None:
        self._links = tuple(start.links)
        self._received = self._placed_to = 0
        self._came_in, self._unnamed = dict(start.came_in), dict(start.came_in)
        self._waiting = deque(self._kept())
        # Whoever comes during an epoch has not heard how far it is; but what is confirmed has arrived.
        self._received = max(0, self._waiting[0].first - 1 if self._waiting else self._outstanding.last_number())
        self._pump()

    def _kept(self) -> list[Parcel]:
        """All that is not confirmed."""
        came_in = dict(self._came_in)
        return [Parcel(first, segment, None, came_in) for first, segment in self._outstanding.numbered()]

    def add(self, segment: Segment, now: Nanos) -> None:
        first = self._outstanding.last_number() - segment.messages + 1
        self._waiting.append(Parcel(first, segment, None, self._unnamed))
        self._unnamed = {}
        self._pump()

    def came_in(self, marks: Marks) -> None:
        self._came_in.update(marks)
        self._unnamed.update(marks)

    def ready(self, link: LinkId, line: Line, now: Nanos) -> None:
        """Nothing to do: a message's number decides about its link, not which link is ready."""

    def relink(self, links: Sequence[LinkId], now: Nanos) -> None:
        """Send again what went by a link that is gone, where it falls to us now."""
        before, self._links = self._links, tuple(links)
        for kept in self._kept():
            rest = kept
            while rest.segment:
                part, rest = self._stripe_of(rest)
                moved = self._link_of(part.first, before) != self._link_of(part.first, self._links)
                if moved and self._received < part.last <= self._placed_to:
                    self._place(part)
        self._pump()

    def progress(self, received: int, now: Nanos) -> None:
        if received > self._received:
            self._received = received
            self._pump()

    def _pump(self) -> None:
        while self._waiting and self._links and self._waiting[0].first <= self._received + self.window:
            part, rest = self._stripe_of(self._waiting.popleft())
            if rest.segment:
                self._waiting.appendleft(rest)
            self._placed_to = part.last
            self._place(part)

    def _place(self, part: Parcel) -> None:
        link = self._link_of(part.first, self._links)
        if link is not None and link in self._mine:
            self.placed.append((link, part))

    def _stripe_of(self, parcel: Parcel) -> tuple[Parcel, Parcel]:
        """A parcel, cut where a number may fall to another link than the one before it."""
        front, rest = parcel.segment.cut(self.stripe - (parcel.first - 1) % self.stripe)
        return parcel._replace(segment=front), parcel._replace(first=parcel.first + front.messages, segment=rest)

    def _link_of(self, number: int, links: Sequence[LinkId]) -> LinkId | None:
        return way(self._all[(number - 1) // self.stripe % len(self._all)], links)

    def wake(self, now: Nanos) -> None:
        """Nothing to do: a link that is lost says so."""

    def deadline(self) -> Nanos | None:
        return None


def way(own: LinkId, links: Sequence[LinkId]) -> LinkId | None:
    """By which link goes what has a link of its own: by that one if it works, else by one that does."""
    if own in links:
        return own
    return links[own % len(links)] if links else None


SHARES: Mapping[str, Callable[[JoinPlan, Outstanding, Collection[LinkId]], Share]] = {
    "by-origin": ByOrigin,
    "sets": Sequenced,
    "striped": Sequenced,
    "counted": Counted,
}
