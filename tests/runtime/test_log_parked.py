"""Messages that were put aside and are appended after all: once, and nobody carries them back or on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from log_sites import Logs, logs
from memory_log import MemoryLog

from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Unavailable
from isthmus.runtime.log.outside import opened
from isthmus.runtime.log.parked import Outcome, drop, retry
from isthmus.runtime.log.place import place_of
from isthmus.runtime.problems import RuntimeProblem


class Died(Exception):
    """The command is gone."""


PARK = 'on-refusal = "park"\n'


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def retried(made: Logs, log: MemoryLog | None = None) -> list[Outcome]:
    place = place_of(made.topology, made.topology.system("b"))
    async with opened(place, log or MemoryLog(made.brokers["b"])) as outside:
        return await retry(outside, None)


async def with_an_ugly_one(made: Logs) -> None:
    """a, b and c are joined; b has refused the second of three messages of a, and its gateway is stopped."""
    hosts = {name: made.start(name) for name in "abc"}
    a, b, c = (made.brokers[name] for name in "abc")
    b.refuses = lambda entry: "it is ugly" if entry.content.body == b"ugly" else ""
    a.write(b"one", b"ugly", b"two")
    await made.until(lambda: len(b.entries) == 2 and len(c.entries) == 3)
    await made.stop(hosts["b"])


def test_a_message_that_is_retried_stands_at_the_end_and_goes_nowhere_else() -> None:
    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            await with_an_ugly_one(made)
            a, b, c = (made.brokers[name] for name in "abc")
            b.refuses = lambda entry: ""
            assert await retried(made) == [Outcome("a/orders-2", "a/orders", 2, "appended")]
            assert b.bodies() == [b"one", b"two", b"ugly"]
            assert b.entries[-1] == Entry(Content(body=b"ugly"), "a/orders", 2, "a,b")
            assert not b.parked
            for turn in range(3):
                host = made.start("b")
                # A client copies the headers of what was retried, and writes something of its own.
                b.put(b.entries[2]._replace(content=Content(body=b"copied %d" % turn)))
                a.write(b"more %d" % turn)
                for log, before in ((a, 3), (b, 3), (c, 3)):
                    await made.until(lambda log=log, wanted=before + 2 * (turn + 1): len(log.entries) == wanted)  # type: ignore[misc]
                await (made.stop if turn else made.kill)(host)
            assert a.bodies().count(b"ugly") == c.bodies().count(b"ugly") == b.bodies().count(b"ugly") == 1

    run(test())


def test_a_retry_that_is_cut_off_anywhere_appends_once() -> None:
    class Breaking(MemoryLog):
        """Dies between the append and what follows it."""

        async def durable(self) -> None:
            raise Died

    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            await with_an_ugly_one(made)
            b = made.brokers["b"]
            b.refuses = lambda entry: ""
            with pytest.raises(Died):
                await retried(made, Breaking(b))
            assert b.bodies() == [b"one", b"two", b"ugly"]
            assert len(b.parked) == 1
            # Whoever tries again, before or after gateways have run, only takes it out.
            host = made.start("b")
            made.brokers["a"].write(b"three")
            await made.until(lambda: len(b.entries) == 4)
            await made.stop(host)
            assert [each.became for each in await retried(made)] == ["was appended before"]
            assert b.bodies() == [b"one", b"two", b"ugly", b"three"]
            assert not b.parked

    run(test())


def test_a_retry_whose_answer_is_lost_appends_once() -> None:
    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            await with_an_ugly_one(made)
            b = made.brokers["b"]
            b.refuses = lambda entry: ""
            b.breaks = 1
            assert [each.became for each in await retried(made)] == ["appended"]
            assert b.bodies() == [b"one", b"two", b"ugly"]

    run(test())


def test_what_is_refused_again_stays_where_it_is_until_it_is_dropped() -> None:
    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            await with_an_ugly_one(made)
            b = made.brokers["b"]
            assert await retried(made) == [Outcome("a/orders-2", "a/orders", 2, "refused again", "it is ugly")]
            assert len(b.parked) == 1
            place = place_of(made.topology, made.topology.system("b"))
            async with opened(place, MemoryLog(b)) as outside:
                with pytest.raises(RuntimeProblem, match="nothing that was put aside has the id 7"):
                    await drop(outside, ["7"])
                assert [each.became for each in await drop(outside, ["a/orders-2"])] == ["dropped"]
            assert not b.parked

    run(test())


def test_a_retry_beside_a_gateway_is_refused_and_says_what_to_do() -> None:
    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            await with_an_ugly_one(made)
            made.start("b")
            await made.until(lambda: made.brokers["b"].lease_over > asyncio.get_running_loop().time())
            with pytest.raises(RuntimeProblem, match=r"b: a gateway holds the claim.*Stop `isthmus run`"):
                await retried(made)

    run(test())


def test_a_broker_that_does_not_answer_ends_the_command() -> None:
    async def test() -> None:
        async with logs("abc", more=PARK) as made:
            made.brokers["b"].away = True
            place = place_of(made.topology, made.topology.system("b"))
            with pytest.raises(RuntimeProblem, match="b: the broker does not answer") as problem:
                async with opened(place, MemoryLog(made.brokers["b"]), longest_away=0.2):
                    pass
            assert isinstance(problem.value.__cause__, Unavailable)

    run(test())
