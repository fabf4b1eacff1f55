"""What a link tells its owner: up, down, ready."""

from __future__ import annotations

import logging
from time import monotonic

import pytest
from link_support import (
    MADRID_SLOT,
    QUICK,
    VALENCIA_SLOT,
    block,
    pair,
    pair_over_a_line,
    up,
)
from runtime_support import run_test, until

from isthmus.core.wire.join import Progress, first_epoch
from isthmus.runtime.wan.emulator import CutKind

IMPATIENT = QUICK._replace(dead_after=0.2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Up and down.


def test_a_silent_line_is_down_and_comes_back() -> None:
    async def scenario() -> None:
        async with pair_over_a_line(limits=IMPATIENT) as (madrid, valencia, wan):
            wan.cut(CutKind.SILENT)
            began = monotonic()
            madrid.link.send(block(1))
            await until(lambda: madrid.events[-1:] == valencia.events[-1:] == [("down", None)])
            assert monotonic() - began > 0.8 * IMPATIENT.dead_after
            wan.mend()
            await until(lambda: valencia.numbers == [1])
            await up(madrid, valencia)
            assert madrid.events == [("up", VALENCIA_SLOT), ("down", None), ("up", VALENCIA_SLOT)]
            assert (madrid.link.metrics.ups, madrid.link.metrics.downs) == (2, 1)

    run_test(scenario())


def test_a_slow_line_is_not_dead() -> None:
    """A block takes three times `dead_after` to arrive, and every ping waits behind it."""

    async def scenario() -> None:
        limits = QUICK._replace(dead_after=0.3)
        async with pair_over_a_line(limits=limits, rate=400_000, queue=4096) as (madrid, valencia, _):
            began = monotonic()
            madrid.link.send(block(1, size=45_000))
            valencia.link.send(block(1, size=45_000))
            await until(lambda: madrid.numbers == valencia.numbers == [1])
            assert monotonic() - began > 2 * limits.dead_after
            assert madrid.events == [("up", VALENCIA_SLOT)]
            assert valencia.events == [("up", MADRID_SLOT)]

    run_test(scenario())


def test_a_process_that_did_not_run_for_long_does_not_blame_the_other() -> None:
    async def scenario() -> None:
        limits = QUICK._replace(dead_after=0.1)
        async with pair(limits=limits) as (madrid, _):
            for _ in range(3):
                busy_until = monotonic() + 2 * limits.dead_after
                while monotonic() < busy_until:
                    pass
                before = madrid.link.metrics.bytes_in
                await until(lambda before=before: madrid.link.metrics.bytes_in > before)
            assert madrid.events == [("up", VALENCIA_SLOT)]

    run_test(scenario())


def test_an_idle_link_stays_up() -> None:
    async def scenario() -> None:
        async with pair(limits=IMPATIENT) as (madrid, _):
            before = madrid.link.metrics.bytes_in
            # Twice as long as silence would have taken, counted in signs of life.
            await until(lambda: madrid.link.metrics.bytes_in >= before + 16 * (16 + 24))
            assert madrid.events == [("up", VALENCIA_SLOT)]
            assert madrid.link.metrics.round_trip > 0

    run_test(scenario())


# Ready.


def test_ready_is_said_once_after_up_and_once_for_every_block() -> None:
    async def scenario() -> None:
        async with pair() as (madrid, valencia):
            await until(lambda: madrid.ready == valencia.ready == 1)
            madrid.link.send(Progress(first_epoch(), 1))
            await until(lambda: valencia.pdus == [Progress(first_epoch(), 1)])
            assert madrid.ready == 1
            madrid.link.send(block(1))
            await until(lambda: madrid.ready == 2)
            madrid.link.send(block(2))
            await until(lambda: madrid.ready == 3)
            await until(lambda: valencia.numbers == [1, 2])
            assert (madrid.ready, valencia.ready) == (3, 1)

    run_test(scenario())


def test_a_link_is_not_ready_while_the_far_end_gets_nothing() -> None:
    async def scenario() -> None:
        async with pair_over_a_line() as (madrid, valencia, wan):
            await until(lambda: madrid.ready == 1)
            wan.cut(CutKind.SILENT)
            sent = 0

            def produce() -> None:
                nonlocal sent
                sent += 1
                madrid.link.send(block(sent, size=30_000))

            madrid.when_ready = produce
            produce()
            await until(lambda: madrid.link.metrics.under_way >= madrid.link.metrics.window)
            assert sent <= 5
            wan.mend()
            await until(lambda: len(valencia.numbers) > 10)
            madrid.when_ready = lambda: None

    run_test(scenario())


def test_send_never_calls_back() -> None:
    async def scenario() -> None:
        async with pair() as (madrid, valencia):
            await until(lambda: madrid.ready == 1)
            sending = False

            def produce() -> None:
                nonlocal sending
                assert not sending
                sending = True
                madrid.link.send(block(madrid.ready))
                sending = False

            madrid.when_ready = produce
            produce()
            await until(lambda: len(valencia.numbers) > 50)
            madrid.when_ready = lambda: None

    run_test(scenario())
