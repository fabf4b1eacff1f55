"""A process of a system of clusters: a delivery for each cluster that it is in, one relay, reliable channels.

Promises causal order and exactly once for messages from one process to one other, as long as nobody crashes; the theory
is the cluster paper's, Sect. III, and docs/design/clusters.md says what a crash does. The way of a message through this
file, from top to bottom: `ClusterProcess.send` → `MessageRelay.send` → channels; `ClusterProcess.receive` →
`MessageRelay.receive` → the application, or the next cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from typing import Self, TypeAlias

from msgspec import Struct

from isthmus.core.endpoint import AddressedDelivery, Carried, Hold, Outbox
from isthmus.core.freeze import freeze
from isthmus.core.ids import MILLISECOND, Nanos, ProcessId
from isthmus.core.message import Addressed, Batch, runs_of
from isthmus.core.wire.clusters import Hop, HopAck, HopFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.clusters.tree import Cluster, ClusterPlace, Hierarchy
from isthmus.ordering.addressed.channels import HOPS
from isthmus.ordering.addressed.coordinator import CoordinatorDelivery
from isthmus.ordering.addressed.delivery import CausalDelivery, Held, Onward
from isthmus.ordering.addressed.rst import RstDelivery
from isthmus.ordering.channels import PeerChannels

Hops: TypeAlias = list[tuple[ProcessId, Hop]]


class ClusterSettings(Struct, frozen=True):
    """`window` is how many frames may be unacknowledged before the application is asked to wait."""

    retry_after: Nanos = 40 * MILLISECOND
    window: int = 1024


class MessageRelay:
    """The message relay of one process, and the deliveries between which it relays. It knows nothing of channels.

    Whatever one delivery hands up is passed on in that order, so that the relation "sent before" of one cluster is
    replayed in the next (the Replay Property).
    """

    def __init__(self, owner: ProcessId, tree: Hierarchy) -> None:
        self.id = owner
        self.tree = tree
        self.deliveries: dict[int, CausalDelivery] = {
            cluster.number: _delivery(tree, cluster, owner) for cluster in tree.clusters_of(owner)
        }
        self._next: dict[ProcessId, ClusterPlace] = {}

    def send(self, run: Addressed, hops: Hops) -> AddressedDelivery | None:
        """A run of this process. One to itself is delivered at once, and enters no cluster."""
        if run.destinations[0] == self.id:
            return AddressedDelivery(run, None)
        self._forward(run, hops)
        return None

    def accepts(self, peer: ProcessId, hop: Hop) -> bool:
        """Whether a peer can have sent this: in a cluster that both are in, by the rules of its delivery."""
        delivery = self.deliveries.get(hop.cluster)
        sender = self.tree.rank(hop.cluster, peer) if delivery is not None else None
        known = len(hop.run.destinations) == 1 and hop.run.destinations[0] in self.tree.home
        return delivery is not None and sender is not None and known and delivery.accepts(sender, hop)

    def receive(self, peer: ProcessId, hop: Hop, out: Outbox, hops: Hops) -> None:
        """A hop from a peer, in order and once. It, and what waited for it, is delivered or goes on its way."""
        sender = self.tree.rank(hop.cluster, peer)
        assert sender is not None, "a hop that is not accepted"
        ready: list[Hop] = []
        onward: Onward = []
        held: list[Held] = []
        self.deliveries[hop.cluster].receive(sender, hop, ready, onward, held)
        self._name_peers(hop.cluster, onward, hops)
        for each in held:
            out.holds.append(self._hold(each))
        for delivered in ready:
            self._hand_up(delivered, out, hops)

    def _hand_up(self, hop: Hop, out: Outbox, hops: Hops) -> None:
        """Take a hop that a cluster's delivery released: deliver its run, or send it on into the next cluster."""
        run = hop.run
        if run.destinations[0] == self.id:
            out.addressed.append(AddressedDelivery(run, hop))
            return
        following = self._forward(run, hops)
        out.carried.append(Carried("transfer", 0, run.segment, following))

    def _forward(self, run: Addressed, hops: Hops) -> ProcessId:
        """Send a run on through the delivery of the next cluster. Returns the member to whom it goes there."""
        destination = run.destinations[0]
        place = self._next.get(destination)
        if place is None:
            place = self._next[destination] = self.tree.next_hop(self.id, destination)
        onward: Onward = []
        self.deliveries[place.cluster].send(place.rank, run, onward)
        self._name_peers(place.cluster, onward, hops)
        return self.tree.clusters[place.cluster].members[place.rank]

    def _name_peers(self, cluster: int, onward: Onward, hops: Hops) -> None:
        members = self.tree.clusters[cluster].members
        hops.extend([(members[rank], hop) for rank, hop in onward])

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        for delivery in self.deliveries.values():
            yield from map(self._hold, delivery.waiting())

    def _hold(self, held: Held) -> Hold:
        members = self.tree.clusters[held.hop.cluster].members
        run = held.hop.run
        unit = Batch(0, members[held.sender], run.last, [], 0, run.segment)
        return Hold(unit, "delivered", members[held.awaited], held.number, "message")

    def invariants(self) -> None:
        for delivery in self.deliveries.values():
            delivery.invariants()

    def fork(self) -> Self:
        return deepcopy(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Copy everything but the tree: it never changes and is large, so forks share it."""
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        memo[id(self.tree)] = self.tree
        for name, value in vars(self).items():
            setattr(copy, name, deepcopy(value, memo))
        return copy

    def snapshot(self) -> Hashable:
        """The state of the deliveries: where messages go next follows from the tree, which never changes."""
        return freeze(self.deliveries)


def _delivery(tree: Hierarchy, cluster: Cluster, owner: ProcessId) -> CausalDelivery:
    rank, size = tree.rank(cluster.number, owner), len(cluster.members)
    assert rank is not None, f"{owner} is no member of {cluster.name}"
    if cluster.delivery == "rst":
        return RstDelivery(cluster.number, rank, size)
    coordinator = tree.rank(cluster.number, cluster.coordinator)
    assert coordinator is not None, f"{cluster.coordinator} is no member of {cluster.name}"
    return CoordinatorDelivery(cluster.number, rank, size, coordinator)


class ClusterProcess:
    """One process as an Endpoint: its relay over channels that are made reliable here."""

    def __init__(self, owner: ProcessId, tree: Hierarchy, settings: ClusterSettings | None = None) -> None:
        self.id = owner
        self.settings = settings or ClusterSettings()
        self.relay = MessageRelay(owner, tree)
        self.channels = PeerChannels(HOPS, self.settings.retry_after)
        self._last_seq = 0

    # Application side

    def send(self, destination: ProcessId, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        """Messages to one process. Returns the sequence number stamped on the first."""
        first = self._last_seq + 1
        self._last_seq += len(payloads)
        hops: Hops = []
        for last, content in runs_of(first, payloads):
            own = self.relay.send(Addressed(self.id, last, content, (destination,)), hops)
            if own is not None:
                out.addressed.append(own)
        self.channels.send(hops, now, out)
        return first

    @property
    def sent(self) -> int:
        """The sequence number of the last message of this process."""
        return self._last_seq

    def credit(self) -> int:
        """How many more messages fit now: 0 while the next processes on the way are too far behind."""
        return max(0, self.settings.window - sum(self.channels.unacknowledged().values()))

    # Network side

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        hops: Hops = []
        for pdu in pdus:
            if isinstance(pdu, HopFrame):
                if all(self.relay.accepts(source, hop) for hop in pdu.hops):
                    for hop in self.channels.accept(source, pdu):
                        self.relay.receive(source, hop, out, hops)
            elif isinstance(pdu, HopAck):
                self.channels.acknowledge(source, pdu, now, out)
        self.channels.send(hops, now, out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.channels.wake(now, out)

    def deadline(self) -> Nanos | None:
        return self.channels.deadline()

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        return self.relay.waiting()

    def invariants(self) -> None:
        self.relay.invariants()
        self.channels.invariants()

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return (self.relay.snapshot(), freeze(self.channels), self._last_seq)
