"""Comparing logs while they are joined and written: what is under way is neither lost nor waited for without end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from log_sites import Logs, logs
from memory_log import MemoryLog

from isthmus.runtime.log.compare import Comparison, compare, far_flows
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.contents import Contents
from isthmus.runtime.log.outside import opened
from isthmus.runtime.log.place import place_of


async def compared(made: Logs, wait: float) -> Comparison:
    places = [place_of(made.topology, made.topology.system(name)) for name in made.brokers]
    async with AsyncExitStack() as stack:
        contents = []
        for place in places:
            outside = await stack.enter_async_context(opened(place, MemoryLog(made.brokers[place.system.name])))
            contents.append(Contents(outside, far_flows(made.topology, place, places)))
        return await compare(made.topology, "run", contents, wait, lambda name, entries: None)


def test_logs_that_are_written_all_the_while_hold_at_every_look() -> None:
    async def test() -> None:
        async with logs("abc", links=2) as made:
            for name in "abc":
                made.start(name)
            writing = True

            async def write() -> None:
                number = 0
                while writing:
                    for name, broker in made.brokers.items():
                        copied = broker.entries[-1:] if number % 50 == 49 else []
                        broker.write(*(b"%s %d %d" % (name.encode(), number, place) for place in range(5)))
                        broker.put(*(each._replace(content=Content(body=b"copied %d" % number)) for each in copied))
                    number += 1
                    await asyncio.sleep(0.005)

            writer = asyncio.ensure_future(write())
            await made.until(lambda: len(made.brokers["c"].entries) > 500)
            found = []
            for _ in range(3):
                found.append(await compared(made, 0.5))
                await asyncio.sleep(0.2)
            writing = False
            await writer
            last = await compared(made, 20)
            for each in (*found, last):
                assert each.holds, each
            assert any(each.is_moving and each.under_way for each in found)
            assert not last.under_way
            assert sum(pair.messages for pair in last.pairs) == 2 * len(made.brokers["a"].entries)

    asyncio.run(test())


def test_logs_hold_through_kills_of_gateways() -> None:
    async def test() -> None:
        async with logs("ab", links=2) as made:
            hosts = {name: made.start(name) for name in "ab"}
            for turn in range(6):
                for name, broker in made.brokers.items():
                    broker.write(*(b"%s %d %d" % (name.encode(), turn, number) for number in range(200)))
                victim = "ab"[turn % 2]
                await made.until(lambda: len(made.brokers[victim].entries) > 250 * (turn + 1))  # noqa: B023
                await made.kill(hosts[victim])
                hosts[victim] = made.start(victim)
            found = await compared(made, 20)
            assert found.holds, found
            assert not found.under_way
            assert [pair.unique for pair in found.pairs] == [1200, 1200]

    asyncio.run(test())
