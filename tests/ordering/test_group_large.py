"""A group in which not everybody speaks to everybody keeps every promise, finds the dead as soon, and rests."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from group_network import HEARTBEAT, SETTINGS, SUSPECT_AFTER, Network, kept, texts
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from isthmus.core.ids import MILLISECOND, SECOND, incarnation_of
from isthmus.core.message import Batch
from isthmus.core.wire.group import Ack, Ask, Present, Safe, Stable, Status
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import WATCHERS
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

LARGE = 24
BY_HAND = replace(SETTINGS, auto_confirm=False)
STABLE_WITHIN = 2 * HEARTBEAT
IN_VAIN = SUSPECT_AFTER + HEARTBEAT
"""From a crash to the view without the victims, at the latest: the silence that is borne, up to the next heartbeat."""


def at_rest(size: int = LARGE, settings_: object = SETTINGS, **options: object) -> Network:
    network = Network(size, settings=settings_, **options)  # type: ignore[arg-type]
    network.pass_time(4 * HEARTBEAT)
    return network


def words_per_heartbeat(network: Network, heartbeats: int = 5) -> Counter[str]:
    """What is said in so many heartbeats, by kind and on the average."""
    said: Counter[str] = Counter()
    network.pass_time(
        heartbeats * HEARTBEAT, every=lambda: said.update(type(each.pdu).__name__ for each in network.under_way)
    )
    return Counter({kind: count // heartbeats for kind, count in said.items()})


def survivors_go_on(network: Network, victims: set[int]) -> bool:
    others = tuple(member for member in network.founders if member not in victims)
    return all(network.views(member)[-1:] == [others] for member in others)


def time_to_go_on(network: Network, victims: set[int]) -> int:
    """How long the others take to be in a view without these, after they crash."""
    network.crash(*victims)
    crashed = network.now
    while not survivors_go_on(network, victims):
        network.pass_time(MILLISECOND)
        assert network.now < crashed + 10 * SUSPECT_AFTER, "the others do not go on"
    return network.now - crashed


# Rest


@pytest.mark.parametrize("size", [16, 32, 64])
def test_a_quiet_group_says_only_so_much_per_member(size: int) -> None:
    assert words_per_heartbeat(at_rest(size)) == {"Status": WATCHERS * size}


def test_a_small_group_speaks_to_everybody() -> None:
    assert words_per_heartbeat(at_rest(9)) == {"Status": 9 * 8}


def test_what_is_said_at_rest_does_not_grow_with_the_group() -> None:
    network = at_rest(64)
    network.wake(1)
    for each in network.under_way:
        assert isinstance(each.pdu, Status)
        assert not each.pdu.confirmed


def test_a_group_that_was_busy_rests_again() -> None:
    network = at_rest()
    for member in network.founders:
        network.broadcast(member, "m")
    network.pass_time(4 * HEARTBEAT)
    assert words_per_heartbeat(network) == {"Status": WATCHERS * LARGE}


# Signs of life


@pytest.mark.parametrize("size", [4, LARGE])
def test_a_crash_takes_as_long_to_find_in_a_large_group(size: int) -> None:
    for victim in (1, 2, 3, size):
        assert time_to_go_on(at_rest(size), {victim}) == SUSPECT_AFTER


@pytest.mark.parametrize(
    "victims",
    [
        {1, 2, 3, 4},
        {10, 11, 12, 13},
        set(range(5, 16)),
        {*range(20, 25), *range(1, 7)},
        {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21},
    ],
    ids=["the first and its watchers", "one and its watchers", "a long row", "a row round the end", "every other"],
)
def test_watchers_that_crash_with_the_watched_are_no_delay(victims: set[int]) -> None:
    assert time_to_go_on(at_rest(), victims) == SUSPECT_AFTER


@given(
    victims=st.sets(st.integers(1, LARGE), min_size=1, max_size=11), phases=st.lists(st.integers(0, 19), min_size=24)
)
@settings(max_examples=12, deadline=None)
@example(victims=set(range(1, 12)), phases=list(range(24)))
@example(victims=set(range(4, 15)), phases=[(7 * each) % 20 for each in range(24)])
def test_whoever_crashes_is_found_in_time(victims: set[int], phases: list[int]) -> None:
    """Heartbeats of different members at different times."""
    network = Network(LARGE)
    for member, phase in zip(network.founders, phases, strict=False):
        begins = phase * MILLISECOND
        network.members[member] = GroupMember(member, network.founders, CausalOrder, SETTINGS, begins)
    network.pass_time(6 * HEARTBEAT)
    assert time_to_go_on(network, victims) <= IN_VAIN + MILLISECOND


def test_one_that_is_only_slow_to_answer_is_not_suspected_with_the_others() -> None:
    """p9 stands before a row that crashed. It is asked, answers once, and its next answers are lost for a while."""
    network = at_rest()
    network.crash(10, 11, 12)
    network.pass_time(SUSPECT_AFTER // 2 + HEARTBEAT)
    network.cut_line(9, 13)
    network.pass_time(SUSPECT_AFTER)
    assert network.views(1)[0] == tuple(member for member in network.founders if member not in {10, 11, 12})


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])
@pytest.mark.parametrize("first_side", [set(range(1, 12)), set(range(1, 24, 2)) - {23}, set(range(8, 19))])
def test_only_the_larger_side_of_a_partition_goes_on(order: type, first_side: set[int]) -> None:
    network = at_rest(order=order)
    smaller, larger = first_side, set(network.founders) - first_side
    for near in smaller:
        for far in larger:
            network.cut |= {(near, far), (far, near)}
    network.pass_time(IN_VAIN)
    for member in larger:
        assert network.views(member) == [tuple(sorted(larger))]
    network.broadcast(min(smaller), "lost")
    network.broadcast(max(larger), "kept")
    network.pass_time(4 * SUSPECT_AFTER)
    assert not any(network.views(member) for member in smaller)
    assert all(network.delivered(member) == [] for member in smaller)
    assert all(network.delivered(member) == ["kept"] for member in larger)
    network.mend()
    network.pass_time(2 * SUSPECT_AFTER)
    assert set(network.stopped) == smaller


def test_one_that_hears_nobody_is_itself_the_suspect() -> None:
    network = at_rest()
    for other in network.founders:
        network.cut_line(other, 7)
    network.pass_time(3 * SUSPECT_AFTER)
    assert network.views(1)[-1] == tuple(member for member in network.founders if member != 7)


def test_a_suspicion_that_is_not_repeated_is_forgotten() -> None:
    """p5 says that it does not hear p2, and is never heard of again here."""
    network = at_rest()
    network.inject(5, 20, Status(1, 0, 0, [], [], [2], 0))
    assert network[20].detector.suspects(network.now) == {2}
    assert 2 not in network[20].detector.suspects(network.now + SUSPECT_AFTER)


def test_a_line_that_is_cut_in_one_direction_keeps_no_message_from_becoming_stable() -> None:
    for source, destination in ((1, 20), (20, 1), (5, 20), (20, 5)):
        network = at_rest()
        network.cut_line(source, destination)
        network.broadcast(5, "m")
        network.pass_time(3 * SUSPECT_AFTER)
        assert all(network.delivered(member) == ["m"] for member in network.alive())
        assert all(not kept(network[member]) for member in network.alive())


def test_a_line_that_is_cut_in_one_direction_keeps_no_change_from_ending() -> None:
    network = at_rest()
    network.cut_line(20, 1)
    network.crash(10)
    network.pass_time(3 * SUSPECT_AFTER)
    others = tuple(member for member in network.founders if member not in {10, 20})
    assert all(network.views(member)[-1] == others for member in others)


def test_one_that_missed_the_decision_is_told_of_it() -> None:
    """Also if all that it speaks to have gone."""
    network = at_rest()
    network.crash(13, 14, 15)
    network.pass_time(SUSPECT_AFTER - HEARTBEAT)
    lost: list[int] = []
    network.pass_time(
        HEARTBEAT, every=lambda: lost.append(network.lose(to=12, where=lambda each: network[12].membership.blocked))
    )
    assert any(lost)
    network.pass_time(4 * HEARTBEAT)
    assert network.views(12) == network.views(1)
    assert len(network.views(1)[-1]) == LARGE - 3


def test_one_that_hears_a_later_view_says_where_it_is() -> None:
    """It may have nobody else left that would tell it of the decision."""
    network = at_rest()
    network.inject(11, 12, Status(2, 0, 0, [], [], [], 0))
    ((_, destination, said),) = network.under_way
    assert destination == 11
    assert isinstance(said, Status)
    assert said.view == 1


def test_who_no_longer_suspects_anybody_says_so_to_everybody_once() -> None:
    network = at_rest()
    network.now += SUSPECT_AFTER
    network.wake(10)
    network.lose()
    for member in (7, 8, 9):
        network.inject(member, 10, Status(1, 0, 0, [], [], [], 0))
    audiences = []
    for _ in range(2):
        network.now += HEARTBEAT
        network.wake(10)
        audiences.append({each.destination for each in network.sent(Status)})
        network.lose()
    assert audiences == [set(network.founders) - {10}, {11, 12, 13}]


def test_a_new_process_in_the_place_of_another_shows_that_this_one_is_gone() -> None:
    network = at_rest()
    network.crash(5)
    network.join(incarnation_of(5, 1))
    network.pass_time(4 * HEARTBEAT)
    others = [member for member in network.founders if member != 5]
    assert all(network.views(member) == [(*others, incarnation_of(5, 1))] for member in others)


# Stability


def test_word_that_a_batch_is_safe_is_repeated_when_it_was_lost() -> None:
    network = at_rest()
    network.broadcast(20, "m")
    network.carry(Batch)
    network.carry(Ack)
    assert network.lose(Safe, to=(7, 15)) == 2
    network.pass_time(3 * HEARTBEAT)
    assert network.delivered(7) == network.delivered(15) == ["m"]


def test_the_word_of_another_view_is_not_heard() -> None:
    network = at_rest(settings_=BY_HAND)
    network.broadcast(20, "m")
    network.carry_all()
    for member in network.founders[:-1]:
        network.confirm(member, 20, 1)
    for view in (0, 2):
        network.inject(1, 20, Stable(view, [1] * LARGE, []))
    assert network.stable[20] == []


def test_what_everybody_has_finished_with_is_stable_soon() -> None:
    network = at_rest()
    network.broadcast(20, "m")
    network.carry_all()
    network.pass_time(STABLE_WITHIN)
    assert texts(network.stable[20]) == ["m"]
    assert [kept(network[member]) for member in network.founders] == [0] * LARGE


@pytest.mark.parametrize("last", [1, 2, 13, LARGE])
def test_nothing_is_stable_before_every_member_has_finished_with_it(last: int) -> None:
    network = at_rest(settings_=BY_HAND)
    network.broadcast(20, "m")
    network.pass_time(STABLE_WITHIN)
    for member in network.founders:
        if member != last:
            network.confirm(member, 20, 1)
    network.pass_time(10 * HEARTBEAT)
    assert network.stable[20] == []
    assert [kept(network[member]) for member in network.founders] == [1] * LARGE
    network.confirm(last, 20, 1)
    network.pass_time(STABLE_WITHIN)
    assert texts(network.stable[20]) == ["m"]
    assert [kept(network[member]) for member in network.founders] == [0] * LARGE


def test_a_word_that_is_lost_is_said_again() -> None:
    network = at_rest()
    network.broadcast(20, "m")
    lost: list[int] = []
    network.pass_time(
        2 * HEARTBEAT, every=lambda: lost.append(network.lose(Stable, to=(7, 20)) if not any(lost) else 0)
    )
    assert any(lost)
    network.pass_time(2 * HEARTBEAT)
    assert texts(network.stable[20]) == ["m"]
    assert [kept(network[member]) for member in network.founders] == [0] * LARGE


def test_a_report_that_is_lost_is_made_again() -> None:
    network = at_rest()
    network.broadcast(20, "m")
    network.carry_all()
    lost: list[int] = []
    network.pass_time(HEARTBEAT, every=lambda: lost.append(network.lose(Status, source=9, to=1)))
    assert any(lost)
    assert network.stable[20] == []
    network.pass_time(2 * HEARTBEAT)
    assert texts(network.stable[20]) == ["m"]


def test_another_collects_when_the_collector_is_gone() -> None:
    """p1 has told only some what is stable."""
    network = at_rest()
    network.broadcast(20, "m")
    network.carry_all()
    told: list[int] = []
    network.pass_time(
        HEARTBEAT, every=lambda: told.append(network.lose(Stable, where=lambda each: each.destination > 12))
    )
    assert any(told)
    network.crash(1)
    network.pass_time(SUSPECT_AFTER + 4 * HEARTBEAT)
    assert texts(network.stable[20]) == ["m"]
    assert [kept(network[member]) for member in network.alive()] == [0] * (LARGE - 1)


def test_two_collectors_at_the_same_time_do_no_harm() -> None:
    """Half of the group believes that p1 is silent, for a while."""
    network = at_rest(settings_=BY_HAND)
    for member in network.founders[12:]:
        network.inject(5, member, Status(1, 0, 0, [], [], [1], 0))
    network.broadcast(20, "m")
    network.carry_all()
    for member in network.founders[:-1]:
        network.confirm(member, 20, 1)
    network.pass_time(4 * HEARTBEAT)
    assert network.stable[20] == []
    network.confirm(LARGE, 20, 1)
    network.pass_time(SUSPECT_AFTER)
    assert texts(network.stable[20]) == ["m"]


def test_the_messages_of_one_that_departed_become_stable() -> None:
    network = at_rest(settings_=BY_HAND)
    network.broadcast(20, "m")
    network.pass_time(STABLE_WITHIN)
    network.crash(20)
    network.pass_time(IN_VAIN)
    others = network.alive()
    for member in others[1:]:
        network.confirm(member, 20, 1)
    network.pass_time(4 * HEARTBEAT)
    assert [kept(network[member]) for member in others] == [1] * (LARGE - 1)
    network.confirm(others[0], 20, 1)
    network.pass_time(4 * HEARTBEAT)
    assert [kept(network[member]) for member in others] == [0] * (LARGE - 1)
    assert words_per_heartbeat(network) == {"Status": WATCHERS * (LARGE - 1)}


def test_the_window_moves_before_the_heartbeat_when_a_quarter_of_it_is_full() -> None:
    tight = replace(SETTINGS, window_messages=8, heartbeat=SECOND, suspect_after=10 * SECOND)
    network = Network(LARGE, settings=tight)
    network.pass_time(2 * SECOND)
    for number in range(40):
        network.broadcast(20, f"m{number}")
        network.carry_all()
    assert len(network.stable[20]) >= 32


def test_a_large_group_may_become_small_and_large_again() -> None:
    network = at_rest(10)
    network.broadcast(3, "before")
    network.crash(10)
    network.pass_time(IN_VAIN)
    network.broadcast(4, "small")
    network.pass_time(2 * HEARTBEAT)
    network.join(11)
    network.pass_time(4 * HEARTBEAT)
    network.broadcast(5, "large")
    network.pass_time(4 * HEARTBEAT)
    assert network.delivered(1) == ["before", "small", "large"]
    assert list(map(texts, (network.stable[3], network.stable[4], network.stable[5]))) == [
        ["before"],
        ["small"],
        ["large"],
    ]
    assert [kept(network[member]) for member in network.alive()] == [0] * 10
    assert network[11].all_have_arrived


# Founders


FOUNDING = replace(SETTINGS, start_within=SECOND)


def test_founders_suspect_nobody_until_the_collector_has_heard_all() -> None:
    network = Network(LARGE, settings=FOUNDING)
    lost: list[int] = []
    network.pass_time(3 * SUSPECT_AFTER, every=lambda: lost.append(network.lose(source=9)))
    assert not any(map(network.views, network.founders)), "p9 is late, and is waited for"
    network.pass_time(4 * HEARTBEAT)
    assert all(network[member].all_have_arrived for member in network.founders)
    assert time_to_go_on(network, {9}) == SUSPECT_AFTER


def test_that_somebody_has_seen_a_founder_does_not_make_the_system_whole() -> None:
    """The first connection of p9 to p1 takes long. Everybody knows that p9 is there, and nobody suspects it."""
    network = Network(LARGE, settings=replace(FOUNDING, start_within=60 * SECOND))
    lost: list[int] = []
    network.pass_time(6 * SUSPECT_AFTER, every=lambda: lost.append(network.lose(source=9, to=1)))
    assert any(lost)
    network.pass_time(2 * SUSPECT_AFTER)
    assert not any(map(network.views, network.founders))
    assert all(network[member].all_have_arrived for member in network.founders)


@pytest.mark.parametrize("missing", [{1}, {1, 2, 3, 4}, {5, 6, 7, 8, 9, 16, 17, 18, 19}])
def test_founders_that_never_come_are_noticed_when_a_quorum_has_waited(missing: set[int]) -> None:
    network = Network(LARGE, settings=FOUNDING)
    network.crash(*missing)
    network.pass_time(SECOND - HEARTBEAT)
    assert not any(map(network.views, network.founders))
    network.pass_time(5 * SUSPECT_AFTER)
    assert survivors_go_on(network, missing)


def test_who_is_told_that_founders_are_there_answers_if_it_knows_more() -> None:
    network = Network(LARGE, settings=FOUNDING)
    network.pass_time(4 * HEARTBEAT)
    network.inject(20, 3, Present(1, [20]))
    assert [(each.destination, each.pdu) for each in network.sent(Present)] == [
        (20, Present(1, list(network.founders)))
    ]


# Questions


def test_whoever_is_asked_answers() -> None:
    network = at_rest()
    network.inject(20, 3, Ask(1, counts=False))
    network.inject(20, 3, Ask(1, counts=True))
    answers = [each.pdu for each in network.sent(Status)]
    assert [len(each.confirmed) for each in answers] == [0, LARGE]
    assert {each.destination for each in network.under_way} == {20}


def test_nobody_is_asked_for_one_crash() -> None:
    network = at_rest()
    network.crash(9)
    asked: list[object] = []
    network.pass_time(IN_VAIN, every=lambda: asked.extend(network.sent(Ask)))
    assert survivors_go_on(network, {9})
    assert not asked


def test_all_views_and_messages_of_survivors_agree_when_watchers_crash_under_load() -> None:
    network = at_rest()
    for member in network.founders:
        network.broadcast(member, f"first of p{member}")
    network.carry(to=range(6, 25))
    network.crash(1, 2, 3, 4, 5)
    network.pass_time(IN_VAIN)
    for member in network.alive():
        network.broadcast(member, f"second of p{member}")
    network.pass_time(4 * HEARTBEAT)
    assert survivors_go_on(network, {1, 2, 3, 4, 5})
    assert len({frozenset(network.delivered(member)) for member in network.alive()}) == 1
    wanted = set(chain.from_iterable((f"first of p{member}", f"second of p{member}") for member in network.alive()))
    assert wanted <= set(network.delivered(24))
    assert [kept(network[member]) for member in network.alive()] == [0] * 19
