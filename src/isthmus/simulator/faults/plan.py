"""Fault plans: everything that will go wrong in one run, as one named struct, drawn from one seed before it starts.

A plan says what is to happen and when; the nemesis carries it out as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, LinkId, Nanos
from isthmus.topology.read.simulation import Faults, NetworkModel


class NetworkFaults(Struct, frozen=True):
    """Chances per PDU."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0


class Crash(Struct, frozen=True):
    """Crash in the first step at or after `at`, with `progress` of what that step wanted to send already sent."""

    at: Nanos
    slot: int
    progress: float


class Partition(Struct, frozen=True):
    """`side` hears nobody else, and nobody else hears it, until `until`."""

    at: Nanos
    until: Nanos
    side: tuple[int, ...]


class Cut(Struct, frozen=True):
    """Nothing gets from `source` to `destination`; the other direction works."""

    at: Nanos
    until: Nanos
    source: int
    destination: int


class Slow(Struct, frozen=True):
    """Every step of the process takes `pause` longer."""

    at: Nanos
    until: Nanos
    slot: int
    pause: Nanos


class Rejoin(Struct, frozen=True):
    """A new process takes the place of one that is gone by then: the first such slot from this one on."""

    at: Nanos
    slot: int


class Leave(Struct, frozen=True):
    """The process of this slot leaves in good order."""

    at: Nanos
    slot: int


class LinkCut(Struct, frozen=True):
    """Nothing passes over these links, in either direction; they may be all links of a site."""

    at: Nanos
    until: Nanos
    links: tuple[LinkId, ...]
    of_a_site: bool = False


class FaultPlan(Struct, frozen=True):
    """All faults of one system in one run."""

    network: NetworkFaults = NetworkFaults()
    crashes: tuple[Crash, ...] = ()
    partitions: tuple[Partition, ...] = ()
    cuts: tuple[Cut, ...] = ()
    slow: tuple[Slow, ...] = ()
    rejoins: tuple[Rejoin, ...] = ()
    leaves: tuple[Leave, ...] = ()


def draw_plan(
    rng: Random, faults: Faults, network: NetworkModel, slots: Sequence[int], duration: Nanos, suspect_after: Nanos
) -> FaultPlan:
    """The plan of one run. In swarm mode every kind of fault is left out of every other run."""

    def count(most: int) -> int:
        if not faults.swarm:
            return most
        return rng.randint(1, most) if most and rng.random() < 0.5 else 0

    def chance(most: float) -> float:
        if not faults.swarm:
            return most
        return most * rng.random() if most and rng.random() < 0.5 else 0.0

    def moment() -> Nanos:
        return rng.randrange(duration)

    def span() -> tuple[Nanos, Nanos]:
        """Sometimes too short to be noticed, sometimes long enough for a view without the victim."""
        start = moment()
        return start, start + rng.randrange(suspect_after // 4, 4 * suspect_after)

    plan_network = NetworkFaults(chance(network.loss), chance(network.duplication), chance(network.reordering))
    crashes: list[Crash] = []
    for _ in range(count(faults.crashes)):
        at = moment()
        if crashes and rng.random() < 0.5:
            # Close behind another crash: in the middle of the view change that it causes.
            at = crashes[-1].at + suspect_after + rng.randrange(40 * MILLISECOND)
        crashes.append(Crash(at, rng.choice(slots), rng.random() if rng.random() < 0.7 else 0.0))
    partitions = []
    for _ in range(count(faults.partitions)):
        side = rng.sample(slots, rng.randint(1, max(1, len(slots) - 1)))
        partitions.append(Partition(*span(), side=tuple(sorted(side))))
    cuts = []
    for _ in range(count(faults.cuts) if len(slots) > 1 else 0):
        source, destination = rng.sample(slots, 2)
        cuts.append(Cut(*span(), source=source, destination=destination))
    slow = [
        Slow(*span(), slot=rng.choice(slots), pause=rng.randrange(MILLISECOND // 10, 10 * MILLISECOND))
        for _ in range(count(faults.slow))
    ]
    rejoins = [Rejoin((duration + moment()) // 2, rng.choice(slots)) for _ in range(count(faults.joins))]
    leaves = [Leave(moment(), rng.choice(slots)) for _ in range(count(faults.leaves))]
    return FaultPlan(
        plan_network, tuple(crashes), tuple(partitions), tuple(cuts), tuple(slow), tuple(rejoins), tuple(leaves)
    )


def draw_link_cuts(
    rng: Random, faults: Faults, links: Sequence[LinkId], by_site: Sequence[tuple[LinkId, ...]], duration: Nanos
) -> tuple[LinkCut, ...]:
    """Cuts of single links, and of all links of a site at once; some too short to be noticed by anybody."""
    cuts = []
    single, whole = [(link,) for link in links], list(by_site)
    for most, choices, of_a_site in ((faults.link_cuts, single, False), (faults.site_cuts, whole, True)):
        count = most
        if faults.swarm:
            count = rng.randint(1, most) if most and rng.random() < 0.5 else 0
        for _ in range(count if choices else 0):
            at = rng.randrange(duration)
            until = at + rng.randrange(50 * MILLISECOND, 1000 * MILLISECOND)
            cuts.append(LinkCut(at, until, rng.choice(choices), of_a_site))
    return tuple(cuts)
