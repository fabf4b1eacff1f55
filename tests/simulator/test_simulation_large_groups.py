"""Groups in which not everybody speaks to everybody, under faults of all kinds: all is kept, nothing takes longer."""

from __future__ import annotations

import pytest
from simulation_support import FaultyGroup

from isthmus.core.ids import MILLISECOND
from isthmus.simulator.campaign import Source, run_seed
from isthmus.simulator.faults.plan import FaultPlan, NetworkFaults, Partition

LARGE = 24
HEARTBEAT = 20 * MILLISECOND
SUSPECT_AFTER = 200 * MILLISECOND
HOPS = 10 * MILLISECOND
"""From a suspicion to the view that follows from it: a report and five hops of the change, half a millisecond each."""

CRASH = 100 * MILLISECOND

FILE = """
[systems.site]
kind = "embedded"
order = "{order}"
heartbeat = "10ms"
suspect-after = "100ms"
processes = [{processes}]

[simulation]
duration = "300ms"
workload = {{ rate = 5, size = [16, 64], burst = 2, reply = 0.02, reply-depth = 3 }}
network = {{ delay = {{ mean = "2ms" }}, loss = 0.1, duplication = 0.05, reordering = 0.1 }}
faults = {{ crashes = 8, partitions = 2, cuts = 4, slow = 2, joins = 3, leaves = 2, swarm = true }}
"""


def topology(order: str, size: int) -> Source:
    processes = ", ".join(f'"p{number}"' for number in range(1, size + 1))
    return FILE.format(order=order, processes=processes), f"large {order} group"


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("size", [10, 16, LARGE])
def test_a_large_group_keeps_its_promises_under_every_fault(order: str, size: int) -> None:
    for seed in (1, 2, 3):
        outcome = run_seed(topology(order, size), seed)
        failed = outcome.stuck or outcome.broken or outcome.early or outcome.report.violations
        assert not failed or outcome.causes, f"seed {seed}: {failed}"


def assert_others_go_on(group: FaultyGroup, gone: set[int]) -> None:
    expected = tuple(slot for slot in range(group.size) if slot not in gone)
    for slot in expected:
        view = group.world.hosts[slot].view
        assert view is not None
        assert view.members == expected


@pytest.mark.parametrize(
    ("size", "victims"),
    [
        (4, {2}),
        (LARGE, {12}),
        (LARGE, {0}),
        (LARGE, {12, 13, 14, 15}),
        (LARGE, {0, 1, 2, 3}),
        (LARGE, set(range(0, 22, 2))),
        (LARGE, set(range(7, 18))),
    ],
    ids=["small", "one", "collector", "with watchers", "collector with watchers", "every other", "a long row"],
)
def test_the_others_go_on_as_soon_as_in_a_small_group(size: int, victims: set[int]) -> None:
    group = FaultyGroup(size, FaultPlan())
    group.play(CRASH)
    for victim in victims:
        group.world.crash(group.world.hosts[victim], "by this test")
    group.play(CRASH + SUSPECT_AFTER + HEARTBEAT + HOPS)
    assert_others_go_on(group, victims)


@pytest.mark.parametrize("smaller", [set(range(11)), set(range(13, 24)), set(range(1, 23, 2))], ids=str)
def test_the_larger_side_of_a_partition_goes_on_in_time(smaller: set[int]) -> None:
    plan = FaultPlan(partitions=(Partition(CRASH, 10 * SUSPECT_AFTER, tuple(smaller)),))
    group = FaultyGroup(LARGE, plan, chatter=50 * MILLISECOND)
    group.play(CRASH + SUSPECT_AFTER + HEARTBEAT + HOPS)
    assert_others_go_on(group, smaller)
    for slot in smaller:
        view = group.world.hosts[slot].view
        assert view is not None
        assert view.number == 1


def test_losses_exclude_nobody_from_a_large_group() -> None:
    group = FaultyGroup(LARGE, FaultPlan(network=NetworkFaults(loss=0.1)), chatter=100 * MILLISECOND)
    group.play(5 * SUSPECT_AFTER)
    assert_others_go_on(group, set())


def test_a_quiet_group_of_a_hundred_says_little() -> None:
    group = FaultyGroup(100, FaultPlan())
    group.play(4 * HEARTBEAT)
    before = group.world.pdus_sent
    group.play(14 * HEARTBEAT)
    assert group.world.pdus_sent - before == 10 * 3 * 100
