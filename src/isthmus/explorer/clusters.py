"""Every schedule of a small system of clusters: the real relays and deliveries, over reliable FIFO channels.

That is the paper's model (cluster, Sect. II); how channels become reliable is not explored here. What can happen next
is that a process sends its next message, or that the next hop on any channel arrives. Judged at every step:

* causal order and exactly once, by definition: who delivers a message has delivered all its causes that are for it;
* the **Replay Property**: what was sent before m' in one cluster, and goes the same way, is sent before m' in the next.

A state is a tuple of small numbers: what was sent, the channels, the causality so far, and one for each relay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.pdu import Hop
from isthmus.explorer.account import Line
from isthmus.explorer.intern import Interner
from isthmus.explorer.scenario import first_of
from isthmus.explorer.search import Outcome, Search
from isthmus.explorer.step import Event, Step, Violation
from isthmus.explorer.world import State
from isthmus.interconnect.cluster import Hops, Relay
from isthmus.interconnect.exploration_table import Directed
from isthmus.interconnect.hierarchy import Hierarchy, hierarchy_of, route
from isthmus.interconnect.topology import Topology

DEFAULT_MESSAGES = 3

Queues = dict[tuple[ProcessId, ProcessId], tuple[Hop, ...]]


class Message(NamedTuple):
    """A message of the scenario: sent when all that its sender sends before is sent, and `needs` is delivered."""

    bit: int
    sender: ProcessId
    destination: ProcessId
    earlier: int
    needs: int


class Past(NamedTuple):
    """The causality of a schedule, as sets of messages. `known` and `delivered` are by process, `causes` by message.

    `inside` and `inside_causes` are the same within single clusters, by (cluster, process) and (cluster, message):
    there a message is sent and delivered once more for each cluster on its way.
    """

    known: tuple[int, ...]
    delivered: tuple[int, ...]
    causes: tuple[int, ...]
    inside: tuple[tuple[tuple[int, ProcessId], int], ...] = ()
    inside_causes: tuple[tuple[tuple[int, int], int], ...] = ()


class Reaction(NamedTuple):
    """What a relay did about an input: its state afterwards, what it delivered, what it passed on, and the hops."""

    relay: int
    delivered: tuple[int, ...]
    relayed: tuple[int, ...]
    hops: tuple[tuple[ProcessId, Hop], ...]


class ClusterWorld:
    """`successors` is the whole behaviour. Relays are forked, never run on; equal ones are stored once."""

    judges_all = False

    def __init__(self, tree: Hierarchy, names: Directory, messages: Sequence[Directed]) -> None:
        self.tree = tree
        self.names = names
        self.processes = sorted(tree.home)
        self.messages: list[Message] = []
        for number, each in enumerate(messages):
            sender, destination = names.id(*each.sender), names.id(*each.destination)
            earlier = sum(other.bit for other in self.messages if other.sender == sender)
            needs = 1 << (each.after - 1) if each.after else 0
            self.messages.append(Message(1 << number, sender, destination, earlier, needs))
        self._for = [
            sum(each.bit for each in self.messages if each.destination == process) for process in self.processes
        ]
        self.ways = [list(route(tree, each.sender, each.destination)) for each in self.messages]
        self._relays: list[Interner[Relay]] = [Interner() for _ in self.processes]
        self._nets: Interner[Queues] = Interner()
        self._pasts: Interner[Past] = Interner()
        self._reactions: dict[Hashable, Reaction] = {}
        size = len(self.processes)
        past = Past((0,) * size, (0,) * size, (0,) * len(self.messages))
        relays = [self._keep(place, Relay(process, tree)) for place, process in enumerate(self.processes)]
        self.start: State = (0, self._nets.number((), {}), self._pasts.number(past, past), *relays)

    @property
    def reactions(self) -> int:
        return len(self._reactions)

    # Steps

    def successors(self, state: State) -> tuple[list[tuple[State, Step]], bool]:
        sent, net, past = state[0], state[1], self._pasts[state[2]]
        found = []
        for each in self.messages:
            if not sent & each.bit and sent & each.earlier == each.earlier:
                if past.delivered[self.processes.index(each.sender)] & each.needs == each.needs:
                    found.append(self._send(state, each))
        found += [self._arrive(state, *line) for line in sorted(self._nets[net])]
        return found, not found

    def _send(self, state: State, message: Message) -> tuple[State, Step]:
        place = self.processes.index(message.sender)
        number = message.bit.bit_length() - 1
        reaction = self._react(place, state[3 + place], None, number)
        past = self._pasts[state[2]]
        causes = past.known[place]
        past = past._replace(
            causes=_put(past.causes, number, causes), known=_put(past.known, place, causes | message.bit)
        )
        judge = _Judge(self, past)
        if reaction.hops:
            judge.enters(reaction.hops[0][1].cluster, message.sender, number)
        for each in reaction.delivered:
            judge.delivers(place, each)
        event = Event("send", 0, message.sender, (number, message.destination))
        return self._after(state, place, reaction, judge, event, state[0] | message.bit, self._nets[state[1]])

    def _arrive(self, state: State, source: ProcessId, destination: ProcessId) -> tuple[State, Step]:
        place = self.processes.index(destination)
        queues = dict(self._nets[state[1]])
        hop, *rest = queues.pop((source, destination))
        if rest:
            queues[source, destination] = tuple(rest)
        reaction = self._react(place, state[3 + place], source, hop)
        judge = _Judge(self, self._pasts[state[2]])
        for number in (*reaction.delivered, *reaction.relayed):
            judge.leaves(hop.cluster, destination, number)
        for number in reaction.delivered:
            judge.delivers(place, number)
        for number in reaction.relayed:
            onward = next(each for _, each in reaction.hops if each.message.seq == number + 1)
            judge.replays(hop.cluster, onward.cluster, destination, number)
            judge.enters(onward.cluster, destination, number)
        event = Event("take", 0, destination, (hop.message.seq - 1, source, hop.cluster, reaction))
        return self._after(state, place, reaction, judge, event, state[0], queues)

    def _after(
        self, state: State, place: int, reaction: Reaction, judge: _Judge, event: Event, sent: int, queues: Queues
    ) -> tuple[State, Step]:
        queues = dict(queues)
        for peer, hop in reaction.hops:
            line = (self.processes[place], peer)
            queues[line] = (*queues.get(line, ()), hop)
        relays = list(state[3:])
        relays[place] = reaction.relay
        net = self._nets.number(tuple(sorted(queues.items(), key=lambda each: each[0])), queues)
        past = judge.past()
        after = (sent, net, self._pasts.number(past, past), *relays)
        return after, Step(0, 1, (), False, (), 0, 0, judge.violation, (event,))

    def _react(self, place: int, relay: int, source: ProcessId | None, what: int | Hop) -> Reaction:
        key = (place, relay, source, what)
        known = self._reactions.get(key)
        if known is None:
            known = self._reactions[key] = self._run(place, relay, source, what)
        return known

    def _run(self, place: int, number: int, source: ProcessId | None, what: int | Hop) -> Reaction:
        """One input to a fork of a relay."""
        relay = self._relays[place][number].fork()
        hops: Hops = []
        out = Outbox()
        if isinstance(what, Hop):
            assert source is not None
            assert relay.accepts(source, what), f"{self.name(relay.id)} cannot have been sent {what}"
            relay.receive(source, what, out, hops)
        else:
            message = self.messages[what]
            own = relay.send(Addressed(message.sender, what + 1, b"", (message.destination,)), hops)
            if own is not None:
                out.addressed.append(own)
        relay.invariants()
        delivered = tuple(each.message.seq - 1 for each in out.addressed)
        relayed = tuple(message.seq - 1 for each in out.carried for message in each.messages)
        return Reaction(self._keep(place, relay), delivered, relayed, tuple(hops))

    def _keep(self, place: int, relay: Relay) -> int:
        return self._relays[place].number(relay.snapshot(), relay)

    # Judgement

    def judge(self, after: State, step: Step) -> Violation | None:
        """Everything is judged where it happens."""
        return None

    def judge_end(self, state: State) -> Violation | None:
        """Nothing can happen any more: everything must be sent, and be where it belongs."""
        past = self._pasts[state[2]]
        for process, mask, delivered in zip(self.processes, self._for, past.delivered, strict=True):
            if mask & ~delivered:
                missing = first_of(mask & ~delivered).bit_length() - 1
                name, text = self.name(process), self.text(missing)
                why = f"{text} is for {name}, and nothing can happen any more, but it is not delivered"
                return Violation("agreement", name, text, "", why)
        return None

    def rest(self, state: State) -> tuple[Event, ...]:
        return ()

    def next_cluster(self, number: int, here: ProcessId) -> int | None:
        """In which cluster a message goes on from here; None where it is not on its way, or ends."""
        if here in [sender for sender, _ in self.ways[number]]:
            return self.tree.next_hop(here, self.messages[number].destination).cluster
        return None

    def is_for(self, number: int, place: int) -> bool:
        return self.messages[number].destination == self.processes[place]

    def mask_for(self, place: int) -> int:
        return self._for[place]

    # Words

    def text(self, number: int) -> str:
        return f"message {number + 1}"

    def name(self, process: ProcessId) -> str:
        return str(self.names.name(process))

    def account(self, events: Sequence[Event]) -> tuple[Line, ...]:
        return tuple(self._line(number, event) for number, event in enumerate(events, start=1))

    def _line(self, number: int, event: Event) -> Line:
        where = self.name(event.process)
        if event.kind == "send":
            message, destination = event.subject
            return Line(number, 0, where, f"sends {self.text(message)} to {self.name(destination)}")
        message, source, cluster, reaction = event.subject
        inside = self.tree.clusters[cluster].name or "the topmost cluster"
        what = f"takes {self.text(message)} from {self.name(source)} in {inside}"
        then = [f"delivers {self.text(each)}" for each in reaction.delivered]
        then += [f"relays {self.text(each)}" for each in reaction.relayed]
        passed = len(reaction.hops) - len(reaction.relayed)
        return Line(number, 0, where, what, tuple(then + ["passes it on"] * passed or ["holds it"]))


class _Judge:
    """The causality of one step while it is made, and the first thing that is wrong with it."""

    def __init__(self, world: ClusterWorld, past: Past) -> None:
        self._world = world
        self._past = past
        self._inside = dict(past.inside)
        self._inside_causes = dict(past.inside_causes)
        self.violation: Violation | None = None

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
        for cause in _bits(self._inside_causes[cluster, number] & ~relayed):
            goes_here = any(
                receiver == agent and world.next_cluster(cause, sender) == cluster
                for sender, receiver in world.ways[cause]
            )
            if goes_here and world.next_cluster(cause, agent) == following:
                name = world.name(agent)
                why = f"{name} relays {world.text(number)} before {world.text(cause)}, which was sent before it"
                self._violated("replay", name, cause, number, why)

    def delivers(self, place: int, number: int) -> None:
        """By an application process: causal order and integrity, by their definition."""
        world, past = self._world, self._past
        name, bit = world.name(world.processes[place]), 1 << number
        if past.delivered[place] & bit or not world.is_for(number, place):
            self._violated(
                "integrity", name, number, None, f"{name} delivers {world.text(number)} again, or by mistake"
            )
        missing = past.causes[number] & world.mask_for(place) & ~past.delivered[place]
        if missing:
            cause = first_of(missing).bit_length() - 1
            why = f"{name} delivers {world.text(number)}, but its cause {world.text(cause)} has not been delivered here"
            self._violated("causal", name, cause, number, why)
        known = past.known[place] | past.causes[number] | bit
        self._past = past._replace(
            known=_put(past.known, place, known), delivered=_put(past.delivered, place, past.delivered[place] | bit)
        )

    def past(self) -> Past:
        return self._past._replace(
            inside=tuple(sorted(self._inside.items())), inside_causes=tuple(sorted(self._inside_causes.items()))
        )

    def _violated(self, judged: str, name: str, first: int, second: int | None, why: str) -> None:
        if self.violation is None:
            text = self._world.text
            self.violation = Violation(judged, name, text(first), "" if second is None else text(second), why)


def explore_clusters(topology: Topology, messages: int | None = None, max_states: int | None = None) -> Outcome:
    """Look at every schedule of the system of clusters in a topology."""
    (system,) = topology.systems
    assert system.clusters is not None, f"{system.name} has no clusters"
    directory = topology.directory()
    tree = hierarchy_of(system.clusters, lambda name: directory.id(system.name, name))
    world = ClusterWorld(tree, directory, directed_of(topology, messages))
    return Search(world, topology.exploration.max_states if max_states is None else max_states).run(lambda *_: None)


def directed_of(topology: Topology, messages: int | None = None) -> tuple[Directed, ...]:
    """What the file says; else a few messages, from each process to the next."""
    if topology.exploration.messages and messages is None:
        return topology.exploration.messages
    names = topology.directory().slots
    count = DEFAULT_MESSAGES if messages is None else messages
    return tuple(
        Directed(sender=names[each % len(names)], destination=names[(each + 1) % len(names)]) for each in range(count)
    )


def _put(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _bits(mask: int) -> Iterable[int]:
    while mask:
        yield first_of(mask).bit_length() - 1
        mask &= mask - 1
