"""Systems of clusters over real sockets: under load nothing is lost, nothing twice, nothing out of causal order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from example_files import example_file
from msgspec import structs
from runtime_support import PATIENCE, end_apart, run_test, soon, until

from isthmus.core.ids import MILLISECOND, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.segment import MAX_PAYLOAD, Opened
from isthmus.hierarchy.clusters.process import ClusterSettings
from isthmus.runtime.host import SystemHost
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.site import site_spec
from isthmus.runtime.systems.clusters import ClusterDriver, ClusterSite
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

MESSAGES = 60
QUICK = ClusterSettings(retry_after=20 * MILLISECOND, window=16)


class Shop:
    """A system of an example, with its processes dealt to one or more sites in this event loop."""

    def __init__(self, example: str, trace: Path | None = None, sites: int = 1) -> None:
        topology = load(example_file(example))
        (system,) = topology.systems
        listeners = [listen(Address(LOOPBACK, 0)) for _ in system.members]
        spec = site_spec(topology, system, [address_of(listener) for listener in listeners], "run")
        spec = structs.replace(spec, trace=None if trace is None else str(trace))
        self.sites = [ClusterSite(topology, system, spec) for _ in range(sites)]
        self.slots = list(topology.slots(system.name))
        self.ids = dict(zip(system.members, self.slots, strict=True))
        self._listeners = listeners
        self.drivers: dict[ProcessId, ClusterDriver] = {}
        self.delivered: dict[ProcessId, list[Opened]] = {slot: [] for slot in self.slots}
        self.on_message: Callable[[ProcessId, Opened], None] = lambda process, message: None

    async def start(self) -> None:
        starting = [
            self.sites[slot % len(self.sites)].start(slot, listener, self._taker(slot), QUICK)
            for slot, listener in zip(self.slots, self._listeners, strict=True)
        ]
        self.drivers = dict(zip(self.slots, await asyncio.gather(*starting), strict=True))

    def _taker(self, slot: ProcessId) -> Callable[[Addressed], None]:
        def take(run: Addressed) -> None:
            for message in run.segment:
                self.delivered[slot].append(message)
                self.on_message(slot, message)

        return take

    async def close(self, linger: float = 0.2) -> list[str]:
        return await end_apart(self.sites, linger=linger)

    async def chatter(self) -> None:
        """Everybody writes to anybody; most of what arrives is answered, to whom its sender wrote before."""
        rng = Random(7)
        answers: set[asyncio.Task[int]] = set()

        def answer(process: ProcessId, message: Opened) -> None:
            origin, _, (depth, named) = message
            if depth and rng.random() < 0.7:
                answers.add(asyncio.ensure_future(self.drivers[process].send(named, bytes((depth - 1, origin)))))

        async def talk(process: ProcessId) -> None:
            before = rng.choice(self.slots)
            for _ in range(MESSAGES):
                target = rng.choice(self.slots)
                await self.drivers[process].send(target, bytes((4, before)))
                before = target

        self.on_message = answer
        await asyncio.gather(*map(talk, self.slots))
        while answers or not all(driver.is_quiet for driver in self.drivers.values()):
            await (answers.pop() if answers else asyncio.sleep(0.001))


def assert_causal(trace: Path) -> None:
    events = list(read_trace(trace).events())
    verdicts = {each.property: each.verdict for each in judge(events, ("integrity", "agreement", "causal")).verdicts}
    assert verdicts == dict.fromkeys(("integrity", "agreement", "causal"), "holds")
    assert sum(event.event == "deliver" for event in events) > MESSAGES


@pytest.mark.parametrize("example", ["clusters-fig-2", "clusters-mixed"])
def test_under_load_everything_arrives_once_and_in_causal_order(example: str, tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(example, tmp_path)
        await shop.start()
        await shop.chatter()
        assert await shop.close() == []

    run_test(main())
    assert_causal(tmp_path)


def test_connections_that_break_lose_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop("clusters-two-layers", tmp_path)
        await shop.start()
        talking = asyncio.ensure_future(shop.chatter())
        for _ in range(3):
            before = sum(map(len, shop.delivered.values()))
            await until(lambda before=before: sum(map(len, shop.delivered.values())) > before + 50)
            for driver in shop.drivers.values():
                for connection in list(driver.mesh.connections):
                    connection.abort()
        await talking
        assert await shop.close() == []

    run_test(main())
    assert_causal(tmp_path)


def test_a_system_in_parts_ends_when_nothing_is_heard_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop("clusters-mixed", tmp_path, sites=2)
        await shop.start()
        await shop.chatter()
        assert await shop.close() == []

    run_test(main())
    assert_causal(tmp_path)


def test_told_twice_to_stop_it_waits_for_nobody() -> None:
    """What was sent to processes that are gone is never acknowledged, so these would wait for as long as they may."""

    async def main() -> list[str]:
        shop = Shop("clusters-mixed", sites=2)
        await shop.start()
        here, there = shop.sites
        for driver in there.drivers.values():
            driver.kill("by the test")
        host: SystemHost[ClusterDriver] = SystemHost(here.spec, stop_timeout=10 * PATIENCE)
        host.processes = here.drivers
        sender = next(iter(here.drivers.values()))
        for slot in shop.slots:
            await sender.send(slot, b"x")
        running = asyncio.ensure_future(host.run())
        host.stop()
        await until(lambda: sender.refusal)
        host.stop()
        await soon(running)
        assert len(host.unfinished()) == len(here.drivers)
        return host.unfinished()

    assert all(line.endswith("it stopped: told twice to stop") for line in run_test(main()))


def test_a_sender_waits_for_credit_and_is_refused_when_the_system_ends() -> None:
    async def main() -> None:
        shop = Shop("clusters-two-layers")
        await shop.start()
        a2, c3 = shop.drivers[shop.ids["a2"]], shop.ids["c3"]
        sends = [asyncio.ensure_future(a2.send(c3, b"x")) for _ in range(100)]
        await asyncio.sleep(0)
        assert sum(task.done() for task in sends) == QUICK.window
        assert sorted([await task for task in sends]) == list(range(1, 101))
        with pytest.raises(ValueError, match="send it in pieces"):
            await a2.send(c3, bytes(MAX_PAYLOAD + 1))
        late = [asyncio.ensure_future(a2.send(c3, b"x")) for _ in range(QUICK.window + 1)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(shop.close())
        with pytest.raises(NotAccepting):
            await late[-1]
        assert await closing == []
        await asyncio.gather(*late, return_exceptions=True)
        delivered = [seq for _, seq, _ in shop.delivered[c3]]
        assert delivered == list(range(1, a2.accepted + 1)), "what was accepted arrives, and nothing else"

    run_test(main())
