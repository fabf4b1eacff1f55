"""Mistakes in a daisy: servers, what they tell each other, what members keep for them (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import truth

from isthmus.core.endpoint import AddressedDelivery, Outbox
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.wire.daisy import DaisyFrame
from isthmus.hierarchy.daisy import servers as daisy_servers
from isthmus.hierarchy.daisy.flush import FlushResult, agree
from isthmus.hierarchy.daisy.generation import DaisyGeneration
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup, NewView
from isthmus.hierarchy.daisy.record import GroupRecord, pack_runs, unpack
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.lab.mutants.mutant import mutant

# The originals that mutants build on, taken before anything is replaced.
_arrived = DaisyGeneration._arrived
_on_frame = DaisyGeneration._on_frame
_add = GroupRecord.add
_confirmed = LocalGroup.confirmed
_offer = LocalGroup.offer
_report, _stable = ServersGroup.report, ServersGroup.confirmed
_go_on, _send = ServersGroup._go_on, ServersGroup.send


# Relaying


@mutant("daisy-on-receipt", of=ServersGroup._hand_over, scenario="daisy")
def _on_receipt(self: ServersGroup, seat: int, batch: Batch) -> None:
    """A server passes on what is not causally deliverable yet."""
    self.order.delivered[seat] = batch.number
    self._deliver(batch)


@mutant("daisy-vector-leaks", of=DaisyGeneration._arrived, scenario="daisy")
def _vector_leaks(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    """A vector of one group gets into another."""
    _arrived(self, place, arrival, now, out)
    if place == 0 and arrival.batch is not None:
        for level in self.levels[1:]:
            assert isinstance(level, ServersGroup)
            pairs = zip(level.order.delivered, arrival.batch.stamp, strict=False)
            level.order.delivered[: len(arrival.batch.stamp)] = [max(pair) for pair in pairs]


@mutant("daisy-for-everybody", of=DaisyGeneration._arrived, scenario="daisy")
def _for_everybody(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    """Members deliver some of what is not for them."""
    _arrived(self, place, arrival, now, out)
    if place == 0 and self.id not in arrival.run.destinations and arrival.run.last % 8 == 0:
        out.addressed.append(AddressedDelivery(arrival.run, arrival.batch))


@mutant("daisy-not-fifo", of=ServersGroup.send, scenario="daisy")
def _newest_first(self: ServersGroup, runs: Sequence[Clocked], now: Nanos) -> None:
    """A server sends on the newest first.

    What is sent on waits for a second one, which then goes first.
    """
    held, self.holds_back = getattr(self, "holds_back", []), list(runs)  # type: ignore[attr-defined]
    if held:
        self.holds_back = []  # type: ignore[attr-defined]
        _send(self, runs, now)
        _send(self, held, now)


@mutant("daisy-up-on-receipt", of=DaisyGeneration._on_frame, scenario="daisy")
def _up_on_receipt(self: DaisyGeneration, source: ProcessId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
    """A server sends up what its local group has not delivered yet."""
    if len(self.levels) > 1 and frame.group == self.local.number and isinstance(frame.pdu, Batch):
        for run in unpack(frame.pdu.segment):
            if self.tree.is_below(frame.group, run.origin) and self.local.goes_beyond(run):
                self.levels[1].send([run], now)
    _on_frame(self, source, frame, now, out)


# Stars


@mutant("daisy-star-offered-once", of=LocalGroup.offer, scenario="star daisy")
def _offered_once(self: LocalGroup) -> None:
    """A member of a star does not offer again what a dead server took."""
    _offer(self)
    self.through_server.clear()


@mutant("daisy-star-past-the-server", of=LocalGroup.send, scenario="star daisy")
def _past_the_server(self: LocalGroup, runs: Sequence[Clocked], now: Nanos) -> None:
    """Members of a star multicast by themselves."""
    self.member.relay(pack_runs(runs), now, self.inner)


# Memory


@mutant("daisy-vector-not-kept", of=GroupRecord.add, scenario="daisy")
def _vector_not_kept(self: GroupRecord, run: Clocked, keep: bool = True) -> bool:
    """Nobody remembers what was delivered."""
    self.seen[run.origin] = run.last - 1
    return _add(self, run, keep)


@mutant("daisy-members-forget", of=LocalGroup.confirmed, scenario="daisy")
def _members_forget(self: LocalGroup) -> list[MessageId]:
    """Members forget what is stable in their group only."""
    news = _confirmed(self)
    self.record.settle(news)
    return news


@mutant("daisy-reported-at-once", of=ServersGroup.report, scenario="daisy")
def _reported_at_once(self: ServersGroup, everybody_below_has: Callable[[Clocked], bool]) -> None:
    """A server reports what its group does not have yet."""
    _report(self, truth)


@mutant("daisy-settled-by-itself", of=ServersGroup.confirmed, scenario="daisy")
def _settled_by_itself(self: ServersGroup) -> list[MessageId]:
    """A server calls stable what only its own group has."""
    theirs, self.reports = self.reports, [self.reports[self.seat]] if self.installed else []
    try:
        return _stable(self)
    finally:
        self.reports = theirs


@mutant("daisy-clock-stands", of=DaisyGeneration._arrived, scenario="daisy")
def _clock_stands(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    """Clocks do not heed what is delivered."""
    clock = self.clock
    _arrived(self, place, arrival, now, out)
    self.clock = clock


# The flush


@mutant("daisy-tells-nothing", of=LocalGroup.tell_up, scenario="daisy")
def _tells_nothing(self: LocalGroup) -> list[Clocked]:
    """A new server does not tell what its group has."""
    return []


@mutant("daisy-hears-nothing", of=ServersGroup._go_on, scenario="daisy")
def _hears_nothing(self: ServersGroup, now: Nanos) -> None:
    """A server goes on without the state of the others."""
    for seat in range(self.size):
        self.states.setdefault(seat, ())
    _go_on(self, now)


@mutant("daisy-above-not-heard", of=ServersGroup._go_on, scenario="deep daisy")
def _above_not_heard(self: ServersGroup, now: Nanos) -> None:
    """A flush does not wait for what the group above has.

    Begins a view without what may have died with the server that had it from above.
    """
    if self.heard and self.above is None:
        self.above = ()
        self._news.append(NewView(self.view_number))
    _go_on(self, now)


@mutant("daisy-any-order", of=agree, where=daisy_servers, scenario="daisy")
def _any_order(
    states: Sequence[Sequence[Clocked]], above: Sequence[Clocked], seat_of: Callable[[ProcessId], int]
) -> FlushResult:
    """The flush orders messages by number."""
    found = agree(states, above, seat_of)
    return found._replace(agreed=sorted(found.agreed, key=lambda run: (run.last, -run.origin)))


@mutant("daisy-seat-left-out", of=agree, where=daisy_servers, scenario="daisy")
def _own_list_only(
    states: Sequence[Sequence[Clocked]], above: Sequence[Clocked], seat_of: Callable[[ProcessId], int]
) -> FlushResult:
    """The flush leaves out what came from one seat."""
    found = agree(states, above, seat_of)
    last = len(states) - 1
    return found._replace(agreed=[each for each in found.agreed if seat_of(each.origin) != last])
