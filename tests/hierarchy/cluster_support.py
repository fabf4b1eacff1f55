"""What tests of clusters share: trees from short texts, and relays that are run by hand, without channels or time."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import ProcessId
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import MessageRelay
from isthmus.hierarchy.clusters.tree import Hierarchy, hierarchy_of


def cluster(*members: Any, delivery: str = "rst", name: str = "", **more: Any) -> ClusterTable:
    """Strings are processes, clusters are parts."""
    return ClusterTable(
        name=name,
        delivery=delivery,
        processes=tuple(each for each in members if isinstance(each, str)),
        parts=tuple(each for each in members if isinstance(each, ClusterTable)),
        **more,
    )


def names_of(table: ClusterTable) -> list[str]:
    return [process for each in table.all_clusters() for process in each.processes]


class Tree:
    """A hierarchy whose processes go by their names."""

    def __init__(self, table: ClusterTable) -> None:
        self.names = names_of(table)
        self.ids = {name: index for index, name in enumerate(self.names)}
        self.tree: Hierarchy = hierarchy_of(table, self.ids.__getitem__)


def random_table(rng: Random, depth: int = 3, name: str = "") -> ClusterTable:
    """Any tree: clusters of every size and delivery, unequal depths, agents and coordinators anywhere."""
    parts = rng.randint(0, 3) if depth > 1 else 0
    below = tuple(random_table(rng, depth - 1, f"{name}{letter}") for letter in "xyz"[:parts])
    own = rng.randint(0 if parts > 1 else 2 - parts, 3)
    processes = tuple(f"{name or 'top'}{number}" for number in range(own))
    members = processes + tuple(part.representative for part in below)
    delivery = rng.choice(("rst", "coordinator"))
    return ClusterTable(
        name=name,
        delivery=delivery,
        processes=processes,
        parts=below,
        agent=rng.choice(members) if name else None,
        coordinator=rng.choice(members) if delivery == "coordinator" else None,
    )


class Relays(Tree):
    """Every process of a tree as a relay, with one FIFO queue from each process to each other.

    With every message goes the set of its causes, so that whoever delivers it can tell what should have come first.
    """

    def __init__(self, table: ClusterTable) -> None:
        super().__init__(table)
        self.relays = {process: MessageRelay(process, self.tree) for process in self.ids.values()}
        self.queues: dict[tuple[ProcessId, ProcessId], deque[Hop]] = {}
        self.known: dict[ProcessId, set[int]] = {process: set() for process in self.relays}
        self.delivered: dict[ProcessId, list[int]] = {process: [] for process in self.relays}
        self.sent: list[tuple[Addressed, frozenset[int]]] = []
        self.header: list[tuple[int, int]] = []

    def send(self, source: ProcessId, destination: ProcessId) -> int:
        """Returns the number of the message."""
        number = len(self.sent)
        message = Addressed(source, number, b"", (destination,))
        self.sent.append((message, frozenset(self.known[source])))
        self.known[source].add(number)
        hops: list[tuple[ProcessId, Hop]] = []
        own = self.relays[source].send(message, hops)
        if own is not None:
            self._deliver(source, number)
        self._put(source, hops)
        return number

    def _put(self, source: ProcessId, hops: list[tuple[ProcessId, Hop]]) -> None:
        for peer, hop in hops:
            self.queues.setdefault((source, peer), deque()).append(hop)
            self.header.append((hop.run.last, sum(map(len, hop.rows))))

    def _deliver(self, process: ProcessId, number: int) -> None:
        self.delivered[process].append(number)
        self.known[process] |= {number, *self.sent[number][1]}

    def ready(self) -> list[tuple[ProcessId, ProcessId]]:
        return [line for line, queue in self.queues.items() if queue]

    def arrive(self, source: ProcessId, destination: ProcessId) -> None:
        """The next hop from one process to another gets there."""
        hop = self.queues[source, destination].popleft()
        relay, out = self.relays[destination], Outbox()
        assert relay.accepts(source, hop)
        hops: list[tuple[ProcessId, Hop]] = []
        relay.receive(source, hop, out, hops)
        for each in out.addressed:
            self._deliver(destination, each.run.last)
        self._put(destination, hops)

    def play(self, rng: Random, messages: int) -> None:
        """Send so many, and let everything arrive, in any order."""
        processes = list(self.relays)
        while messages or self.ready():
            if messages and (not self.ready() or rng.random() < 0.3):
                self.send(rng.choice(processes), rng.choice(processes))
                messages -= 1
            else:
                self.arrive(*rng.choice(self.ready()))

    def assert_causal(self) -> None:
        """Everything is where it belongs, once, and behind its causes."""
        for process, numbers in self.delivered.items():
            expected = [n for n, (message, _) in enumerate(self.sent) if message.destinations == (process,)]
            assert sorted(numbers) == expected
            for place, number in enumerate(numbers):
                late = set(numbers[place:]) & self.sent[number][1]
                assert not late, f"{self.names[process]} delivers {number} before its causes {late}"
