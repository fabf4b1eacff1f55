"""Daisies over real sockets, in one event loop: what a driver refuses, what it holds back, and how a daisy ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from example_files import example_file
from msgspec import structs
from runtime_support import end_apart, run_test, until

from isthmus.core.ids import SECOND, ProcessId
from isthmus.core.message import Addressed
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.site import site_spec
from isthmus.runtime.systems.daisy import WINDOW, DaisyDriver, DaisySite
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.topology.file import load
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

TWO_LEVELS = example_file("daisy-two-levels")
MESSAGES = 15
PROMISED = ("integrity", "agreement", "fifo", "causal")


class Shop:
    """The daisy of the example, with its processes dealt to one or more sites in this event loop."""

    def __init__(self, trace: Path | None = None, sites: int = 1) -> None:
        topology = load(TWO_LEVELS)
        (system,) = topology.systems
        self._listeners = [listen(Address(LOOPBACK, 0)) for _ in system.members]
        spec = site_spec(topology, system, [address_of(listener) for listener in self._listeners], "run")
        spec = structs.replace(spec, trace=None if trace is None else str(trace), suspect_after=1 * SECOND)
        self.sites = [DaisySite(topology, system, spec) for _ in range(sites)]
        self.slots = list(topology.slots(system.name))
        self.drivers: dict[ProcessId, DaisyDriver] = {}
        self.delivered: dict[ProcessId, list[Addressed]] = {slot: [] for slot in self.slots}

    async def start(self) -> None:
        starting = [
            self.sites[slot % len(self.sites)].start(slot, listener, self._taker(slot))
            for slot, listener in zip(self.slots, self._listeners, strict=True)
        ]
        self.drivers = dict(zip(self.slots, await asyncio.gather(*starting), strict=True))

    def _taker(self, slot: ProcessId) -> Callable[[Addressed], None]:
        return self.delivered[slot].append

    async def close(self) -> list[str]:
        return await end_apart(self.sites, linger=0.3)

    async def chatter(self) -> None:
        """Everybody writes to sets of processes; what is sent later may follow from what has been delivered by then."""
        rng = Random(7)

        async def talk(process: ProcessId) -> None:
            for _ in range(MESSAGES):
                await self.drivers[process].send(rng.sample(self.slots, rng.randint(1, 5)), b"x")
                await asyncio.sleep(0)

        await asyncio.gather(*map(talk, self.slots))


def assert_promises_kept(trace: Path) -> None:
    events = list(read_trace(trace).events())
    verdicts = {each.property: each.verdict for each in judge(events, PROMISED).verdicts}
    assert verdicts == dict.fromkeys(PROMISED, "holds")


@pytest.mark.parametrize("sites", [1, 2])
def test_it_ends_when_everything_is_stable(tmp_path: Path, sites: int) -> None:
    """In one part or in several, which end when they have been at rest for a while."""

    async def main() -> int:
        shop = Shop(tmp_path, sites)
        await shop.start()
        await shop.chatter()
        assert await shop.close() == []
        assert not any(driver.process.unstable for driver in shop.drivers.values())
        return sum(map(len, shop.delivered.values()))

    delivered = run_test(main())
    assert_promises_kept(tmp_path)
    rows = [row for row in read_trace(tmp_path).events() if row.event in ("send", "deliver")]
    assert sum(row.event == "send" for row in rows) == MESSAGES * 9
    assert sum(len(row.destinations or ()) for row in rows if row.event == "send") == delivered


def test_a_server_that_is_cut_off_is_replaced_and_what_it_had_is_seen_through(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.start()
        await shop.chatter()
        server, heir, *_ = shop.slots
        shop.drivers[server].kill("by the test")
        await until(lambda: shop.drivers[heir].process.local.server == heir)
        await shop.drivers[heir].send([shop.slots[-1]], b"after")
        (left,) = await shop.close()
        assert left == "shop/a1: it stopped: by the test"
        assert shop.delivered[shop.slots[-1]][-1].segment.data == b"after"
        assert shop.sites[0].describe(heir) == "a, topmost"

    run_test(main())
    assert_promises_kept(tmp_path)


def test_a_sender_waits_for_credit_and_is_refused_when_the_daisy_ends() -> None:
    async def main() -> None:
        shop = Shop()
        await shop.start()
        first, last = shop.drivers[shop.slots[0]], shop.slots[-1]
        for wrong in ([], [last, 99]):
            with pytest.raises(ValueError, match="one or more processes of this system"):
                await first.send(wrong, b"x")
        with pytest.raises(ValueError, match="send it in pieces"):
            await first.send([last], bytes(MAX_PAYLOAD + 1))
        sends = [asyncio.ensure_future(first.send([last, last], b"x")) for _ in range(WINDOW + 1)]
        await asyncio.sleep(0)
        assert [task.done() for task in sends] == [True] * WINDOW + [False]
        closing = asyncio.ensure_future(shop.close())
        with pytest.raises(NotAccepting):
            await sends[-1]
        assert await closing == []
        assert [seq for run in shop.delivered[last] for _, seq in run.segment.ids()] == list(range(1, WINDOW + 1))

    run_test(main())
