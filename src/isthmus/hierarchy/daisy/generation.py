"""A process in one tree of groups: a member of its local group, and a seat in each group that it is a server for.

Promises causal order, exactly once, and that nothing is lost, for messages to any set of processes, through crashes of
members and of servers (daisy, Sect. 3 and 4; docs/design/daisy.md). The way of a message through this file, from top
to bottom: `send` → the local group → `_arrived`: to the application, up into the servers' group, down into the group
below; then `_see_through`: stable in a group, stable beyond it, stable everywhere.

`levels[0]` is the local group; `levels[i]` is there as long as this process is the server of `levels[i - 1]`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from isthmus.core.endpoint import AddressedDelivery, Carried, Hold, Outbox, View
from isthmus.core.freeze import freeze
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked, runs_of
from isthmus.core.segment import total
from isthmus.core.wire.daisy import (
    Census,
    DaisyFrame,
    Halt,
    Knock,
    Offered,
    Over,
    PointPdu,
    SeatReport,
    SeatState,
    Settled,
    Unsettled,
    Vouch,
    Vouched,
    Welcome,
)
from isthmus.core.wire.group import Ack, GroupPdu
from isthmus.hierarchy.daisy.early import EarlyLocalGroup, EarlyServersGroup, forward
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup, NewView
from isthmus.hierarchy.daisy.point import PointGroup
from isthmus.hierarchy.daisy.record import opened
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.hierarchy.daisy.tree import DaisyTree
from isthmus.hierarchy.daisy.vouch import Vouching
from isthmus.ordering.group.window import GroupSettings

MAX_ASKED = 256
"""Messages that a server is asked about at a time."""

LAST = (1 << 62) - 1
"""The clock of the message that ends a generation: later than all others."""

VIEWS = 10_000
"""In traces, views of a generation are numbered from so many times its number on."""

Level: TypeAlias = LocalGroup | ServersGroup


class DaisyGeneration:
    """One process. `unstable` are its own messages that somebody may not have.

    `clock` is where its own stands when the generation begins, and `marks` are the numbers of the last messages of all
    processes before. `ending` is set when the last message is known here, `ended_by` when it is delivered.
    """

    def __init__(
        self,
        owner: ProcessId,
        tree: DaisyTree,
        settings: GroupSettings,
        now: Nanos,
        clock: int = 0,
        marks: Sequence[tuple[ProcessId, int]] = (),
    ) -> None:
        self.id = owner
        self.tree = tree
        self.settings = settings
        self.path = tree.path(owner)
        self._early = tree.options.forward == "on-receipt"
        kind = PointGroup if tree.options.inside == "recipients" else LocalGroup
        local_group = EarlyLocalGroup if self._early else kind
        self.local = local_group(owner, tree, self.path[0], self.settings, now)
        self.local.record.seen.update(marks)
        self.levels: list[Level] = [self.local]
        self.vouching = Vouching(self.levels)
        self.unstable: dict[MessageId, Clocked] = {}
        self.clock = clock
        self.ending = False
        self.ended_by: Clocked | None = None
        self._leaving = False
        self._down: list[Arrival] = []
        self._up: list[Clocked] = []
        self._next_tick = now
        for level in range(len(self.path) - 1):
            self._elect(level, now)

    # Application side

    def send(
        self, destinations: tuple[ProcessId, ...], first: int, payloads: Sequence[bytes], now: Nanos, out: Outbox
    ) -> None:
        """Messages to these processes of the tree, in order, numbered from `first` on: mostly one run."""
        assert destinations or self.tree.options.audience == "everybody", "a message for nobody"
        assert self.tree.knows(destinations), f"{destinations} are not all in this tree"
        runs = []
        for last, content in runs_of(first, payloads):
            self.clock += 1
            runs.append(Clocked(self.id, last, content, destinations, self.clock))
        self.unstable.update((run.id, run) for run in runs)
        self.local.send(runs, now)
        self._end_step(now, out)

    def end(self, seq: int, payload: bytes, now: Nanos, out: Outbox) -> None:
        """Send everybody the last message of this generation."""
        self.ending = True
        self.local.send([Clocked(self.id, seq, payload, self.path[-1].everybody, LAST)], now)
        self._end_step(now, out)

    def finish(self, taken: Mapping[ProcessId, int], now: Nanos, out: Outbox) -> None:
        """The application has finished with these, where `auto_confirm` does not say that delivery is enough."""
        self.local.finish(taken, now)
        self._end_step(now, out)

    def credit(self) -> int:
        """How many more messages fit now: 0 while too many, or too large ones, are not stable everywhere."""
        messages, size = total([run.segment for run in self.unstable.values()])
        if self.local.member.stopped or self._leaving or size >= self.settings.window_bytes:
            return 0
        return max(0, self.settings.window_messages - messages)

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Stop accepting, see everything sent through to stability, then go. `stopped` says when."""
        self._leaving = True

    # Network side

    def receive(self, source: ProcessId, frames: Sequence[DaisyFrame], now: Nanos, out: Outbox) -> None:
        """Frames of this generation."""
        for frame in frames:
            self._on_frame(source, frame, now, out)
        self._end_step(now, out)

    def _on_frame(self, source: ProcessId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
        place = next((place for place, level in enumerate(self.levels) if level.number == frame.group), None)
        if place is None:
            return
        level, pdu = self.levels[place], frame.pdu
        if isinstance(pdu, Unsettled):
            if place + 1 < len(self.levels):
                # What is settled here may be so by the word of an earlier server, and news to the group above.
                both = (level, self.levels[place + 1])
                asked = [MessageId(*each) for each in pdu.ids]
                known = [each for each in asked if any(some.is_settled(each) for some in both)]
                if known:
                    self._say(out, (source,), level.number, Settled([(each.origin, each.seq) for each in known]))
        elif isinstance(pdu, Settled):
            if source == level.server:
                self._settled(place, [MessageId(*each) for each in pdu.ids], out)
        elif isinstance(pdu, (Vouch, Vouched)):
            self.vouching.hear(place, source, pdu)
        elif isinstance(level, ServersGroup):
            if isinstance(pdu, (Batch, Ack, SeatReport, SeatState)):
                level.receive(source, pdu, now)
        elif isinstance(pdu, Offered):
            level.on_offer(source, pdu, now)
        elif isinstance(pdu, PointPdu):
            level.on_word(source, pdu, now)
        elif not isinstance(pdu, (SeatReport, SeatState, Census, Halt, Over, Knock, Welcome)):
            level.receive(source, pdu, now)

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.local.wake(now)
        if now >= self._next_tick:
            self._next_tick = now + self.settings.heartbeat
            for level in self.levels[1:]:
                level.wake(now)
            self.local.offer()
            self.vouching.wake()
            self._end_step(now, out)
            self._catch_up(out)
            self._ask(out)
            if self._leaving and not self.unstable and not self.local.member.membership.leaving:
                self.local.member.leave(now, self.local.inner)
            return
        self._end_step(now, out)

    def deadline(self) -> Nanos | None:
        deadline = self.local.member.deadline()
        return None if deadline is None else min(deadline, self._next_tick)

    # Deliveries

    def _end_step(self, now: Nanos, out: Outbox) -> None:
        """The end of a step: whatever one group delivered goes to its neighbours, until nothing moves."""
        moved = True
        while moved:
            moved = False
            for place, level in enumerate(list(self.levels)):
                if level not in self.levels:
                    continue  # given up a moment ago
                for item in level.news():
                    moved = True
                    if isinstance(item, NewView):
                        self._pass_on(place, now)
                        self._new_view(place, now, out)
                    else:
                        self._arrived(place, item, now, out)
                self._pass_on(place, now)
                if isinstance(level, ServersGroup) and level.unvouched:
                    moved = self._vouched(place, level, now) or moved
                if isinstance(level, ServersGroup) and level.wants_above:
                    moved = self._tell_down(place, now) or moved
            if self._early:
                moved = forward(self.levels, now, out) or moved
            self._see_through(out)
        self._hand_out(now, out)

    def _arrived(self, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
        """A group has delivered a message here. In this order: ourselves, the group below, the group above."""
        run = arrival.run
        if run.clock == LAST:
            self.ending = True
            if place == 0:
                self.ended_by = run
        else:
            self.clock = max(self.clock, run.clock)
        if place == 0:
            if self.tree.is_for(self.id, run.destinations) and run.clock != LAST:
                self._deliver(run, arrival.batch, out)
        else:
            below = self.levels[place - 1]
            foreign = not self.tree.is_below(below.number, run.origin)
            if foreign and self.tree.goes_in(below.number, run.destinations) and not below.has(run.id):
                out.carried.append(Carried("transfer", 0, run.segment, self.id))
                self._down.append(arrival)
        if place + 1 < len(self.levels) and not (self._early and place == 0):
            here = self.levels[place]
            if self.tree.is_below(here.number, run.origin) and here.goes_beyond(run):
                out.carried.append(Carried("transfer", 0, run.segment, self.id))
                self._up.append(run)

    def _pass_on(self, place: int, now: Nanos) -> None:
        """Multicast in the groups next to this one what it has delivered, in as few batches as will do.

        One by one, a batch would become as many as it has messages in every group on the way: nine processes in three
        groups, each with 700 messages a second for everybody, then deliver half as many (81 to 129 against 167 to 187
        thousand in four seconds, in turns, in one OS process).
        """
        if self._down:
            down, self._down = self._down, []
            self.levels[place - 1].relay(down, self.levels[place].record.seen, now)
        if self._up:
            up, self._up = self._up, []
            above = self.levels[place + 1]
            assert isinstance(above, ServersGroup)
            above.send(up, now)

    def _deliver(self, run: Clocked, batch: Batch | None, out: Outbox) -> None:
        """Deliver to the application. Messages for everybody are batches of their origin, among views, as in groups."""
        if run.destinations:
            out.addressed.append(AddressedDelivery(run, batch))
        else:
            assert batch is not None, "a local group delivers batches"
            number = run.last
            out.deliveries.append(Batch(batch.view, run.origin, number, batch.stamp, batch.safe, run.segment))

    # Servers

    def _new_view(self, place: int, now: Nanos, out: Outbox) -> None:
        if place == 0:
            out.deliveries.append(self.view())
            self.local.turn(now)
        self._elect(place, now)
        self._catch_up(out)

    def _elect(self, place: int, now: Nanos) -> None:
        """Take the seat of a group if we are its server, and give it up if we are not."""
        if place >= len(self.levels) or place + 1 == len(self.path):
            return
        level = self.levels[place]
        if level.server != self.id:
            if level.server is not None:
                del self.levels[place + 1 :]
            return
        if place + 1 < len(self.levels):
            return
        above = self.path[place + 1]
        seat = self.path[place].seat
        entries = level.tell_up()
        servers_group = EarlyServersGroup if self._early else ServersGroup
        servers = servers_group(self.id, self.tree, above, seat, level.view_number, entries, self.settings, now)
        if isinstance(servers, EarlyServersGroup):
            servers.floor = dict(level.record.seen)
        self.levels.append(servers)

    def _vouched(self, place: int, level: ServersGroup, now: Nanos) -> bool:
        """A flush waits until the group behind our seat has said, since it began, that we are its server."""
        if not level.vouched_in:
            level.vouched_in = self.vouching.want(place - 1)
        if self.vouching.is_done(place - 1, level.vouched_in):
            level.vouched(now)
        return not level.unvouched

    def _tell_down(self, place: int, now: Nanos) -> bool:
        """A flush waits for what is above it. We know that if we have once been in a view there, in this seat."""
        if place + 1 == len(self.levels):
            return False
        level, above = self.levels[place], self.levels[place + 1]
        assert isinstance(level, ServersGroup)
        assert isinstance(above, ServersGroup)
        if above.began:
            level.complete(above.tell_down(level.number), now)
        return above.began

    # Stability

    def _see_through(self, out: Outbox) -> None:
        """Carry word of what is stable up (everybody below has it) and down (it is stable above)."""
        for run in self.local.confirmed():
            if self.local.is_settled(run):
                out.settled.append(run)
            own = self.unstable.get(run)
            if own is not None and not self.local.goes_beyond(own):
                self._stable(own, out)
        for place in range(1, len(self.levels)):
            level = self.levels[place]
            assert isinstance(level, ServersGroup)
            if level.superseded:
                del self.levels[place:]
                break
            below = self.levels[place - 1]
            level.report(lambda run, below=below: self._is_below(below, run))  # type: ignore[misc]
            news = level.settle_own()
            if news:
                self._settled(place - 1, news, out)

    def _catch_up(self, out: Outbox) -> None:
        """Look through all that is kept: a flush may have settled some of it, and an answer may have been lost."""
        for place in range(len(self.levels) - 2, -1, -1):
            level, above = self.levels[place], self.levels[place + 1]
            self._settled(place, [each for each in level.unsettled() if above.is_settled(each)], out)

    def _is_below(self, below: LocalGroup | ServersGroup, run: Clocked) -> bool:
        """Whether everybody below a seat has what it is to have of this."""
        concerned = self.tree.is_below(below.number, run.origin)
        concerned = concerned or self.tree.goes_in(below.number, run.destinations)
        return not concerned or below.everybody_has(run.id)

    def _settled(self, place: int, runs: list[MessageId], out: Outbox) -> None:
        """Note messages that are stable beyond a group, and so also beyond all groups below it that we are in."""
        news = self.levels[place].settle(runs)
        if place and news:
            self._settled(place - 1, news, out)
        elif not place:
            out.settled += news
            for each in news:
                if each in self.unstable:
                    self._stable(self.unstable[each], out)

    def _stable(self, run: Clocked, out: Outbox) -> None:
        del self.unstable[run.id]
        out.stable.append(Batch(0, self.id, run.last, [], 0, run.segment))

    def _ask(self, out: Outbox) -> None:
        """Ask the servers of groups that we are not the server of what has become of what we keep."""
        level = self.levels[-1]
        server = level.server
        if server is None or server == self.id or level.number == self.path[-1].number:
            return
        ids = level.unsettled()[:MAX_ASKED]
        if ids:
            self._say(out, (server,), level.number, Unsettled([(each.origin, each.seq) for each in ids]))

    # Out

    def _hand_out(self, now: Nanos, out: Outbox) -> None:
        """Put the words of all groups into the one outbox, each with the number of its group."""
        self.local.end_step()
        inner = self.local.inner
        if inner.holds:
            out.holds += opened(inner.holds)
        for destinations, pdu in inner.sends:
            self._say(out, destinations, self.local.number, pdu)  # type: ignore[arg-type]
        for destinations, word in self.local.words:
            self._say(out, destinations, self.local.number, word)
        self.local.words.clear()
        out.stopped = inner.stopped
        inner.clear()
        self.vouching.end_step()
        for destinations, group, question in self.vouching.words:
            self._say(out, destinations, group, question)
        self.vouching.words.clear()
        for level in self.levels[1:]:
            assert isinstance(level, ServersGroup)
            level.end_step()
            if level.holds:
                out.holds += opened(map(level.named, level.holds))
            for destinations, seat_word in level.sends:
                self._say(out, destinations, level.number, seat_word)
            level.sends.clear()
            level.holds.clear()

    def _say(
        self,
        out: Outbox,
        destinations: tuple[ProcessId, ...],
        group: int,
        pdu: GroupPdu | SeatState | SeatReport | Vouch | Vouched | Unsettled | Settled | Offered | PointPdu,
    ) -> None:
        out.sends.append((destinations, DaisyFrame(group, self.tree.generation, pdu)))

    # Between generations

    def view(self) -> View:
        """The view of the local group, as drivers and traces know it."""
        view = self.local.view
        return View(self.tree.generation * VIEWS + view.number, view.members)

    @property
    def is_quiet(self) -> bool:
        """Whether all is stable that was sent here, or kept here for others, and nothing is held or in a flush."""
        if self.unstable or not self.local.is_quiet:
            return False
        for level in self.levels:
            if level.record.kept or (isinstance(level, ServersGroup) and not level.is_quiet):
                return False
        return next(self.waiting(), None) is None

    @property
    def is_over(self) -> bool:
        """Whether everybody is known to have the last message."""
        if self.ended_by is None:
            return False
        last = self.ended_by.id
        return self.local.is_settled(last) and self.local.everybody_has(last)

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        yield from self.local.waiting()
        for level in self.levels[1:]:
            assert isinstance(level, ServersGroup)
            yield from level.waiting()

    def invariants(self) -> None:
        self.local.invariants()
        for place in range(1, len(self.levels)):
            level = self.levels[place]
            level.invariants()
            assert self.levels[place - 1].server in (self.id, None), "a seat without a server"

    def snapshot(self) -> Hashable:
        return freeze((self.levels, self.unstable, self.clock, self.ending, self.ended_by, self._next_tick))
