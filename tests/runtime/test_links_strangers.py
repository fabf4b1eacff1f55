"""What strangers, and peers that break the rules, can do to a link: lose their connection, for one line in the log."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from warnings import catch_warnings, simplefilter

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
    up,
)
from runtime_support import run_test, soon, until

from isthmus.core.codec import VERSION, encode
from isthmus.core.wire.group import Safe
from isthmus.runtime.link.links import Links
from isthmus.runtime.link.wire import HELLO_SIZE, LinkHello, decode_hello, encode_hello
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen

IMPATIENT = QUICK._replace(dead_after=0.2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Who may come in.


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: somebody\r\n\r\n", "does not begin with the hello"),
        (bytes(HELLO_SIZE), "does not begin with the hello"),
        (encode_hello(LinkHello(GROUP + 1, LINK, MADRID_SLOT, 1, 0, 0)), "another run"),
        (encode_hello(LinkHello(GROUP, LINK + 1, MADRID_SLOT, 1, 0, 0)), "for link 6, on which valencia/g1 takes no"),
        (encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT + 1, 1, 0, 0)), "process 4 is not a life of madrid/g1"),
        (encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 0, 0, 0)), "out of bounds"),
        (encode_hello(LinkHello(GROUP, LINK, 1 << 63, 1, 0, 0)), "out of bounds"),
        (encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 1, 0, 0))[:-1], "it hung up"),
        (b"", "it hung up"),
    ],
    ids=["http", "zeros", "run", "link", "process", "life", "number", "cut", "nothing"],
)
def test_a_stranger_costs_one_log_line_and_its_connection(
    said: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        valencia, address = listening()
        async with closing(valencia):
            reader, writer = await soon(asyncio.open_connection(*address))
            writer.write(said)
            if len(said) < HELLO_SIZE:
                writer.close()
            await until(lambda: valencia.links.refused == 1)
            try:
                assert await soon(reader.read()) == b""
            except ConnectionError:
                pass
            writer.transport.abort()
            madrid = dialling(address)
            async with closing(madrid):
                await up(madrid, valencia)

    run_test(scenario())
    (line,) = warnings(caplog)
    assert why in line
    assert line.startswith("valencia/g1 refused a call from 127.0.0.1:")


def test_a_caller_that_says_nothing_is_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening(limits=QUICK._replace(connect=0.05))
        async with closing(valencia):
            reader, writer = await soon(asyncio.open_connection(*address))
            try:
                assert await soon(reader.read()) == b""
            except ConnectionError:
                pass
            writer.transport.abort()

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "no answer in time" in line


def test_silent_callers_are_few(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening(limits=QUICK._replace(strangers=2))
        async with closing(valencia):
            silent = [await soon(asyncio.open_connection(*address)) for _ in range(3)]
            await until(lambda: valencia.links.refused == 1)
            for _, writer in silent:
                writer.transport.abort()
            await until(lambda: valencia.links.refused == 3)
            madrid = dialling(address)
            async with closing(madrid):
                await up(madrid)

    run_test(scenario())
    assert sum("too many callers" in line for line in warnings(caplog)) == 1


def test_a_call_that_comes_with_the_end_is_hung_up_on() -> None:
    """However far the event loop has got with it."""

    async def scenario(steps: int) -> None:
        valencia, address = listening()
        async with closing(valencia):
            await asyncio.sleep(0)
            with socket.create_connection(address):
                for _ in range(steps):
                    await asyncio.sleep(0)
                valencia.links.abort()

    with catch_warnings(record=True) as unclosed:
        simplefilter("always", ResourceWarning)
        for steps in range(8):
            run_test(scenario(steps))
        gc.collect()
    assert [str(each.message) for each in unclosed] == []


def test_a_link_that_is_ours_to_dial_takes_no_calls(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listener = listen(Address(LOOPBACK, 0))
        address = address_of(listener)
        madrid = Gateway()
        madrid.links = Links(MADRID_SLOT, MADRID, madrid.callbacks(), group=GROUP, listener=listener, limits=QUICK)
        valencia, valencias = listening()
        madrid.link = madrid.links.add(LINK, VALENCIA, VALENCIA_SLOT, valencias)
        madrid.links.open()
        async with closing(madrid, valencia):
            await up(madrid, valencia)
            _, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(valencia.link.hello()))
            await until(lambda: madrid.links.refused == 1)
            writer.transport.abort()
            assert madrid.link.metrics.reconnects == 0

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "link 5, on which madrid/g1 takes no calls" in line


def test_a_link_that_could_never_work_is_refused_at_once() -> None:
    async def scenario() -> None:
        links = Links(MADRID_SLOT, MADRID, Gateway().callbacks(), group=GROUP)
        with pytest.raises(ValueError, match="does not listen"):
            links.add(LINK, VALENCIA, VALENCIA_SLOT)
        links.add(LINK, VALENCIA, VALENCIA_SLOT, Address(LOOPBACK, 1))
        with pytest.raises(ValueError, match="link 5 is there already"):
            links.add(LINK, VALENCIA, VALENCIA_SLOT, Address(LOOPBACK, 1))
        links.abort()

    run_test(scenario())


# What a peer may not do once it is in.

LIFE = 77
GOOD = encode(block(1))
AS_AGREED = bytes([VERSION])


def frame(kind: int, number: int, rest: bytes, length: int | None = None) -> bytes:
    return (
        bytes([kind, 0, 0, 0])
        + (len(rest) if length is None else length).to_bytes(4, "big")
        + number.to_bytes(8, "big")
        + rest
    )


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (frame(9, 0, b""), "no frame of kind 9"),
        (frame(1, 3, GOOD), "frame 3 came where 2 was due"),
        (frame(1, 1, GOOD), "frame 1 came where 2 was due"),
        (frame(1, 2, b"", length=0xFFFFFFFF), "out of bounds"),
        (frame(1, 2, b"\0\0\0\x03" + AS_AGREED + b"\xc1\xc1"), "malformed PDU"),
        (frame(1, 2, b"\0\0\0\x09" + AS_AGREED + b"\xc1\xc1"), "not one of ours"),
        (
            frame(1, 2, b"\0\0\0\x03\x01\xc1\xc1"),
            f"version 1 of the wire format, not {VERSION}: all sites need one version",
        ),
        (frame(1, 2, encode(Safe(1, 1))), "a Safe has no business on a link"),
        (frame(2, 0, b"\xff" * 24), "claims to have received"),
        (frame(2, 0, bytes(8) + b"\xff" * 8 + bytes(8)), "claims to have received"),
        (frame(2, 0, b""), "has 24 bytes, not 0"),
        (frame(4, 1, bytes(8)), "a ping that nobody sent"),
        (frame(3, 1, b"secret"), "has 0 bytes, not 6"),
    ],
    ids=[
        "an unknown kind",
        "a gap",
        "a repetition",
        "endless",
        "not msgpack",
        "not a frame",
        "another version",
        "of another protocol",
        "more frames than were sent",
        "more bytes than were sent",
        "an empty report",
        "a pong for nobody",
        "a ping with a rest",
    ],
)
def test_a_peer_that_breaks_the_rules_costs_one_log_line_and_the_connection(
    lie: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        valencia, address = listening()
        async with closing(valencia):
            reader, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, LIFE, 0, 0)) + frame(1, 1, GOOD) + lie)
            try:
                while await soon(reader.read(1 << 16)):
                    pass
            except ConnectionError:
                pass
            writer.transport.abort()
            # What stood before the lie is good, and the session goes on behind it.
            assert valencia.numbers == [1]
            reader, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, LIFE, 0, 0)))
            assert decode_hello(await soon(reader.readexactly(HELLO_SIZE))).received == 1
            writer.transport.abort()

    run_test(scenario())
    (line,) = warnings(caplog)
    assert why in line
    assert line.startswith("valencia/g1 closed the connection with 127.0.0.1:")
    assert "secret" not in line


def test_a_peer_that_asks_more_than_it_reads_costs_no_memory() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        valencia, address = listening(limits=QUICK._replace(dead_after=60))
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        peer.setblocking(False)
        async with closing(valencia):
            await soon(loop.sock_connect(peer, address))
            await soon(loop.sock_sendall(peer, encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, LIFE, 0, 0))))
            await up(valencia)
            valencia.link.send(block(1, size=500_000, messages=20))
            await until(lambda: valencia.link.metrics.bytes_out > 10_000_000)
            said = valencia.link.metrics.bytes_out
            heard = valencia.link.metrics.bytes_in
            good = encode(block(1, size=50_000))
            for number in range(1, 51):
                pings = b"".join(frame(3, 100 * number + index, b"") for index in range(100))
                await soon(loop.sock_sendall(peer, pings + frame(1, number, good)))
            await until(lambda: valencia.link.metrics.bytes_in == heard + 50 * (100 * 16 + 16 + len(good)))
            assert len(valencia.numbers) == 50
            assert valencia.link.metrics.bytes_out == said
            # It reads at last: the latest of its questions are answered, and what it said is reported once.
            answers = bytearray()
            while len(answers) < said + 64 * 24 + 40:
                data = await soon(loop.sock_recv(peer, 1 << 20))
                assert data
                answers += data
            assert answers[said : said + 16] == frame(4, 5036, b"", length=8)
            assert answers[said + 63 * 24 :][:16] == frame(4, 5099, b"", length=8)
            assert answers[said + 64 * 24 :][:24] == frame(2, 0, (50).to_bytes(8, "big"), length=24)
            peer.close()

    run_test(scenario())


def test_a_hello_that_claims_too_much_does_not_cost_the_working_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening()
        madrid = dialling(address)
        async with closing(madrid, valencia):
            await up(madrid, valencia)
            mine = madrid.link.hello()
            _, writer = await soon(asyncio.open_connection(*address))
            writer.write(encode_hello(mine._replace(received=5)))
            await until(lambda: valencia.links.refused == 1)
            writer.transport.abort()
            madrid.link.send(block(1))
            await until(lambda: valencia.numbers == [1])
            assert madrid.link.metrics.reconnects == 0

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "claims to have received 5 frames" in line
