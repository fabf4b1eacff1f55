"""How the messages of one direction are shared among the links: four answers, one interface.

A share is told what its own system delivers, which links are ready, and, by its fellows, what concerns it; it says
which messages go onto which of its own links under which numbers. It knows nothing of epochs but that everything starts
over when one begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Protocol

from isthmus.core.ids import LinkId, ProcessId, slot_of
from isthmus.core.segment import Run, Segment, take
from isthmus.core.wire.join import BLOCK_BYTES
from isthmus.join.outgoing import Outstanding
from isthmus.join.plan import JoinPlan

BLOCK_MESSAGES = 4096
STRIPE = 64
"""Consecutive numbers that fall to one link where everybody counts alike."""

WINDOW = 65_536
"""Messages under way beyond what the far side has delivered."""

ENOUGH_BLOCKS = 16
"""Blocks under way beyond which each further one has to be at least this part of all that is under way.

The far side takes one block after the other, and between two that come by different gateways lies a local broadcast.
Links that are free most of the time would cut a stream of single messages into more blocks than it can take: 500
messages/s each way over four links came after 57 ms (p50) and 1.1 s (p90), of which 25 ms were the way; so they come
after 36 and 79 ms. With a quarter of what eight links carry, p50 is 64 instead of 57 ms, and p99 75 instead of 96."""


class ShareCallbacks(Protocol):
    """What a share has its gateway do: put messages on links, and speak with fellows about that."""

    def put(self, link: LinkId, first: int, segment: Segment) -> None:
        """Have messages go onto a link of this gateway, when it is ready. They have been delivered here."""

    def assign(self, link: LinkId, first: int, segment: Segment) -> None:
        """Have the gateway of a link put these on it."""

    def offer(self, link: LinkId, room: int) -> None:
        """Tell the sequencer that a link of this gateway is ready for a block of so many bytes."""

    def is_mine(self, link: LinkId) -> bool: ...


class Share(Protocol):
    """Decides by which link each message of one direction goes, and when. Every epoch starts with `begin`."""

    def begin(self, waiting: Sequence[Segment], links: Sequence[LinkId], leading: bool) -> None:
        """An epoch begins: these messages wait, in order; these links work; this gateway leads, or not."""

    def pause(self) -> None:
        """The epoch has ended. Until the next one begins, nothing may be put on a link."""

    def add(self, segment: Segment) -> None:
        """Messages that the own system has just delivered here, to be carried over."""

    def ready(self, link: LinkId, room: int = BLOCK_BYTES) -> None:
        """A link (of a fellow, where this gateway leads) can take a block of so many bytes."""

    def assigned(self, link: LinkId, first: int, runs: Sequence[Run]) -> None:
        """The sequencer gives this gateway's link these numbers."""

    def progress(self, received: int) -> None:
        """The far side has delivered everything up to this number."""


class ByOrigin:
    """FIFO joins and paths: the messages of an origin go by its link, as soon as they are delivered (Fig. 2)."""

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, carrier: ShareCallbacks) -> None:
        self._plan = plan
        self._carrier = carrier
        self._links: tuple[LinkId, ...] = tuple(end.link for end in plan.links)

    def begin(self, waiting: Sequence[Segment], links: Sequence[LinkId], leading: bool) -> None:
        self._links = tuple(links)
        self._put_all(waiting)

    def pause(self) -> None:
        """Nothing to do: only deliveries put anything on a link, and they are withheld meanwhile."""

    def add(self, segment: Segment) -> None:
        self._put_all((segment,))

    def _put_all(self, segments: Sequence[Segment]) -> None:
        origins = dict.fromkeys(origin for segment in segments for origin in segment.marks)
        links = {origin: route(self._plan, self._links, origin) for origin in origins}
        for link in dict.fromkeys(links.values()):
            if link is not None and self._carrier.is_mine(link):
                mine = {origin for origin in origins if links[origin] == link}
                for segment in segments:
                    going = segment.only(mine.__contains__)
                    if going:
                        self._carrier.put(link, 0, going)

    def ready(self, link: LinkId, room: int = BLOCK_BYTES) -> None:
        """Nothing to do: messages are put on their link when they are delivered, and wait there."""

    def assigned(self, link: LinkId, first: int, runs: Sequence[Run]) -> None:
        """Nothing to do: there is no sequencer that could assign numbers."""

    def progress(self, received: int) -> None:
        """Nothing to do: there are no numbers."""


class Sequenced:
    """Causal joins with a sequencer. `ByOrigin` decides the link with `sets`, readiness decides it when striped.

    The leader numbers `_waiting`; every gateway parks what it is to carry until its own system has delivered it and,
    when striped, the link is ready. A link of a fellow asks for its next block as soon as it has taken one: what the
    sequencer takes to answer is then no time of the link's. (Where it asks only once it is ready again, eight links of
    20 Mbit/s carry a tenth to a fifth less on a machine that others keep busy, measured in turn.)
    """

    window = WINDOW
    block_messages = BLOCK_MESSAGES
    enough_blocks = ENOUGH_BLOCKS

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, carrier: ShareCallbacks) -> None:
        self._plan = plan
        self._outstanding = outstanding
        self._carrier = carrier
        self._striped = plan.share == "striped"
        self._leading = False
        self._paused = False
        self._links: tuple[LinkId, ...] = tuple(end.link for end in plan.links)
        self._waiting: deque[Segment] = deque()
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._under_way: deque[int] = deque()
        self._next_number = 1
        self._received = 0
        self._free: dict[LinkId, int] = {}
        self._ready_here: dict[LinkId, None] = {}
        self._rooms: dict[LinkId, int] = {}
        self._asked: set[LinkId] = set()
        self._parked: list[tuple[LinkId, int, Segment | Sequence[Run]]] = []

    def begin(self, waiting: Sequence[Segment], links: Sequence[LinkId], leading: bool) -> None:
        self._links = tuple(links)
        self._leading = leading
        self._paused = False
        self._waiting.clear()
        self._waiting_messages = self._waiting_bytes = 0
        if leading:
            for segment in waiting:
                self._wait(segment)
        self._under_way.clear()
        self._next_number = 1
        self._received = 0
        self._free.clear()
        self._asked.clear()
        self._parked.clear()
        for link in self._ready_here:
            self._offer(link)
        self._pump()

    def pause(self) -> None:
        self._paused = True

    def add(self, segment: Segment) -> None:
        if self._parked:
            self._unpark()
        if self._leading:
            self._wait(segment)
            self._pump()

    def _wait(self, segment: Segment) -> None:
        """Have messages numbered when it is their turn. With sets, those that go by one link wait together."""
        if not self._striped:
            self._waiting.extend(segment.along(lambda origin: route(self._plan, self._links, origin)))
            return
        self._waiting.append(segment)
        self._waiting_messages += segment.messages
        self._waiting_bytes += segment.payload_bytes

    def ready(self, link: LinkId, room: int = BLOCK_BYTES) -> None:
        if self._carrier.is_mine(link):
            self._ready_here[link] = None
            self._rooms[link] = room
            if not self._paused:
                self._offer(link)
                self._unpark()
        else:
            self._free[link] = room
        self._pump()

    def assigned(self, link: LinkId, first: int, runs: Sequence[Run]) -> None:
        self._park(link, first, runs)

    def _park(self, link: LinkId, first: int, what: Segment | Sequence[Run]) -> None:
        self._parked.append((link, first, what))
        self._unpark()

    def progress(self, received: int) -> None:
        if received > self._received:
            self._received = received
            blocks = self._under_way
            while blocks and blocks[0] <= received:
                blocks.popleft()
            self._pump()

    def _offer(self, link: LinkId) -> None:
        if link not in self._links:
            return
        room = self._rooms.get(link, BLOCK_BYTES)
        if self._leading:
            self._free[link] = room
        elif self._striped and link not in self._asked:
            self._asked.add(link)
            self._carrier.offer(link, room)

    def _pump(self) -> None:
        """Number what waits, as long as the window and (striped) a free link allow."""
        while self._may_number():
            if self._striped:
                if not self._free:
                    return
                # One's own link costs no numbering message.
                link = next((each for each in self._free if self._carrier.is_mine(each)), next(iter(self._free)))
                room = self._free.pop(link)
            else:
                routed = self._route(self._waiting[0])
                if routed is None:
                    return
                link, room = routed, BLOCK_BYTES
            segment = self._take(link, room)
            first = self._next_number
            self._next_number += segment.messages
            if self._carrier.is_mine(link):
                self._park(link, first, segment)
            else:
                self._carrier.assign(link, first, segment)

    def _may_number(self) -> bool:
        within_window = self._next_number <= self._received + self.window
        return (
            self._leading
            and not self._paused
            and bool(self._waiting)
            and within_window
            and (not self._striped or self._is_worth_a_block())
        )

    def _is_worth_a_block(self) -> bool:
        """Whether what waits may go, or gathers until it is more or something under way has been done with."""
        return (
            len(self._under_way) < self.enough_blocks
            or self._waiting_messages * self.enough_blocks >= self._next_number - 1 - self._received
            or self._waiting_messages >= self.block_messages
            or self._waiting_bytes >= BLOCK_BYTES
        )

    def _route(self, segment: Segment) -> LinkId | None:
        """With sets, the link of all messages that wait together."""
        return route(self._plan, self._links, next(iter(segment.marks)))

    def _take(self, link: LinkId, room: int) -> Segment:
        """The next block off `_waiting`; with sets, as far as it goes by the same link."""
        waiting = self._waiting
        if not self._striped:
            waiting = deque(takewhile(lambda segment: self._route(segment) == link, waiting))
            for _ in waiting:
                self._waiting.popleft()
        segment = take(waiting, self.block_messages, room, room)
        if not self._striped:
            self._waiting.extendleft(reversed(waiting))
        if self._striped:
            self._waiting_messages -= segment.messages
            self._waiting_bytes -= segment.payload_bytes
            self._under_way.append(self._next_number + segment.messages - 1)
        return segment

    def _unpark(self) -> None:
        """Put on their links what has been delivered here meanwhile. Numbers of one link stay in order."""
        if not self._parked:
            return
        blocked: set[LinkId] = set()
        still: list[tuple[LinkId, int, Segment | Sequence[Run]]] = []
        for link, first, what in self._parked:
            ready = link in self._ready_here or not self._striped
            if ready and link not in blocked and (isinstance(what, Segment) or all(map(self._outstanding.has, what))):
                self._ready_here.pop(link, None)
                self._carrier.put(link, first, what if isinstance(what, Segment) else self._outstanding.find(what))
                if link in self._asked:
                    self._asked.remove(link)
                    self._offer(link)
            else:
                blocked.add(link)
                still.append((link, first, what))
        self._parked = still


class Counted:
    """Causal joins out of a log: all gateways see one order, so everybody numbers for itself."""

    window = WINDOW
    stripe = STRIPE

    def __init__(self, plan: JoinPlan, outstanding: Outstanding, carrier: ShareCallbacks) -> None:
        self._outstanding = outstanding
        self._carrier = carrier
        self._links: tuple[LinkId, ...] = tuple(end.link for end in plan.links)
        self._waiting: deque[tuple[int, Segment]] = deque()
        self._received = 0

    def begin(self, waiting: Sequence[Segment], links: Sequence[LinkId], leading: bool) -> None:
        self._links = tuple(links)
        self._waiting = deque(self._outstanding.numbered())
        self._received = 0
        self._pump()

    def pause(self) -> None:
        """Nothing to do: only deliveries and progress put anything on a link, and they are withheld meanwhile."""

    def add(self, segment: Segment) -> None:
        self._waiting.append((self._outstanding.last_number() - segment.messages + 1, segment))
        self._pump()

    def ready(self, link: LinkId, room: int = BLOCK_BYTES) -> None:
        """Nothing to do: a message's number decides about its link, not which link is ready."""

    def assigned(self, link: LinkId, first: int, runs: Sequence[Run]) -> None:
        """Nothing to do: there is no sequencer that could assign numbers."""

    def progress(self, received: int) -> None:
        if received > self._received:
            self._received = received
            self._pump()

    def _pump(self) -> None:
        while self._waiting and self._links and self._waiting[0][0] <= self._received + self.window:
            number = self._waiting[0][0]
            stripe = (number - 1) // self.stripe
            link = self._links[stripe % len(self._links)]
            segments = self._take(number, (stripe + 1) * self.stripe - number + 1)
            if self._carrier.is_mine(link):
                for segment in segments:
                    self._carrier.put(link, number, segment)
                    number += segment.messages

    def _take(self, number: int, room: int) -> list[Segment]:
        """Take off `_waiting` the messages with the numbers from this one on, up to the first gap."""
        segments: list[Segment] = []
        while self._waiting and room and self._waiting[0][0] == number:
            _, segment = self._waiting.popleft()
            taken, rest = segment.cut(room)
            segments.append(taken)
            room -= taken.messages
            number += taken.messages
            if rest:
                self._waiting.appendleft((number, rest))
        return segments


def route(plan: JoinPlan, links: Sequence[LinkId], origin: ProcessId) -> LinkId | None:
    """The link of an origin: its own if that works, else one of those that do, always the same."""
    own = plan.carriers.get(slot_of(origin))
    if own in links:
        return own
    if own is None or not links:
        return None
    return links[slot_of(origin) % len(links)]


SHARES: Mapping[str, Callable[[JoinPlan, Outstanding, ShareCallbacks], Share]] = {
    "by-origin": ByOrigin,
    "sets": Sequenced,
    "striped": Sequenced,
    "counted": Counted,
}
