"""A local group of a daisy: a group member (docs/design/group.md) that remembers what a new server would need.

The group is an ordinary causal one; everybody in it gets every message that is in it, and only those that a message is
for hand it to their application (daisy, Sect. 3.1). Every member keeps the messages that go beyond the group until its
server says that they are stable there, so that any member can become the server (Sect. 3.1.2).

In a star (Sect. 3.4) the server alone multicasts, and the others offer it what they send until the group has it. Then
FIFO order is causal order: whatever a member has had came by the server's one stream, before what it offers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from isthmus.core.endpoint import Hold, Outbox, View
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Segment
from isthmus.core.wire.daisy import Offered, PointPdu
from isthmus.core.wire.group import GroupPdu
from isthmus.hierarchy.daisy.pieces import fill_frame
from isthmus.hierarchy.daisy.record import pack, pack_runs, unpack
from isthmus.hierarchy.daisy.stage import Stage
from isthmus.hierarchy.daisy.tree import DaisyGroup, DaisyTree
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder


class Arrival(NamedTuple):
    """A run that a group has just delivered here, for the first time, and the batch that brought it."""

    run: Clocked
    batch: Batch | None


class NewView(NamedTuple):
    """A group has a new view, from this point of its deliveries on."""

    number: int


class LocalGroup(Stage):
    """One member. `unconfirmed` are messages that some member may not have delivered yet, by what brought them."""

    causal: type[CausalOrder] = CausalOrder

    def __init__(
        self, owner: ProcessId, tree: DaisyTree, group: DaisyGroup, settings: GroupSettings, now: Nanos
    ) -> None:
        super().__init__(owner, tree, group)
        # A message counts against its origin's window until it is stable everywhere (see `DaisyProcess.credit`); a
        # server that had a window as well would wait for those above it, and they for it. Nor is there one of which a
        # part could be full: members report with their heartbeats.
        unlimited = structs.replace(settings, window_messages=1 << 60, window_bytes=1 << 60)
        if tree.generation:
            # Its founders come from the generation before, and those who begin late are waited for in another way.
            unlimited = structs.replace(unlimited, start_within=0)
        plain = not tree.options.star and tree.options.inside == "everybody"
        order = self.causal if plain else FifoOrder
        self.member = GroupMember(owner, group.everybody, order, unlimited, now)
        self.unconfirmed: dict[ProcessId, deque[tuple[int, list[MessageId]]]] = {}
        self._under_way: set[MessageId] = set()
        self.through_server: deque[Clocked] = deque()
        self.words: list[tuple[tuple[ProcessId, ...], Offered | PointPdu]] = []
        self.inner = Outbox()

    # What the levels above ask

    @property
    def server(self) -> ProcessId | None:
        """The lowest live id (daisy, Sect. 3.1: chosen deterministically)."""
        return min(self.view.members)

    @property
    def view(self) -> View:
        return self.member.view

    @property
    def view_number(self) -> int:
        return self.view.number

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits to be sent here, and everybody is known to have delivered all that was."""
        waiting = self.member.window.pending or self.through_server or self._under_way
        return not waiting and not any(self.unconfirmed.values())

    def everybody_has(self, run: MessageId) -> bool:
        """Stable in this group: every live member has delivered it."""
        return self.record.has(run) and run not in self._under_way

    def send(self, runs: Sequence[Clocked], now: Nanos) -> None:
        """Multicast these. Their causes have been in this group, or were given to it before."""
        if self.tree.options.star and self.server != self.id:
            self.through_server.extend(runs)
            self.offer()
            return
        for run in runs:
            self._offered[run.origin] = run.last
        self.member.relay(pack_runs(runs), now, self.inner)

    def relay(self, arrivals: Sequence[Arrival], above: Mapping[ProcessId, int], now: Nanos) -> None:
        """Multicast what the group above has delivered; `above` are the latest of each origin there."""
        self.send([arrival.run for arrival in arrivals], now)

    def offer(self) -> None:
        """In a star: give the server what the group has not had of ours. It comes again until the group has it."""
        if self.through_server and self.server is not None:
            after = self.record.seen.get(self.id, 0)
            segment = Segment.pack([*map(pack, fill_frame(iter(self.through_server)))])
            self.words.append(((self.server,), Offered(after, segment)))

    def on_offer(self, source: ProcessId, offered: Offered, now: Nanos) -> None:
        """We are the server of a star. What would leave a gap is passed over: all of it is offered again."""
        if self.server != self.id or source not in self.member.view.members or not self.tree.options.star:
            return
        latest = max(self.record.seen.get(source, 0), self._offered.get(source, 0))
        taken = [run for run in unpack(offered.segment) if run.origin == source and run.last > latest]
        if taken and offered.after <= latest:
            self.send(taken, now)

    def turn(self, now: Nanos) -> None:
        """In a star: a view has begun. What its last server had sent is everywhere, and the rest is offered again."""
        if self.server != self.id:
            self.offer()
            return
        runs = [each for each in self.through_server if not self.record.has(each.id)]
        self.through_server.clear()
        if runs:
            self.send(runs, now)

    def unsettled(self) -> list[MessageId]:
        """Messages that the server is to be asked about: whether they are stable beyond the group."""
        return list(self.record.kept)

    def settle(self, runs: Sequence[MessageId]) -> list[MessageId]:
        return self.record.settle(runs)

    def tell_up(self) -> list[Clocked]:
        """What a server of this group brings along to the group above."""
        return self.record.tell(self.goes_beyond)

    # Network and time; what comes of it is in `inner` until `news` takes it

    def receive(self, source: ProcessId, pdu: GroupPdu, now: Nanos) -> None:
        self.member.receive(source, (pdu,), now, self.inner)

    def on_word(self, source: ProcessId, word: PointPdu, now: Nanos) -> None:
        """Nothing to do: nobody sends parcels where messages go to everybody."""

    def end_step(self) -> None:
        """The end of a step. Nothing to do: the member has put all that it has to say into its outbox."""

    def wake(self, now: Nanos) -> None:
        self.member.wake(now, self.inner)

    def news(self) -> Iterator[Arrival | NewView]:
        """Everything delivered since the last time, in order."""
        deliveries, self.inner.deliveries = self.inner.deliveries, []
        for item in deliveries:
            if isinstance(item, View):
                yield NewView(item.number)
                continue
            first_time = []
            for run in self._open(item.segment):
                if self.tree.knows(run.destinations) and self.record.add(run, self.goes_beyond(run)):
                    first_time.append(run)
                    while self.through_server and self.record.has(self.through_server[0].id):
                        self.through_server.popleft()
            ids = [run.id for run in first_time]
            self._under_way.update(ids)
            self.unconfirmed.setdefault(item.sender, deque()).append((item.number, ids))
            for run in first_time:
                yield Arrival(run, item)

    def _open(self, segment: Segment) -> Iterator[Clocked]:
        """The runs that came over the group and are to be delivered."""
        return unpack(segment)

    def confirmed(self) -> list[MessageId]:
        """What has become stable within the group since the last time."""
        news: list[MessageId] = []
        if self.inner.deliveries:
            return news  # Of these nothing is noted yet: a group of one is done with what it is given at once.
        for sender, number in self.inner.settled:
            waiting = self.unconfirmed.get(sender)
            while waiting and waiting[0][0] <= number:
                news += waiting.popleft()[1]
        self.inner.settled.clear()
        self._under_way.difference_update(news)
        return news

    def finish(self, taken: Mapping[ProcessId, int], now: Nanos) -> None:
        """The application has finished with the messages of each origin up to these; only then are they stable here."""
        for sender, waiting in self.unconfirmed.items():
            before = self.member.stability.mine.get(sender, 0)
            finished = before
            for number, runs in waiting:
                if any(each.seq > taken.get(each.origin, 0) for each in runs):
                    break
                finished = number
            if finished > before:
                self.member.confirm(sender, finished, now, self.inner)

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        return self.member.waiting()

    def invariants(self) -> None:
        self.member.invariants()
        self.record.invariants()
        for run in self._under_way:
            assert self.record.has(run), f"{run} is under way here and was never delivered"
