"""Mistakes in clusters: their deliveries, the relay between them, the channels below (docs/design/clusters.md)."""

from __future__ import annotations

from msgspec.structs import replace

from isthmus.core.endpoint import Delivered, Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop, HopFrame
from isthmus.hierarchy.clusters.process import Hops, Relay
from isthmus.lab.mutants.mutant import Mutant
from isthmus.ordering.addressed.channels import HopChannels
from isthmus.ordering.addressed.coordinator import CoordinatorDelivery
from isthmus.ordering.addressed.delivery import Held, Onward, Rank
from isthmus.ordering.addressed.rst import RstDelivery, merged

# Matrices


def _never_missing(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    return None


def _one_cause_missed(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    """Looks at all members but the last: what that one sent is never waited for."""
    rows = (*hop.rows[:-1], (0,) * len(hop.rows))
    return _missing(self, replace(hop, rows=rows))


def _row_for_column(self: RstDelivery, hop: Hop) -> tuple[Rank, int] | None:
    """Reads what this member sent where it should read what was sent to it."""
    for member, (count, delivered) in enumerate(zip(hop.rows[self._rank], self.delivered, strict=True)):
        if count > delivered:
            return member, count
    return None


def _send_not_counted(self: RstDelivery, target: Rank, message: Addressed, onward: Onward) -> None:
    onward.append((target, Hop(self._cluster, target, self.sent, message)))


def _counted_too_early(self: RstDelivery, target: Rank, message: Addressed, onward: Onward) -> None:
    _send(self, target, message, [])
    onward.append((target, Hop(self._cluster, target, self.sent, message)))


def _delivery_not_counted(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    before = self.delivered[sender]
    _deliver(self, sender, hop)
    self.delivered[sender] = before


def _matrix_not_merged(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    own = self.sent
    _deliver(self, sender, hop)
    learnt = list(own)
    learnt[sender] = self.sent[sender]
    self.sent = tuple(learnt)


def _matrix_replaced(self: RstDelivery, sender: Rank, hop: Hop) -> None:
    """Takes over the sender's matrix, and forgets what only this member knew."""
    own = self.sent[self._rank]
    _deliver(self, sender, hop)
    theirs = list(hop.rows)
    theirs[sender], theirs[self._rank] = self.sent[sender], own
    self.sent = tuple(theirs)


def _released_means_deliverable(
    self: RstDelivery, sender: Rank, hop: Hop, ready: list[Hop], onward: Onward, held: list[Held]
) -> None:
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


def _past_the_coordinator(self: CoordinatorDelivery, target: Rank, message: Addressed, onward: Onward) -> None:
    onward.append((target, Hop(self._cluster, target, (), message)))


def _from_anybody(self: CoordinatorDelivery, sender: Rank, hop: Hop) -> bool:
    return not hop.rows


def _coordinator_reorders(self: Relay, cluster: int, onward: Onward, hops: Hops) -> None:
    """What comes in one step goes out with the last first."""
    more: Hops = []
    _name_peers(self, cluster, onward, more)
    if isinstance(self.deliveries[cluster], CoordinatorDelivery):
        hops[:0] = more
    else:
        hops += more


# The relay


def _relay_newest_first(self: Relay, peer: ProcessId, hop: Hop, out: Outbox, hops: Hops) -> None:
    """What a delivery hands up together goes on in the opposite order."""
    sender = self.tree.rank(hop.cluster, peer)
    assert sender is not None
    ready: list[Hop] = []
    onward: Onward = []
    self.deliveries[hop.cluster].receive(sender, hop, ready, onward, [])
    self._name_peers(hop.cluster, onward, hops)
    own = [each for each in ready if each.message.destinations[0] == self.id]
    relayed = [each for each in ready if each.message.destinations[0] != self.id]
    for each in own + relayed[::-1]:
        self._hand_up(each, out, hops)


def _header_leaks(self: Relay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """The next cluster gets the matrix of the last one."""
    before = len(hops)
    _hand_up(self, hop, out, hops)
    for place in range(before, len(hops)):
        peer, following = hops[place]
        hops[place] = (peer, replace(following, rows=hop.rows))


def _matrices_mixed(self: Relay, hop: Hop, out: Outbox, hops: Hops) -> None:
    """What the matrix of one cluster says goes into the matrices of the others as well."""
    _hand_up(self, hop, out, hops)
    for delivery in self.deliveries.values():
        if isinstance(delivery, RstDelivery) and len(delivery.sent) == len(hop.rows):
            delivery.sent = merged(delivery.sent, hop.rows)


def _read_on_the_way(self: Relay, hop: Hop, out: Outbox, hops: Hops) -> None:
    _hand_up(self, hop, out, hops)
    if hop.message.destinations[0] != self.id:
        out.addressed.append(Delivered(hop.message, hop))


def _relayed_twice(self: Relay, hop: Hop, out: Outbox, hops: Hops) -> None:
    _hand_up(self, hop, out, hops)
    if hop.message.destinations[0] != self.id and hop.message.seq % 8 == 0:
        _hand_up(self, hop, out, hops)


# Channels


def _duplicates_accepted(self: HopChannels, peer: ProcessId, frame: HopFrame) -> list[Hop]:
    incoming = self._from.get(peer)
    known = incoming is not None and frame.number <= incoming.received
    return [*_accept(self, peer, frame), *(frame.hops if known else ())]


def _gaps_accepted(self: HopChannels, peer: ProcessId, frame: HopFrame) -> list[Hop]:
    incoming = self._from.get(peer)
    if incoming is not None and frame.number > incoming.received + 1:
        incoming.received = frame.number - 1
    return _accept(self, peer, frame)


def _never_again(self: HopChannels, now: Nanos, out: Outbox) -> None:
    if self._due is not None and now >= self._due:
        self._due = now + self._retry_after


_missing, _send, _deliver = RstDelivery._missing, RstDelivery.send, RstDelivery._deliver
_name_peers, _hand_up = Relay._name_peers, Relay._hand_up
_accept = HopChannels.accept

CLUSTER_MUTANTS: tuple[Mutant, ...] = (
    Mutant("rst-no-wait", "causal", "delivers on receipt", ((RstDelivery, "_missing", _never_missing),), "clusters"),
    Mutant(
        "rst-one-cause-missed",
        "causal",
        "never waits for what the last member sent",
        ((RstDelivery, "_missing", _one_cause_missed),),
        "clusters",
    ),
    Mutant(
        "rst-row-for-column",
        "causal",
        "compares with what it has sent, not with what was sent to it",
        ((RstDelivery, "_missing", _row_for_column),),
        "clusters",
    ),
    Mutant(
        "rst-send-not-counted",
        "causal",
        "does not count what it sends",
        ((RstDelivery, "send", _send_not_counted),),
        "clusters",
    ),
    Mutant(
        "rst-counted-too-early",
        "causal",
        "counts a message before it puts the matrix on it",
        ((RstDelivery, "send", _counted_too_early),),
        "clusters",
    ),
    Mutant(
        "rst-delivery-not-counted",
        "causal",
        "does not count what it delivers",
        ((RstDelivery, "_deliver", _delivery_not_counted),),
        "clusters",
    ),
    Mutant(
        "rst-not-merged",
        "causal",
        "learns of a message's matrix only the sender's row",
        ((RstDelivery, "_deliver", _matrix_not_merged),),
        "clusters",
    ),
    Mutant(
        "rst-replaced",
        "causal",
        "takes over a message's matrix instead of the maximum",
        ((RstDelivery, "_deliver", _matrix_replaced),),
        "clusters",
    ),
    Mutant(
        "rst-released-is-deliverable",
        "causal",
        "does not look again at what it releases",
        ((RstDelivery, "receive", _released_means_deliverable),),
        "clusters",
    ),
    Mutant(
        "past-the-coordinator",
        "causal",
        "members send to each other and not to the coordinator",
        (
            (CoordinatorDelivery, "send", _past_the_coordinator),
            (CoordinatorDelivery, "accepts", _from_anybody),
        ),
        "coordinators",
    ),
    Mutant(
        "coordinator-reorders",
        "causal",
        "the coordinator passes on in another order than it received",
        ((Relay, "_name_peers", _coordinator_reorders),),
        "coordinators",
    ),
    Mutant(
        "relay-not-fifo",
        "causal",
        "the relay passes on the newest first",
        ((Relay, "receive", _relay_newest_first),),
        "clusters",
    ),
    Mutant(
        "header-leaks",
        "causal",
        "a message takes the matrix of its cluster along into the next",
        ((Relay, "_hand_up", _header_leaks),),
        "clusters",
    ),
    Mutant(
        "matrices-mixed",
        "causal",
        "a matrix of one cluster is merged into those of others",
        ((Relay, "_hand_up", _matrices_mixed),),
        "clusters",
    ),
    Mutant(
        "read-on-the-way",
        "causal",
        "a process delivers what it only relays",
        ((Relay, "_hand_up", _read_on_the_way),),
        "clusters",
    ),
    Mutant(
        "relayed-twice",
        "causal",
        "some messages are relayed twice",
        ((Relay, "_hand_up", _relayed_twice),),
        "coordinators",
    ),
    Mutant(
        "channel-duplicates",
        "causal",
        "a frame that comes twice is taken twice",
        ((HopChannels, "accept", _duplicates_accepted),),
        "coordinators",
    ),
    Mutant(
        "channel-gaps",
        "causal",
        "a gap in the numbers is not waited for",
        ((HopChannels, "accept", _gaps_accepted),),
        "coordinators",
    ),
    Mutant(
        "channel-never-again",
        "causal",
        "nothing is sent again when no acknowledgement comes",
        ((HopChannels, "wake", _never_again),),
        "clusters",
    ),
)
"""All in four clusters of four: `clusters` with matrices, `coordinators` without."""
