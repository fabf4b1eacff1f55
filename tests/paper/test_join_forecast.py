"""What `isthmus plan` expects without load, held against simulated joins with all that isthmus adds to the papers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from msgspec import structs

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, ProcessName
from isthmus.lab.counts.joins import chain, star, topology, tree
from isthmus.lab.counts.rig import Rig
from isthmus.planner.expressions import JoinModel
from isthmus.planner.forecast import Forecast, forecast, load_of
from isthmus.topology.file import parse
from isthmus.topology.model import Assign, Delivery, Topology

LINES = JoinModel(local_delay=MILLISECOND, link_delay=25 * MILLISECOND)


def with_delivery(described: Topology, delivery: Delivery) -> Topology:
    systems = tuple(structs.replace(system, delivery=delivery) for system in described.systems)
    return structs.replace(described, systems=systems)


def expected(described: Topology) -> Forecast:
    return forecast(described, load_of(described))


@pytest.mark.parametrize("delivery", ["uniform", "fast"])
@pytest.mark.parametrize("assign", ["striped", "transfer-sets"])
def test_a_causal_join_takes_as_long_as_expected(assign: Assign, delivery: Delivery) -> None:
    described = topology((3, 6), chain(2), order="causal", assign=assign, links=3, model=LINES)
    described = with_delivery(described, delivery)
    direction = expected(described).joins[0].directions[0]
    rig = Rig(described)
    times = [rig.broadcast(ProcessName("s0", f"p{number}")).worst("s1") for number in (1, 2, 3)]
    assert max(times) == direction.worst_latency
    assert Fraction(sum(times), 3) == direction.latency


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_a_fifo_join_takes_as_long_as_expected(processes: int) -> None:
    """With one, two, and more than two processes and a gateway, uniform delivery takes one hop, one, and three."""
    described = with_delivery(topology((processes, processes), chain(2), model=LINES), "uniform")
    direction = expected(described).joins[0].directions[0]
    sender = ProcessName("s0", f"p{processes}")
    assert Rig(described).broadcast(sender).worst("s1") == direction.worst_latency


@pytest.mark.parametrize("shape", [chain(4), star(3), tree(5)], ids=["chain", "star", "tree"])
@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_no_message_takes_longer_than_the_longest_way(order: OrderName, shape: list[tuple[int, int]]) -> None:
    described = topology((3,) * (len(shape) + 1), shape, order="causal" if order == "total" else order, model=LINES)
    systems = tuple(structs.replace(system, order=order) for system in described.systems)
    described = with_delivery(structs.replace(described, systems=systems), "uniform")
    worst = expected(described).worst
    rig = Rig(described)
    senders = [ProcessName(system.name, "p3") for system in described.systems]
    longest = max(rig.broadcast(sender).worst() for sender in senders)
    # A gateway that sends on what it broadcast itself need not wait for the whole system.
    assert Fraction(3, 4) * worst.latency <= longest <= worst.latency


DAISY = """
[systems.west]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "a3", "b1", "b2", "b3"]
gateways = 3
[systems.west.daisy]
audience = "everybody"
[systems.west.daisy.parts.{above}a]
processes = ["a1", "a2", "a3"]
[systems.west.daisy.parts.{above}b]
processes = ["b1", "b2", "b3"]
[systems.west.daisy.parts.doors]
processes = ["g1", "g2", "g3"]
[systems.hall]
kind = "embedded"
order = "causal"
processes = ["p1"]
gateways = 2
[[joins]]
between = ["west", "hall"]
order = "causal"
[simulation]
workload = {{ rate = 0 }}
network = {{ delay = "1ms" }}
links = {{ delay = "25ms", bandwidth = "unlimited" }}
"""


@pytest.mark.parametrize(("above", "hops"), [("", 5), ("x.parts.", 7)], ids=["two levels", "three levels"])
def test_a_message_goes_up_through_a_daisy_and_down_again(above: str, hops: int) -> None:
    """daisy, Sect. 3.3: the local group, the servers' groups on the way, and the local groups of the others."""
    described = parse(DAISY.format(above=above), "daisy.toml")
    whole = expected(described)
    assert whole.systems[0].latency == hops * MILLISECOND
    into, _ = whole.joins[0].directions
    assert into.worst_latency == (hops + 25 + 1) * MILLISECOND
    sent = [Rig(described).broadcast(ProcessName("west", name)) for name in ("a1", "b3")]
    assert max(each.worst("west") for each in sent) <= whole.systems[0].latency
    assert max(each.worst("hall") for each in sent) <= into.worst_latency
    back = Rig(described).broadcast(ProcessName("hall", "p1")).worst("west")
    assert back <= whole.joins[0].directions[1].worst_latency
    if not above:
        assert sent[0].worst("west") == whole.systems[0].latency
