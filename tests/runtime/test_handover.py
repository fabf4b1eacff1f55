"""Deliveries wait for the application; it has finished with one when it asks for the next."""

from __future__ import annotations

import asyncio

import pytest
from runtime_support import run_test, soon

from isthmus.core.endpoint import View
from isthmus.core.message import Batch
from isthmus.runtime.driver.handover import HandOver


def batch(number: int) -> Batch:
    return Batch(1, 0, number, [], 0, [])


def hand_over() -> tuple[HandOver, list[int]]:
    finished: list[int] = []
    return HandOver(lambda done: finished.append(done.number)), finished


def test_a_batch_is_finished_with_when_the_next_is_asked_for() -> None:
    async def scenario() -> None:
        deliveries, finished = hand_over()
        deliveries.put(batch(1))
        deliveries.put(batch(2))
        assert await anext(deliveries) == batch(1)
        assert finished == []
        assert await anext(deliveries) == batch(2)
        assert finished == [1]

    run_test(scenario())


def test_the_last_batch_is_finished_with_by_asking_although_nothing_follows() -> None:
    async def scenario() -> None:
        deliveries, finished = hand_over()
        deliveries.put(batch(1))
        await anext(deliveries)
        asking = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        assert finished == [1]
        assert deliveries.idle
        deliveries.put(batch(2))
        assert await soon(asking) == batch(2)

    run_test(scenario())


def test_views_come_in_their_place_and_need_no_finishing() -> None:
    async def scenario() -> None:
        deliveries, finished = hand_over()
        view = View(2, (0, 1))
        for item in (batch(1), view, batch(2)):
            deliveries.put(item)
        deliveries.end()
        assert [item async for item in deliveries] == [batch(1), view, batch(2)]
        assert finished == [1, 2]

    run_test(scenario())


def test_what_waits_at_the_end_can_still_be_taken() -> None:
    async def scenario() -> None:
        deliveries, _ = hand_over()
        deliveries.put(batch(1))
        deliveries.end()
        assert [item async for item in deliveries] == [batch(1)]

    run_test(scenario())


def test_a_consumer_that_waits_hears_of_the_end() -> None:
    async def scenario() -> None:
        deliveries, _ = hand_over()
        asking = asyncio.ensure_future(anext(deliveries, None))
        await asyncio.sleep(0)
        deliveries.end()
        assert await soon(asking) is None

    run_test(scenario())


def test_when_the_application_is_gone_everything_is_finished_with() -> None:
    async def scenario() -> None:
        deliveries, finished = hand_over()
        for number in (1, 2, 3):
            deliveries.put(batch(number))
        await anext(deliveries)
        deliveries.finish_all()
        assert finished == [1, 2, 3]
        assert len(deliveries) == 0

    run_test(scenario())


def test_two_consumers_at_once_are_refused() -> None:
    async def scenario() -> None:
        deliveries, _ = hand_over()
        first = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="two consumers"):
            await anext(deliveries)
        deliveries.put(batch(1))
        assert await soon(first) == batch(1)

    run_test(scenario())


def test_a_consumer_that_gave_up_waiting_loses_nothing() -> None:
    async def scenario() -> None:
        deliveries, _ = hand_over()
        impatient = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        impatient.cancel()
        deliveries.put(batch(1))
        assert await soon(anext(deliveries)) == batch(1)

    run_test(scenario())
