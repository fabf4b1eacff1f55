"""Reliable FIFO channels between the gateways of one site, over the network that the site's system uses itself."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import Destinations, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.wire.join import SiteAck, SiteFrame, SitePdu
from isthmus.ordering.group.channel import Incoming, Outgoing


class SiteChannels:
    """One channel to, and one from, every fellow that we have ever spoken with in its life."""

    def __init__(self, owner: ProcessId, retry_after: Nanos) -> None:
        self._owner = owner
        self._retry_after = retry_after
        self._to: dict[ProcessId, Outgoing[SiteFrame]] = {}
        self._from: dict[ProcessId, Incoming[SiteFrame]] = {}
        self._unacknowledged: set[ProcessId] = set()

    def send(self, words: Sequence[tuple[Destinations, SitePdu]], now: Nanos, out: Outbox) -> None:
        """Everything that one step has to say to a fellow goes as one frame; then what came in is acknowledged."""
        by_fellow: dict[ProcessId, list[SitePdu]] = {}
        for destinations, pdu in words:
            for destination in destinations:
                by_fellow.setdefault(destination, []).append(pdu)
        for fellow, pdus in by_fellow.items():
            channel = self._to.get(fellow)
            if channel is None:
                channel = self._to[fellow] = Outgoing((fellow,), self._retry_after, now)
            frame = SiteFrame(channel.sent + 1, pdus)
            channel.append(frame, now)
            out.sends.append(((fellow,), frame))
        for fellow in sorted(self._unacknowledged):
            incoming = self._from[fellow]
            out.sends.append(((fellow,), SiteAck(incoming.received, incoming.seen)))
        self._unacknowledged.clear()

    def accept(self, source: ProcessId, frame: SiteFrame) -> list[SitePdu]:
        """What a fellow says, in its order, each word once."""
        incoming = self._from.get(source)
        if incoming is None:
            incoming = self._from[source] = Incoming()
        self._unacknowledged.add(source)
        in_order = incoming.accept(frame)
        incoming.log.drop_through(incoming.received)
        return [pdu for each in in_order for pdu in each.pdus]

    def acknowledge(self, source: ProcessId, ack: SiteAck, now: Nanos, out: Outbox) -> None:
        channel = self._to.get(source)
        if channel is not None:
            out.sends.extend(((source,), frame) for frame in channel.acknowledge(source, ack.received, ack.seen, now))
            channel.log.drop_through(channel.peers[source].acked)

    def wake(self, now: Nanos, out: Outbox) -> None:
        for channel in self._to.values():
            for fellow, frames in channel.overdue(now):
                out.sends.extend(((fellow,), frame) for frame in frames)

    def view(self, members: Sequence[ProcessId]) -> None:
        """Who is gone will not come back under this id."""
        for gone in [fellow for fellow in {*self._to, *self._from} if fellow not in members]:
            self._to.pop(gone, None)
            self._from.pop(gone, None)
            self._unacknowledged.discard(gone)
