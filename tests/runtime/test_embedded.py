"""A whole system in one event loop, over real sockets, as an application uses it; its traces are judged by oracles."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from flood_member import FloodMember
from runtime_support import run_test, soon, until

from isthmus.adapters.embedded import EmbeddedProcess, EmbeddedSystem, load
from isthmus.core.endpoint import Member, OrderName
from isthmus.core.ids import MILLISECOND, ProcessId, ProcessName, incarnation_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.runtime.driver.member import Confirms
from isthmus.runtime.problems import AddressInUse, NotAccepting, RuntimeProblem
from isthmus.runtime.systems.members import start_member
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import Address, listen
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

NAMES = ["p1", "p2", "p3", "p4"]


async def take(process: EmbeddedProcess, count: int) -> list[tuple[str, int, bytes]]:
    return [
        (delivered.origin.process, delivered.seq, delivered.payload)
        for delivered in [await soon(anext(process)) for _ in range(count)]
    ]


def test_what_one_process_sends_all_processes_get() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES) as system:
            assert await system["p1"].send(b"hello") == 1
            for name in NAMES:
                delivered = await soon(anext(system[name]))
                assert delivered == (ProcessName("embedded", "p1"), 1, b"hello")

    run_test(scenario())


DAISY = DaisyTable(
    options=DaisyOptions(audience="everybody"),
    parts=(DaisyTable(name="a", processes=("p1", "p2")), DaisyTable(name="b", processes=("p3", "p4"))),
)


def test_in_a_daisy_that_broadcasts_a_slow_consumer_stops_its_senders() -> None:
    """As in a group: the one that takes nothing is in the other local group, and what waits there is bounded."""

    async def scenario() -> None:
        window = 20
        async with EmbeddedSystem(NAMES, kind="daisy", own=DAISY, window_messages=window, patience=0.01) as system:
            sender, slow = system["p1"].driver, system["p4"]
            quick = [asyncio.ensure_future(take(system[name], 100)) for name in NAMES[:3]]
            sending = asyncio.ensure_future(system["p1"].send(*(b"%d" % number for number in range(100))))
            await until(lambda: sender.accepted == window)
            heartbeats = asyncio.get_running_loop().time() + 10 * system.spec.heartbeat / 1e9
            await until(lambda: asyncio.get_running_loop().time() > heartbeats)
            assert (sender.accepted, sender.stable_through) == (window, 0)
            taken = await take(slow, 100)
            assert [payload for _, _, payload in taken] == [b"%d" % number for number in range(100)]
            assert await soon(sending) == 1
            assert [await soon(task) for task in quick] == [taken] * len(quick)

    run_test(scenario())


def test_a_process_has_its_name_and_is_iterated_over() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:2], name="madrid") as system:
            process = system["p1"]
            assert (system.name, list(system.processes)) == ("madrid", ["p1", "p2"])
            assert str(process.name) == "madrid/p1"
            await soon(process.send(b"one", b"two"))
            payloads: list[bytes] = []
            async for _, _, payload in process:
                payloads.append(payload)
                if len(payloads) == 2:
                    break
            assert payloads == [b"one", b"two"]

    run_test(scenario())


def test_an_answer_never_comes_before_its_question() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES) as system:

            async def answer() -> None:
                async for origin, _, payload in system["p2"]:
                    if origin.process == "p1":
                        await system["p2"].send(b"answer to " + payload)

            answering = asyncio.ensure_future(answer())
            for number in range(50):
                await system["p1"].send(b"%d" % number)
            seen = [payload for _, _, payload in await take(system["p3"], 100)]
            for number in range(50):
                assert seen.index(b"%d" % number) < seen.index(b"answer to %d" % number)
            answering.cancel()

    run_test(scenario())


def test_breaking_out_of_a_loop_loses_no_message() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:2]) as system:
            await system["p1"].send(*(b"%d" % number for number in range(5)))
            seen = []
            for _ in range(5):
                async for delivered in system["p2"]:
                    seen.append(delivered.payload)
                    break
            assert seen == [b"0", b"1", b"2", b"3", b"4"]

    run_test(scenario())


def test_in_total_order_everybody_sees_the_same_sequence() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, "total") as system:
            await asyncio.gather(
                *(system[name].send(b"%d" % number) for number in range(20) for name in NAMES),
            )
            sequences = await asyncio.gather(*(take(system[name], 80) for name in NAMES))
            assert all(sequence == sequences[0] for sequence in sequences)

    run_test(scenario())


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_the_trace_of_a_busy_system_keeps_every_promise(order: OrderName, tmp_path: Path) -> None:
    """Load from everybody, small windows, one consumer that lags; then everything recorded is judged."""
    counts = dict.fromkeys(NAMES, 0)

    async def consume(process: EmbeddedProcess, name: str) -> None:
        async for _ in process:
            counts[name] += 1
            if name == "p4" and counts[name] % 10 == 0:
                await asyncio.sleep(0)

    async def produce(process: EmbeddedProcess) -> None:
        for number in range(40):
            await process.send(*(b"%d" % number for _ in range(10)))
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, order, trace=str(tmp_path), run="busy", window_messages=100) as system:
            consumers = [asyncio.ensure_future(consume(system[name], name)) for name in NAMES]
            await soon(asyncio.gather(*(produce(system[name]) for name in NAMES)))
            assert await soon(system.close()) == []
            await soon(asyncio.gather(*consumers))

    run_test(scenario())
    assert counts == dict.fromkeys(NAMES, 1600)
    trace = read_trace(tmp_path)
    report = judge(trace.events())
    for kept in promised_by(order):
        assert report.verdict(kept) == "holds"
    events = [event.event for event in trace.events()]
    assert events.count("send") == events.count("stable") == 1600
    assert events.count("deliver") == 4 * 1600
    assert events.count("end") == 4


def test_callbacks_take_whole_batches() -> None:
    async def scenario() -> None:
        batches: list[Batch] = []
        async with EmbeddedSystem(NAMES, callbacks=dict.fromkeys(NAMES, batches.append)) as system:
            await system["p1"].send(*[b"x"] * 100)
            await soon(system["p1"].stable(100))
            assert sum(len(batch.segment) for batch in batches) == 400
            assert len(batches) == 4

    run_test(scenario())


def test_a_process_that_takes_nothing_holds_everybody_back_within_the_window() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, window_messages=64) as system:
            tasks = [asyncio.ensure_future(take(system[name], 1000)) for name in NAMES[:3]]
            sending = asyncio.ensure_future(system["p1"].send(*(b"%d" % number for number in range(1000))))
            driver = system["p4"].driver
            await until(lambda: system["p1"].driver.accepted == 64 and len(driver.deliveries))
            await until(lambda: all(system[name].driver.deliveries.idle for name in NAMES[:3]))
            for _ in range(200):
                await asyncio.sleep(0)
            assert system["p1"].driver.accepted == 64
            assert len(driver.deliveries) <= 64
            tasks.append(asyncio.ensure_future(take(system["p4"], 1000)))
            await soon(sending)
            await soon(asyncio.gather(*tasks))

    run_test(scenario())


async def take_segments(process: EmbeddedProcess, count: int) -> list[Segment]:
    """Segments until there are so many messages in them. The last one is not finished with."""
    segments: list[Segment] = []
    async for segment in process.segments():
        segments.append(segment)
        if sum(map(len, segments)) >= count:
            break
    return segments


def test_many_payloads_are_sent_in_one_call_and_numbered_in_their_order() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES) as system:
            many = [b"%d" % number for number in range(5000)]
            assert await soon(system["p1"].send(b"first")) == 1
            sending = asyncio.ensure_future(system["p1"].send_many(many))
            taken = await asyncio.gather(*(take(system[name], 5001) for name in NAMES))
            assert await soon(sending) == 2
            assert taken == [[("p1", seq, payload) for seq, payload in enumerate([b"first", *many], 1)]] * len(NAMES)

    run_test(scenario())


def test_sending_no_payloads_sends_nothing() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:2]) as system:
            await soon(system["p1"].send_many([]))
            assert await soon(system["p1"].send_many((b"x",))) == 1
            assert await take(system["p2"], 1) == [("p1", 1, b"x")]

    run_test(scenario())


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_segments_bring_what_iterating_over_messages_brings_in_the_same_order(order: OrderName) -> None:
    """In total order this is one sequence for everybody; otherwise that of each origin."""

    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, order) as system:
            sends = [system[name].send_many([b"%d" % number] * 5) for number in range(20) for name in NAMES]
            one_by_one = asyncio.ensure_future(take(system["p2"], 400))
            in_segments = [asyncio.ensure_future(take_segments(system[name], 400)) for name in ("p1", "p3", "p4")]
            await soon(asyncio.gather(*sends))
            expected = await soon(one_by_one)
            for name, task in zip(("p1", "p3", "p4"), in_segments, strict=True):
                segments = await soon(task)
                assert all(segments)
                got = [(system[name].name_of(origin).process, *rest) for each in segments for origin, *rest in each]
                assert [payload for *_, payload in got] == [payload for each in segments for payload in each.payloads()]
                if order == "total":
                    assert got == expected
                assert sorted(got, key=lambda each: each[0]) == sorted(expected, key=lambda each: each[0])

    run_test(scenario())


def test_an_answer_never_comes_in_a_segment_before_its_question() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES) as system:

            async def answer() -> None:
                async for segment in system["p2"].segments():
                    asked = [b"answer to " + payload for origin, _, payload in segment if origin == 0]
                    await system["p2"].send_many(asked)

            answering = asyncio.ensure_future(answer())
            for number in range(50):
                await system["p1"].send(b"%d" % number)
            segments = await soon(take_segments(system["p3"], 100))
            seen = [payload for segment in segments for payload in segment.payloads()]
            for number in range(50):
                assert seen.index(b"%d" % number) < seen.index(b"answer to %d" % number)
            answering.cancel()

    run_test(scenario())


def test_a_segment_is_finished_with_when_the_next_is_asked_for() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:2], callbacks={"p1": lambda batch: None}) as system:
            sender, segments = system["p1"], system["p2"].segments()
            await soon(sender.send(b"one"))
            assert list(await soon(anext(segments))) == [(0, 1, b"one")]
            await soon(sender.send(b"two"))
            heartbeats = asyncio.get_running_loop().time() + 10 * system.spec.heartbeat / 1e9
            await until(lambda: asyncio.get_running_loop().time() > heartbeats)
            assert sender.driver.stable_through == 0
            assert list(await soon(anext(segments))) == [(0, 2, b"two")]
            await soon(sender.stable(1))
            assert sender.driver.stable_through == 1
            asking = asyncio.ensure_future(anext(segments, None))
            await soon(sender.stable(2))
        assert await soon(asking) is None, "the end of the system is the end of its segments"

    run_test(scenario())


def test_a_process_that_takes_no_segments_holds_everybody_back_within_the_window() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, window_messages=64) as system:
            tasks = [asyncio.ensure_future(take_segments(system[name], 1000)) for name in NAMES[:3]]
            slow = system["p4"].segments()
            sending = asyncio.ensure_future(system["p1"].send_many([b"%d" % number for number in range(1000)]))
            first = await soon(anext(slow))
            sender = system["p1"].driver
            await until(lambda: sender.accepted == 64)
            await until(lambda: all(system[name].driver.deliveries.idle for name in NAMES[:3]))
            for _ in range(200):
                await asyncio.sleep(0)
            assert (sender.accepted, sender.stable_through) == (64, 0)
            rest = await soon(take_segments(system["p4"], 1000 - len(first)))
            assert [*first.payloads(), *(each for segment in rest for each in segment.payloads())] == [
                b"%d" % number for number in range(1000)
            ]
            assert await soon(sending) == 1
            await soon(asyncio.gather(*tasks))

    run_test(scenario())


def test_origins_of_segments_have_names() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, name="madrid") as system:
            for name in NAMES:
                await soon(system[name].send(name.encode()))
            segments = await soon(take_segments(system["p3"], len(NAMES)))
            named = {system["p3"].name_of(origin): payload for each in segments for origin, _, payload in each}
            assert named == {ProcessName("madrid", name): name.encode() for name in NAMES}
            assert str(system["p3"].name_of(incarnation_of(1, 2))) == "madrid/p2+2"

    run_test(scenario())


def test_closing_refuses_new_messages_and_ends_iterations() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:2]) as system:
            await system["p1"].send(b"last")
            reading = asyncio.ensure_future(_payloads(system["p2"]))
            await asyncio.sleep(0)
        assert await soon(reading) == [b"last"]
        with pytest.raises(NotAccepting):
            await system["p1"].send(b"too late")

    run_test(scenario())


async def _payloads(process: EmbeddedProcess) -> list[bytes]:
    return [payload async for _, _, payload in process]


def test_closing_says_what_is_in_doubt() -> None:
    """With two of three gone at once there is no quorum, so nothing new can become stable."""

    async def scenario() -> None:
        system = EmbeddedSystem(NAMES[:3], close_within=0.2)
        async with system:
            system["p2"].driver.kill()
            system["p3"].driver.kill()
            await system["p1"].send(b"to nobody")
            assert await system.close() == ["embedded/p1: closed; not known to be stable: message 1"]

    run_test(scenario())


def test_the_others_go_on_when_one_dies_and_it_comes_back_as_a_new_process() -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, suspect_after=200 * MILLISECOND) as system:
            await system["p1"].send(b"before")
            for name in NAMES:
                await soon(anext(system[name]))
            dead = system["p2"].driver
            dead.kill()
            await until(lambda: not dead.mesh.connections)
            await system["p1"].send(b"after")
            for name in ("p1", "p3", "p4"):
                assert (await soon(anext(system[name]))).payload == b"after"

            spec = system.spec
            reborn = incarnation_of(1, 1)
            batches: list[Batch] = []
            driver = await soon(
                start_member(spec, reborn, listen(spec.addresses[1]), on_batch=batches.append, joining=True)
            )
            await until(lambda: driver.view is not None and set(driver.view.members) == {0, reborn, 2, 3})
            await driver.send([b"back again"])
            for name in ("p1", "p3", "p4"):
                delivered = await soon(anext(system[name]))
                assert (delivered.origin.process, delivered.seq) == ("p2+1", 1)
            for name in ("p1", "p3", "p4"):
                asyncio.ensure_future(_payloads(system[name]))  # noqa: RUF006
            stopped = await soon(driver.stop())
            assert stopped.ended.how == "leave"
            assert not stopped.unstable

    run_test(scenario())


def test_any_member_will_do() -> None:
    def make_flood(spec: SystemSpec, process: ProcessId, joining: bool, confirms: Confirms) -> Member:
        return FloodMember(process, spec.founders())

    async def scenario() -> None:
        async with EmbeddedSystem(NAMES, make_member=make_flood) as system:
            await system["p1"].send(b"x")
            assert await take(system["p3"], 1) == [("p1", 1, b"x")]

    run_test(scenario())


def test_when_one_process_cannot_start_none_is_left_running() -> None:
    made: list[ProcessId] = []

    def make_some(spec: SystemSpec, process: ProcessId, joining: bool, confirms: Confirms) -> Member:
        made.append(process)
        if len(made) == 3:
            raise RuntimeProblem("The third one is always broken.")
        return FloodMember(process, spec.founders())

    async def scenario() -> None:
        system = EmbeddedSystem(NAMES, make_member=make_some)
        with pytest.raises(RuntimeProblem, match="third one"):
            async with system:
                pass
        for address in system.spec.addresses.values():
            await until(lambda address=address: _is_free(address))  # type: ignore[misc]

    run_test(scenario())


def _is_free(address: Address) -> bool:
    try:
        listen(address).close()
    except AddressInUse:
        return False
    return True


@pytest.mark.parametrize("name", ["nothing", "no_such_module:main", "os:no_such_function", "os:sep", ":", "os.path:"])
def test_an_application_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(RuntimeProblem, match="application"):
        load(name)


def test_a_second_run_into_the_same_trace_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with EmbeddedSystem(NAMES[:1], trace=str(tmp_path)):
            pass
        with pytest.raises(RuntimeProblem, match="already a log"):
            async with EmbeddedSystem(NAMES[:1], trace=str(tmp_path)):
                pass

    run_test(scenario())
