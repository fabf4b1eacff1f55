"""TO and PO over real sockets: orders, stages, bounded buffers, and `kill -9` of an entity."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from msgspec import structs
from patience import seconds
from runtime_support import run_test, run_with_children, soon
from site_support import JoinedPair
from test_processes import children, delivered_sets, has_delivered

from isthmus.adapters.embedded import EmbeddedSystem, plan
from isthmus.core.ids import MILLISECOND, SECOND
from isthmus.lab.benchmarks.acknowledged import KEPT, Endurer, endure
from isthmus.ordering.acknowledged.member import Protocol
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.systems.members import provide_medium, start_member
from isthmus.runtime.systems.spec import AcknowledgedSpec, MediumKind
from isthmus.simulator.checks.acknowledged import out_of_turn
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

START_WITHIN = round(seconds(30) * SECOND)

NAMES = ["p1", "p2", "p3", "p4"]
EACH = 40


@pytest.mark.parametrize(("protocol", "medium"), [("to", "hub"), ("po", "hub"), ("po", "multicast")])
def test_nothing_is_lost_or_out_of_order_on_a_medium_that_loses(
    protocol: Protocol, medium: MediumKind, tmp_path: Path
) -> None:
    async def scenario() -> None:
        spec = AcknowledgedSpec(protocol=protocol, medium=medium, loss=0.1, loss_seed=3)
        order = "total" if protocol == "to" else "fifo"
        options = {"kind": "acknowledged", "own": spec, "trace": str(tmp_path), "heartbeat": 5 * MILLISECOND}
        async with EmbeddedSystem(
            NAMES, order, callbacks=dict.fromkeys(NAMES, lambda batch: None), **options
        ) as system:

            async def send(name: str) -> None:
                for number in range(EACH):
                    await system[name].send(b"%d" % number)
                    await asyncio.sleep(0.001)
                await system[name].stable(EACH)

            await soon(asyncio.gather(*map(send, NAMES)))

    run_test(scenario())
    sequences = delivered_sets(tmp_path)
    assert [len(set(sequences[name])) for name in NAMES] == [4 * EACH] * 4
    if protocol == "to":
        assert len({tuple(sequence) for sequence in sequences.values()}) == 1
    events = list(read_trace(tmp_path).events())
    report = judge(events, ("integrity", "agreement", "fifo"))
    assert not report.violated, report.violations[:3]
    # All are in one OS process, and have one clock.
    assert not out_of_turn(events)


def test_the_trace_has_the_stages_before_the_delivery(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = {"kind": "acknowledged", "own": AcknowledgedSpec(protocol="to"), "trace": str(tmp_path)}
        async with EmbeddedSystem(
            NAMES[:3], "total", callbacks=dict.fromkeys(NAMES[:3], lambda batch: None), **options
        ) as system:
            await system["p1"].send(b"hello")
            await soon(system["p1"].stable(1))

    run_test(scenario())
    events: dict[str, list[str]] = {}
    for event in read_trace(tmp_path).events():
        if event.origin_seq is not None:
            events.setdefault(event.process, []).append(event.event)
    stages = ["receive", "pre-acknowledge", "acknowledge", "deliver"]
    assert events == {"p1": ["send", *stages, "stable"], "p2": stages, "p3": stages}


@pytest.mark.parametrize("protocol", ["to", "po"])
def test_survivors_of_a_kill_re_form_the_cluster_and_agree(protocol: Protocol, tmp_path: Path) -> None:
    """kill -9 of an entity under load and loss: the others go on with one less, and nothing of theirs is lost."""

    async def scenario() -> None:
        spec, listeners = plan(
            NAMES,
            "total" if protocol == "to" else "fifo",
            trace=str(tmp_path),
            suspect_after=500 * MILLISECOND,
            heartbeat=10 * MILLISECOND,
            window_messages=1024,
            start_within=START_WITHIN,
            kind="acknowledged",
            own=AcknowledgedSpec(protocol=protocol, loss=0.02),
        )
        spec, hub = await provide_medium(spec)
        async with children(spec) as system:
            p1, victim, p3, p4 = [await system.start(name, "busy", listeners[name]) for name in NAMES]
            survivors = (p1, p3, p4)
            await system.until(
                lambda: all(child.delivered["p2"] >= 500 for child in survivors) and has_delivered(tmp_path, "p2")
            )
            victim.process.kill()
            assert await victim.ended() == -signal.SIGKILL
            before = {child.name: child.delivered["p1"] for child in survivors}
            await system.until(lambda: all(child.delivered["p1"] > before[child.name] for child in survivors))
            for child in survivors:
                child.process.send_signal(signal.SIGUSR1)
            lasts = {f"last {child.name}" for child in survivors}
            await system.until(lambda: all(lasts <= set(child.lines) for child in survivors))
            for child in survivors:
                child.process.terminate()
            for child in survivors:
                await child.ended()
            took = {child.lines[-1] for child in survivors}
            assert len(took) == 1, "survivors differ in what they delivered of somebody"
            for child in survivors:
                assert f"{child.name}:{child.sent}" in child.lines[-1].split(), "something accepted is lost"
        if hub is not None:
            hub.close()

    run_with_children(scenario())
    sequences = delivered_sets(tmp_path)
    assert set(sequences["p1"]) == set(sequences["p3"]) == set(sequences["p4"])
    assert set(sequences["p2"]) <= set(sequences["p1"]), "a delivery of the victim is unknown to the survivors"
    if protocol == "to":
        assert sequences["p1"] == sequences["p3"] == sequences["p4"]
        assert sequences["p2"] == sequences["p1"][: len(sequences["p2"])]


def test_gateways_work_on_a_medium_as_on_any_system(tmp_path: Path) -> None:
    """PO is FIFO and takes a FIFO join, through the loss of a gateway."""

    async def scenario() -> None:
        async with JoinedPair(tmp_path, order="fifo", near='acknowledged = { protocol = "po" }') as sites:
            await sites.send("madrid/p1", "there")
            await sites.send("valencia/p1", "back")
            for name in ("madrid/p2", "valencia/p2"):
                await sites.until_delivered(name, "there", "back")
            sites.kill("madrid/g2")
            await sites.send("madrid/p1", "again")
            await sites.until_delivered("valencia/p2", "again")
            await sites.until_stable()
            report = await sites.verdicts()
        assert not report.violated, report.violations[:3]

    run_test(scenario())


def test_an_entity_that_loses_the_hub_ends_as_a_crash_and_says_so() -> None:
    async def scenario() -> None:
        spec, listeners = plan(
            NAMES[:2],
            "total",
            kind="acknowledged",
            own=AcknowledgedSpec(protocol="to"),
            start_within=START_WITHIN,
        )
        spec, hub = await provide_medium(spec)
        assert hub is not None
        starting = (start_member(spec, slot, listener) for slot, listener in enumerate(listeners.values()))
        entity, other = await asyncio.gather(*starting)
        hub.close()
        ended = await soon(entity.wait_ended())
        assert ended.how == "crash"
        assert "lost the hub" in ended.why
        with pytest.raises(NotAccepting, match="lost the hub"):
            await entity.send([b"x"])
        await soon(other.wait_ended())

    run_test(scenario())


@pytest.mark.parametrize("protocol", ["to", "po"])
def test_buffers_stay_within_the_bound_of_the_flow_condition(protocol: Endurer, tmp_path: Path) -> None:
    """The long run of `isthmus bench acknowledged`, made short."""
    pdus = 600
    endured = endure(protocol, pdus, tmp_path)
    assert endured.pdus == pdus
    assert endured.lost > 0
    assert 0 < endured.used <= endured.buffers
    promised = promised_by(KEPT[protocol], views=False)
    report = judge(read_trace(tmp_path).events(), promised)
    assert all(report.verdict(each) == "holds" for each in promised), report.violations[:3]


def test_a_loss_that_is_no_chance_is_refused() -> None:
    spec = AcknowledgedSpec(protocol="po")
    with pytest.raises(ValueError, match="no chance below 1"):
        structs.replace(spec, loss=1.0)
