"""Back-pressure, batching, stability and the end of a member, as its application sees them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from time import monotonic_ns

import pytest
from flood_member import FloodMember
from runtime_support import GROUP, PATIENCE, flood, run_test, soon, until

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import MILLISECOND, SECOND, Directory, Nanos, ProcessId, ProcessName
from isthmus.core.message import Batch
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.driver import endpoint as driver_module
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.driver.process import STEP_MESSAGES
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.problems import NotAccepting, NotStable
from isthmus.runtime.transport.address import LOOPBACK, Address, listen
from isthmus.runtime.transport.mesh import Mesh
from isthmus.trace.writer import MemorySink, ProcessLog


async def take_all(driver: MemberDriver, into: list[bytes]) -> None:
    async for item in driver.deliveries:
        assert isinstance(item, Batch)
        into.extend(item.segment.payloads())
        await asyncio.sleep(0)


async def alone(member: FloodMember) -> MemberDriver:
    """A member of a system of one: nobody to wait for."""
    mesh = Mesh(member.id, {}, listen(Address(LOOPBACK, 0)), group=GROUP, label="alone")
    await mesh.open()
    driver = MemberDriver(member, mesh, on_batch=lambda batch: None)
    driver.start()
    return driver


# Sending.


def test_sends_of_one_iteration_go_out_as_one_batch() -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            sends = [system.drivers[0].send([b"%d" % number]) for number in range(10)]
            assert await asyncio.gather(*sends) == list(range(1, 11))
            await until(lambda: len(system.payloads(1, 0)) == 10)
            assert len(system.delivered[1]) == 1

    run_test(scenario())


def test_an_idle_process_sends_at_once() -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            await system.drivers[0].send([b"now"])
            await asyncio.sleep(0)
            assert system.payloads(0, 0) == [b"now"]

    run_test(scenario())


def test_a_send_larger_than_the_window_goes_through_in_pieces_and_in_order() -> None:
    async def scenario() -> None:
        async with flood(3, window=64) as system:
            payloads = [b"%d" % number for number in range(1000)]
            others = [b"other"] * 10
            numbers = await soon(asyncio.gather(system.drivers[0].send(payloads), system.drivers[0].send(others)))
            assert list(numbers) == [1, 1001]
            await until(lambda: all(system.payloads(member, 0) == payloads + others for member in range(3)))

    run_test(scenario())


def test_a_caller_that_never_pauses_lets_others_run() -> None:
    async def scenario() -> None:
        async with flood(1, window=1 << 20) as system:
            ticks = 0

            async def others() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.ensure_future(others())
            for _ in range(10 * STEP_MESSAGES // 32):
                await system.drivers[0].send([b"x"] * 32)
            assert ticks >= 9
            ticking.cancel()

    run_test(scenario())


@pytest.mark.parametrize(
    ("payload", "error", "why"),
    [(bytes(MAX_PAYLOAD + 1), ValueError, "send it in pieces"), ("text", TypeError, "bytes, not str")],
)
def test_a_payload_that_no_peer_would_take_is_refused_at_send(payload: bytes, error: type[Exception], why: str) -> None:
    async def scenario() -> None:
        async with flood(1) as system:
            with pytest.raises(error, match=why):
                await system.drivers[0].send([b"fine", payload])
            assert system.drivers[0].accepted == 0
            assert await system.drivers[0].send([]) == 1

    run_test(scenario())


def test_a_callback_may_send() -> None:
    async def scenario() -> None:
        replies: list[asyncio.Future[int]] = []

        def answer(process: ProcessId, batch: Batch) -> None:
            if (process, batch.sender) == (1, 0):
                replies.append(asyncio.ensure_future(system.drivers[1].send([b"answer"])))

        async with flood(2, also=answer) as system:
            await system.drivers[0].send([b"question"])
            await until(lambda: system.payloads(0, 1) == [b"answer"])

    run_test(scenario())


# Back-pressure.


def test_a_slow_consumer_stops_its_senders_and_bounds_what_waits() -> None:
    async def scenario() -> None:
        window = 100
        async with flood(2, callbacks=False, window=window) as system:
            sender, consumer = system.drivers
            sent = [b"%d" % number for number in range(1000)]

            async def send_all() -> None:
                for payload in sent:
                    await sender.send([payload])

            own: list[bytes] = []
            tasks = [asyncio.ensure_future(send_all()), asyncio.ensure_future(take_all(sender, own))]
            await until(lambda: sender.accepted == window and len(consumer.deliveries))
            for _ in range(100):
                await asyncio.sleep(0)
            assert sender.accepted == window, "the consumer has taken nothing, so nothing more may be accepted"
            assert len(consumer.deliveries) <= window
            taken: list[bytes] = []
            tasks.append(asyncio.ensure_future(take_all(consumer, taken)))
            await until(lambda: taken == sent)
            assert own == sent
            for task in tasks:
                task.cancel()

    run_test(scenario())


def test_whoever_waits_for_credit_first_gets_it_first() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False, window=1) as system:
            order: list[int] = []

            async def send(number: int) -> None:
                order.append(await system.drivers[0].send([b"%d" % number]))

            sends = [asyncio.ensure_future(send(number)) for number in range(5)]
            taken: list[bytes] = []
            takers = [asyncio.ensure_future(take_all(driver, taken)) for driver in system.drivers]
            await soon(asyncio.gather(*sends))
            assert order == [1, 2, 3, 4, 5]
            for taker in takers:
                taker.cancel()

    run_test(scenario())


def test_a_send_that_is_cancelled_leaves_no_hole() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False, window=4) as system:
            sender = system.drivers[0]
            impatient = asyncio.ensure_future(sender.send([b"%d" % number for number in range(10)]))
            await until(lambda: sender.accepted == 4)
            impatient.cancel()
            next_one = asyncio.ensure_future(sender.send([b"next"]))
            taken: list[bytes] = []
            own: list[bytes] = []
            takers = [
                asyncio.ensure_future(take_all(driver, into))
                for driver, into in zip(system.drivers, (own, taken), strict=True)
            ]
            assert await soon(next_one) == 5
            await until(lambda: taken == [b"0", b"1", b"2", b"3", b"next"])
            for taker in takers:
                taker.cancel()

    run_test(scenario())


# Stability.


def test_stable_waits_until_every_application_has_finished() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            sender, consumer = system.drivers
            seq = await sender.send([b"x"])
            waiting = asyncio.ensure_future(sender.stable(seq))
            assert await soon(anext(consumer.deliveries))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done(), "the application has taken it, but not finished with it"
            asking = asyncio.ensure_future(anext(consumer.deliveries, None))
            await soon(waiting)
            await sender.stable(seq)
            asking.cancel()

    run_test(scenario())


def test_whoever_waits_for_stability_hears_that_it_will_not_be_known() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            seq = await system.drivers[0].send([b"x"])
            waiting = asyncio.ensure_future(system.drivers[0].stable(seq))
            await asyncio.sleep(0)
            system.drivers[0].kill("pulled the plug")
            with pytest.raises(NotStable, match="pulled the plug"):
                await soon(waiting)
            with pytest.raises(NotStable):
                await system.drivers[0].stable(seq)

    run_test(scenario())


# Stopping.


def test_stop_sees_everything_accepted_through() -> None:
    async def scenario() -> None:
        async with flood(3, window=50) as system:
            sending = [asyncio.ensure_future(system.drivers[0].send([b"%d" % number])) for number in range(50)]
            await asyncio.sleep(0)
            stopped = await soon(system.drivers[0].stop())
            assert stopped.ended.how == "leave"
            assert not stopped.unstable
            assert str(stopped) == "left; everything accepted is stable"
            assert await asyncio.gather(*sending) == list(range(1, 51))
            assert len(system.payloads(1, 0)) == len(system.payloads(2, 0)) == 50

    run_test(scenario())


def test_a_stopping_member_refuses_new_messages_and_those_who_wait() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False, window=4) as system:
            sender, consumer = system.drivers
            waiting = asyncio.ensure_future(sender.send([b"x"] * 10))
            await until(lambda: sender.accepted == 4)
            taker = asyncio.ensure_future(take_all(consumer, []))
            stopping = asyncio.ensure_future(sender.stop())
            with pytest.raises(NotAccepting, match="it is stopping") as refusal:
                await soon(waiting)
            assert refusal.value.accepted == 4
            with pytest.raises(NotAccepting):
                await sender.send([b"too late"])
            assert not (await soon(stopping)).unstable
            taker.cancel()

    run_test(scenario())


def test_a_member_that_cannot_leave_in_time_says_what_is_in_doubt() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            await system.drivers[0].send([b"x"] * 7)
            stopped = await soon(system.drivers[0].stop(timeout=0.1))
            assert stopped.ended.how == "crash"
            assert stopped.unstable == range(1, 8)
            assert str(stopped) == "could not leave within 0.1 s; not known to be stable: messages 1 to 7"

    run_test(scenario())


def test_nobody_waits_for_an_application_that_never_took_anything() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            for driver in system.drivers:
                await driver.send([b"x"] * 3)
            stopped = await soon(asyncio.gather(*(driver.stop() for driver in system.drivers)))
            assert [each.ended.how for each in stopped] == ["leave", "leave"]

    run_test(scenario())


def test_an_application_that_stopped_taking_is_waited_for_a_while_only() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            for driver in system.drivers:
                await driver.send([b"x"])
            for driver in system.drivers:
                await soon(anext(driver.deliveries))
            stopped = await soon(asyncio.gather(*(driver.stop(patience=0.05) for driver in system.drivers)))
            assert [each.ended.how for each in stopped] == ["leave", "leave"]

    run_test(scenario())


def test_an_application_may_take_what_was_delivered_after_its_member_has_ended() -> None:
    async def scenario() -> None:
        async with flood(2, callbacks=False) as system:
            await system.drivers[0].send([b"x", b"y"])
            await until(lambda: len(system.drivers[1].deliveries))
            system.drivers[1].kill()
            taken: list[bytes] = []
            await soon(take_all(system.drivers[1], taken))
            assert taken == [b"x", b"y"]

    run_test(scenario())


# Bugs.


class Buggy(FloodMember):
    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        raise ZeroDivisionError("a bug in the protocol")


def test_an_endpoint_that_raises_is_cut_off_like_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with flood(2) as system:
            buggy = system.drivers[1]
            buggy.endpoint = Buggy(1, (0, 1))
            await system.drivers[0].send([b"trigger"])
            with pytest.raises(ZeroDivisionError):
                await soon(buggy.wait_ended())
            assert buggy.ended is not None
            assert buggy.ended.how == "crash"
            await until(lambda: not buggy.mesh.connections)
            with pytest.raises(NotAccepting):
                await buggy.send([b"x"])

    run_test(scenario())
    assert "it failed with ZeroDivisionError" in caplog.text


def test_a_callback_that_raises_ends_its_member(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        def fail(process: ProcessId, batch: Batch) -> None:
            if process == 1:
                raise ValueError("a bug in the application")

        async with flood(2, also=fail) as system:
            await system.drivers[0].send([b"trigger"])
            with pytest.raises(ValueError, match="bug in the application"):
                await soon(system.drivers[1].wait_ended())

    run_test(scenario())


# Time.


class Clockwork(FloodMember):
    """Wants to be woken every 10 ms and notes when it was."""

    def __init__(self, now: Nanos) -> None:
        super().__init__(0, (0,))
        self.next_wake = now + 10 * MILLISECOND
        self.woken: list[Nanos] = []

    def deadline(self) -> Nanos | None:
        return self.next_wake

    def wake(self, now: Nanos, out: Outbox) -> None:
        assert now >= self.next_wake, "a wake before its time is a wake in vain"
        self.woken.append(now)
        self.next_wake = now + 10 * MILLISECOND


def test_an_endpoint_is_woken_at_its_deadline_and_not_before() -> None:
    async def scenario() -> None:
        clockwork = Clockwork(monotonic_ns())
        driver = await alone(clockwork)
        await until(lambda: len(clockwork.woken) >= 5)
        gaps = [later - earlier for earlier, later in zip(clockwork.woken, clockwork.woken[1:], strict=False)]
        assert all(gap >= 10 * MILLISECOND for gap in gaps)
        driver.kill()

    run_test(scenario())


def test_an_earlier_deadline_moves_the_timer_forward() -> None:
    async def scenario() -> None:
        now = monotonic_ns()
        clockwork = Clockwork(now)
        clockwork.next_wake = now + 3600 * SECOND
        driver = await alone(clockwork)
        clockwork.next_wake = monotonic_ns()
        await driver.send([b"a step, after which the deadline is looked at"])
        await until(lambda: clockwork.woken)
        driver.kill()

    run_test(scenario())


def test_a_deadline_that_has_passed_is_kept_however_many_steps_come_in_between() -> None:
    """Each step looks at the deadline. One that has passed already must not have the timer set anew every time."""

    async def scenario() -> None:
        clockwork = Clockwork(monotonic_ns())
        driver = await alone(clockwork)
        clockwork.next_wake = monotonic_ns() - MILLISECOND
        loop = asyncio.get_running_loop()
        busy, peer = socket.socketpair()
        with busy, peer:
            peer.send(b"something to read, in every iteration of the loop")
            loop.add_reader(busy, driver.mesh.receive, 0, [])
            try:
                async with asyncio.timeout(PATIENCE):
                    while not clockwork.woken:
                        driver.confirm(0, 0)
                        await asyncio.sleep(0)
            finally:
                loop.remove_reader(busy)
        driver.kill()

    run_test(scenario())


def test_time_in_which_the_process_did_not_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of standstill must not look as if everybody else had been silent for a minute."""

    async def scenario() -> None:
        clockwork = Clockwork(monotonic_ns())
        driver = await alone(clockwork)
        await until(lambda: clockwork.woken)
        before = len(clockwork.woken)
        monkeypatch.setattr(driver_module, "monotonic_ns", lambda: monotonic_ns() + 60 * SECOND)
        await until(lambda: len(clockwork.woken) >= before + 3)
        assert clockwork.woken == sorted(clockwork.woken)
        assert clockwork.woken[-1] - clockwork.woken[0] < 30 * SECOND
        driver.kill()

    run_test(scenario())


# What is recorded.


def test_what_is_sent_is_recorded_before_all_that_it_leads_to() -> None:
    async def scenario() -> list[tuple[str, int | None]]:
        rows = MemorySink()
        names = Directory([ProcessName("madrid", "p1")])
        recorder = LiveRecorder(0, ProcessLog(rows, "run", "madrid", "p1", "app", names))
        async with flood(1, recorder=recorder) as system:
            await system.drivers[0].send([b"one"])
            await asyncio.sleep(0)
            await system.drivers[0].send([b"two", b"three"])
            await soon(system.drivers[0].stop())
        return [(row.event, row.origin_seq) for row in rows.events]

    rows = run_test(scenario())
    assert [row for row in rows if row[0] != "stable"] == [
        ("start", None),
        ("send", 1),
        ("deliver", 1),
        ("send", 2),
        ("send", 3),
        ("deliver", 2),
        ("deliver", 3),
        ("leave", None),
    ]
    assert [seq for event, seq in rows if event == "stable"] == [1, 2, 3]
