"""Mistakes in a daisy: servers, what they tell each other, what members keep for them (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import truth

from isthmus.core.endpoint import Delivered, Outbox
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.wire.daisy import DaisyFrame
from isthmus.hierarchy.daisy import servers as daisy_servers
from isthmus.hierarchy.daisy.flush import Agreement, agree
from isthmus.hierarchy.daisy.generation import DaisyGeneration
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup, NewView
from isthmus.hierarchy.daisy.record import Record, pack, unpack
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.lab.mutants.mutant import Mutant
from isthmus.lab.standard import Scenario

# Relaying


def _on_receipt(self: ServersGroup, seat: int, batch: Batch) -> None:
    self.order.delivered[seat] = batch.number
    self._deliver(batch)


def _vector_leaks(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    _arrived(self, place, arrival, now, out)
    if place == 0 and arrival.batch is not None:
        for level in self.levels[1:]:
            assert isinstance(level, ServersGroup)
            pairs = zip(level.order.delivered, arrival.batch.stamp, strict=False)
            level.order.delivered[: len(arrival.batch.stamp)] = [max(pair) for pair in pairs]


def _for_everybody(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    _arrived(self, place, arrival, now, out)
    if place == 0 and self.id not in arrival.message.destinations and arrival.message.seq % 8 == 0:
        out.addressed.append(Delivered(arrival.message, arrival.batch))


def _newest_first(self: ServersGroup, messages: Sequence[Clocked], now: Nanos) -> None:
    """What is sent on waits for a second one, which then goes first."""
    held, self.holds_back = getattr(self, "holds_back", []), list(messages)  # type: ignore[attr-defined]
    if held:
        self.holds_back = []  # type: ignore[attr-defined]
        _send(self, messages, now)
        _send(self, held, now)


def _up_on_receipt(self: DaisyGeneration, link: ProcessId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
    """The server does not wait until its local group has delivered what it sends up."""
    if len(self.levels) > 1 and frame.group == self.local.number and isinstance(frame.pdu, Batch):
        for packed in frame.pdu.messages:
            message = unpack(packed)
            if message is not None and self.tree.is_below(frame.group, message.origin):
                if self.local.goes_beyond(message):
                    above = self.levels[1]
                    above.send([message], now)
    _on_frame(self, link, frame, now, out)


# Stars


def _offered_once(self: LocalGroup) -> None:
    _offer(self)
    self.through_server.clear()


def _past_the_server(self: LocalGroup, messages: Sequence[Clocked], now: Nanos) -> None:
    """Members multicast by themselves, in FIFO order."""
    self.member.relay(pack(messages), now, self.inner)


# Memory


def _vector_not_kept(self: Record, message: Clocked, keep: bool = True) -> bool:
    self.seen[message.origin] = message.seq - 1
    return _add(self, message, keep)


def _members_forget(self: LocalGroup) -> list[MessageId]:
    news = _confirmed(self)
    self.record.settle(news)
    return news


def _reported_at_once(self: ServersGroup, everybody_below_has: Callable[[Clocked], bool]) -> None:
    _report(self, truth)


def _settled_by_itself(self: ServersGroup) -> list[MessageId]:
    """Calls stable what its own seat has reported."""
    theirs, self.reports = self.reports, [self.reports[self.seat]] if self.installed else []
    try:
        return _stable(self)
    finally:
        self.reports = theirs


def _clock_stands(self: DaisyGeneration, place: int, arrival: Arrival, now: Nanos, out: Outbox) -> None:
    """The clock counts what is sent, and does not heed what is delivered."""
    clock = self.clock
    _arrived(self, place, arrival, now, out)
    self.clock = clock


# The flush


def _tells_nothing(self: LocalGroup) -> list[Clocked]:
    return []


def _hears_nothing(self: ServersGroup, now: Nanos) -> None:
    """Begins a view with what it knows by itself."""
    for seat in range(self.size):
        self.states.setdefault(seat, ())
    _go_on(self, now)


def _above_not_heard(self: ServersGroup, now: Nanos) -> None:
    """Begins a view without what may have died with the server that had it from above."""
    if self.heard and self.above is None:
        self.above = ()
        self._news.append(NewView(self.view_number))
    _go_on(self, now)


def _any_order(
    states: Sequence[Sequence[Clocked]], above: Sequence[Clocked], seat_of: Callable[[ProcessId], int]
) -> Agreement:
    found = agree(states, above, seat_of)
    return found._replace(agreed=sorted(found.agreed, key=lambda message: (message.seq, -message.origin)))


def _own_list_only(
    states: Sequence[Sequence[Clocked]], above: Sequence[Clocked], seat_of: Callable[[ProcessId], int]
) -> Agreement:
    """Leaves out what came from the last seat."""
    found = agree(states, above, seat_of)
    last = len(states) - 1
    return found._replace(agreed=[each for each in found.agreed if seat_of(each.origin) != last])


_arrived = DaisyGeneration._arrived
_on_frame = DaisyGeneration._on_frame
_add = Record.add
_confirmed = LocalGroup.confirmed
_offer = LocalGroup.offer
_report, _stable, _go_on, _send = (
    ServersGroup.report,
    ServersGroup.confirmed,
    ServersGroup._go_on,
    ServersGroup.send,
)


def _mutant(name: str, mistake: str, *patches: tuple[object, str, object], scenario: Scenario = "daisy") -> Mutant:
    return Mutant(f"daisy-{name}", "causal", mistake, patches, scenario)


DAISY_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "on-receipt",
        "a server passes on what is not causally deliverable yet",
        (ServersGroup, "_hand_over", _on_receipt),
    ),
    _mutant(
        "up-on-receipt",
        "a server sends up what its local group has not delivered yet",
        (DaisyGeneration, "_on_frame", _up_on_receipt),
    ),
    _mutant("vector-leaks", "a vector of one group gets into another", (DaisyGeneration, "_arrived", _vector_leaks)),
    _mutant(
        "for-everybody", "members deliver some of what is not for them", (DaisyGeneration, "_arrived", _for_everybody)
    ),
    _mutant("not-fifo", "a server sends on the newest first", (ServersGroup, "send", _newest_first)),
    _mutant("vector-not-kept", "nobody remembers what was delivered", (Record, "add", _vector_not_kept)),
    _mutant(
        "members-forget",
        "members forget what is stable in their group only",
        (LocalGroup, "confirmed", _members_forget),
    ),
    _mutant(
        "reported-at-once",
        "a server reports what its group does not have yet",
        (ServersGroup, "report", _reported_at_once),
    ),
    _mutant(
        "settled-by-itself",
        "a server calls stable what only its own group has",
        (ServersGroup, "confirmed", _settled_by_itself),
    ),
    _mutant("tells-nothing", "a new server does not tell what its group has", (LocalGroup, "tell_up", _tells_nothing)),
    _mutant(
        "hears-nothing",
        "a server goes on without the state of the others",
        (ServersGroup, "_go_on", _hears_nothing),
    ),
    _mutant(
        "above-not-heard",
        "a flush does not wait for what the group above has",
        (ServersGroup, "_go_on", _above_not_heard),
        scenario="deep daisy",
    ),
    _mutant("clock-stands", "clocks do not heed what is delivered", (DaisyGeneration, "_arrived", _clock_stands)),
    _mutant("any-order", "the flush orders messages by number", (daisy_servers, "agree", _any_order)),
    _mutant("seat-left-out", "the flush leaves out what came from one seat", (daisy_servers, "agree", _own_list_only)),
    _mutant(
        "star-offered-once",
        "a member of a star does not offer again what a dead server took",
        (LocalGroup, "offer", _offered_once),
        scenario="star daisy",
    ),
    _mutant(
        "star-past-the-server",
        "members of a star multicast by themselves",
        (LocalGroup, "send", _past_the_server),
        scenario="star daisy",
    ),
)
"""All in three groups of four, whose servers crash one after the other."""
