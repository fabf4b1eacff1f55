"""Causal broadcast against a plain loop that moves the same bytes without ordering, in one run.

Four ways to get a batch of messages to n - 1 others, all in this OS process: the group protocol in the simulator, the
group protocol over loopback TCP, and, beside each, the same frames moved by nothing but a queue or a socket. A
delivery is one message handed to one application, the sender's own included; the application looks at every message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from heapq import heappop, heappush
from random import Random
from typing import Any

from msgspec import Struct

from isthmus.adapters.embedded import EmbeddedSystem
from isthmus.core.codec import encode
from isthmus.core.ids import MILLISECOND, Directory, ProcessName
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.lab.benchmarks.plain import plain_flood
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.runtime.loop import run
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Fixed

PAYLOAD = bytes(100)
BATCH = 32
MIN_SECONDS = 1.5
HOP = MILLISECOND // 10


class Figure(Struct, frozen=True):
    """Deliveries per second of the protocol and of the plain loop, at one group size."""

    where: str
    processes: int
    deliveries_per_second: float
    plain_per_second: float

    @property
    def ratio(self) -> float:
        """The protocol's speed as a share of the plain loop's."""
        return self.deliveries_per_second / self.plain_per_second

    @property
    def microseconds(self) -> float:
        return 1e6 / self.deliveries_per_second


def measure(sizes: tuple[int, ...] = (4, 8, 16, 32, 64)) -> Iterator[Figure]:
    """The simulator at all sizes, then TCP at all sizes."""
    for size in sizes:
        yield Figure("simulator", size, _best(simulated, size), _best(plain_queue, size))
    for size in sizes:
        yield Figure("loopback TCP", size, _best(over_tcp, size), _best(plain_tcp, size))


def _best(bench: Callable[[int], float], size: int) -> float:
    """The better of two measurements: the machine may have been busy with something else during one of them."""
    return max(bench(size), bench(size))


class Counter:
    """The application: it looks at every message."""

    def __init__(self) -> None:
        self.messages = 0

    def take(self, batch: Batch) -> None:
        for payload in batch.segment.payloads():
            if payload:
                self.messages += 1


def simulated(size: int) -> float:
    """Deliveries per second of the group protocol in the simulator, checking off."""
    names = Directory([ProcessName("bench", f"p{index}") for index in range(size)])
    sometimes = Sometimes()
    network = Network(Random(1), Fixed(HOP), None, NetworkFaults(), sometimes)
    world = World(names, network, sometimes, check=False)
    counter = Counter()

    def on_batch(host: Host, batch: Batch) -> None:
        counter.take(batch)

    hosts = [Host(GroupMember(index, range(size), CausalOrder), None, on_batch) for index in range(size)]
    payloads = [PAYLOAD] * BATCH

    def send(host: Host) -> None:
        if host.member.credit() >= BATCH:
            world.step(host, host.member.broadcast, payloads)
        world.at(world.now + HOP, send, host)

    for index, host in enumerate(hosts):
        world.start(host)
        world.at(index, send, host)
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < MIN_SECONDS:
        world.run_until(world.now + MILLISECOND)
    return counter.messages / elapsed


def plain_queue(size: int) -> float:
    """The same batches through the same kind of event queue, straight to the applications."""
    counter = Counter()
    batch = _batch(size)
    queue: list[tuple[int, int, Batch]] = []
    scheduled = now = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < MIN_SECONDS:
        for _ in range(size):
            for _ in range(size):
                scheduled += 1
                heappush(queue, (now + HOP, scheduled, batch))
        while queue:
            now, _, each = heappop(queue)
            counter.take(each)
    return counter.messages / elapsed


def over_tcp(size: int) -> float:
    """Deliveries per second of the group protocol over loopback TCP, all members in this OS process."""
    return run(_over_tcp(size))


async def _over_tcp(size: int) -> float:
    counter = Counter()
    names = [f"p{index}" for index in range(size)]
    payloads = [PAYLOAD] * BATCH
    async with EmbeddedSystem(names, callbacks=dict.fromkeys(names, counter.take), sockets_only=True) as system:

        async def send(name: str) -> None:
            while True:
                await system[name].send(*payloads)
                await asyncio.sleep(0)

        return await rate_while(map(send, names), lambda: counter.messages, MIN_SECONDS / 5, MIN_SECONDS)


async def rate_while(
    sending: Iterable[Coroutine[Any, Any, None]], count: Callable[[], int], warm_up: float, seconds: float
) -> float:
    """How many more there are per second while these coroutines run, which would never end by themselves."""
    senders = [asyncio.ensure_future(each) for each in sending]
    await asyncio.sleep(warm_up)
    before, started = count(), time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (count() - before) / (time.perf_counter() - started)
    for sender in senders:
        sender.cancel()
    await asyncio.wait(senders)
    return rate


def plain_tcp(size: int) -> float:
    """The same frames over the same kind of connections, counted as they arrive and not decoded."""
    frames = run(plain_flood(size, encode(_batch(size)), MIN_SECONDS))
    return frames * BATCH


def _batch(size: int) -> Batch:
    return Batch(1, 1, 1000, [1000] * size, 1000, Segment.of(1, 1, [PAYLOAD] * BATCH))
