"""Links over real sockets: in order and exactly once, across cuts and lives, in bounded memory."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from functools import partial

import pytest
from link_support import (
    GROUP,
    LINK,
    MADRID,
    MADRID_SLOT,
    QUICK,
    VALENCIA,
    VALENCIA_SLOT,
    Gateway,
    block,
    closing,
    dialling,
    listening,
    pair,
    pair_over_a_line,
    up,
)
from runtime_support import PATIENCE, run_test, soon, until

from isthmus.core.codec import encode
from isthmus.core.ids import MILLISECOND, incarnation_of
from isthmus.core.wire.join import LinkPdu, Progress, first_epoch
from isthmus.runtime.link.connection import LinkLimits
from isthmus.runtime.link.link import LinkCallbacks
from isthmus.runtime.link.links import Links
from isthmus.runtime.link.session import LinkOverflow
from isthmus.runtime.link.wire import HELLO_SIZE, LinkHello, decode_hello, encode_hello
from isthmus.runtime.transport.address import Address
from isthmus.runtime.wan.emulator import CutKind

IMPATIENT = QUICK._replace(dead_after=0.2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# FIFO, nothing lost, nothing twice.


def test_everything_arrives_in_order_both_ways() -> None:
    async def scenario() -> None:
        async with pair() as (madrid, valencia):
            sent = [block(number, messages=3) for number in range(1, 200)]
            for each in sent:
                madrid.link.send(each)
                valencia.link.send(each)
            await until(lambda: madrid.pdus == sent and valencia.pdus == sent)
            assert madrid.events == [("up", VALENCIA_SLOT)]
            assert valencia.events == [("up", MADRID_SLOT)]
            await until(lambda: madrid.link.metrics.kept_frames == 0)

    run_test(scenario())


@pytest.mark.parametrize("seed", [1, 2])
def test_exactly_once_in_order_across_twenty_cuts(seed: int) -> None:
    """Cut at random moments, while both ends send without pause. The owners hear of none of it."""

    async def scenario() -> None:
        chance = random.Random(seed)
        async with pair_over_a_line(delay=MILLISECOND, rate=200_000_000) as (madrid, valencia, wan):
            cuts = 0
            counts = {madrid: 0, valencia: 0}

            def produce(gateway: Gateway) -> None:
                if cuts < 20:
                    counts[gateway] += 1
                    gateway.link.send(block(counts[gateway], size=chance.randrange(40_000)))
                    gateway.link.send(Progress(first_epoch(), counts[gateway]))

            for gateway in (madrid, valencia):
                gateway.when_ready = partial(produce, gateway)
                produce(gateway)
            while cuts < 20:
                progress = len(valencia.pdus) + chance.randrange(60)
                await until(lambda: madrid.link.metrics.reconnects >= cuts and len(valencia.pdus) >= progress)  # noqa: B023
                cuts += 1
                wan.cut(CutKind.RESET)
                if chance.random() < 0.5:
                    # Once more, while they try to come back.
                    wan.mend()
                    await until(lambda before=wan.accepted: wan.accepted > before)
                    wan.cut(CutKind.RESET)
                wan.mend()
            await until(lambda: not madrid.link.metrics.kept_frames and not valencia.link.metrics.kept_frames)
            for sender, receiver in ((madrid, valencia), (valencia, madrid)):
                numbers = list(range(1, counts[sender] + 1))
                assert receiver.numbers == numbers
                assert [pdu.received for pdu in receiver.pdus if isinstance(pdu, Progress)] == numbers
                assert len(receiver.pdus) == 2 * len(numbers), "nothing else came"
            assert madrid.link.metrics.reconnects >= 20
            assert madrid.link.metrics.frames_again + valencia.link.metrics.frames_again > 0
            assert madrid.events == [("up", VALENCIA_SLOT)]
            assert valencia.events == [("up", MADRID_SLOT)]

    run_test(scenario())


def test_what_is_sent_while_the_line_is_cut_arrives_when_it_is_mended() -> None:
    async def scenario() -> None:
        async with pair_over_a_line(limits=IMPATIENT) as (madrid, valencia, wan):
            madrid.link.send(block(1))
            await until(lambda: valencia.numbers == [1])
            wan.cut(CutKind.RESET)
            madrid.link.send(block(2))
            await until(lambda: madrid.events[-1] == ("down", None))
            madrid.link.send(block(3))
            wan.mend()
            await until(lambda: valencia.numbers == [1, 2, 3])
            assert madrid.events == [("up", VALENCIA_SLOT), ("down", None), ("up", VALENCIA_SLOT)]

    run_test(scenario())


def test_the_hello_that_nobody_got_an_answer_to_costs_no_frame() -> None:
    """The end that was called begins the session when it answers. If that answer is lost, its frames are kept."""

    async def scenario() -> None:
        valencia, address = listening()
        async with closing(valencia):
            opening = LinkHello(GROUP, LINK, MADRID_SLOT, 77, 0, 0)
            reader, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(opening))
            await up(valencia)
            valencia.link.send(block(1))
            writer.transport.abort()
            reader, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(opening))
            answer = decode_hello(await soon(reader.readexactly(HELLO_SIZE)))
            assert (answer.known, answer.received) == (77, 0)
            ping_and_frame = await soon(reader.readexactly(16 + 16 + len(encode(block(1)))))
            assert ping_and_frame.endswith(encode(block(1)))
            assert valencia.events == [("up", MADRID_SLOT)]
            writer.transport.abort()

    run_test(scenario())


def test_a_call_that_was_long_under_way_does_not_lock_the_caller_out() -> None:
    """A stale hello may replace a working connection for a moment, but must not make the next one look like a lie."""

    async def scenario() -> None:
        valencia, address = listening()
        async with closing(valencia):
            first_reader, first = await soon(asyncio.open_connection(*address))
            first.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 77, 0, 0)))
            life = decode_hello(await soon(first_reader.readexactly(HELLO_SIZE))).life
            frames = [encode(block(number)) for number in (1, 2, 3)]
            for number in (1, 2, 3):
                valencia.link.send(block(number))
            await soon(first_reader.readexactly(16 + sum(16 + len(frame) for frame in frames)))
            # The caller has all three and has not reported any. Now a call arrives that it made before.
            _, stale = await soon(asyncio.open_connection(*address))
            stale.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 77, 0, 0)))
            assert await soon(first_reader.read()) == b""
            reader, second = await soon(asyncio.open_connection(*address))
            second.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 77, life, 3)))
            assert decode_hello(await soon(reader.readexactly(HELLO_SIZE))).known == 77
            assert valencia.link.metrics.kept_frames == 0
            for writer in (first, stale, second):
                writer.transport.abort()

    run_test(scenario())


# Lives.


def test_a_new_process_at_the_far_end_begins_anew() -> None:
    async def scenario() -> None:
        reborn = incarnation_of(VALENCIA_SLOT, 1)
        valencia, address = listening()
        madrid = dialling(address)
        async with closing(madrid):
            await up(madrid, valencia)
            madrid.link.send(block(1))
            await until(lambda: valencia.numbers == [1] and not madrid.link.metrics.kept_frames)
            valencia.links.abort()
            madrid.link.send(block(2))
            later, _ = listening(address, process=reborn)
            async with closing(later):
                await until(lambda: madrid.events[-1] == ("up", reborn))
                await up(later)
                assert madrid.link.peer == reborn
                assert madrid.link.metrics.kept_frames == 0
                madrid.link.send(block(3))
                later.link.send(block(1))
                await until(lambda: later.numbers == [3] and madrid.numbers == [1])
                assert madrid.events == [("up", VALENCIA_SLOT), ("up", reborn)]
                assert madrid.link.metrics.dropped == 1

    run_test(scenario())


def test_a_new_process_that_calls_begins_anew_too() -> None:
    async def scenario() -> None:
        reborn = incarnation_of(MADRID_SLOT, 3)
        valencia, address = listening()
        madrid = dialling(address)
        async with closing(valencia):
            await up(madrid, valencia)
            madrid.link.send(block(1))
            await until(lambda: valencia.numbers == [1])
            madrid.links.abort()
            valencia.link.send(block(9))
            later = dialling(address, process=reborn)
            async with closing(later):
                await up(later)
                assert valencia.events == [("up", MADRID_SLOT), ("up", reborn)]
                later.link.send(block(2))
                valencia.link.send(block(10))
                await until(lambda: valencia.numbers == [1, 2] and later.numbers == [10])

    run_test(scenario())


def test_a_process_under_the_id_of_its_former_life_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could tell which frames it has seen. The other end says so once, not with every attempt."""

    async def scenario() -> None:
        valencia, address = listening(limits=IMPATIENT)
        madrid = dialling(address, limits=IMPATIENT)
        async with closing(madrid):
            await up(madrid, valencia)
            valencia.links.abort()
            impostor, _ = listening(address, limits=IMPATIENT)
            async with closing(impostor):
                await until(lambda: impostor.links.refused == 0 and madrid.events[-1] == ("down", None))
                assert not madrid.link.up
        lines = [line for line in warnings(caplog) if "id of its former life" in line]
        assert len(lines) == 1

    run_test(scenario())


def test_an_older_life_never_replaces_a_later_one(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening()
        madrid = dialling(address, process=incarnation_of(MADRID_SLOT, 2))
        async with closing(madrid, valencia):
            await up(madrid, valencia)
            stale = dialling(address, process=incarnation_of(MADRID_SLOT, 1))
            async with closing(stale):
                await until(lambda: valencia.links.refused)
            madrid.link.send(block(1))
            await until(lambda: valencia.numbers == [1])
            assert madrid.link.metrics.reconnects == 0

    run_test(scenario())
    assert any("a later life of madrid/g1" in line for line in warnings(caplog))


def test_what_is_sent_before_there_is_a_far_end_is_dropped_and_counted() -> None:
    async def scenario() -> None:
        valencia, address = listening()
        async with closing(valencia):
            valencia.link.send(block(1))
            madrid = dialling(address)
            async with closing(madrid):
                await up(madrid, valencia)
                valencia.link.send(block(2))
                await until(lambda: madrid.numbers == [2])
                assert valencia.link.metrics.dropped == 1

    run_test(scenario())


# Memory.


def test_a_link_that_is_down_keeps_so_much_and_no_more() -> None:
    async def scenario() -> None:
        limits = IMPATIENT._replace(keep=1 << 20)
        async with pair_over_a_line(limits=limits) as (madrid, valencia, wan):
            wan.cut(CutKind.RESET)
            await until(lambda: madrid.events[-1] == ("down", None))
            taken = 104
            for number in range(1, taken + 1):
                madrid.link.send(block(number, size=10_000))
            with pytest.raises(LinkOverflow, match="Link 5 keeps 1048576 bytes"):
                madrid.link.send(block(taken + 1, size=10_000))
            assert madrid.link.metrics.kept_frames == taken
            assert madrid.link.metrics.kept_bytes <= 1 << 20
            wan.mend()
            await until(lambda: valencia.numbers == list(range(1, taken + 1)))
            madrid.link.send(block(taken + 1))
            await until(lambda: len(valencia.numbers) == taken + 1)

    run_test(scenario())


# The end.


def test_closing_lets_the_far_end_have_what_was_sent() -> None:
    async def scenario() -> None:
        async with pair_over_a_line(delay=5 * MILLISECOND, rate=50_000_000) as (madrid, valencia, _):
            for number in range(1, 21):
                madrid.link.send(block(number, size=20_000))
            await madrid.links.close(timeout=PATIENCE)
            await until(lambda: valencia.numbers == list(range(1, 21)))

    run_test(scenario())


def test_closing_does_not_wait_for_an_end_that_takes_nothing() -> None:
    async def scenario() -> None:
        async with pair_over_a_line() as (madrid, _, wan):
            wan.cut(CutKind.SILENT)
            madrid.link.send(block(1))
            await soon(madrid.links.close(timeout=0.05))

    run_test(scenario())


def test_plain_text_that_leaves_the_machine_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        def ignore_pdus(link: int, pdus: Sequence[LinkPdu]) -> None: ...
        def ignore(*event: int) -> None: ...

        callbacks = LinkCallbacks(ignore_pdus, ignore, ignore, ignore)
        links = Links(MADRID_SLOT, MADRID, callbacks, group=GROUP, limits=LinkLimits(connect=0.01))
        links.add(LINK, VALENCIA, VALENCIA_SLOT, Address("192.0.2.1", 7000))
        links.open()
        links.abort()
        await asyncio.sleep(0)

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "without TLS" in line
