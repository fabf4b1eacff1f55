"""`kill -9`, again and again, of gateways, standbys and brokers under load: what is lost, twice or out of order.

Two brokers, joined both ways, each with a gateway and a standby; plain clients write to both all the time. In each
round somebody is drawn, killed, and started again. In the end the contents of the brokers are compared, and the traces
are judged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.lab.brokers.joined import HOLDS, STANDS_BY, Host, JoinedBrokers, Load
from isthmus.trace.schema import Report

Victim: TypeAlias = Literal["gateway", "standby", "broker", "both gateways", "gateway and broker"]
VICTIMS: tuple[Victim, ...] = ("gateway", "standby", "broker", "both gateways", "gateway and broker")
NEAR, FAR = "madrid", "oslo"
BEFORE = 0.5
"""Seconds of undisturbed traffic before each kill."""


class BrokerKill(Struct, frozen=True):
    """One kill, and after how many seconds what was written later stood in the other broker, both ways."""

    victim: Victim
    at: str
    flowing: float


class BrokerKills(Struct, frozen=True):
    """All rounds, what was written, and what is wrong: by the contents, and by the traces."""

    kinds: tuple[str, str]
    kills: tuple[BrokerKill, ...]
    seconds: float
    messages: int
    differences: tuple[str, ...]
    report: Report


class _Rounds:
    def __init__(self, joined: JoinedBrokers, loads: dict[str, Load]) -> None:
        self._joined = joined
        self._loads = loads

    async def play(self, victim: Victim, at: str) -> BrokerKill:
        joined = self._joined
        await asyncio.sleep(BEFORE)
        started = time.monotonic()
        dying: list[Host] = []
        for name in joined.brokers:
            here = name == at or victim == "both gateways"
            acting, waiting = self._hosts(name)
            if here and victim in ("gateway", "both gateways", "gateway and broker"):
                dying.append(acting)
            elif here and victim == "standby":
                dying.append(waiting)
        for host in dying:
            await host.kill()
        if "broker" in victim:
            server = joined[at].server
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        numbers = {name: load.number for name, load in self._loads.items()}
        await asyncio.gather(
            *(self._loads[name].until_seen(joined[_other(name)], numbers[name] + 1) for name in self._loads)
        )
        flowing = time.monotonic() - started
        for host in dying:
            await (await joined.start(host.site)).says(f"{HOLDS}|{STANDS_BY}")
        for name in joined.brokers:
            await self._both(name)
        joined.check_hosts()
        return BrokerKill(victim, at, flowing)

    def _hosts(self, name: str) -> tuple[Host, Host]:
        living = [host for host in self._joined.hosts if host.site == name and host.alive]
        acting, waiting = sorted(living, key=lambda host: not host.acts)
        return acting, waiting

    async def _both(self, name: str) -> None:
        """Wait until one of two acts and the other does not: a new one may take over what nobody had."""
        while [host.acts for host in self._hosts(name)] != [True, False]:
            self._joined.check_hosts()
            await asyncio.sleep(0.05)


def _other(name: str) -> str:
    return FAR if name == NEAR else NEAR


async def kill_again_and_again(
    directory: Path,
    kinds: tuple[str, str],
    rounds: int,
    *,
    rate: float,
    links: int = 2,
    seed: int = 1,
    size: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> BrokerKills:
    """`rounds` kills; every kind of victim comes before one comes again."""
    random = Random(seed)
    kills: list[BrokerKill] = []
    started = time.monotonic()
    async with JoinedBrokers(directory, dict(zip((NEAR, FAR), kinds, strict=True)), links=links) as joined:
        await joined.run_gateways()
        for name in joined.brokers:
            await (await joined.start(name)).says(STANDS_BY)
        loads = {name: Load(joined[name], rate, size=size).begin() for name in joined.brokers}
        playing = _Rounds(joined, loads)
        victims: list[Victim] = []
        for _ in range(rounds):
            victims = victims or random.sample(VICTIMS, len(VICTIMS))
            kills.append(await playing.play(victims.pop(), random.choice((NEAR, FAR))))
            progress()
        await asyncio.sleep(BEFORE)
        for load in loads.values():
            await load.end()
        await joined.settled()
        await joined.stop()
        for broker in joined.brokers.values():
            await broker.look_again()
        return BrokerKills(
            kinds=kinds,
            kills=tuple(kills),
            seconds=time.monotonic() - started,
            messages=sum(len(broker.own()) for broker in joined.brokers.values()),
            differences=tuple(joined.differences()),
            report=joined.audit(),
        )
