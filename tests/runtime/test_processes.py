"""Members in OS processes of their own: killed, stopped, misconfigured. Every process that a test starts, it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from runtime_support import PATIENCE, run_with_children, soon

import isthmus
from isthmus.adapters.embedded import Child, main, plan, spawn
from isthmus.core.ids import MILLISECOND, ProcessName
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

NAMES = ["p1", "p2", "p3", "p4"]
HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(Path(isthmus.__file__).parents[1])])}


class RunningChild:
    """One member in an OS process, and what it has said so far."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, news: asyncio.Condition) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.sent = -1
        self._news = news
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode().strip()
            words = text.split()
            if words[0] == "delivered":
                self.delivered[words[1]] = int(words[2])
            elif words[0] == "sent":
                self.sent = int(words[1])
            self.lines.append(text)
            async with self._news:
                self._news.notify_all()

    async def ended(self) -> int:
        code = await soon(self.process.wait())
        await soon(self._reading)
        return code

    async def errors(self) -> str:
        assert self.process.stderr is not None
        return (await soon(self.process.stderr.read())).decode()


class Children:
    def __init__(self, spec: SystemSpec) -> None:
        self.spec = spec
        self.children: list[RunningChild] = []
        self._news = asyncio.Condition()

    async def start(
        self, name: str, application: str, listener: socket.socket | None = None, **options: Any
    ) -> RunningChild:
        process = await spawn(
            self.spec,
            name,
            application and f"child_applications:{application}",
            listener,
            env=ENVIRONMENT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            **options,
        )
        child = RunningChild(name, process, self._news)
        self.children.append(child)
        return child

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that only what a child says can make true."""
        async with self._news, asyncio.timeout(PATIENCE):
            await self._news.wait_for(condition)


@asynccontextmanager
async def children(spec: SystemSpec) -> AsyncIterator[Children]:
    group = Children(spec)
    try:
        yield group
    finally:
        for child in group.children:
            if child.process.returncode is None:
                child.process.kill()
            await child.ended()


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
        spec, listeners = plan(NAMES, trace=str(tmp_path), suspect_after=500 * MILLISECOND, window_messages=2048)
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
        spec, listeners = plan(NAMES[:3], trace=str(tmp_path), window_messages=2048)
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
        spec, listeners = plan(NAMES[:2])
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
        spec, listeners = plan(NAMES[:1])
        async with children(spec) as system:
            child = await system.start("p1", "broken", listeners["p1"])
            assert await child.ended() == 1
            assert "ZeroDivisionError: an application with a bug" in await child.errors()

    run_with_children(scenario())


def test_a_child_that_cannot_leave_in_time_says_what_is_in_doubt_and_exits_1() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3])
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
        spec, listeners = plan(NAMES[:3])
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


def test_founders_that_never_come_are_named() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:2], start_within=0.2)
        async with children(spec) as system:
            listeners["p2"].close()
            child = await system.start("p1", "quiet", listeners["p1"])
            assert await child.ended() == 2
            errors = await child.errors()
            assert f"nobody of its run answered at {spec.addresses[1]}" in errors
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
