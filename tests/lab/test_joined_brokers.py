"""Real brokers joined by real gateways, written and read by plain clients: what stands in them, and what traces say."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from patience import seconds
from runtime_support import run_with_children

from isthmus.lab.brokers.joined import HOLDS, STANDS_BY, JoinedBrokers, Load
from isthmus.lab.brokers.kills import kill_again_and_again
from isthmus.trace.schema import Report

TWO = {"madrid": "valkey", "oslo": "valkey"}
THREE = {"madrid": "valkey", "oslo": "valkey", "rome": "valkey"}
TAKEN_OVER = 2.0
"""Seconds within which a standby acts after its gateway's death, on a quick machine; the lease is 1.5."""


def holds(report: Report) -> bool:
    return {verdict.verdict for verdict in report.verdicts} == {"holds"} and not report.violations


def test_a_chain_of_brokers_holds_the_same_entries_in_one_order_through_kills(tmp_path: Path) -> None:
    async def test() -> None:
        async with JoinedBrokers(tmp_path, THREE, links=2) as joined:
            hosts = await joined.run_gateways()
            loads = {name: Load(joined[name], 1000).begin() for name in ("madrid", "rome")}
            for name, load in loads.items():
                await load.until_seen(joined["rome" if name == "madrid" else "madrid"], 300)
            await hosts["oslo"].kill()
            await asyncio.to_thread(joined["rome"].server.kill)
            await asyncio.to_thread(joined["rome"].server.start)
            await joined.start("oslo")
            for name, load in loads.items():
                await load.until_seen(joined["rome" if name == "madrid" else "madrid"], load.number + 300)
                await load.end()
            await joined.settled()
            await joined.stop()
            assert joined.differences() == []
            assert holds(joined.audit())

    run_with_children(test(), within=seconds(60))


def test_a_gateway_that_was_stopped_and_replaced_writes_nothing_when_it_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with JoinedBrokers(tmp_path, TWO, links=2, trace=False) as joined:
            hosts = await joined.run_gateways()
            zombie = hosts["oslo"]
            standby = await joined.start("oslo")
            await standby.says(STANDS_BY)
            load = Load(joined["madrid"], 4000).begin()
            await load.until_seen(joined["oslo"], 1000)
            zombie.freeze()
            frozen = time.monotonic()
            await standby.says(HOLDS)
            assert time.monotonic() - frozen < seconds(TAKEN_OVER)
            await load.until_seen(joined["oslo"], load.number)
            zombie.go_on()
            await zombie.says(f"another host has taken the claim(.|\n)*{STANDS_BY}")
            await load.until_seen(joined["oslo"], load.number)
            await load.end()
            await joined.settled()
            assert joined.differences() == []
            assert not zombie.acts
            await joined.stop()

    run_with_children(test(), within=seconds(60))


@pytest.mark.real
@pytest.mark.parametrize("kind", ["valkey"])
def test_nothing_is_lost_twice_or_out_of_order_whoever_is_killed(tmp_path: Path, kind: str) -> None:
    outcome = run_with_children(kill_again_and_again(tmp_path, (kind, kind), 10, rate=3000), within=seconds(110))
    assert not outcome.differences
    assert holds(outcome.report)
    assert all(kill.flowing < seconds(5) for kill in outcome.kills), outcome.kills
