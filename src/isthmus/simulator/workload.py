"""What simulated applications do: send in bursts, and answer each other in long chains.

The first byte of a payload is how many more answers it may cause; an answer carries one less. A chain of answers
through many processes is what makes deep causality, and deep causality is what breaks wrong protocols.
"""

from __future__ import annotations

from random import Random

from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.core.message import Batch
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Workload

THINKING: Nanos = MILLISECOND


def window_for(workload: Workload, usual: int) -> int:
    """How many messages a process may have under way: a whole burst fits, or it would never be sent."""
    return max(usual, workload.burst * workload.together)


class Application:
    """The application on every process of one system."""

    def __init__(self, world: World, rng: Random, workload: Workload, end: Nanos) -> None:
        self.world = world
        self.rng = rng
        self.workload = workload
        self.end = end

    def begin(self, host: Host) -> None:
        """Let this process send, at random intervals, until the workload ends."""
        if self.workload.rate:
            self.world.at(self.world.now + self._interval(), self._burst, host)

    def on_batch(self, host: Host, batch: Batch) -> None:
        """Answer some of what is delivered, after a moment of thought."""
        if not self.workload.reply or self.world.now >= self.end:
            return
        for origin, _, payload in batch.segment:
            depth = payload[0] if payload else 0
            if depth and origin != host.id and self.rng.random() < self.workload.reply:
                self.world.at(self.world.now + self.rng.randrange(THINKING), self._send, host, 1, depth - 1)

    def _burst(self, host: Host) -> None:
        if not host.alive or self.world.now >= self.end:
            return
        self._send(host, self.rng.randint(1, self.workload.burst), self.workload.reply_depth)
        self.world.at(self.world.now + self._interval(), self._burst, host)

    def _interval(self) -> Nanos:
        bursts_per_second = self.workload.rate * 2 / (self.workload.burst + 1)
        return 1 + round(min(self.rng.expovariate(bursts_per_second) * SECOND, self.end))

    def _send(self, host: Host, count: int, depth: int) -> None:
        # A process outside any view, or one that may not send more now, waits for better times.
        if not host.alive or host.view is None:
            return
        if host.member.credit() < count:
            self.world.sometimes.reach("back-pressure")
            return
        low, high = self.workload.minimum_size, self.workload.maximum_size
        payloads = [bytes((min(depth, 255),)) + bytes(max(0, self.rng.randint(low, high) - 1)) for _ in range(count)]
        self.world.send(host, host.member.broadcast, payloads)
