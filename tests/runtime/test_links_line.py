"""How well a link uses its line. Measured on real sockets, so the best of three counts: the machine may be busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from time import monotonic

from link_support import block, pair, pair_over_a_line
from runtime_support import run_test, until

from isthmus.core.ids import MILLISECOND
from isthmus.core.pdu import Block, LinkPdu
from isthmus.runtime.link_connection import LinkLimits

RATE = 20_000_000
DELAY = 25 * MILLISECOND
MESSAGES = 288
"""Of 100 bytes: a block of 32 KiB."""


async def best_of_three(measure: Callable[[], Awaitable[float]], wanted: float) -> float:
    best = 0.0
    for _ in range(3):
        best = max(best, await measure())
        if best >= wanted:
            break
    return best


def test_one_block_per_ready_fills_a_line_and_no_queue() -> None:
    """20 Mbit/s, 50 ms round trip, and before it a queue of 8 MiB, 3.4 s, that nobody but the far end can see."""
    waits: list[float] = []

    async def measure() -> float:
        async with pair_over_a_line(limits=LinkLimits(), delay=DELAY, rate=RATE, queue=8 << 20) as (
            madrid,
            valencia,
            wan,
        ):
            messages = block(1, messages=MESSAGES).messages
            sent: dict[int, float] = {}
            waits.clear()

            def produce() -> None:
                sent[len(sent) + 1] = monotonic()
                madrid.link.send(Block(1, len(sent), messages))

            def take(pdus: Sequence[LinkPdu]) -> None:
                for pdu in pdus:
                    assert isinstance(pdu, Block)
                    waits.append(monotonic() - sent[pdu.first])

            def arrived() -> int:
                return wan.statistics()[-1].there.arrived

            madrid.when_ready = produce
            valencia.when_received = take
            produce()
            await until(lambda: arrived() > 3_000_000)
            waits.clear()
            first, began = arrived(), monotonic()
            await until(lambda: arrived() > first + 5_000_000)
            return (arrived() - first) * 8 / RATE / (monotonic() - began)

    async def scenario() -> None:
        assert await best_of_three(measure, 0.97) >= 0.97

    run_test(scenario())
    # 25 ms to get there, 13 ms to be clocked out, and the rest is waiting: a quarter of the round trip and a block.
    assert median(waits) < 0.1


def test_many_small_messages_go_over_one_link() -> None:
    async def measure() -> float:
        async with pair() as (madrid, valencia):
            messages = block(1, messages=300).messages
            received = 0

            def take(pdus: Sequence[LinkPdu]) -> None:
                nonlocal received
                received += sum(len(pdu.messages) for pdu in pdus if isinstance(pdu, Block))

            madrid.when_ready = lambda: madrid.link.send(Block(1, madrid.ready, messages))
            valencia.when_received = take
            began = monotonic()
            madrid.link.send(Block(1, 1, messages))
            await until(lambda: received > 300_000)
            madrid.when_ready = lambda: None
            return received / (monotonic() - began)

    async def scenario() -> None:
        assert await best_of_three(measure, 150_000) >= 150_000

    run_test(scenario())
