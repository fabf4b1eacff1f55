"""daisy, Fig. 2: a crash and one lost message block a causal protocol for ever, and a daisy goes on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from isthmus.core.endpoint import AddressedDelivery
from isthmus.core.ids import MILLISECOND, SECOND, Directory, ProcessName
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import ClusterProcess
from isthmus.hierarchy.clusters.tree import hierarchy_of
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Fixed

PA, PB, PC = range(3)
NAMES = ("pa", "pb", "pc")


def plain(process: int) -> ClusterProcess:
    return ClusterProcess(process, hierarchy_of(ClusterTable(delivery="rst", processes=NAMES), NAMES.index))


def one_group(process: int) -> DaisyProcess:
    return DaisyProcess(process, tree_of(DaisyTable(processes=NAMES), NAMES.index))


class Figure:
    """The figure, on a network where nothing gets from pa to pb."""

    def __init__(self, make: Callable[[int], ClusterProcess | DaisyProcess]) -> None:
        sometimes = Sometimes()
        network = Network(Random(1), Fixed(MILLISECOND), None, NetworkFaults(), sometimes)
        self.world = World(Directory([ProcessName("s", name) for name in NAMES]), network, sometimes, check=True)
        self.delivered: list[tuple[int, bytes]] = []
        for process in (PA, PB, PC):
            self.world.start(Host(make(process), None, lambda host, batch: None, self.on_addressed))
        network.cut(PA, PB)
        self.write(PA, PB, b"m1")
        self.write(PA, PC, b"m2")
        self.world.run_until(SECOND // 10)
        self.world.crash(self.world.hosts[PA], "as in the figure")
        self.world.run_until(5 * SECOND)

    def write(self, source: int, target: int, payload: bytes) -> None:
        host = self.world.hosts[source]
        endpoint = host.endpoint
        if isinstance(endpoint, ClusterProcess):
            self.world.step(host, endpoint.send, target, [payload])
        else:
            assert isinstance(endpoint, DaisyProcess)
            self.world.step(host, endpoint.send, (target,), [payload])

    def on_addressed(self, host: Host, delivered: AddressedDelivery) -> None:
        (payload,) = delivered.run.segment.payloads()
        self.delivered.append((host.id, payload))
        if payload == b"m2":
            self.world.at(self.world.now, self.write, PC, PB, b"m3")


def test_without_a_group_pb_holds_m3_for_ever_and_says_why() -> None:
    """ "p_b is blocked forever from delivering p_c's messages." """
    figure = Figure(plain)
    assert figure.delivered == [(PC, b"m2")]
    endpoint = figure.world.hosts[PB].endpoint
    assert isinstance(endpoint, ClusterProcess)
    (hold,) = endpoint.waiting()
    assert list(hold.batch.segment.payloads()) == [b"m3"]
    assert (hold.awaited, hold.number, hold.reason) == (PA, 1, "delivered")


def test_in_a_daisy_pb_gets_m1_from_the_group_and_then_m3() -> None:
    """Lemma 4.2: in a single group there cannot be a persistent causal hole."""
    figure = Figure(one_group)
    assert figure.delivered == [(PC, b"m2"), (PB, b"m1"), (PB, b"m3")]
    endpoint = figure.world.hosts[PB].endpoint
    assert isinstance(endpoint, DaisyProcess)
    assert not list(endpoint.waiting())


@pytest.mark.parametrize("make", [plain, one_group])
def test_the_figure_is_played_to_the_end(make: Callable[[int], ClusterProcess | DaisyProcess]) -> None:
    assert not Figure(make).world.hosts[PA].alive
