"""Reliable FIFO channels from one process to each peer that it speaks with, for hops between members of clusters.

Each ordered pair of processes has its own numbers (`ordering/group/channel.py`). All that one step has for a peer goes
as one frame; what came in is acknowledged at the end of the step. Channels come into being when they are first used,
and one that has nothing unacknowledged costs nothing: there are thousands of processes, and most pairs never speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.wire.clusters import Hop, HopAck, HopFrame
from isthmus.ordering.group.channel import Incoming, Outgoing

FRAME_HOPS = 64
FRAME_BYTES = 1 << 20
"""What goes into one frame at most, unless one hop alone is larger. A number of a matrix takes up to nine bytes."""

NUMBER_BYTES = 9


class HopChannels:
    """`_open` are the peers that have not acknowledged everything; `_due` is when to look at them at the latest."""

    __slots__ = ("_due", "_from", "_open", "_retry_after", "_to", "_unacknowledged")

    def __init__(self, retry_after: Nanos) -> None:
        self._retry_after = retry_after
        self._to: dict[ProcessId, Outgoing[HopFrame]] = {}
        self._from: dict[ProcessId, Incoming[HopFrame]] = {}
        self._open: dict[ProcessId, Outgoing[HopFrame]] = {}
        self._unacknowledged: dict[ProcessId, Incoming[HopFrame]] = {}
        self._due: Nanos | None = None

    def send(self, hops: Sequence[tuple[ProcessId, Hop]], now: Nanos, out: Outbox) -> None:
        """The end of a step: hops leave, one frame per peer, and what came in is acknowledged."""
        frames: dict[ProcessId, list[Hop]] = {}
        for peer, hop in hops:
            frames.setdefault(peer, []).append(hop)
        for peer, for_peer in frames.items():
            channel = self._to.get(peer)
            if channel is None:
                channel = self._to[peer] = Outgoing((peer,), self._retry_after, now)
            for together in _portions(for_peer):
                frame = HopFrame(channel.sent + 1, together)
                channel.append(frame, now)
                out.sends.append(((peer,), frame))
            self._open[peer] = channel
            self._look_by(now + self._retry_after)
        for peer, incoming in self._unacknowledged.items():
            out.sends.append(((peer,), HopAck(incoming.received, incoming.seen)))
        self._unacknowledged.clear()

    def accept(self, peer: ProcessId, frame: HopFrame) -> list[Hop]:
        """What a peer has sent, in its order, each hop once."""
        incoming = self._from.get(peer)
        if incoming is None:
            incoming = self._from[peer] = Incoming()
        self._unacknowledged[peer] = incoming
        in_order = incoming.accept(frame)
        incoming.log.drop_through(incoming.received)
        return [hop for each in in_order for hop in each.hops]

    def acknowledge(self, peer: ProcessId, ack: HopAck, now: Nanos, out: Outbox) -> None:
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
        """Send again what nobody has acknowledged in time."""
        if self._due is None or now < self._due:
            return
        self._due = None
        for peer, channel in self._open.items():
            for _, frames in channel.overdue(now):
                out.sends.extend(((peer,), frame) for frame in frames)
            state = channel.peers[peer]
            self._look_by(state.quiet_since + self._retry_after * state.backoff)

    def _look_by(self, due: Nanos) -> None:
        if self._due is None or due < self._due:
            self._due = due

    def deadline(self) -> Nanos | None:
        return self._due

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


def _portions(hops: list[Hop]) -> Iterator[list[Hop]]:
    """Hops to one peer, as they go together into frames. Mostly there is one."""
    if len(hops) == 1:
        yield hops
        return
    portion: list[Hop] = []
    size = 0
    for hop in hops:
        weight = len(hop.message.payload) + NUMBER_BYTES * len(hop.rows) ** 2
        if portion and (size + weight > FRAME_BYTES or len(portion) == FRAME_HOPS):
            yield portion
            portion, size = [], 0
        portion.append(hop)
        size += weight
    yield portion
