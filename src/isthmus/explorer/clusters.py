"""Every schedule of a small system of clusters: the real relays and deliveries, over reliable FIFO channels.

That is the paper's model (cluster, Sect. II); how channels become reliable is not explored here. Judged at every step,
besides what `addressed.py` judges: the **Replay Property**: what was sent before m' in one cluster, and goes the same
way, is sent before m' in the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop
from isthmus.explorer.addressed import AddressedWorld, Past, ProcessReaction, StepJudge, bits, directed_of
from isthmus.explorer.search import Search, SearchOutcome
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import Hops, MessageRelay
from isthmus.hierarchy.clusters.tree import Hierarchy, hierarchy_of, route
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import Directed


class ClusterJudge(StepJudge):
    """Keeps the causality within single clusters as well."""

    _world: ClusterWorld

    def __init__(self, world: ClusterWorld, past: Past) -> None:
        super().__init__(world, past)
        self._inside = dict(past.inside)
        self._inside_causes = dict(past.inside_causes)

    def enters(self, cluster: int, process: ProcessId, number: int) -> None:
        """Sent within a cluster."""
        causes = self._inside.get((cluster, process), 0)
        self._inside_causes[cluster, number] = causes
        self._inside[cluster, process] = causes | 1 << number

    def leaves(self, cluster: int, process: ProcessId, number: int) -> None:
        """Delivered by the delivery of a cluster."""
        known = self._inside.get((cluster, process), 0)
        self._inside[cluster, process] = known | self._inside_causes[cluster, number] | 1 << number

    def replays(self, cluster: int, following: int, agent: ProcessId, number: int) -> None:
        """What was sent before this message in one cluster, and goes on from here into the same, has to go first."""
        world = self._world
        relayed = self._inside.get((following, agent), 0)
        for cause in bits(self._inside_causes[cluster, number] & ~relayed):
            goes_here = any(
                receiver == agent and world.next_cluster(cause, sender) == cluster
                for sender, receiver in world.ways[cause]
            )
            if goes_here and world.next_cluster(cause, agent) == following:
                name = world.name(agent)
                why = f"{name} relays {world.text(number)} before {world.text(cause)}, which was sent before it"
                self._violated("replay", name, cause, number, why)

    def past(self) -> Past:
        return self._past._replace(
            inside=tuple(sorted(self._inside.items())), inside_causes=tuple(sorted(self._inside_causes.items()))
        )


class ClusterWorld(AddressedWorld[MessageRelay, Hop]):
    """The processes are relays, the items hops."""

    make_judge = ClusterJudge

    def __init__(self, tree: Hierarchy, names: Directory, messages: Sequence[Directed]) -> None:
        self.tree = tree
        super().__init__({process: MessageRelay(process, tree) for process in tree.home}, names, messages)
        self.ways = [list(route(tree, each.sender, each.destination)) for each in self.messages]

    def _run(self, place: int, machine: MessageRelay, source: ProcessId | None, what: int | Hop) -> ProcessReaction:
        hops: Hops = []
        out = Outbox()
        if isinstance(what, Hop):
            assert source is not None
            assert machine.accepts(source, what), f"{self.name(machine.id)} cannot have been sent {what}"
            machine.receive(source, what, out, hops)
        else:
            message = self.messages[what]
            own = machine.send(Addressed(message.sender, what + 1, b"", message.destinations), hops)
            if own is not None:
                out.addressed.append(own)
        machine.invariants()
        delivered = tuple(each.run.last - 1 for each in out.addressed)
        relayed = tuple(seq - 1 for each in out.carried for _, seq in each.segment.ids())
        return ProcessReaction(self._keep(place, machine), delivered, relayed, tuple(hops))

    def _judge_send(self, judge: ClusterJudge, sender: ProcessId, number: int, reaction: ProcessReaction) -> None:
        if reaction.items:
            judge.enters(reaction.items[0][1].cluster, sender, number)

    def _judge_arrival(self, judge: ClusterJudge, place: int, item: Hop, reaction: ProcessReaction) -> None:
        process = self.processes[place]
        for number in (*reaction.delivered, *reaction.relayed):
            judge.leaves(item.cluster, process, number)
        super()._judge_arrival(judge, place, item, reaction)
        for number in reaction.relayed:
            onward = next(each for _, each in reaction.items if each.run.last == number + 1)
            judge.replays(item.cluster, onward.cluster, process, number)
            judge.enters(onward.cluster, process, number)

    def next_cluster(self, number: int, here: ProcessId) -> int | None:
        """In which cluster a message goes on from here; None where it is not on its way, or ends."""
        if here in [sender for sender, _ in self.ways[number]]:
            return self.tree.next_hop(here, self.messages[number].destination).cluster
        return None

    def _words(self, source: ProcessId, item: Hop) -> str:
        inside = self.tree.clusters[item.cluster].name or "the topmost cluster"
        return f"{self.text(item.run.last - 1)} from {self.name(source)} in {inside}"

    def _rest(self, item: Hop, reaction: ProcessReaction) -> list[str]:
        passed = len(reaction.items) - len(reaction.relayed)
        idle = not (reaction.delivered or reaction.items)
        return ["passes it on"] * passed or (["holds it"] if idle else [])


def explore_clusters(topology: Topology, messages: int | None = None, max_states: int | None = None) -> SearchOutcome:
    """Look at every schedule of the system of clusters in a topology."""
    (system,) = topology.systems
    directory = topology.directory()
    tree = hierarchy_of(system.own(ClusterTable), lambda name: directory.id(system.name, name))
    world = ClusterWorld(tree, directory, directed_of(topology, messages))
    return Search(world, topology.exploration.max_states if max_states is None else max_states).run(lambda *_: None)
