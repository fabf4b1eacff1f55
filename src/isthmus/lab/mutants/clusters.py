"""Mistakes in clusters: their deliveries, the relay between them, the channels below (docs/design/clusters.md)."""

from __future__ import annotations

from msgspec.structs import replace

from isthmus.core.endpoint import AddressedDelivery, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop, HopFrame
from isthmus.hierarchy.clusters.process import Hops, MessageRelay
from isthmus.lab.mutants.mutant import mutant, part_of
from isthmus.ordering.addressed.coordinator import CoordinatorDelivery
from isthmus.ordering.addressed.delivery import Held, Onward, Rank
from isthmus.ordering.addressed.rst import RstDelivery, merged
from isthmus.ordering.channels import PeerChannels

# The originals that mutants build on, taken before anything is replaced.
_missing, _send, _deliver = RstDelivery._missing, RstDelivery.send, RstDelivery._deliver
_name_peers, _hand_up = MessageRelay._name_peers, MessageRelay._hand_up
_accept = PeerChannels.accept


# Matrices


@mutant("rst-no-wait", of=RstDelivery._missing, scenario="clusters")
def _never_missing(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    """Delivers on receipt."""
    return None


@mutant("rst-one-cause-missed", of=RstDelivery._missing, scenario="clusters")
def _one_cause_missed(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    """Never waits for what the last member sent."""
    rows = (*hop.rows[:-1], (0,) * len(hop.rows))
    return _missing(self, replace(hop, rows=rows))


@mutant("rst-row-for-column", of=RstDelivery._missing, scenario="clusters")
def _row_for_column(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    """Compares with what it has sent, not with what was sent to it."""
    for member, (count, delivered) in enumerate(zip(hop.rows[self._rank], self.delivered, strict=True)):
        if count > delivered:
            return member, count
    return None


@mutant("rst-send-not-counted", of=RstDelivery.send, scenario="clusters")
def _send_not_counted(self: RstDelivery, target: Rank, run: Addressed, onward: Onward) -> None:
    """Does not count what it sends."""
    onward.append((target, Hop(self._cluster, target, self.sent, run)))


@mutant("rst-counted-too-early", of=RstDelivery.send, scenario="clusters")
def _counted_too_early(self: RstDelivery, target: Rank, run: Addressed, onward: Onward) -> None:
    """Counts a message before it puts the matrix on it."""
    _send(self, target, run, [])
    onward.append((target, Hop(self._cluster, target, self.sent, run)))


@mutant("rst-delivery-not-counted", of=RstDelivery._deliver, scenario="clusters")
def _delivery_not_counted(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    """Does not count what it delivers."""
    before = self.delivered[sender]
    _deliver(self, sender, hop)
    self.delivered[sender] = before


@mutant("rst-not-merged", of=RstDelivery._deliver, scenario="clusters")
def _matrix_not_merged(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    """Learns of a message's matrix only the sender's row."""
    own = self.sent
    _deliver(self, sender, hop)
    learnt = list(own)
    learnt[sender] = self.sent[sender]
    self.sent = tuple(learnt)


@mutant("rst-replaced", of=RstDelivery._deliver, scenario="clusters")
def _matrix_replaced(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    """Takes over a message's matrix instead of the maximum.

    Takes over the sender's matrix, and forgets what only this member knew.
    """
    own = self.sent[self._rank]
    _deliver(self, sender, hop)
    theirs = list(hop.rows)
    theirs[sender], theirs[self._rank] = self.sent[sender], own
    self.sent = tuple(theirs)


@mutant("rst-released-is-deliverable", of=RstDelivery.receive, scenario="clusters")
def _released_means_deliverable(
    self: RstDelivery, sender: Rank, hop: Hop, ready: list[Hop], onward: Onward, held: list[Held]
) -> None:
    """Does not look again at what it releases."""
    cause = self._missing(hop)
    if cause is not None:
        self.held.park(*cause, (sender, hop))
        held.append(Held(sender, hop, *cause))
        return
    queue = [(sender, hop)]
    for each_sender, each in queue:
        self._deliver(each_sender, each)
        ready.append(each)
        queue += self.held.release(each_sender, self.delivered[each_sender])


# Coordinators


@mutant("past-the-coordinator", of=CoordinatorDelivery.send, scenario="coordinators")
def _past_the_coordinator(self: CoordinatorDelivery, target: Rank, run: Addressed, onward: Onward) -> None:
    """Members send to each other and not to the coordinator."""
    onward.append((target, Hop(self._cluster, target, (), run)))


@part_of("past-the-coordinator", of=CoordinatorDelivery.accepts)
def _from_anybody(self: CoordinatorDelivery, sender: Rank, hop: Hop) -> bool:
    return not hop.rows


@mutant("coordinator-reorders", of=MessageRelay._name_peers, scenario="coordinators")
def _coordinator_reorders(self: MessageRelay, cluster: int, onward: Onward, hops: Hops) -> None:
    """The coordinator passes on in another order than it received.

    What comes in one step goes out with the last first.
    """
    more: Hops = []
    _name_peers(self, cluster, onward, more)
    if isinstance(self.deliveries[cluster], CoordinatorDelivery):
        hops[:0] = more
    else:
        hops += more


# The relay


@mutant("relay-not-fifo", of=MessageRelay.receive, scenario="clusters")
def _relay_newest_first(self: MessageRelay, peer: ProcessId, hop: Hop, out: Outbox, hops: Hops) -> None:
    """The relay passes on the newest first.

    What a delivery hands up together goes on in the opposite order.
    """
    sender = self.tree.rank(hop.cluster, peer)
    assert sender is not None
    ready: list[Hop] = []
    onward: Onward = []
    self.deliveries[hop.cluster].receive(sender, hop, ready, onward, [])
    self._name_peers(hop.cluster, onward, hops)
    own = [each for each in ready if each.run.destinations[0] == self.id]
    relayed = [each for each in ready if each.run.destinations[0] != self.id]
    for each in own + relayed[::-1]:
        self._hand_up(each, out, hops)


@mutant("header-leaks", of=MessageRelay._hand_up, scenario="clusters")
def _header_leaks(self: MessageRelay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """A message takes the matrix of its cluster along into the next."""
    before = len(hops)
    _hand_up(self, hop, out, hops)
    for place in range(before, len(hops)):
        peer, following = hops[place]
        hops[place] = (peer, replace(following, rows=hop.rows))


@mutant("matrices-mixed", of=MessageRelay._hand_up, scenario="clusters")
def _matrices_mixed(self: MessageRelay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """A matrix of one cluster is merged into those of others."""
    _hand_up(self, hop, out, hops)
    for delivery in self.deliveries.values():
        if isinstance(delivery, RstDelivery) and len(delivery.sent) == len(hop.rows):
            delivery.sent = merged(delivery.sent, hop.rows)


@mutant("read-on-the-way", of=MessageRelay._hand_up, scenario="clusters")
def _read_on_the_way(self: MessageRelay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """A process delivers what it only relays."""
    _hand_up(self, hop, out, hops)
    if hop.run.destinations[0] != self.id:
        out.addressed.append(AddressedDelivery(hop.run, hop))


@mutant("relayed-twice", of=MessageRelay._hand_up, scenario="coordinators")
def _relayed_twice(self: MessageRelay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """Some messages are relayed twice."""
    _hand_up(self, hop, out, hops)
    if hop.run.destinations[0] != self.id and hop.run.last % 8 == 0:
        _hand_up(self, hop, out, hops)


# Channels


@mutant("channel-duplicates", of=PeerChannels.accept, scenario="coordinators")
def _duplicates_accepted(self: PeerChannels[Hop, HopFrame], peer: ProcessId, frame: HopFrame) -> list[Hop]:
    """A frame that comes twice is taken twice."""
    incoming = self._from.get(peer)
    known = incoming is not None and frame.number <= incoming.received
    return [*_accept(self, peer, frame), *(frame.hops if known else ())]


@mutant("channel-gaps", of=PeerChannels.accept, scenario="coordinators")
def _gaps_accepted(self: PeerChannels[Hop, HopFrame], peer: ProcessId, frame: HopFrame) -> list[Hop]:
    """A gap in the numbers is not waited for."""
    incoming = self._from.get(peer)
    if incoming is not None and frame.number > incoming.received + 1:
        incoming.received = frame.number - 1
    return _accept(self, peer, frame)


@mutant("channel-never-again", of=PeerChannels.wake, scenario="clusters")
def _never_again(self: PeerChannels[Hop, HopFrame], now: Nanos, out: Outbox) -> None:
    """Nothing is sent again when no acknowledgement comes."""
    if self._due is not None and now >= self._due:
        self._due = now + self._retry_after
