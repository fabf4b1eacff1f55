"""Groups of a daisy that forwards on receipt (docs/design/daisy-on-receipt.md; daisy, Sect. 3.4, the first
optimisation).

A message goes up when it has come to the server and a quorum of the local group holds it, and down when it has come to
the holder of a seat; deliverable or not. Its origin says what it follows from (`Causes`), in one vector for the local
group and one for the servers' group. Holders put it into order by them. What is not in its turn goes into the local
group *ahead*, for nobody to look at until the server *names* it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from isthmus.core.endpoint import Carried, Hold, Outbox
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Segment, pack_all
from isthmus.hierarchy.daisy.early_orders import ReceiptOrder, SeatOrder
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup
from isthmus.hierarchy.daisy.record import (
    AHEAD,
    NAMED,
    WHOLE,
    Causes,
    Place,
    pack,
    unpack_with,
)
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.hierarchy.daisy.tree import NONE, DaisyGroup, DaisyTree
from isthmus.ordering.group.window import GroupSettings

NOWHERE = Place(WHOLE, 0, 0, 0)
"""Where a message comes from that no batch brought: the list that a view began with."""


class EarlyLocalGroup(LocalGroup):
    """One member. `outgoing` is, of each member, its last message beyond the group that was delivered here; `heard`
    counts the batches of the seats of the group above, in its view `heard_in`, as far as they have come down. At the
    server, `_turns` are messages from there that wait for some of this group.
    """

    causal = ReceiptOrder

    def __init__(
        self, owner: ProcessId, tree: DaisyTree, group: DaisyGroup, settings: GroupSettings, now: Nanos
    ) -> None:
        super().__init__(owner, tree, group, settings, now)
        self.members = group.everybody
        self.outgoing: dict[ProcessId, int] = {}
        self.heard_in = 0
        self.heard = [] if group.parent == NONE else [0] * len(tree.groups[group.parent].parts)
        self.ahead: dict[MessageId, Clocked] = {}
        self._sent_ahead: set[MessageId] = set()
        self._turns: deque[tuple[Arrival, list[MessageId]]] = deque()

    @property
    def is_quiet(self) -> bool:
        return super().is_quiet and not self._turns and not self.ahead

    # Up

    def send(self, runs: Sequence[Clocked], now: Nanos) -> None:
        """Multicast own messages, and with those that go beyond the group what they follow from."""
        packed = []
        for run in runs:
            self._offered[run.origin] = run.last
            if not self.goes_beyond(run):
                packed.append(pack(run))
                continue
            vector = [self.outgoing.get(member, 0) for member in self.members]
            packed.append(pack(run, Causes(vector, self.heard_in, self.heard.copy())))
            self.outgoing[self.id] = run.last
        self.member.relay(pack_all(packed), now, self.inner)

    def on_receipt(self) -> Iterator[tuple[Clocked, Causes]]:
        """What has come of messages that go beyond the group and is held by a quorum of it, since the last time."""
        order = self.member.order
        assert isinstance(order, ReceiptOrder)
        for batch in order.take():
            for run, way in unpack_with(batch.segment):
                if isinstance(way, Causes) and self.tree.is_below(self.number, run.origin):
                    yield run, way

    # Down

    def relay(self, arrivals: Sequence[Arrival], above: Mapping[ProcessId, int], now: Nanos) -> None:
        """Multicast what the group above has delivered, when this one has delivered of its own what that one had."""
        for arrival in arrivals:
            self._offered[arrival.run.origin] = arrival.run.last
            awaited = [MessageId(each, above.get(each, 0)) for each in self.members]
            self._turns.append((arrival, [each for each in awaited if not self.record.has(each)]))
            self.take_turns(now)
            if self._turns:
                self.send_ahead(arrival.run, now)

    def take_turns(self, now: Nanos) -> bool:
        """Multicast what has waited for messages of this group. Says whether there was any."""
        before = len(self._turns)
        while self._turns and all(map(self.record.has, self._turns[0][1])):
            self._multicast(self._turns.popleft()[0], now)
        return len(self._turns) < before

    def _multicast(self, arrival: Arrival, now: Nanos) -> None:
        """Multicast a message: in whole, or only by its id where everybody has it already."""
        run, batch = arrival
        place = NOWHERE if batch is None else Place(WHOLE, batch.view, batch.sender, batch.number)
        each = run.id
        if each in self.ahead or each in self._sent_ahead:
            self._sent_ahead.discard(each)
            run = Clocked(run.origin, run.last, b"", (), run.clock)
            place = Place(NAMED, place.view, place.seat, place.number)
        self.member.relay([Segment.pack([pack(run, place)])], now, self.inner)

    def send_ahead(self, run: Clocked, now: Nanos) -> None:
        """Multicast a message ahead of its turn: it has come to us before something that it waits for."""
        if run.id in self.ahead or run.id in self._sent_ahead:
            return
        self._sent_ahead.add(run.id)
        self.member.relay([Segment.pack([pack(run, Place(AHEAD, 0, 0, 0))])], now, self.inner)

    def _open(self, segment: Segment) -> Iterator[Clocked]:
        for run, way in unpack_with(segment):
            if not isinstance(way, Place):
                if self.tree.is_below(self.number, run.origin) and self.goes_beyond(run):
                    self.outgoing[run.origin] = max(run.last, self.outgoing.get(run.origin, 0))
                yield run
            elif way.stage == AHEAD:
                if not self.record.has(run.id):
                    self.ahead[run.id] = run
            else:
                known = self.ahead.pop(run.id, None)
                self._hear(way)
                if way.stage != NAMED:
                    yield run
                elif known is not None:
                    yield known

    def _hear(self, way: Place) -> None:
        """Count a batch of the servers' group that has come down."""
        if way.view > self.heard_in:
            self.heard_in = way.view
            self.heard = [0] * len(self.heard)
        if way.view == self.heard_in and way.seat < len(self.heard):
            self.heard[way.seat] = max(way.number, self.heard[way.seat])


class EarlyServersGroup(ServersGroup):
    """One seat. `floor` is, of each member of the local group behind it, the last message that was delivered there when
    the seat last told what it had: this and everything before it is settled, or in the list that the view began with.
    """

    def __init__(
        self,
        owner: ProcessId,
        tree: DaisyTree,
        group: DaisyGroup,
        seat: int,
        epoch: int,
        entries: Sequence[Clocked],
        settings: GroupSettings,
        now: Nanos,
    ) -> None:
        parts = [tree.groups[part] for part in group.parts]
        self._local = [part.everybody if part.is_local else () for part in parts]
        self.floor: dict[ProcessId, int] = {}
        self._too_early: list[Batch] = []
        super().__init__(owner, tree, group, seat, epoch, entries, settings, now)

    def _make_order(self) -> SeatOrder:
        return SeatOrder(self._local)

    # Streams

    def forward(self, run: Clocked, causes: Causes, now: Nanos) -> bool:
        """Multicast a message of the local group behind this seat. False if that was done before."""
        origin, members = run.origin, self._local[self.seat]
        if run.last <= max(self._offered.get(origin, 0), self.floor.get(origin, 0)):
            return False
        self._offered[origin] = run.last
        numbers = zip(members, causes.group, strict=False)
        vector = [number if number > self.floor.get(member, 0) else 0 for member, number in numbers]
        current = causes.view == self.view_number and len(causes.servers) == self.size
        stamp = causes.servers if current else [0] * self.size
        self._multicast(Segment.pack([pack(run, Causes(vector, 0, []))]), stamp, now)
        return True

    def too_early(self) -> Iterator[Clocked]:
        """What has come since the last time and is not deliverable yet."""
        batches, self._too_early = self._too_early, []
        for batch in batches:
            yield from self._sound(batch)

    def _hand_over(self, seat: int, batch: Batch) -> None:
        ids = [run.id for run in self._sound(batch)]
        self._expect(seat, batch.number, [each for each in ids if not self.record.has(each)])
        ready: list[Batch] = []
        self.order.arrived(seat, batch, ready, self.holds)
        if not ready:
            self._too_early.append(batch)
        for each in ready:
            self._add(each)

    def named(self, hold: Hold) -> Hold:
        """The hold in terms of the message's origin: messages are waited for by origin here, and not by seat."""
        return hold if hold.unit == "message" else super().named(hold)

    # The flush

    def _begin_flush(self, now: Nanos) -> None:
        self._too_early.clear()
        self.closing = self.closing or (self.installed and bool(self._local[self.seat]))
        super()._begin_flush(now)

    def is_closed(self, delivered: Mapping[ProcessId, int]) -> bool:
        """Whether the local group behind this seat has delivered all that we have forwarded."""
        return all(self._offered.get(each, 0) <= delivered.get(each, 0) for each in self._local[self.seat])

    def close(self, entries: Sequence[Clocked], delivered: Mapping[ProcessId, int], now: Nanos) -> None:
        """The local group has delivered all that we forwarded; these are not settled there. List what we have."""
        self.closing = False
        self.floor = dict(delivered)
        everything = self.record.kept | {run.id: run for run in entries}
        self._tell([*everything.values(), *self.pending], now)


def forward(levels: Sequence[LocalGroup | ServersGroup], now: Nanos, out: Outbox) -> bool:
    """Pass on what has come to a process, up from its local group and down into it. Says whether there was anything."""
    local = levels[0]
    assert isinstance(local, EarlyLocalGroup)
    if len(levels) == 1:
        for _ in local.on_receipt():
            pass  # somebody else is the server
        return False
    above = levels[1]
    assert isinstance(above, EarlyServersGroup)
    moved = local.take_turns(now)
    if above.closing and above.is_closed(local.record.seen):
        above.close(local.tell_up(), local.record.seen, now)
        moved = True
    if above.installed:
        for run, causes in local.on_receipt():
            if above.forward(run, causes, now):
                out.carried.append(Carried("transfer", 0, run.segment, local.id))
                moved = True
    for run in above.too_early():
        inside = local.tree.is_below(local.number, run.origin)
        if not inside and local.tree.goes_in(local.number, run.destinations) and not local.has(run.id):
            local.send_ahead(run, now)
            moved = True
    return moved
