"""The WAN emulator on loopback: connections through it, and the command. Its timing is tested in test_wan_line.py."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from runtime_support import run_test, run_with_children, soon, until

import isthmus
from isthmus.core.ids import MILLISECOND, SECOND
from isthmus.runtime.problems import AddressInUse
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.wan.emulator import CutKind, Wan
from isthmus.runtime.wan.line import QUEUE

MBIT = 1_000_000
A_WHILE = 0.15
"""Seconds in which something that must not happen would have happened."""


class Party:
    """One end of a connection, as an application sees it: nothing is read that it does not ask for."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._loop = asyncio.get_running_loop()

    async def say(self, data: bytes) -> None:
        await soon(self._loop.sock_sendall(self.connection, data))

    async def hear(self, size: int) -> bytes:
        """Exactly so many bytes, or fewer if the stream ends before."""
        heard = bytearray()
        while len(heard) < size and (
            data := await soon(self._loop.sock_recv(self.connection, min(size - len(heard), 1 << 18)))
        ):
            heard += data
        return bytes(heard)

    async def hear_all(self) -> bytes:
        return await self.hear(1 << 62)

    def has_heard(self) -> bytes:
        """What is there already."""
        heard = bytearray()
        try:
            while data := self.connection.recv(1 << 16):
                heard += data
        except BlockingIOError:
            pass
        return bytes(heard)

    async def hears_nothing_for_a_while(self) -> bool:
        """Not even an end."""
        over = time.monotonic() + A_WHILE
        while time.monotonic() < over:
            try:
                self.connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                await asyncio.sleep(0.005)
            else:
                return False
        return True

    async def is_reset(self) -> bool:
        try:
            await self.hear_all()
        except ConnectionResetError:
            return True
        return False

    def stop_talking(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class Place:
    """A target, and a line to it."""

    def __init__(self, listener: socket.socket, wan: Wan) -> None:
        self.wan = wan
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.parties: list[Party] = []

    def _party(self, connection: socket.socket) -> Party:
        self.parties.append(Party(connection))
        return self.parties[-1]

    async def call(self) -> Party:
        """Somebody who calls over the line."""
        party = self._party(socket.socket())
        await soon(self._loop.sock_connect(party.connection, self.wan.address))
        return party

    async def answer(self) -> Party:
        """Who has been called at the target."""
        connection, _ = await soon(self._loop.sock_accept(self._listener))
        return self._party(connection)

    async def pair(self) -> tuple[Party, Party]:
        return await self.call(), await self.answer()

    def is_called(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        self._party(connection)
        return True


@asynccontextmanager
async def place(**line: Any) -> AsyncIterator[Place]:
    with listen(Address(LOOPBACK, 0)) as listener:
        here = Place(listener, await Wan.start(address_of(listener), **line))
        try:
            yield here
        finally:
            await soon(here.wan.close())
            for party in here.parties:
                party.connection.close()
            assert not any(each.open for each in here.wan.statistics())


def test_bytes_arrive_intact_and_in_order_both_ways_under_jitter() -> None:
    async def talk(speaker: Party, listener: Party, random: Random) -> None:
        chunks = [random.randbytes(random.choice((1, 100, 5000, 70_000))) for _ in range(40)]

        async def speak() -> None:
            for chunk in chunks:
                await speaker.say(chunk)
                await asyncio.sleep(0)

        speaking = asyncio.ensure_future(speak())
        assert await listener.hear(sum(map(len, chunks))) == b"".join(chunks)
        await speaking

    async def scenario() -> None:
        async with place(delay=5 * MILLISECOND, jitter=5 * MILLISECOND, rate=(None, 50 * MBIT), seed=3) as here:
            pairs = [await here.pair() for _ in range(2)]
            await asyncio.gather(
                *(
                    talk(*ends, Random(index))
                    for index, (caller, target) in enumerate(pairs)
                    for ends in ((caller, target), (target, caller))
                )
            )
            assert here.wan.accepted == 2
            statistics = here.wan.statistics()
            assert here.wan.arrived() == tuple(
                sum(getattr(each, way).arrived for each in statistics) for way in ("there", "back")
            )
            assert all(each.there.peak_held <= each.there.capacity for each in statistics)

    run_test(scenario())


def test_no_byte_is_earlier_than_the_delay_and_none_is_late_without_need() -> None:
    async def scenario() -> None:
        async with place(delay=(20 * MILLISECOND, 5 * MILLISECOND)) as here:
            caller, target = await here.pair()
            for speaker, listener, delay in ((caller, target, 20), (target, caller, 5)):
                taken = []
                for _ in range(10):
                    sent_at = time.monotonic_ns()
                    await speaker.say(b"x")
                    await listener.hear(1)
                    taken.append((time.monotonic_ns() - sent_at) / MILLISECOND)
                assert min(taken) >= delay
                # A loaded machine may be late, but not always. (Unloaded it is late by less than 1 ms.)
                assert min(taken) <= delay + 5

    run_test(scenario())


def test_the_rate_limit_holds_for_each_connection_and_direction() -> None:
    size = 1_000_000

    async def transfer(speaker: Party, listener: Party) -> float:
        """Bits per second from the first byte to the last."""
        speaking = asyncio.ensure_future(speaker.say(bytes(size)))
        await listener.hear(1)
        started = time.monotonic()
        await listener.hear(size - 1)
        elapsed = time.monotonic() - started
        await speaking
        return 8 * size / elapsed

    async def scenario() -> None:
        async with place(delay=5 * MILLISECOND, rate=10 * MBIT) as here:
            (caller, target), other = await here.pair(), await here.pair()
            rates = await asyncio.gather(transfer(caller, target), transfer(target, caller), transfer(*other))
            assert rates == pytest.approx([10 * MBIT] * 3, rel=0.1)

    run_test(scenario())


def test_a_total_bounds_all_connections_together() -> None:
    async def scenario() -> None:
        async with place(total=16 * MBIT) as here:
            pairs = [await here.pair() for _ in range(4)]
            started = time.monotonic()

            async def transfer(caller: Party, target: Party) -> None:
                speaking = asyncio.ensure_future(caller.say(bytes(250_000)))
                await target.hear(250_000)
                await speaking

            await asyncio.gather(*(transfer(*ends) for ends in pairs))
            assert time.monotonic() - started == pytest.approx(0.5, rel=0.1)

    run_test(scenario())


def test_a_receiver_that_does_not_read_stops_the_sender_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with place(delay=MILLISECOND, rate=100 * MBIT, queue=QUEUE) as here:
            caller, target = await here.pair()
            random = Random(5)
            sent = bytearray()

            def stuck() -> bool:
                """Send what can be sent. A sender that would have to wait is stuck when the line is full, too."""
                chunk = random.randbytes(10_000)
                try:
                    sent.extend(chunk[: caller.connection.send(chunk)])
                except BlockingIOError:
                    (there,) = (each.there for each in here.wan.statistics())
                    # Full, but for what is not worth while reading.
                    return there.capacity - there.held < 16 << 10
                return False

            await until(stuck)
            await asyncio.sleep(A_WHILE)
            (there,) = (each.there for each in here.wan.statistics())
            assert there.held <= there.peak_held <= there.capacity == QUEUE + 12_500
            caller.stop_talking()
            assert await target.hear_all() == sent

    run_test(scenario())


def test_a_silent_cut_lets_nothing_pass_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with place(delay=20 * MILLISECOND, rate=50 * MBIT) as here:
            caller, target = await here.pair()
            data = Random(1).randbytes(400_000)
            sending = asyncio.ensure_future(caller.say(data))
            received = await target.hear(100_000)
            here.wan.cut(CutKind.SILENT)
            received += target.has_heard()
            await target.say(b"not now")
            assert await target.hears_nothing_for_a_while()
            assert await caller.hears_nothing_for_a_while()
            assert len(received) < len(data)
            mended_at = time.monotonic_ns()
            here.wan.mend()
            assert await caller.hear(7) == b"not now"
            assert time.monotonic_ns() - mended_at >= 20 * MILLISECOND
            assert received + await target.hear(len(data) - len(received)) == data
            await sending

    run_test(scenario())


def test_who_calls_during_a_silent_cut_is_carried_after_it() -> None:
    async def scenario() -> None:
        async with place() as here:
            here.wan.cut()
            caller = await here.call()
            await caller.say(b"hello?")
            assert await caller.hears_nothing_for_a_while()
            assert not here.is_called()
            here.wan.mend()
            target = await here.answer()
            assert await target.hear(6) == b"hello?"

    run_test(scenario())


def test_a_reset_cut_resets_both_sides_and_refuses_callers_until_mended() -> None:
    async def scenario() -> None:
        async with place(delay=20 * MILLISECOND) as here:
            caller, target = await here.pair()
            await caller.say(b"lost")
            here.wan.cut(CutKind.RESET)
            assert await caller.is_reset()
            assert await target.is_reset()
            with pytest.raises(ConnectionRefusedError):
                await here.call()
            here.wan.mend()
            caller, target = await here.pair()
            await caller.say(b"again")
            assert await target.hear(5) == b"again"

    run_test(scenario())


def test_a_cut_of_one_kind_can_become_one_of_the_other() -> None:
    async def scenario() -> None:
        async with place() as here:
            caller, target = await here.pair()
            here.wan.cut(CutKind.SILENT)
            here.wan.cut(CutKind.RESET)
            assert await caller.is_reset()
            assert await target.is_reset()
            here.wan.cut(CutKind.SILENT)
            waiting = await here.call()
            await waiting.say(b"x")
            assert here.wan.is_cut is CutKind.SILENT
            here.wan.mend()
            here.wan.mend()
            assert await (await here.answer()).hear(1) == b"x"

    run_test(scenario())


def test_a_half_closed_connection_still_carries_the_other_way() -> None:
    async def scenario() -> None:
        async with place(delay=5 * MILLISECOND, rate=50 * MBIT) as here:
            caller, target = await here.pair()
            question, answer = Random(1).randbytes(200_000), Random(2).randbytes(200_000)
            asking = asyncio.ensure_future(caller.say(question))
            asking.add_done_callback(lambda _: caller.stop_talking())
            assert await target.hear_all() == question
            answering = asyncio.ensure_future(target.say(answer))
            answering.add_done_callback(lambda _: target.stop_talking())
            assert await caller.hear_all() == answer
            await until(lambda: [each.open for each in here.wan.statistics()] == [False])

    run_test(scenario())


@pytest.mark.parametrize("which", [0, 1])
def test_a_reset_arrives_as_a_reset_and_takes_its_time(which: int) -> None:
    async def scenario() -> None:
        async with place(delay=20 * MILLISECOND) as here:
            ends = await here.pair()
            reset_at = time.monotonic_ns()
            ends[which].reset()
            assert await ends[1 - which].is_reset()
            assert time.monotonic_ns() - reset_at >= 20 * MILLISECOND

    run_test(scenario())


def test_a_target_that_refuses_costs_the_caller_its_connection_and_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind((LOOPBACK, 0))
            async with await Wan.start(nobody.getsockname()) as wan:
                caller = Party(socket.create_connection(wan.address))
                assert await caller.is_reset()
                caller.connection.close()

    with caplog.at_level(logging.INFO):
        run_test(scenario())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "no connection to 127.0.0.1:" in record.getMessage()
    assert record.getMessage().endswith("Connection refused")


def test_a_line_changes_in_service() -> None:
    async def scenario() -> None:
        async with place(delay=60 * SECOND, rate=8) as here:
            caller, target = await here.pair()
            await caller.say(bytes(1000))
            await until(lambda: here.wan.statistics()[0].there.held == 1000)
            here.wan.set(rate=None, delay=0)
            assert await target.hear(1000) == bytes(1000)
            here.wan.set(delay=(0, 20 * MILLISECOND), jitter=0, total=10 * MBIT)
            before = time.monotonic_ns()
            await target.say(b"x")
            assert await caller.hear(1) == b"x"
            assert time.monotonic_ns() - before >= 20 * MILLISECOND
            with pytest.raises(ValueError, match="rate of nothing"):
                here.wan.set(rate=0)

    run_test(scenario())


def test_closing_ends_connections_in_every_state() -> None:
    async def scenario() -> None:
        async with place(delay=60 * SECOND) as here:
            caller, target = await here.pair()
            await caller.say(bytes(1000))
            half_open, _ = await here.pair()
            half_open.stop_talking()
            await here.call()
            # Not even accepted yet, or accepted and not yet dialled: whatever comes first.
            here.wan.cut()
            await here.call()
            here.wan.mend()
            await here.wan.close()
            assert await caller.is_reset()
            assert await target.is_reset()
            with pytest.raises(ConnectionRefusedError):
                await here.call()

    run_test(scenario())


def test_a_port_in_use_is_reported() -> None:
    async def scenario() -> None:
        with listen(Address(LOOPBACK, 0)) as taken, pytest.raises(AddressInUse, match="already in use"):
            await Wan.start((LOOPBACK, 1), listen=address_of(taken))

    run_test(scenario())


# The command.


class Command:
    """`isthmus wan` in an OS process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await soon(self.process.stdout.readline())).decode().rstrip()

    async def tell(self, command: str) -> str:
        """Have it execute a command. Returns the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        return await self.line()

    async def end(self) -> tuple[str, str]:
        out, err = await soon(self.process.communicate(b""))
        return out.decode(), err.decode()


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "isthmus", "wan", *arguments),
        env=os.environ | {"PYTHONPATH": str(Path(isthmus.__file__).parents[1])},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_a_script_cuts_and_mends_a_line() -> None:
    async def scenario() -> None:
        with listen(Address(LOOPBACK, 0)) as listener:
            here = f"127.0.0.1:0={address_of(listener)}"
            async with command("--line", here, "--line", here, "--control", "--delay", "2ms") as wan:
                ready = await wan.line()
                assert ready.startswith("line 0: 127.0.0.1:")
                assert ready.endswith(f" -> {address_of(listener)}, delay 2ms, rate unlimited")
                assert (await wan.line()).startswith("line 1: ")
                port = int(ready.removeprefix("line 0: 127.0.0.1:").partition(" ")[0])
                assert (await wan.tell("cut 0 reset")).endswith("cut (reset)")
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((LOOPBACK, port))
                assert "cut" not in await wan.tell("mend 0")
                assert (await wan.tell("rate 0 10Mbit")).endswith("rate 10Mbit")
                caller = Party(socket.create_connection((LOOPBACK, port)))
                target = Party((await soon(asyncio.get_running_loop().sock_accept(listener)))[0])
                await caller.say(b"hello")
                assert await target.hear(5) == b"hello"
                assert (await wan.tell("cut 2\nshow 0")).endswith("1 connections, 5 bytes there, 0 bytes back")
                out, err = await wan.end()
                caller.connection.close()
                target.connection.close()
            assert wan.process.returncode == 0
            assert "1 connections, 5 bytes there (at most 5 held), 0 bytes back" in out
            assert err == "isthmus: cut 2: no line 2; lines are 0 to 1, or all\n"

    run_with_children(scenario())


def test_a_signal_ends_it_with_a_result_for_programs() -> None:
    async def scenario() -> None:
        async with command("--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "-o", "json") as wan:
            assert wan.process.stderr is not None
            assert (await soon(wan.process.stderr.readline())).startswith(b"line 0: ")
            wan.process.send_signal(signal.SIGTERM)
            out, err = await wan.end()
            assert err == ""
            assert wan.process.returncode == 0
            (line,) = json.loads(out)["lines"]
            assert line["connections"] == 0

    run_with_children(scenario())


def test_bad_usage_is_one_clear_line() -> None:
    async def complaint(*arguments: str) -> str:
        async with command(*arguments) as wan:
            out, err = await wan.end()
            assert (wan.process.returncode, out) == (2, "")
            assert err.count("\n") == 1
            return err

    async def scenario() -> None:
        with listen(Address(LOOPBACK, 0)) as taken:
            port_in_use, one_sided, no_rate, no_line = await asyncio.gather(
                complaint("--listen", str(address_of(taken)), "--to", "127.0.0.1:9"),
                complaint("--listen", "127.0.0.1:0"),
                complaint("--line", "127.0.0.1:0=127.0.0.1:9", "--rate", "20"),
                complaint("--line", "127.0.0.1:0", "--for", "1s"),
            )
        assert "already in use" in port_in_use
        assert "--listen and --to go together" in one_sided
        assert "--rate 20: a rate is a number with" in no_rate
        assert "LISTEN=TARGET" in no_line

    run_with_children(scenario())
