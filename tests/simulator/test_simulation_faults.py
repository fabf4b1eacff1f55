"""Fault plans come from the seed alone, and the nemesis carries them out as they were drawn."""

from __future__ import annotations

from random import Random

from simulation_support import FaultyGroup

from isthmus.core.ids import MILLISECOND, SECOND
from isthmus.simulator.faults.plan import (
    Crash,
    Cut,
    FaultPlan,
    Leave,
    LinkCut,
    NetworkFaults,
    Partition,
    Rejoin,
    Slow,
    draw_link_cuts,
    draw_plan,
)
from isthmus.topology.read.simulation import Faults, NetworkModel

SLOTS = (10, 11, 12, 13, 14, 15)
EVERYTHING = Faults(crashes=3, partitions=2, cuts=2, slow=1, joins=2, leaves=1)
SWARM = Faults(crashes=3, partitions=2, cuts=2, slow=1, joins=2, leaves=1, swarm=True)
BAD_LINES = NetworkModel(loss=0.1, duplication=0.05, reordering=0.2)
KINDS = ("crashes", "partitions", "cuts", "slow", "rejoins", "leaves")
SUSPECT_AFTER = 200 * MILLISECOND


def plan(seed: int, faults: Faults = SWARM) -> FaultPlan:
    return draw_plan(Random(seed), faults, BAD_LINES, SLOTS, SECOND, SUSPECT_AFTER)


# Plans


def test_equal_seeds_give_equal_plans_and_others_differ() -> None:
    assert [plan(seed) for seed in range(50)] == [plan(seed) for seed in range(50)]
    assert len({repr(plan(seed)) for seed in range(50)}) == 50


def test_without_swarm_every_run_has_everything() -> None:
    for seed in range(20):
        drawn = plan(seed, EVERYTHING)
        assert [len(getattr(drawn, kind)) for kind in KINDS] == [3, 2, 2, 1, 2, 1]
        assert drawn.network == NetworkFaults(0.1, 0.05, 0.2)


def test_a_swarm_leaves_every_kind_out_of_about_every_other_run_and_never_exceeds_the_table() -> None:
    drawn = [plan(seed) for seed in range(400)]
    for kind, most in zip(KINDS, (3, 2, 2, 1, 2, 1), strict=True):
        counts = [len(getattr(each, kind)) for each in drawn]
        assert 150 < counts.count(0) < 250
        assert set(counts) == set(range(most + 1))
    for chance, highest in (("loss", 0.1), ("duplication", 0.05), ("reordering", 0.2)):
        chances = [getattr(each.network, chance) for each in drawn]
        assert 150 < chances.count(0) < 250
        assert 0.9 * highest < max(chances) <= highest


def test_a_table_without_faults_gives_an_empty_plan() -> None:
    for faults in (Faults(), Faults(swarm=True)):
        assert draw_plan(Random(1), faults, NetworkModel(), SLOTS, SECOND, SUSPECT_AFTER) == FaultPlan()


def test_plans_name_slots_of_the_system_and_times_of_the_run() -> None:
    for seed in range(100):
        drawn = plan(seed, EVERYTHING)
        lasting: list[Partition | Cut | Slow] = [*drawn.partitions, *drawn.cuts, *drawn.slow]
        for fault in lasting:
            assert 0 <= fault.at < SECOND
            assert SUSPECT_AFTER // 4 <= fault.until - fault.at < 4 * SUSPECT_AFTER
        about_one: list[Crash | Slow | Rejoin | Leave] = [*drawn.crashes, *drawn.slow, *drawn.rejoins, *drawn.leaves]
        for each in about_one:
            assert each.slot in SLOTS
        for partition in drawn.partitions:
            assert 0 < len(partition.side) < len(SLOTS)
            assert set(partition.side) <= set(SLOTS)
        for cut in drawn.cuts:
            assert cut.source != cut.destination
        assert all(0 <= crash.progress < 1 for crash in drawn.crashes)
        assert all(rejoin.at >= SECOND // 2 for rejoin in drawn.rejoins)


def test_some_crashes_are_drawn_into_the_view_change_of_another() -> None:
    gaps = [
        late.at - early.at
        for seed in range(100)
        for early, late in zip(plan(seed, EVERYTHING).crashes, plan(seed, EVERYTHING).crashes[1:], strict=False)
    ]
    close_behind = [gap for gap in gaps if SUSPECT_AFTER <= gap < SUSPECT_AFTER + 40 * MILLISECOND]
    assert len(close_behind) > len(gaps) / 3


def test_link_cuts_are_drawn_from_the_seed_for_single_links_and_whole_sites() -> None:
    faults = Faults(link_cuts=3, site_cuts=2)

    def cuts(seed: int) -> tuple[LinkCut, ...]:
        return draw_link_cuts(Random(seed), faults, range(4), [(0, 1), (2, 3)], SECOND)

    assert cuts(1) == cuts(1) != cuts(2)
    for seed in range(20):
        assert all(cut.links in {(0,), (1,), (2,), (3,)} for cut in cuts(seed)[:3])
        assert all(cut.links in {(0, 1), (2, 3)} for cut in cuts(seed)[3:])
    assert draw_link_cuts(Random(1), faults, [], [], SECOND) == ()


# The nemesis


def test_every_process_that_a_plan_names_goes_quorum_or_not() -> None:
    at_once = tuple(Crash(100 * MILLISECOND, slot, 0.5) for slot in range(5))
    group = FaultyGroup(5, FaultPlan(crashes=at_once))
    group.play(110 * MILLISECOND)
    assert group.doomed_or_dead() == [0, 1, 2, 3, 4]


def test_a_second_process_goes_while_the_first_is_being_replaced() -> None:
    close = (Crash(MILLISECOND, 1, 0.5), Crash(MILLISECOND + SUSPECT_AFTER, 0, 0.5))
    group = FaultyGroup(3, FaultPlan(crashes=close), chatter=10 * MILLISECOND)
    group.play(2 * SECOND)
    assert (group.doomed_or_dead(), group.sometimes["crash"]) == ([0, 1], 2)


def test_who_is_cut_off_may_crash_as_well() -> None:
    partition = Partition(MILLISECOND, SECOND, (3, 4))
    crashes = tuple(Crash(10 * MILLISECOND, slot, 0.5) for slot in (1, 3))
    group = FaultyGroup(5, FaultPlan(partitions=(partition,), crashes=crashes))
    group.play(20 * MILLISECOND)
    assert group.doomed_or_dead() == [1, 3]


def test_what_is_dead_already_cannot_be_hurt() -> None:
    twice = FaultPlan(
        crashes=(Crash(MILLISECOND, 1, 0.5), Crash(SECOND, 1, 0.5)),
        slow=(Slow(SECOND, 2 * SECOND, 1, MILLISECOND),),
        leaves=(Leave(SECOND, 1),),
    )
    group = FaultyGroup(5, twice, chatter=10 * MILLISECOND)
    group.play(2 * SECOND)
    assert (group.sometimes["crash"], group.sometimes["slow"], group.sometimes["leave"]) == (1, 0, 0)


def test_a_partition_separates_the_sides_both_ways_until_it_is_over() -> None:
    group = FaultyGroup(5, FaultPlan(partitions=(Partition(MILLISECOND, SECOND, (3, 4)),)))
    group.play(MILLISECOND)
    assert group.cut_lines() == {(a, b) for a in (0, 1, 2) for b in (3, 4)} | {
        (b, a) for a in (0, 1, 2) for b in (3, 4)
    }
    group.play(SECOND)
    assert group.cut_lines() == set()


def test_a_cut_is_one_way() -> None:
    group = FaultyGroup(5, FaultPlan(cuts=(Cut(MILLISECOND, SECOND, 2, 4),)))
    group.play(MILLISECOND)
    assert group.cut_lines() == {(2, 4)}


def test_a_slow_process_is_quick_again_when_the_fault_is_over() -> None:
    group = FaultyGroup(5, FaultPlan(slow=(Slow(MILLISECOND, SECOND, 2, 5 * MILLISECOND),)))
    group.play(MILLISECOND)
    assert group.world.hosts[2].pause == 5 * MILLISECOND
    group.play(SECOND)
    assert group.world.hosts[2].pause == 0


def test_a_process_that_leaves_is_gone_in_good_order_and_another_may_take_its_place() -> None:
    plan = FaultPlan(leaves=(Leave(MILLISECOND, 2),), rejoins=(Rejoin(SECOND, 0),))
    group = FaultyGroup(5, plan)
    group.play(SECOND - 1)
    assert group.doomed_or_dead() == [2]
    group.play(SECOND)
    # The plan names slot 0, where somebody lives; the first empty one from there on is taken.
    assert group.revived == [2]


def test_nobody_is_revived_where_everybody_lives() -> None:
    group = FaultyGroup(5, FaultPlan(rejoins=(Rejoin(MILLISECOND, 3),)))
    group.play(SECOND)
    assert group.revived == []


def test_healing_ends_every_fault_under_way_and_every_one_to_come() -> None:
    plan = FaultPlan(
        crashes=(Crash(3 * MILLISECOND, 1, 0.5),),
        partitions=(Partition(MILLISECOND, SECOND, (3, 4)), Partition(3 * MILLISECOND, SECOND, (0,))),
        slow=(Slow(MILLISECOND, SECOND, 2, 5 * MILLISECOND),),
    )
    group = FaultyGroup(5, plan)
    group.play(2 * MILLISECOND)
    assert group.cut_lines()
    group.nemesis.heal()
    assert (group.cut_lines(), group.world.hosts[2].pause) == (set(), 0)
    group.play(2 * SECOND)
    assert (group.cut_lines(), group.doomed_or_dead()) == (set(), [])
