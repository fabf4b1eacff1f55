"""Members in OS processes of their own: killed, stopped, misconfigured. Every process that a test starts, it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from children import NAMES, children
from patience import seconds
from runtime_support import PATIENCE, run_with_children

from isthmus.adapters.embedded import Child, main, plan
from isthmus.core.ids import MILLISECOND, SECOND, ProcessName
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

START_WITHIN = round(seconds(30) * SECOND)


def delivered_sets(trace: Path) -> dict[str, list[tuple[str | None, int | None]]]:
    """What each process delivered, in its order."""
    sequences: dict[str, list[tuple[str | None, int | None]]] = {}
    for event in read_trace(trace).events():
        if event.event == "deliver":
            sequences.setdefault(event.process, []).append((event.origin_process, event.origin_seq))
    return sequences


def has_delivered(trace: Path, process: str) -> bool:
    """Whether a delivery of `process` is in its log. A log that is killed before its first flush is empty."""
    return any(b'"deliver"' in log.read_bytes() for log in trace.glob(f"*{process}*.jsonl"))


def test_survivors_of_a_kill_go_on_and_agree(tmp_path: Path) -> None:
    """kill -9 in the middle of load from everybody: the others deliver the same set, and nothing of theirs is lost."""

    async def scenario() -> None:
        spec, listeners = plan(
            NAMES,
            trace=str(tmp_path),
            suspect_after=500 * MILLISECOND,
            window_messages=2048,
            start_within=START_WITHIN,
        )
        async with children(spec) as system:
            p1, victim, p3, p4 = [await system.start(name, "busy", listeners[name]) for name in NAMES]
            survivors = (p1, p3, p4)
            await system.until(
                lambda: all(child.delivered["p2"] >= 2000 for child in survivors) and has_delivered(tmp_path, "p2")
            )
            victim.process.kill()
            assert await victim.ended() == -signal.SIGKILL
            before = {child.name: child.delivered["p1"] for child in survivors}
            await system.until(lambda: all(child.delivered["p1"] > before[child.name] + 3000 for child in survivors))
            for child in survivors:
                child.process.send_signal(signal.SIGUSR1)
            lasts = {f"last {child.name}" for child in survivors}
            await system.until(lambda: all(lasts <= set(child.lines) for child in survivors))
            for child in survivors:
                child.process.terminate()
            assert [await child.ended() for child in survivors] == [0, 0, 0], [
                await child.errors() for child in survivors
            ]
            took = {child.lines[-1] for child in survivors}
            assert len(took) == 1, "survivors differ in what they delivered of somebody"
            for child in survivors:
                assert f"{child.name}:{child.sent}" in child.lines[-1].split(), "something accepted is lost"

    run_with_children(scenario())
    sequences = delivered_sets(tmp_path)
    assert set(sequences["p1"]) == set(sequences["p3"]) == set(sequences["p4"])
    assert set(sequences["p2"]) <= set(sequences["p1"]), "a delivery of the victim is unknown to the survivors"
    report = judge(read_trace(tmp_path).events())
    for kept in ("integrity", "agreement", "fifo", "causal"):
        assert report.verdict(kept) != "violated", report.violations[:3]


def test_sigterm_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    """One busy member is stopped in full flight; all it accepted is delivered by those who stay."""

    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], trace=str(tmp_path), window_messages=2048, start_within=START_WITHIN)
        async with children(spec) as system:
            sender = await system.start("p1", "busy", listeners["p1"])
            others = [await system.start(name, "quiet", listeners[name]) for name in NAMES[1:3]]
            await system.until(lambda: all(child.delivered["p1"] >= 3000 for child in others))
            sender.process.terminate()
            assert await sender.ended() == 0, await sender.errors()
            for child in others:
                child.process.terminate()
            assert [await child.ended() for child in others] == [0, 0]
            assert sender.sent >= 3000
            for child in others:
                assert child.lines[-1] == f"took p1:{sender.sent}"

    run_with_children(scenario())
    assert judge(read_trace(tmp_path).events()).verdict("agreement") == "holds"


def test_a_child_whose_application_returns_leaves_in_good_order() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:2], start_within=START_WITHIN)
        async with children(spec) as system:
            stays = await system.start("p2", "quiet", listeners["p2"])
            brief = await system.start("p1", "brief", listeners["p1"])
            assert await brief.ended() == 0, await brief.errors()
            assert brief.lines == ["first 1"]
            stays.process.terminate()
            assert await stays.ended() == 0
            assert stays.lines[-1] == "took p1:2"

    run_with_children(scenario())


def test_a_child_whose_application_fails_says_so_and_exits_1() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:1], start_within=START_WITHIN)
        async with children(spec) as system:
            child = await system.start("p1", "broken", listeners["p1"])
            assert await child.ended() == 1
            assert "ZeroDivisionError: an application with a bug" in await child.errors()

    run_with_children(scenario())


def test_a_child_that_cannot_leave_in_time_says_what_is_in_doubt_and_exits_1() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], start_within=START_WITHIN)
        async with children(spec) as system:
            sender = await system.start("p1", "busy", listeners["p1"], stop_timeout=0.3)
            others = [await system.start(name, "quiet", listeners[name]) for name in NAMES[1:3]]
            await system.until(lambda: all(child.delivered["p1"] for child in others))
            for child in others:
                child.process.send_signal(signal.SIGSTOP)
            sender.process.terminate()
            assert await sender.ended() == 1
            errors = await sender.errors()
            assert "could not leave within 0.3 s" in errors
            assert "not known to be stable" in errors
            assert "Traceback" not in errors

    run_with_children(scenario())


def test_a_second_signal_cuts_leaving_short() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], start_within=START_WITHIN)
        async with children(spec) as system:
            sender = await system.start("p1", "busy", listeners["p1"], stop_timeout=10 * PATIENCE)
            others = [await system.start(name, "quiet", listeners[name]) for name in NAMES[1:3]]
            await system.until(lambda: all(child.delivered["p1"] for child in others))
            for child in others:
                child.process.send_signal(signal.SIGSTOP)
            sender.process.terminate()
            await system.until(lambda: sender.sent > 0)
            sender.process.terminate()
            assert await sender.ended() == 1
            assert "told twice to stop" in await sender.errors()

    run_with_children(scenario())


def test_a_port_in_use_is_one_clear_line() -> None:
    async def scenario() -> None:
        with listen(Address(LOOPBACK, 0)) as taken:
            where = address_of(taken)
            spec = SystemSpec(run="run", system="s", names=(ProcessName("s", "p1"),), addresses={0: where})
            async with children(spec) as system:
                child = await system.start("p1", "")
                assert await child.ended() == 2
                errors = await child.errors()
                assert errors.startswith(f"p1: {where} is already in use.")
                assert len(errors.splitlines()) == 1

    run_with_children(scenario())


@pytest.mark.parametrize(
    ("process", "content", "why"),
    [
        ("p1", b"{}", "missing required field"),
        ("p1", b"not json", "JSON"),
        ("p9", None, "no process 'p9'"),
        ("p1+x", None, "no process"),
    ],
)
def test_bad_input_is_one_clear_line(
    process: str, content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SystemSpec(run="r", system="s", names=(ProcessName("s", "p1"),), addresses={0: Address(LOOPBACK, 1)})
    path = tmp_path / "child.json"
    path.write_bytes(content if content is not None else msgspec.json.encode(Child(spec=spec, process=process)))
    assert main([str(path)]) == 2
    errors = capsys.readouterr().err
    assert why in errors
    assert len(errors.splitlines()) == 1
