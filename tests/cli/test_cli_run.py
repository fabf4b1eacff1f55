"""`isthmus run`: a real site, stopped by a signal, loses nothing that it had accepted."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from cli_support import COMMAND, ENVIRONMENT, GROUP, PATIENCE, write

from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event

PROCESSES = ["p1", "p2", "p3"]


@asynccontextmanager
async def running(*arguments: object, stdin: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command in a process of its own, which is gone when the block ends."""
    child = await asyncio.create_subprocess_exec(
        *COMMAND, "run", *map(str, arguments), env=ENVIRONMENT, stdin=stdin, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def until_delivered(trace: Path, count: int) -> None:
    """Wait until every process has written that it delivered so many messages."""

    def delivered() -> list[int]:
        return [path.read_bytes().count(b'"event":"deliver"') for path in trace.glob("*.jsonl")]

    while len(counts := delivered()) < len(PROCESSES) or min(counts) < count:  # noqa: ASYNC110 - a file tells nobody
        await asyncio.sleep(0.02)


def assert_nothing_is_lost(events: list[Event], accepted: dict[str, int]) -> None:
    """Every accepted message was delivered by everybody once, and every property of a causal group holds."""
    sent = Counter(event.process for event in events if event.event == "send")
    assert sent == accepted
    messages = {(event.process, event.origin_seq) for event in events if event.event == "send"}
    for process in accepted:
        delivered = [
            (event.origin_process, event.origin_seq)
            for event in events
            if event.event == "deliver" and event.process == process
        ]
        assert len(delivered) == len(messages)
        assert set(delivered) == messages
    report = judge(events, ("integrity", "agreement", "fifo", "causal", "same-view"))
    assert {verdict.property: verdict.verdict for verdict in report.verdicts} == dict.fromkeys(
        ("integrity", "agreement", "fifo", "causal", "same-view"), "holds"
    )


class Stopped(NamedTuple):
    code: int | None
    result: Any
    trace: Path


def stopped_under_load(directory: Path, sign: signal.Signals) -> Stopped:
    """A site whose three processes send all the time, until this signal comes."""
    file, trace = write(directory / "group.toml", GROUP), directory / "trace"

    async def stop_it() -> Stopped:
        arguments = (file, "--site", "site", "--rate", 300, "--trace", trace, "-o", "json")
        async with asyncio.timeout(PATIENCE), running(*arguments) as child:
            await until_delivered(trace, 200)
            child.send_signal(sign)
            printed, _ = await child.communicate()
            return Stopped(child.returncode, msgspec.json.decode(printed), trace)

    return asyncio.run(stop_it())


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=lambda sign: sign.name)
def test_a_site_that_is_told_to_stop_loses_nothing(tmp_path: Path, sign: signal.Signals) -> None:
    _, result, trace = stopped_under_load(tmp_path, sign)
    assert result["delivered"] == len(PROCESSES) * sum(result["accepted"].values())
    assert set(result["ended"].values()) == {"left; everything accepted is stable"}
    read = read_trace([trace])
    assert not read.quarantined
    assert {log.name: log.ending for log in read.logs.values()} == {f"site/{process}": "leave" for process in PROCESSES}
    assert_nothing_is_lost(list(read.events()), result["accepted"])


def test_a_site_that_is_told_to_stop_and_lost_nothing_says_so(tmp_path: Path) -> None:
    code, result, _ = stopped_under_load(tmp_path, signal.SIGTERM)
    assert (code, result["clean"]) == (0, True)


def test_lines_go_in_and_come_out_at_every_process_in_order(tmp_path: Path) -> None:
    file = write(tmp_path / "group.toml", GROUP)
    words = [f"word {number}" for number in range(1, 21)]

    async def type_and_hang_up() -> tuple[int | None, bytes]:
        stdin = asyncio.subprocess.PIPE
        async with asyncio.timeout(PATIENCE), running(file, "--site", "site", "--lines", stdin=stdin) as child:
            printed, _ = await child.communicate("".join(f"{word}\n" for word in words).encode())
            return child.returncode, printed

    code, printed = asyncio.run(type_and_hang_up())
    assert code == 0
    lines = printed.decode().splitlines()
    assert Counter(lines) == {f"site/p1/{number} {word}": 3 for number, word in enumerate(words, 1)}
    first_of_each = list(dict.fromkeys(lines))
    assert first_of_each == [f"site/p1/{number} {word}" for number, word in enumerate(words, 1)]


def test_lines_are_taken_for_as_long_as_was_said(tmp_path: Path) -> None:
    """Nobody hangs up, and yet it ends, in good order."""
    file = write(tmp_path / "group.toml", GROUP)

    async def type_and_wait() -> tuple[int, bytes]:
        arguments = (file, "--site", "site", "--lines", "--duration", "1s")
        async with asyncio.timeout(PATIENCE), running(*arguments, stdin=asyncio.subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(b"word\n")
            return await child.wait(), await child.stdout.read()

    code, printed = asyncio.run(type_and_wait())
    assert (code, printed.splitlines()) == (0, [b"site/p1/1 word"] * len(PROCESSES))


def test_a_load_ends_in_time_even_where_nothing_more_is_taken(tmp_path: Path, unused_ports: int) -> None:
    """The other site is away, so senders are soon kept waiting in `send`; the command ends all the same."""
    text = GROUP + f'gateways = 1\naddress = "127.0.0.1:{unused_ports}"\n'
    far = text.replace("systems.site", "systems.far").replace(str(unused_ports), str(unused_ports + 4))
    far += f'link-address = "127.0.0.1:{unused_ports + 8}"\n'
    join = '[[joins]]\nbetween = ["site", "far"]\norder = "fifo"\n'
    file = write(tmp_path / "alone.toml", text + far + join)

    async def send_in_vain() -> tuple[int | None, Any]:
        arguments = (file, "--site", "site", "--rate", 50_000, "--duration", "1s", "-o", "json")
        async with asyncio.timeout(PATIENCE), running(*arguments) as child:
            printed, _ = await child.communicate()
            return child.returncode, msgspec.json.decode(printed)

    code, result = asyncio.run(send_in_vain())
    assert (code, result["clean"]) == (1, False), "what nobody took is not called done"
    assert sum(result["accepted"].values()) < 3 * 50_000


def test_processes_of_one_site_can_run_apart_and_stop_apart(tmp_path: Path, unused_ports: int) -> None:
    """Three OS processes of one member each; the first is told to stop while the others go on."""
    file = write(tmp_path / "group.toml", GROUP + f'address = "127.0.0.1:{unused_ports}"\n')
    trace = tmp_path / "trace"

    async def stop_one_by_one() -> list[Any]:
        results = []
        async with asyncio.timeout(PATIENCE):
            common = (file, "--site", "site", "--run", "apart", "--trace", trace, "--rate", 100, "-o", "json")
            async with (
                running(*common, "--process", "p1") as first,
                running(*common, "--process", "p2") as second,
                running(*common, "--process", "p3") as third,
            ):
                await until_delivered(trace, 100)
                for child in (first, second, third):
                    child.send_signal(signal.SIGTERM)
                    printed, _ = await child.communicate()
                    results.append(msgspec.json.decode(printed))
        return results

    results = asyncio.run(stop_one_by_one())
    accepted = {name: count for result in results for name, count in result["accepted"].items()}
    events = list(read_trace([trace]).events())
    assert Counter(event.process for event in events if event.event == "send") == accepted
    report = judge(events, ("integrity", "agreement", "fifo", "causal", "same-view"))
    assert not report.violated
    assert {event.process for event in events if event.event == "leave"} == set(PROCESSES)


@pytest.fixture
def unused_ports() -> int:
    """The first of three ports in a row that nobody listens on; below those that the kernel hands out."""
    start = 20_000 + os.getpid() % 2_000 * 4
    for first in range(start, start + 4_000, 4):
        try:
            for port in range(first, first + 3):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no three free ports in a row")
