"""What joined brokers do in trouble: they say in a line what is wrong, hold back, and lose nothing."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from patience import seconds
from runtime_support import run_with_children

from isthmus.core.ids import MILLISECOND
from isthmus.lab.brokers.joined import HOLDS, Host, JoinedBrokers, Load
from isthmus.lab.brokers.plain import Away
from isthmus.lab.brokers.redis import DURABLE, ValkeyServer
from isthmus.lab.harness.sites import LinkQuality
from isthmus.runtime.transport.address import LOOPBACK

TWO = {"madrid": "valkey", "oslo": "valkey"}
WITHIN = seconds(60)
MEGABYTE = 1 << 20


@asynccontextmanager
async def joined_pair(directory: Path, **options: Any) -> AsyncIterator[JoinedBrokers]:
    """Two brokers. However it ends, no gateway has shown anybody a traceback."""
    async with JoinedBrokers(directory, TWO, **{"trace": False, **options}) as joined:
        yield joined
        for host in joined.hosts:
            assert "Traceback" not in host.words(), host.words()


async def stopped(host: Host, line: str) -> None:
    """It has ended by itself with exit code 2, and says why in one line."""
    assert await host.ended() == 2
    last = host.words().strip().splitlines()[-1]
    assert re.fullmatch(f"isthmus: .*{line}.*", last), host.words()


def client(joined: JoinedBrokers, name: str) -> Any:
    """redis-py, for what an operator does."""
    import redis.asyncio

    return redis.asyncio.Redis(host=LOOPBACK, port=joined[name].server.port)


def test_a_wrong_password_is_said_in_a_line_that_does_not_have_it(tmp_path: Path) -> None:
    async def test() -> None:
        madrid = ValkeyServer(tmp_path / "madrid", password="open-sesame")
        (tmp_path / "password").write_text("swordfish")
        async with joined_pair(
            tmp_path, servers={"madrid": madrid}, tables={"madrid": 'password-file = "password"\n'}
        ) as joined:
            host = await joined.start("madrid")
            await stopped(host, "refuses this username and password: look at .*password-file")
            assert "swordfish" not in host.words()
            (tmp_path / "password").write_text("open-sesame\n")
            await (await joined.start("madrid")).says(HOLDS)

    run_with_children(test(), WITHIN)


def test_a_broker_without_memory_holds_everybody_back_and_loses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with joined_pair(tmp_path) as joined:
            hosts = await joined.run_gateways()
            operator = client(joined, "oslo")
            await operator.config_set("maxmemory", "2mb")
            await joined["madrid"].client.write([b"%d" % number + bytes(200) for number in range(10_000)])
            words = await hosts["oslo"].says("oslo cannot be written: .*maxmemory.*tried again")
            assert words.count("cannot be written") == 1
            before = hosts["oslo"].cpu_seconds()
            await asyncio.sleep(1)  # what is watched: that it does not try all the time
            assert hosts["oslo"].cpu_seconds() - before < 0.5
            await operator.config_set("maxmemory", "0")
            await joined.settled()
            assert joined.differences() == []
            await hosts["oslo"].says("oslo can be written again")
            await operator.aclose()

    run_with_children(test(), WITHIN)


def test_a_log_that_is_deleted_under_way_stops_the_join_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with joined_pair(tmp_path) as joined:
            hosts = await joined.run_gateways()
            await joined["madrid"].client.write([b"%d" % number for number in range(100)])
            await joined.settled()
            operator = client(joined, "madrid")
            await operator.delete("orders")
            await joined["madrid"].client.write([b"new"])
            await stopped(hosts["madrid"], "madrid: stream orders: .*--accept-loss")
            await operator.aclose()

    run_with_children(test(), WITHIN)


def test_entries_that_nobody_read_and_are_trimmed_stop_the_join_until_the_loss_is_accepted(tmp_path: Path) -> None:
    async def test() -> None:
        async with joined_pair(tmp_path) as joined:
            hosts = await joined.run_gateways()
            await joined["madrid"].client.write([b"%d" % number for number in range(100)])
            await joined.settled()
            await hosts["madrid"].stop()
            await joined["madrid"].client.write([b"new-%d" % number for number in range(100)])
            operator = client(joined, "madrid")
            await operator.xtrim("orders", maxlen=10, approximate=False)
            await stopped(await joined.start("madrid"), "madrid: stream orders: 90 entries were trimmed.*--accept-loss")
            await (await joined.start("madrid", "--accept-loss")).says("this loss has been accepted")
            await joined["madrid"].client.write([b"last"])
            oslo = joined["oslo"]
            while not oslo.seen or oslo.seen[-1].body != b"last":
                await oslo.look()
                await asyncio.sleep(0.02)
            assert [each.body for each in oslo.seen[100:]] == [b"new-%d" % number for number in range(90, 100)] + [
                b"last"
            ]
            await operator.aclose()

    run_with_children(test(), WITHIN)


@pytest.mark.parametrize("policy", ["stop", "park"])
@pytest.mark.parametrize("size", [MEGABYTE + 1000, 3 * MEGABYTE])
def test_a_message_over_the_limit_stops_the_join_or_is_parked(tmp_path: Path, policy: str, size: int) -> None:
    """A little over a megabyte is carried, but refused by the far broker; three are more than can be carried."""

    async def test() -> None:
        servers = {"oslo": ValkeyServer(tmp_path / "oslo", {**DURABLE, "proto-max-bulk-len": "1mb"})}
        table = f'on-refusal = "{policy}"\n'
        async with joined_pair(tmp_path, servers=servers, tables={"madrid": table, "oslo": table}) as joined:
            hosts = await joined.run_gateways()
            await joined["madrid"].client.write([b"one", bytes(size), b"two"])
            at = "madrid" if size > 2 * MEGABYTE else "oslo"
            if policy == "stop":
                await stopped(hosts[at], f'{at}: .*,.* bytes.* on-refusal = "park" in systems.{at}')
                return
            oslo = joined["oslo"]
            while len(oslo.seen) < 2:
                await oslo.look()
                joined.check_hosts()
                await asyncio.sleep(0.02)
            assert [each.body for each in oslo.seen] == [b"one", b"two"]
            assert "is parked" in hosts[at].words() or "is left out" in hosts[at].words()

    run_with_children(test(), WITHIN)


@pytest.mark.real
def test_lines_that_are_cut_and_reset_cost_time_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        line = LinkQuality(delay=10 * MILLISECOND, rate=20_000_000)
        async with joined_pair(tmp_path, links=3, line=line, trace=True) as joined:
            await joined.run_gateways()
            assert joined.lines is not None
            loads = {name: Load(joined[name], 1500).begin() for name in TWO}
            for turn in range(12):
                which = ("0", "1", "2", "all")[turn % 4]
                await joined.lines.order(
                    f"cut {which} {'reset' if turn % 3 else 'silent'}", lines=3 if which == "all" else 1
                )
                await asyncio.sleep(0.7 if turn % 2 else 0.1)
                await joined.lines.order(f"mend {which}", lines=3 if which == "all" else 1)
            for name, load in loads.items():
                await load.until_seen(joined["oslo" if name == "madrid" else "madrid"], load.number)
                await load.end()
            await joined.settled()
            await joined.stop()
            assert joined.differences() == []
            assert {verdict.verdict for verdict in joined.audit().verdicts} == {"holds"}

    run_with_children(test(), 2 * WITHIN)


@pytest.mark.real
def test_a_far_broker_that_is_away_costs_neither_memory_nor_messages(tmp_path: Path) -> None:
    """The source broker is the spool. What a gateway may have in memory is bounded by what may be unconfirmed."""

    async def test() -> None:
        async with joined_pair(tmp_path, links=2) as joined:
            hosts = await joined.run_gateways()
            load = Load(joined["madrid"], size=1024, batch=500).begin()
            await load.until_seen(joined["oslo"], 20_000)
            joined["oslo"].server.pause()
            sizes: list[int] = []
            give_up = time.monotonic() + seconds(60)
            away_from = load.number
            while load.number < away_from + 200_000 and time.monotonic() < give_up:
                await asyncio.sleep(0.25)
                sizes.append(hosts["madrid"].memory())
            joined["oslo"].server.go_on()
            written = await load.end()
            await joined.settled(within=seconds(60))
            assert joined.differences() == []
            assert written > away_from + 100_000
            last = sizes[len(sizes) // 2 :]
            assert max(last) - min(last) < 32 * MEGABYTE, sizes
            assert max(sizes) < 400 * MEGABYTE, sizes
            assert hosts["oslo"].words().count("can be") <= 6

    run_with_children(test(), 3 * WITHIN)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    directory.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=False).returncode
    ):
        pytest.skip("only root can make a disk that is full")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


@pytest.mark.real
def test_a_full_disk_at_the_far_broker_holds_everybody_back_and_loses_nothing(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        servers = {"oslo": ValkeyServer(disk, {**DURABLE, "auto-aof-rewrite-percentage": "0"})}
        async with joined_pair(tmp_path, servers=servers) as joined:
            hosts = await joined.run_gateways()
            await joined["madrid"].client.write([b"%d" % number + bytes(1000) for number in range(20_000)])
            await hosts["oslo"].says("oslo cannot be (written|made durable): ")
            with suppress(Away):
                await joined["oslo"].client.write([b"its own"])
            await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=200m", disk], check=True)
            if not joined["oslo"].server.alive:
                # Some versions end when they cannot write; then it is for an operator to start it again.
                await asyncio.to_thread(joined["oslo"].server.start)
            await joined.settled()
            assert joined.differences() == []

    with small_disk(tmp_path / "disk", "8m") as disk:
        run_with_children(test(disk), 2 * WITHIN)
