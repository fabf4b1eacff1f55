"""TO and PO over real sockets, beside the total order of the group layer, which has a sequencer and TCP.

All entities are in this OS process, on loopback: TO on a hub, PO on multicast where there is some. One message per PDU
for all three, so that a PDU is a PDU. **Throughput**: everybody sends as fast as it may; counted is what everybody has
delivered. **Time**: from `send` to acknowledged at the sender (at the sequencer: to delivery), with a PDU now and then.
Both under losses that are injected at each entity, PDU by PDU, whatever came in one piece.

`endure` is the long run: as many PDUs as are asked for, traced, to be audited, with an eye on everybody's buffers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from isthmus.adapters.embedded import EmbeddedSystem
from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, SECOND, ProcessId
from isthmus.core.message import Batch
from isthmus.lab.benchmarks.core import rate_while
from isthmus.ordering.acknowledged.member import AcknowledgingMember
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.loop import run
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.spec import AcknowledgedSpec
from isthmus.runtime.transport.medium import Medium

Contender: TypeAlias = Literal["to", "po", "sequencer"]
Endurer: TypeAlias = Literal["to", "po"]

CONTENDERS: tuple[Contender, ...] = ("to", "po", "sequencer")
LOSSES = (0.0, 0.01, 0.05, 0.1)
SIZES = (2, 4, 8)
USUAL_SIZE = 4
WINDOW = 32
ANSWER_AFTER = 1 * MILLISECOND
HEARTBEAT = 5 * MILLISECOND
"""A quarter of what systems have by default: a loss costs heartbeats, and these runs are made of losses."""
SUSPECT_AFTER = 30 * SECOND
"""Nobody crashes here. On two cores with a load of 10 an entity has been silent for more than a second."""
PAYLOAD = bytes(16)
SECONDS = 2.0
WITHIN = 60.0
PACE = 0.02
"""Seconds between two PDUs of an entity while times are taken."""

KEPT: dict[Endurer, OrderName] = {"to": "total", "po": "fifo"}
"""Protocol to the order that it keeps."""


class Figure(Struct, frozen=True):
    """One contender at one size and one rate of loss. Times in milliseconds."""

    contender: Contender
    entities: int
    loss: float
    medium: str
    pdus_per_second: float
    p50: float
    p99: float


class Endurance(Struct, frozen=True):
    """A long run: `used` is the most buffers that any entity had in use after any step; there are `buffers`."""

    protocol: Endurer
    medium: str
    entities: int
    loss: float
    pdus: int
    seconds: float
    carried: int
    lost: int
    views: int
    used: int
    buffers: int


class WatchedDriver(MemberDriver):
    """Looks at the buffers after every step."""

    most_used = 0
    buffers = 0

    def _carry_out(self) -> None:
        assert isinstance(self.member, AcknowledgingMember)
        order = self.member.order
        self.most_used = max(self.most_used, order.used)
        self.buffers = max(self.buffers, order.buffers)
        super()._carry_out()


def count() -> int:
    return len(_cases())


def measure(seconds: float = SECONDS) -> Iterator[Figure]:
    """Against loss with four entities, then against the number of entities without loss."""
    for contender, entities, loss in _cases():
        yield run(_measured(contender, entities, loss, seconds))


def _cases() -> list[tuple[Contender, int, float]]:
    by_loss = [(each, USUAL_SIZE, loss) for loss in LOSSES for each in CONTENDERS if not loss or each != "sequencer"]
    by_size = [(each, size, 0.0) for size in SIZES if size != USUAL_SIZE for each in CONTENDERS]
    return by_loss + by_size


Taker: TypeAlias = Callable[[ProcessId], Callable[[Batch], None]]
"""Makes what takes the deliveries of one entity."""


class Deliveries(Counter[ProcessId]):
    """How many PDUs each entity has delivered."""

    def taker(self, slot: ProcessId) -> Callable[[Batch], None]:
        def take(batch: Batch) -> None:
            self[slot] += batch.segment.messages

        return take

    def everywhere(self) -> int:
        return min(self.values(), default=0)


@asynccontextmanager
async def system(
    contender: Contender, entities: int, loss: float, taker: Taker, **options: Any
) -> AsyncIterator[EmbeddedSystem]:
    """A running system of one contender."""
    names = [f"p{place}" for place in range(1, entities + 1)]
    options |= {"batch_messages": 1, "window_messages": 8 * WINDOW}
    options |= {"heartbeat": HEARTBEAT, "suspect_after": SUSPECT_AFTER}
    if contender != "sequencer":
        own = AcknowledgedSpec(protocol=contender, window=WINDOW, answer_after=ANSWER_AFTER, loss=loss, loss_seed=1)
        options |= {"kind": "acknowledged", "own": own}
    callbacks = {name: taker(slot) for slot, name in enumerate(names)}
    order: Literal["fifo", "total"] = "fifo" if contender == "po" else "total"
    async with EmbeddedSystem(names, order, name="hall", callbacks=callbacks, **options) as running:
        yield running


async def _measured(contender: Contender, entities: int, loss: float, seconds: float) -> Figure:
    rate = await _throughput(contender, entities, loss, seconds)
    medium, times = await _times(contender, entities, loss, seconds)
    return Figure(contender, entities, loss, medium, rate, median(times), quantiles(times, n=100)[98])


async def _throughput(contender: Contender, entities: int, loss: float, seconds: float) -> float:
    """PDUs per second that everybody has delivered."""
    delivered = Deliveries()
    async with system(contender, entities, loss, delivered.taker) as running:

        async def send(name: str) -> None:
            while True:
                await running[name].send(PAYLOAD)

        return await rate_while(map(send, running.processes), delivered.everywhere, seconds / 4, seconds)


async def _times(contender: Contender, entities: int, loss: float, seconds: float) -> tuple[str, list[float]]:
    """The medium, and milliseconds from `send` to the sender's own delivery. A payload is the time when it was sent."""
    times: list[float] = []

    def taker(slot: ProcessId) -> Callable[[Batch], None]:
        def take(batch: Batch) -> None:
            now = time.perf_counter_ns()
            times.extend(
                (now - int.from_bytes(payload, "big")) / MILLISECOND
                for origin, _, payload in batch.segment
                if origin == slot
            )

        return take

    async with system(contender, entities, loss, taker) as running:

        async def send(name: str) -> None:
            for _ in range(max(2, round(seconds / PACE))):
                last = await running[name].send(time.perf_counter_ns().to_bytes(8, "big"))
                await asyncio.sleep(PACE)
            await running[name].stable(last)

        async with asyncio.timeout(WITHIN):
            await asyncio.gather(*map(send, running.processes))
        own = running.spec.own
    return own.medium if isinstance(own, AcknowledgedSpec) else "TCP", times


def endure(
    protocol: Endurer,
    pdus: int,
    trace: Path | None,
    *,
    entities: int = USUAL_SIZE,
    loss: float = 0.05,
    within: float = 3600.0,
    progress: Callable[[int], None] = lambda pdus: None,
) -> Endurance:
    """So many PDUs among the entities, or as many as `within` seconds allow; everybody has delivered all of them."""
    return run(_endure(protocol, pdus, trace, entities, loss, within, progress))


async def _endure(
    protocol: Endurer,
    pdus: int,
    trace: Path | None,
    entities: int,
    loss: float,
    within: float,
    progress: Callable[[int], None],
) -> Endurance:
    delivered = Deliveries()
    options = {"trace": None if trace is None else str(trace), "trace_format": "parquet", "run": f"{protocol}-{pdus}"}
    started = time.perf_counter()
    async with system(protocol, entities, loss, delivered.taker, make_driver=WatchedDriver, **options) as running:
        drivers = [running[name].driver for name in running.processes]

        async def send(driver: MemberDriver, share: int) -> None:
            while driver.accepted < share and time.perf_counter() - started < within:
                await driver.send([PAYLOAD] * min(WINDOW, share - driver.accepted))
            await driver.stable(driver.accepted)

        async def report() -> None:
            while True:
                await asyncio.sleep(1)
                progress(delivered.everywhere())

        reporting = asyncio.ensure_future(report())
        shares = [pdus // entities + (place < pdus % entities) for place in range(entities)]
        try:
            async with asyncio.timeout(within + WITHIN):
                await asyncio.gather(*map(send, drivers, shares))
        except TimeoutError:
            done = delivered.everywhere()
            raise RuntimeProblem(
                f"{protocol}: {done:,} PDUs are everywhere, and the rest not {WITHIN:g} s after the last was sent. "
                "The log says whether an entity has ended."
            ) from None
        finally:
            reporting.cancel()
        seconds = time.perf_counter() - started
        acknowledged = running.spec.own_of(AcknowledgedSpec)
        sent = sum(driver.accepted for driver in drivers)
        assert set(delivered.values()) == {sent}, f"{sent} were sent, delivered {dict(delivered)}"
        return Endurance(
            protocol=protocol,
            medium=acknowledged.medium,
            entities=entities,
            loss=loss,
            pdus=sent,
            seconds=seconds,
            carried=sum(_medium(driver).carried for driver in drivers),
            lost=sum(_medium(driver).lost for driver in drivers),
            views=max(_member(driver).view.number for driver in drivers),
            used=max(driver.most_used for driver in drivers if isinstance(driver, WatchedDriver)),
            buffers=max(driver.buffers for driver in drivers if isinstance(driver, WatchedDriver)),
        )


def _medium(driver: MemberDriver) -> Medium:
    assert isinstance(driver.mesh, Medium)
    return driver.mesh


def _member(driver: MemberDriver) -> AcknowledgingMember:
    assert isinstance(driver.member, AcknowledgingMember)
    return driver.member
