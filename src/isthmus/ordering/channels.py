"""Reliable FIFO channels from one process to each peer that it speaks with, over a network that loses and reorders.

Each ordered pair of processes has its own numbers (`ordering/group/channel.py`). All that one step has for a peer goes
as one frame, or as few as it fits into; what came in is acknowledged at the end of the step. Channels come into being
when they are first used, and one that has nothing unacknowledged costs a look when others are due, and nothing else:
there are thousands of processes, and most pairs never speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.core.wire.clusters import HopAck, HopFrame
from isthmus.core.wire.join import FellowAck, FellowFrame, PassAck, PassFrame
from isthmus.ordering.group.channel import Incoming, Outgoing

Item = TypeVar("Item")
Frame = TypeVar("Frame", bound=HopFrame | FellowFrame | PassFrame)


class Framing(NamedTuple, Generic[Item, Frame]):
    """What the frames of some channels are: numbered lists of items of one type, and their acknowledgements."""

    frame: Callable[[int, list[Item]], Frame]
    items: Callable[[Frame], list[Item]]
    ack: type[HopAck | FellowAck | PassAck]
    portions: Callable[[list[Item]], Iterable[list[Item]]]
    """Divides what one step has for a peer into what goes as one frame each."""


class PeerChannels(Generic[Item, Frame]):
    """`_open` are the peers that have not acknowledged everything; `_due` is when to look at them at the latest."""

    __slots__ = ("_due", "_framing", "_from", "_open", "_retry_after", "_to", "_unacknowledged")

    def __init__(self, framing: Framing[Item, Frame], retry_after: Nanos) -> None:
        self._framing = framing
        self._retry_after = retry_after
        self._to: dict[ProcessId, Outgoing[Frame]] = {}
        self._from: dict[ProcessId, Incoming[Frame]] = {}
        self._open: dict[ProcessId, Outgoing[Frame]] = {}
        self._unacknowledged: dict[ProcessId, Incoming[Frame]] = {}
        self._due: Nanos | None = None

    def send(self, items: Sequence[tuple[ProcessId, Item]], now: Nanos, out: Outbox) -> None:
        """The end of a step: items leave, together for each peer, and what came in is acknowledged."""
        if not items and not self._unacknowledged:
            return
        by_peer: dict[ProcessId, list[Item]] = {}
        for peer, item in items:
            by_peer.setdefault(peer, []).append(item)
        for peer, for_peer in by_peer.items():
            channel = self._to.get(peer)
            if channel is None:
                channel = self._to[peer] = Outgoing((peer,), self._retry_after, now)
            for together in self._framing.portions(for_peer):
                frame = self._framing.frame(channel.sent + 1, together)
                channel.append(frame, now)
                out.sends.append(((peer,), frame))
            self._open[peer] = channel
            self._look_by(now + self._retry_after)
        for peer, incoming in self._unacknowledged.items():
            out.sends.append(((peer,), self._framing.ack(incoming.received, incoming.seen)))
        self._unacknowledged.clear()

    def accept(self, peer: ProcessId, frame: Frame) -> list[Item]:
        """What a peer has sent, in its order, each item once."""
        incoming = self._from.get(peer)
        if incoming is None:
            incoming = self._from[peer] = Incoming()
        self._unacknowledged[peer] = incoming
        in_order = incoming.accept(frame)
        incoming.log.drop_through(incoming.received)
        return [item for each in in_order for item in self._framing.items(each)]

    def acknowledge(self, peer: ProcessId, ack: HopAck | FellowAck | PassAck, now: Nanos, out: Outbox) -> None:
        channel = self._to.get(peer)
        if channel is None:
            return
        out.sends.extend(((peer,), frame) for frame in channel.acknowledge(peer, ack.received, ack.seen, now))
        channel.log.drop_through(channel.peers[peer].acked)
        if channel.log:
            # A peer that is heard of again after a long silence is looked at again as soon as any other.
            self._look_by(now + self._retry_after)
        else:
            self._open.pop(peer, None)

    def wake(self, now: Nanos, out: Outbox) -> None:
        """Send again what nobody has acknowledged in time, in the order in which peers were first spoken to."""
        if self._due is None or now < self._due:
            return
        self._due = None
        for peer, channel in self._to.items():
            if peer not in self._open:
                continue
            for _, frames in channel.overdue(now):
                out.sends.extend(((peer,), frame) for frame in frames)
            self._look_by(channel.due(channel.peers[peer]))

    def _look_by(self, due: Nanos) -> None:
        if self._due is None or due < self._due:
            self._due = due

    def deadline(self) -> Nanos | None:
        return self._due

    def keep_only(self, peers: Sequence[ProcessId]) -> None:
        """Forget everybody else: who is gone will not come back under its id.

        But one that is not there may be about to come, and have spoken to us from a view that is ahead of ours. What it
        has said it will not say again, so how far that was is forgotten only when a later one is in its place.
        """
        places = {slot_of(peer): peer for peer in peers}
        for absent in [peer for peer in {*self._to, *self._from} if peer not in peers]:
            for channels in (self._to, self._open, self._unacknowledged):
                channels.pop(absent, None)
            if absent < places.get(slot_of(absent), absent):
                self._from.pop(absent, None)

    def unacknowledged(self) -> dict[ProcessId, int]:
        """How many frames each peer has not acknowledged, of those that lack some."""
        return {peer: len(channel.log) for peer, channel in self._open.items()}

    def invariants(self) -> None:
        for peer, channel in self._to.items():
            acked = channel.peers[peer].acked
            assert channel.log.first == acked + 1, f"{peer} has acknowledged {acked}, kept from {channel.log.first}"
            assert channel.log.last == channel.sent, f"{peer} was sent {channel.sent}, kept until {channel.log.last}"
            assert bool(channel.log) == (peer in self._open), f"whether {peer} has everything is not known"
        assert not self._open or self._due is not None, "nothing will be sent again"
        assert not self._unacknowledged, "a step ended without its acknowledgements"
