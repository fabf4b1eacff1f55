"""The lives of a simulated site that keeps a journal: now and then all its processes die at once, and it begins again.

The journals are lists in memory. What a gateway holds is in its journal before anything else comes of it, and every
once in a while it notes what is done, and removes what former lives have left when all of that is delivered again; that
is all that a disk would do for it (docs/design/sites.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from random import Random

from isthmus.core.ids import LIFE, MILLISECOND, Nanos, ProcessId, incarnation_of, life_of
from isthmus.core.segment import Segment
from isthmus.join.member import GatewayMember
from isthmus.join.recovery import NOTHING, Recovered, merge
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Faults

NOTE_EVERY: Nanos = 100 * MILLISECOND


class SimulatedJournal:
    """What one gateway process has written down. `done` is, to begin with, what former lives were done with."""

    def __init__(self, done: dict[ProcessId, int]) -> None:
        self.segments: list[Segment] = []
        self.done = done


class Lives:
    """`begin` starts the founders of the site anew: all but those on `standby`, who come later.

    `is_dead` is between the end of one life and the next.
    """

    def __init__(
        self,
        world: World,
        slots: Iterable[int],
        standby: Collection[int],
        gateways: Collection[int],
        begin: Callable[[], None],
    ) -> None:
        self._world = world
        self._slots = tuple(slots)
        self._standby = standby
        self._gateways = gateways
        self._begin = begin
        self._journals: dict[ProcessId, SimulatedJournal] = {}
        self.life = 0
        self.is_dead = False
        self.recovered: Recovered = NOTHING

    def schedule(self, rng: Random, faults: Faults, duration: Nanos, suspect_after: Nanos) -> None:
        self._world.at(NOTE_EVERY, self._note)
        count = faults.restarts
        if faults.swarm and count:
            count = rng.randint(1, count) if rng.random() < 0.5 else 0
        for _ in range(count):
            self._world.at(rng.randrange(duration), self.die, rng.randrange(suspect_after))

    def founders(self) -> list[ProcessId]:
        return [incarnation_of(slot, self.life * LIFE) for slot in self._slots if slot not in self._standby]

    def everybody(self) -> list[ProcessId]:
        """Whom a process that joins may ask: somebody in each place, whoever it is by then."""
        return [incarnation_of(slot, self.life * LIFE) for slot in self._slots]

    def open_journal(self, host: Host) -> None:
        """Let a gateway keep a journal from now on."""
        host.journal = self._journals.setdefault(host.id, SimulatedJournal(self.recovered.done)).segments

    def _note(self) -> None:
        for slot in self._gateways:
            host = self._world.hosts[slot]
            if host.alive and isinstance(host.endpoint, GatewayMember) and host.endpoint.gateway.is_caught_up:
                self._journals[host.id].done = host.endpoint.gateway.done()
                if host.endpoint.gateway.is_replayed:
                    self._journals = {each: kept for each, kept in self._journals.items() if life_of(each) == self.life}
        self._world.at(self._world.now + NOTE_EVERY, self._note)

    def die(self, pause: Nanos) -> None:
        """All processes of the site die now, and it begins again after a while."""
        if self.is_dead:
            return
        self.is_dead = True
        self._world.sometimes.reach("site died")
        self._end_everybody()
        self._world.at(self._world.now + pause, self._be_born)

    def _be_born(self) -> None:
        # Whoever was started meanwhile has found nobody.
        self._end_everybody()
        self.life += 1
        # Journals are in the order in which their gateways came: founders first, then those who came later.
        self.recovered = merge((journal.done, journal.segments) for journal in self._journals.values())
        self.is_dead = False
        self._begin()

    def _end_everybody(self) -> None:
        for slot in self._slots:
            host = self._world.hosts[slot]
            if host.alive:
                self._world.crash(host, "its site died")
