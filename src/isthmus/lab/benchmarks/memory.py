"""Does memory stay flat? Millions of deliveries over loopback TCP with stability on, and the resident size on the way.

Senders sample by the way, so that nothing else runs beside them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from isthmus.adapters.embedded import EmbeddedSystem
from isthmus.lab.benchmarks.core import BATCH, PAYLOAD, Counter
from isthmus.runtime.loop import run

PROCESSES = 8


class Sample(Struct, frozen=True):
    deliveries: int
    seconds: float
    resident_mib: float


def resident_mib() -> float:
    """The memory of this OS process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def measure(deliveries: int, on_sample: Callable[[Sample], None], samples: int = 20) -> list[Sample]:
    return run(_measure(deliveries, on_sample, samples))


async def _measure(deliveries: int, on_sample: Callable[[Sample], None], samples: int) -> list[Sample]:
    counter = Counter()
    taken: list[Sample] = []
    names = [f"p{index}" for index in range(PROCESSES)]
    payloads = [PAYLOAD] * BATCH
    async with EmbeddedSystem(names, callbacks=dict.fromkeys(names, counter.take)) as system:
        started = time.perf_counter()

        async def send(name: str) -> None:
            while counter.messages < deliveries:
                await system[name].send(*payloads)
                await asyncio.sleep(0)
                if counter.messages * samples >= deliveries * (len(taken) + 1):
                    taken.append(Sample(counter.messages, time.perf_counter() - started, resident_mib()))
                    on_sample(taken[-1])

        await asyncio.gather(*map(send, names))
    return taken
