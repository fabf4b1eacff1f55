"""Two joined sites as real OS processes: started, fed, asked, killed and restarted, and nobody is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from patience import seconds

from isthmus.core.ids import MILLISECOND
from isthmus.lab.benchmarks.failover import figures_of
from isthmus.lab.harness.os_process import ChildFailed, Ports
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout, LinkQuality
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

PATIENCE = seconds(60)
EACH = 800
LINE = LinkQuality(delay=5 * MILLISECOND, rate=20_000_000)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something in another process."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - it tells only who asks
            await asyncio.sleep(0.02)


def test_a_gateway_is_killed_and_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    """Two links over an emulated WAN, four senders, SIGKILL for the sequencer; from the traces, every promise holds."""
    layout = Layout(links=2, line=LINE)
    trace = tmp_path / "trace"
    victim = f"{NEAR}/g1"
    pids: list[int] = []

    async def play() -> int:
        async with JoinedSites(layout, tmp_path, apart=[victim], trace=trace) as sites:
            pids.extend(child.pid for child in sites.children.values())
            await sites.linked()
            for site in (NEAR, FAR):
                for process in ("p1", "p2"):
                    await sites[site].send(process, rate=400, count=EACH)

            async def some_have_come() -> bool:
                figures = [await sites[site].figures() for site in (NEAR, FAR)]
                return all(count > EACH // 4 for each in figures for count in each.imported.values())

            await until(some_have_come)
            killed_at = await sites.kill(victim)
            assert not sites[victim].alive
            await sites[victim].restart()
            pids.append(sites[victim].pid)
            await sites.linked()

            async def all_have_come() -> bool:
                figures = [await sites[site].figures() for site in (NEAR, FAR)]
                return all(count == 4 * EACH for each in figures for count in each.delivered.values())

            await until(all_have_come)
            for site in (NEAR, FAR):
                await sites[site].stable()
                assert await sites[site].quiet() == {"p1": EACH, "p2": EACH} | {
                    name: 0 for name in ("g1", "g2") if f"{site}/{name}" != victim
                }
            figures = await sites[FAR].figures()
            assert sum(figures.imported.values()) == 2 * 2 * EACH
            assert {link.link for link in figures.links} == {0, 1}
            assert all(link.bytes_in for link in figures.links)
            await sites.close()
            return killed_at

    killed_at = asyncio.run(play())
    assert not [pid for pid in pids if _is_there(pid)]
    read = read_trace([trace])
    assert not read.quarantined
    events = list(read.events())
    report = judge(events, promised_by("causal"))
    assert {verdict.property: verdict.verdict for verdict in report.verdicts} == dict.fromkeys(
        promised_by("causal"), "holds"
    )
    figures = figures_of(events, killed_at)
    assert (figures.messages, figures.deliveries) == (4 * EACH, 4 * 4 * EACH)
    assert figures.flowed_again_after_ms > 0


def test_delays_are_measured_from_one_look_to_the_next(tmp_path: Path) -> None:
    layout = Layout(processes=(1, 1), gateways=(1, 1), links=1, line=LINE)

    async def play() -> list[int]:
        async with JoinedSites(layout, tmp_path) as sites:
            await sites.linked()
            await sites[FAR].figures(measure=True)
            await sites[NEAR].send("p1", rate=500, count=100)

            async def all_are_accepted() -> bool:
                return (await sites[NEAR].figures()).accepted["p1"] == 100

            await until(all_are_accepted)
            await sites[NEAR].stable()
            delays = (await sites[FAR].figures()).delays
            assert not (await sites[FAR].figures()).delays
            return delays

    delays = asyncio.run(play())
    assert len(delays) == 100
    assert min(delays) >= LINE.delay


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def play() -> None:
        async with JoinedSites(Layout(), tmp_path, settings={"trace": "/dev/null/nowhere"}):
            raise AssertionError("it runs")

    with pytest.raises(ChildFailed, match="nowhere"):
        asyncio.run(play())


def test_ports_are_ours_while_we_hold_them_and_those_whom_we_tell_can_listen() -> None:
    ports = Ports()
    try:
        first = ports.take(3)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", first + 1))
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", first + 2))
            taken.listen()
    finally:
        ports.release()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
