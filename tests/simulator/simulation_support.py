"""What tests of the simulator share: a group that a fault plan is let loose on, and sources of runs."""

from __future__ import annotations

from random import Random

from example_files import EXAMPLES, example_file

from isthmus.core.endpoint import View
from isthmus.core.ids import MILLISECOND, Directory, Nanos, ProcessName
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.simulator.campaign import Source
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.nemesis import Nemesis
from isthmus.simulator.faults.plan import FaultPlan
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Fixed


def example(name: str) -> Source:
    path = example_file(name)
    return path.read_text(), str(path.relative_to(EXAMPLES.parent))


def together(name: str, messages: int) -> Source:
    """An example in which up to so many messages go to the same processes at once: they are one run."""
    text, path = example(name)
    before, head, after = text.partition("[simulation.workload]\n")
    assert head, f"{name} has no table for its workload"
    return f"{before}{head}together = {messages}\n{after}", path


class FaultyGroup:
    """A causal group of real members on a network without chance, and a nemesis with a plan.

    Everybody broadcasts every `chatter` nanoseconds; 0 is a quiet group.
    """

    def __init__(self, size: int, plan: FaultPlan, chatter: Nanos = 0) -> None:
        names = Directory([ProcessName("s", f"p{slot}") for slot in range(size)])
        self.size = size
        self.sometimes = Sometimes()
        network = Network(Random(1), Fixed(MILLISECOND // 2), None, plan.network, self.sometimes)
        self.world = World(names, network, self.sometimes, check=True)
        self.revived: list[int] = []
        for slot in range(size):
            host = Host(GroupMember(slot, range(size), CausalOrder), None, lambda host, batch: None)
            host.view = View(1, tuple(range(size)))
            self.world.start(host)
            if chatter:
                self._chatter(host, chatter)
        self.nemesis = Nemesis(self.world, range(size), plan, self.revived.append)
        self.nemesis.schedule()

    def _chatter(self, host: Host, every: Nanos) -> None:
        if host.endpoint.credit():
            self.world.step(host, host.endpoint.broadcast, [b"x"])
        self.world.at(self.world.now + every, self._chatter, host, every)

    def play(self, until: Nanos) -> None:
        self.world.run_until(until)

    def doomed_or_dead(self) -> list[int]:
        return [slot for slot, host in self.world.hosts.items() if not host.alive or host.dies_after is not None]

    def cut_lines(self) -> set[tuple[int, int]]:
        everybody = range(self.size)
        return {(a, b) for a in everybody for b in everybody if self.world.network.is_cut(a, b)}
