"""TCP between processes: who may speak, what bad bytes cost, and what happens when nobody reads."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest
from runtime_support import GROUP, PATIENCE, flood, run_test, soon, until

from isthmus.core.codec import MAX_FRAME, VERSION, encode
from isthmus.core.ids import ProcessId, incarnation_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Safe
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.problems import AddressInUse, AddressUnusable
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.transport.hello import SIZE, Hello, decode_hello, encode_hello
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import Limits

AS_AGREED = bytes([VERSION])
A_BATCH = Batch(1, 1, 1, [], 0, Segment.of(1, 1, [b"secret payload"]))


class Counting:
    """Chance that is none, and counts how often a pause was drawn."""

    def __init__(self) -> None:
        self.calls = 0

    def uniform(self, low: float, high: float) -> float:
        self.calls += 1
        return low


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Listening.


def test_a_port_in_use_is_reported_with_a_way_out() -> None:
    with listen(Address(LOOPBACK, 0)) as taken:
        address = address_of(taken)
        with pytest.raises(AddressInUse, match="already in use") as problem:
            listen(address)
        assert (problem.value.host, problem.value.port) == address
        assert "another port" in str(problem.value)


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(AddressUnusable, match=r"192\.0\.2\.1:7000"):
        listen(Address("192.0.2.1", 7000))


def test_a_host_name_that_does_not_exist_is_reported() -> None:
    with pytest.raises(AddressUnusable, match="Cannot listen"):
        listen(Address("no such host", 7000))


# Hostile callers. Each loses its connection, leaves one line in the log, and disturbs nobody.


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "does not begin with a hello"),
        (bytes(SIZE), "does not begin with a hello"),
        (encode_hello(Hello(GROUP + 1, 1)), "another run or system"),
        (encode_hello(Hello(GROUP, 9)), "process 9 is not a peer"),
        (encode_hello(Hello(GROUP, 0)), "process 0 is not a peer"),
        (encode_hello(Hello(GROUP, 1)) + b"\xff" * 64, "version 255"),
        (encode_hello(Hello(GROUP, 1)) + (MAX_FRAME + 1).to_bytes(4, "big") + AS_AGREED, "out of bounds"),
        (encode_hello(Hello(GROUP, 1)) + b"\x00\x00\x00\x03" + AS_AGREED + b"\xc1\xc1", "malformed PDU"),
        (encode_hello(Hello(GROUP, 1)) + b"\x00\x00\x00\x08" + AS_AGREED + b"\x92\xa4evil\x01", "malformed PDU"),
    ],
    ids=["http", "zeros", "group", "unknown", "myself", "garbage", "too long", "not msgpack", "unknown pdu"],
)
def test_bad_bytes_cost_one_log_line_and_their_connection(
    said: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            stranger = await system.stranger(0)
            await stranger.say(said)
            assert await stranger.is_hung_up_on()
            assert system.drivers[0].mesh.refused == 1
            await system.drivers[1].send([b"still there"])
            await until(lambda: system.payloads(0, 1) == [b"still there"])

    run_test(scenario())
    (line,) = warnings(caplog)
    assert why in line
    assert line.startswith("p0 closed the connection from 127.0.0.1:")


def test_a_stream_cut_inside_a_frame_costs_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            stranger = await system.stranger(0)
            assert decode_hello(await stranger.hello(1)) == Hello(GROUP, 0)
            await stranger.say(encode(A_BATCH)[:-1])
            await stranger.hang_up()
            await until(lambda: warnings(caplog))
            assert system.delivered[0] == []

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "bytes into a frame" in line
    assert "secret" not in line


def test_frames_that_come_byte_by_byte_are_understood() -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            stranger = await system.stranger(0)
            for byte in encode_hello(Hello(GROUP, 1)) + encode(A_BATCH) + encode(Safe(1, 0)):
                await stranger.say(bytes([byte]))
                await asyncio.sleep(0)
            await until(lambda: system.delivered[0] == [A_BATCH])
            await stranger.hang_up()

    run_test(scenario())


def test_a_caller_that_says_nothing_is_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with flood(2, limits=Limits(hello=0.05)) as system:
            stranger = await system.stranger(0)
            await stranger.say(encode_hello(Hello(GROUP, 1))[:-1])
            assert await stranger.is_hung_up_on()

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "did not say who it is" in line


def test_silent_callers_are_few(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with flood(2, limits=Limits(strangers=3)) as system:
            strangers = [await system.stranger(0) for _ in range(3)]
            one_more = await system.stranger(0)
            assert await one_more.is_hung_up_on()
            await strangers[0].hang_up()
            await until(lambda: len(system.drivers[0].mesh.connections) == 2)
            peer = await system.stranger(0)
            assert await peer.hello(1)

    run_test(scenario())
    (line,) = warnings(caplog)
    assert "too many callers" in line


def test_a_process_that_calls_again_replaces_its_earlier_connection() -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            first = await system.stranger(0)
            await first.hello(1)
            second = await system.stranger(0)
            await second.hello(1)
            assert await first.is_hung_up_on()
            await second.say(encode(A_BATCH))
            await until(lambda: system.delivered[0] == [A_BATCH])

    run_test(scenario())


# Peers that are late, gone, replaced, wrong or slow.


def test_what_is_said_before_the_peer_listens_arrives_when_it_does() -> None:
    async def scenario() -> None:
        async with flood(1) as system:
            later = listen(Address(LOOPBACK, 0))
            where = address_of(later)
            later.close()
            mesh = Mesh(0, {1: where}, listen(Address(LOOPBACK, 0)), group=GROUP)
            await mesh.open()
            mesh.send((1,), A_BATCH)
            await asyncio.sleep(0)
            there = Mesh(1, {0: system.addresses[0]}, listen(where), group=GROUP)
            heard: list[object] = []
            there.receive = lambda process, pdus: heard.extend(pdus)
            await there.open()
            await until(lambda: heard == [A_BATCH])
            assert mesh.dropped == 0
            mesh.abort()
            there.abort()

    run_test(scenario())


def test_a_broken_connection_is_dialled_again_and_the_protocol_recovers() -> None:
    async def scenario() -> None:
        async with flood(3) as system:
            await system.drivers[0].send([b"before"])
            await until(lambda: all(system.payloads(member, 0) == [b"before"] for member in range(3)))
            for connection in list(system.drivers[0].mesh.connections):
                connection.transport.abort()
            await system.drivers[0].send([b"after"])
            await until(lambda: all(system.payloads(member, 0) == [b"before", b"after"] for member in range(3)))

    run_test(scenario())


def test_a_frame_for_a_former_life_never_reaches_the_new_one() -> None:
    async def scenario() -> None:
        reborn = incarnation_of(1, 1)
        home = listen(Address(LOOPBACK, 0))
        book = {0: Address(LOOPBACK, 0), 1: address_of(home)}
        heard: list[tuple[int, Pdu]] = []

        async def live(process: ProcessId, listener: socket.socket) -> Mesh:
            limits = Limits(first_pause=0.01, longest_pause=0.04)
            mesh = Mesh(process, book, listener, group=GROUP, limits=limits)
            mesh.receive = lambda peer, pdus: heard.extend((process, pdu) for pdu in pdus)
            await mesh.open()
            return mesh

        sender = await live(0, listen(book[0]))
        first = await live(1, home)
        sender.send((1,), Safe(1, 1))
        await until(lambda: heard == [(1, Safe(1, 1))])
        first.abort()
        await until(lambda: not first.connections and not sender.connections)

        second = await live(reborn, listen(book[1]))
        sender.send((1,), Safe(1, 2))
        await until(lambda: sender.dropped == 1)
        sender.send((reborn,), Safe(1, 3))
        await until(lambda: len(heard) == 2)
        assert heard[1] == (reborn, Safe(1, 3))
        sender.send((1,), Safe(1, 4))
        assert sender.unroutable == 1
        sender.abort()
        second.abort()

    run_test(scenario())


def test_a_new_process_is_called_at_once_however_long_its_predecessor_did_not_answer() -> None:
    """It would take our silence for a sign of death, while we pause between calls to the one that is dead."""

    async def scenario() -> None:
        ours, theirs = (listen(Address(LOOPBACK, 0)) for _ in range(2))
        addresses = {0: address_of(ours), 1: address_of(theirs)}
        theirs.close()
        chance = Counting()
        limits = Limits(first_pause=600, longest_pause=1200)
        mesh = Mesh(0, addresses, ours, group=GROUP, limits=limits, random=chance)  # type: ignore[arg-type]
        await mesh.open()
        mesh.send((1,), Safe(1, 1))
        await until(lambda: chance.calls == 1)  # it has called once, and pauses for minutes
        heir = Mesh(incarnation_of(1, 1), addresses, listen(addresses[1]), group=GROUP)
        heard: list[Pdu] = []
        heir.receive = lambda _, pdus: heard.extend(pdus)
        await heir.open()
        mesh.send((incarnation_of(1, 1),), Safe(2, 2))
        await until(lambda: heard == [Safe(2, 2)])
        for each in (mesh, heir):
            each.abort()

    run_test(scenario())


def test_a_listener_of_another_run_is_never_sent_a_frame() -> None:
    async def scenario() -> None:
        async with flood(1) as system:
            mesh = Mesh(1, system.addresses, listen(Address(LOOPBACK, 0)), group=GROUP + 1)
            await mesh.open()
            missing = await mesh.reach([0], timeout=0.2)
            assert missing == [0]
            assert system.drivers[0].mesh.refused >= 1
            mesh.abort()

    run_test(scenario())


def test_founding_members_reach_one_another_whoever_comes_first() -> None:
    async def scenario() -> None:
        listeners = [listen(Address(LOOPBACK, 0)) for _ in range(3)]
        book = {slot: address_of(listener) for slot, listener in enumerate(listeners)}
        meshes = [Mesh(slot, book, listener, group=GROUP) for slot, listener in enumerate(listeners)]

        async def come(mesh: Mesh) -> list[int]:
            await mesh.open()
            return await mesh.reach([slot for slot in book if slot != mesh.me.hello.process], timeout=PATIENCE)

        assert await soon(asyncio.gather(*map(come, meshes))) == [[], [], []]
        for mesh in meshes:
            mesh.abort()

    run_test(scenario())


def test_a_peer_that_does_not_read_costs_bounded_memory() -> None:
    """A half-open peer: it answers the hello and then never reads again."""

    async def scenario() -> None:
        limits = Limits(write_buffer=1 << 20)
        large = Batch(1, 0, 1, [], 0, Segment.of(0, 1, [bytes(100_000)]))
        size = len(encode(large))
        with socket.create_server((LOOPBACK, 0)) as server:
            server.setblocking(False)
            mesh = Mesh(0, {1: address_of(server)}, listen(Address(LOOPBACK, 0)), group=GROUP, limits=limits)
            await mesh.open()
            mesh.send((1,), large)
            loop = asyncio.get_running_loop()
            deaf, _ = await soon(loop.sock_accept(server))
            await soon(loop.sock_recv(deaf, SIZE))
            await loop.sock_sendall(deaf, encode_hello(Hello(GROUP, 1)))

            offered = 0
            while not mesh.dropped:
                mesh.send((1,), large)
                offered += size
                await asyncio.sleep(0)
                assert offered < 100 << 20, "nothing is ever dropped"
            (connection,) = mesh.connections
            assert connection.transport.get_write_buffer_size() <= limits.write_buffer + 2 * size

            while connection.transport.get_write_buffer_size():
                await soon(loop.sock_recv(deaf, 1 << 20))
            dropped = mesh.dropped
            mesh.send((1,), large)
            assert mesh.dropped == dropped, "it reads again, and is sent to again"
            mesh.abort()
            deaf.close()

    run_test(scenario())


def test_frames_of_one_iteration_leave_in_one_write() -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            await system.drivers[0].send([b"connects"])
            await until(lambda: system.payloads(1, 0))
            steps = system.drivers[1].member.steps  # type: ignore[attr-defined]
            for number in range(100):
                system.drivers[0].mesh.send((1,), Safe(1, number))
            await system.drivers[0].send([b"last"])
            await until(lambda: len(system.payloads(1, 0)) == 2)
            assert system.drivers[1].member.steps - steps <= 5  # type: ignore[attr-defined]

    run_test(scenario())


def test_jitter_comes_from_the_given_random() -> None:
    """Two processes that lost each other must not dial in step, and a seed must give the same pauses again."""

    async def scenario() -> None:
        nowhere = listen(Address(LOOPBACK, 0))
        where = address_of(nowhere)
        nowhere.close()
        chance = Counting()
        mesh = Mesh(0, {1: where}, listen(Address(LOOPBACK, 0)), group=GROUP, random=chance)  # type: ignore[arg-type]
        await mesh.open()
        mesh.send((1,), Safe(1, 0))
        await until(lambda: chance.calls >= 2)
        mesh.abort()

    run_test(scenario())
