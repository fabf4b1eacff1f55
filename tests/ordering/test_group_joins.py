"""Who comes and who goes: processes that join a running group, leave it in good order, or come back as new ones."""

from __future__ import annotations

import pytest
from group_network import HEARTBEAT, SETTINGS, SUSPECT_AFTER, Network, kept

from isthmus.core.ids import SECOND, incarnation_of
from isthmus.core.message import MAX_MEMBERS, Batch
from isthmus.core.wire.group import (
    Accept,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    LeaveRequest,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Status,
)
from isthmus.ordering.group.membership import EXCLUDED
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

CHANGE = SUSPECT_AFTER + 10 * HEARTBEAT
NEWCOMER = 7

orders = pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])


# Joining


@orders
def test_a_joining_process_starts_behind_the_cut(order: type) -> None:
    network = Network(3, order)
    network.broadcast(1, "before")
    network.carry_all()
    network.pass_time(HEARTBEAT)
    network.join(NEWCOMER)
    network.pass_time(4 * HEARTBEAT)
    assert all(network.views(member)[-1] == (1, 2, 3, NEWCOMER) for member in network.members)
    network.broadcast(2, "after")
    network.broadcast(NEWCOMER, "hello")
    network.pass_time(2 * HEARTBEAT)
    assert sorted(network.delivered(NEWCOMER)) == ["after", "hello"]
    for member in (1, 2, 3):
        assert network.delivered(member)[0] == "before"
        assert sorted(network.delivered(member)[1:]) == ["after", "hello"]


def test_a_joining_process_waits_for_nothing_from_before_its_time() -> None:
    """An unstable message is still under way when p7 comes; it belongs to the old view and is none of p7's business."""
    network = Network(3)
    network.broadcast(1, "before")
    network.carry(Batch, to=2)
    network.lose(Batch)
    network.join(NEWCOMER)
    network.pass_time(4 * HEARTBEAT)
    assert network.delivered(3) == ["before"]
    assert network.delivered(NEWCOMER) == []
    network.broadcast(3, "after")
    network.carry_all()
    assert network.delivered(NEWCOMER) == ["after"]
    network.pass_time(4 * HEARTBEAT)
    assert network[1].unfinished() == network[3].unfinished() == 0


def test_what_a_joining_process_wants_to_say_waits_until_it_is_in() -> None:
    network = Network(2)
    network.join(NEWCOMER)
    network.broadcast(NEWCOMER, "impatient")
    assert not network.sent(Batch)
    network.pass_time(4 * HEARTBEAT)
    assert network.delivered(1) == network.delivered(2) == network.delivered(NEWCOMER) == ["impatient"]


def test_a_lost_welcome_is_repeated() -> None:
    network = Network(3)
    network.join(NEWCOMER)
    network.pass_time(2 * HEARTBEAT, every=lambda: network.lose(Install, to=NEWCOMER))
    assert NEWCOMER in network[1].view.members
    assert network.views(NEWCOMER) == []
    network.pass_time(2 * HEARTBEAT)
    assert network.views(NEWCOMER) == [(1, 2, 3, NEWCOMER)]


def test_what_is_missing_is_never_asked_of_one_that_has_just_come() -> None:
    """Everybody who is in the view says so, again and again; who has just come has nothing of the one before."""
    network = Network(4)
    newcomer = incarnation_of(4, 1)
    welcome = Install(1, Proposal([1, 2, 3, newcomer], [1, 2, 3, 4], [2, 0, 0, 0]))
    for source in (newcomer, 1, newcomer, 2, newcomer):
        network.inject(source, 3, welcome)
        network.now += SETTINGS.retry_after
    asked = [each.destination for each in network.sent(Fetch)]
    assert asked == [1, 1, 1, 2, 2]


def test_several_processes_join_at_once() -> None:
    network = Network(1)
    for newcomer in (7, 8, 9):
        network.join(newcomer)
    network.pass_time(4 * HEARTBEAT)
    assert {network[member].view.members for member in network.members} == {(1, 7, 8, 9)}


def test_who_asks_for_another_is_not_heard() -> None:
    network = Network(2)
    network.inject(1, 2, JoinRequest(NEWCOMER))
    assert NEWCOMER not in network[2].membership.joiners


def test_a_request_that_is_not_repeated_is_forgotten() -> None:
    network = Network(5)
    network.inject(NEWCOMER, 5, JoinRequest(NEWCOMER))  # p5 does not coordinate, and nobody else has heard
    network.pass_time(SUSPECT_AFTER + HEARTBEAT)
    assert network[5].membership.joiners == {}


def test_a_process_that_came_back_replaces_its_former_self_at_once() -> None:
    """Nobody waits for the silence of p3 to become suspicious: p3+1 is proof that p3 is dead."""
    network = Network(3)
    network.crash(3)
    again = incarnation_of(3, 1)
    network.join(again)
    network.pass_time(4 * HEARTBEAT)
    assert network.views(1) == network.views(again) == [(1, 2, again)]


def test_nobody_is_in_a_view_together_with_its_former_self() -> None:
    """p3 promises and dies. p3+1 asks to be let in while p1, which lets p7 in, still waits for the promise of p2."""
    network = Network(3)
    network.inject(NEWCOMER, 1, JoinRequest(NEWCOMER))
    network.wake(1)
    network.carry(Prepare)
    network.carry(Promise, source=3)
    network.crash(3)
    again = incarnation_of(3, 1)
    network.join(again)
    network.inject(again, 1, JoinRequest(again))
    network.carry(Promise, source=2)
    network.pass_time(4 * HEARTBEAT)
    assert network.views(again), "it is let in"
    for view in (*network.views(1), *network.views(2), *network.views(again)):
        assert not {3, again} <= set(view), view


def test_the_request_of_a_former_self_does_not_drive_out_the_present_one() -> None:
    """A request to join may be late by any amount of time: longer than the process that made it lived."""
    network = Network(3)
    network.crash(3)
    present = incarnation_of(3, 2)
    network.join(present)
    network.pass_time(4 * HEARTBEAT)
    former = incarnation_of(3, 1)
    for member in (1, 2):
        network.inject(former, member, JoinRequest(former))
    network.pass_time(4 * HEARTBEAT)
    assert network.is_alive(present)
    assert network[1].view.members == (1, 2, present)


def test_a_process_that_keeps_crashing_while_it_joins_cannot_outvote_the_group() -> None:
    """Three lives of p3 ask within the patience of the group. Only the last may be let in: dead voters are voters."""
    network = Network(3)
    network.crash(3)
    network.crash(*(incarnation_of(3, life) for life in (1, 2, 3)))
    for life in (2, 1, 3):
        process = incarnation_of(3, life)
        for member in (1, 2):
            network.inject(process, member, JoinRequest(process))
    network.pass_time(4 * HEARTBEAT)
    assert network[1].view.members == (1, 2, incarnation_of(3, 3))
    network.pass_time(2 * CHANGE)
    assert network[1].view.members == (1, 2)


def test_the_number_of_those_who_want_to_join_is_bounded() -> None:
    network = Network(3)
    for stranger in range(100, 100 + MAX_MEMBERS):
        network.inject(stranger, 3, JoinRequest(stranger))
    assert len(network[3].membership.joiners) + 3 <= MAX_MEMBERS


def test_a_welcome_that_is_two_views_late_does_not_stall_the_group() -> None:
    """p7 was let in, fell silent before it knew, was excluded, and was let in again. The first welcome arrives first.

    In that old view it can never catch up, and while it lives there nothing becomes stable. It must find out.
    """
    network = Network(3)
    network.join(NEWCOMER)
    network.pass_time(2 * HEARTBEAT, every=lambda: network.lose(Install, to=NEWCOMER))
    first_welcome = network[1].membership.decision
    assert first_welcome is not None
    network.isolate(NEWCOMER)
    network.pass_time(CHANGE)
    assert network[1].view.members == (1, 2, 3)
    network.mend()
    network.pass_time(2 * HEARTBEAT, every=lambda: network.lose(Install, to=NEWCOMER))
    assert network[1].view.members == (1, 2, 3, NEWCOMER)
    network.inject(1, NEWCOMER, first_welcome)
    network.broadcast(1, "m")
    network.pass_time(2 * SECOND)
    assert network.stopped == {NEWCOMER: EXCLUDED}
    assert network[1].view.members == (1, 2, 3)
    assert network[1].unfinished() == 0


def test_traces_of_departed_members_do_not_pile_up() -> None:
    """A place whose process crashes and comes back again and again leaves nothing behind."""
    network = Network(3)
    for life in range(1, 30):
        former, present = incarnation_of(3, life - 1), incarnation_of(3, life)
        network.broadcast(former, "m")
        network.carry_all()
        if life % 2:
            network.pass_time(4 * HEARTBEAT)  # all that it said is stable, and it leaves nothing behind
        network.crash(former)
        network.join(present)
        network.pass_time(6 * HEARTBEAT)
        assert network[1].view.members == (1, 2, present)
    for member in (1, 2):
        assert kept(network[member]) == 0
        assert all(row.keys() == {1, 2, present} for row in network[member].stability.rows.values())


# Leaving


def test_leaving_waits_for_stability() -> None:
    settings = GroupSettings(auto_confirm=False)
    network = Network(3, settings=settings)
    network.broadcast(3, "m")
    network.carry_all()
    network.leave(3)
    network.confirm(1, 3, 1)
    network.confirm(3, 3, 1)
    network.pass_time(CHANGE)
    assert network.is_alive(3), "p2 has not finished with its message"
    assert not network[1].membership.leavers
    assert network[3].credit() == 0
    network.confirm(2, 3, 1)
    network.pass_time(CHANGE)
    assert network.stopped == {3: "left"}
    assert network.views(1) == network.views(2) == [(1, 2)]


@orders
@pytest.mark.parametrize("leaver", [1, 2, 4])
def test_a_process_leaves_and_the_others_go_on(order: type, leaver: int) -> None:
    network = Network(4, order)
    network.broadcast(leaver, "goodbye")
    network.leave(leaver)
    network.pass_time(CHANGE)
    assert network.stopped == {leaver: "left"}
    rest = [member for member in network.founders if member != leaver]
    for member in rest:
        network.broadcast(member, f"m{member}")
    network.pass_time(4 * HEARTBEAT)
    for member in rest:
        assert network.views(member) == [tuple(rest)]
        assert network.delivered(member)[0] == "goodbye"
        assert sorted(network.delivered(member)[1:]) == [f"m{each}" for each in rest]


def test_one_that_leaves_stays_until_those_who_remain_have_moved_on() -> None:
    network = Network(3)
    network.leave(1)
    network.now += HEARTBEAT
    network.wake(1)
    network.carry(Prepare)
    while not network.sent(Install):
        network.carry()
    network.lose(Install)
    assert network.is_alive(1), "nobody knows yet"
    assert network.views(2) == network.views(3) == []
    network.pass_time(3 * HEARTBEAT)
    assert network.stopped == {1: "left"}
    assert network.views(2) == network.views(3) == [(2, 3)]


def test_one_that_leaves_does_not_wait_for_the_dead() -> None:
    network = Network(3)
    network.leave(1)
    network.now += HEARTBEAT
    network.wake(1)
    while not network.sent(Install):
        network.carry()
    network.crash(2)
    network.lose(to=2)
    network.pass_time(3 * SUSPECT_AFTER)
    assert network.stopped == {1: "left"}


def test_all_members_may_leave_at_once() -> None:
    network = Network(3)
    for member in network.founders:
        network.broadcast(member, f"m{member}")
        network.leave(member)
    network.pass_time(SECOND)
    assert network.stopped == dict.fromkeys(network.founders, "left")
    assert {tuple(sorted(network.delivered(member))) for member in network.founders} == {("m1", "m2", "m3")}


def test_the_last_member_may_leave() -> None:
    network = Network(1)
    network.broadcast(1, "m")
    network.leave(1)
    network.pass_time(CHANGE)
    assert network.stopped == {1: "left"}


def test_one_that_was_never_let_in_may_go() -> None:
    network = Network(2)
    network.join(NEWCOMER)
    network.leave(NEWCOMER)
    assert network.stopped[NEWCOMER] != "left"


def test_a_leaver_that_is_excluded_with_messages_unsent_has_not_left() -> None:
    """`left` says that everything it accepted was seen through. p3 accepted a message that nobody will ever get."""
    network = Network(3)
    network.isolate(3)
    network.pass_time(SUSPECT_AFTER - HEARTBEAT)
    network.broadcast(3, "never arrives")
    network.leave(3)
    network.pass_time(CHANGE)
    assert network.views(1) == [(1, 2)]
    assert network.is_alive(3)
    decision = network[1].membership.decision
    assert decision is not None
    network.inject(1, 3, decision)
    network.pass_time(3 * SUSPECT_AFTER)
    assert network.delivered(1) == []
    assert network.stopped == {3: EXCLUDED}


def test_a_leaver_delivers_the_end_of_its_last_view_once() -> None:
    """p1 coordinates its own leave. An answer that arrives twice must not make it finish the view twice."""
    network = Network(4)
    network.broadcast(4, "m")
    network.carry(Batch, to=2)
    network.lose()
    network.leave(1)
    network.now += HEARTBEAT
    network.wake(1)
    while not network.sent(Accept):
        network.carry()
    (accept, *_) = network.sent(Accept)
    network.lose(Accept)
    network.inject(accept.source, 1, accept.pdu, accept.pdu, accept.pdu)
    assert network[1].membership.decision is None, "it is in no next view"
    network.pass_time(CHANGE)
    assert network.delivered(1) == ["m"]
    assert network.stopped == {1: "left"}


def test_a_leaver_that_is_told_twice_finishes_once() -> None:
    network = Network(4)
    network.broadcast(4, "m")
    network.carry(Batch, to=1)
    network.lose()
    network.leave(3)
    network.now += HEARTBEAT
    network.wake(3)
    network.carry(LeaveRequest)
    network.now += HEARTBEAT
    network.wake(1)
    while not network.sent(Install):
        network.carry()
    network.carry(Batch, to=3)
    (install, *_) = [each for each in network.sent(Install) if each.destination == 3]
    network.lose(to=3)
    network.inject(1, 3, install.pdu, install.pdu)
    network.pass_time(CHANGE)
    assert network.delivered(3) == ["m"]
    assert network.stopped == {3: "left"}


def test_one_that_asked_to_leave_has_left_even_if_it_misses_the_decision() -> None:
    """It owes nobody anything any more, so being told that the others have gone on is all it needs to know."""
    network = Network(3)
    network.leave(3)
    network.pass_time(4 * HEARTBEAT, every=lambda: network.lose(Install, to=3))
    assert network.views(1) == [(1, 2)]
    network.pass_time(HEARTBEAT)
    assert network.stopped == {3: "left"}


@pytest.mark.parametrize("uniform", [True, False])
def test_one_that_has_left_sends_and_delivers_nothing_more_while_it_lingers(uniform: bool) -> None:
    network = Network(3, settings=GroupSettings(uniform=uniform))
    network.leave(3)
    network.now += HEARTBEAT
    network.wake(3)
    network.carry(LeaveRequest)
    proposal = Proposal([1, 2], [1, 2, 3], [0, 0, 0])
    network.inject(1, 3, Install(1, proposal))
    assert network.is_alive(3), "it lingers"
    network.lose()
    network.broadcast(3, "too late")
    assert not network.sent(Batch)
    assert network.delivered(3) == []


def test_a_proposal_that_leaves_out_the_coordinator_is_carried_through() -> None:
    """p1 proposed to go on without p2, others accepted, p1 died. p2 takes over, and must decide its own exclusion."""
    network = Network(5)
    proposal = Proposal([1, 3, 4, 5], [1, 2, 3, 4, 5], [0, 0, 0, 0, 0])
    for member in (3, 4):
        network.inject(1, member, Propose(1, MAX_MEMBERS, proposal))
    network.lose()
    network.crash(1)
    network.pass_time(2 * SECOND)
    assert network.stopped == {2: EXCLUDED}
    assert network.views(3) == network.views(4) == network.views(5) == [(1, 3, 4, 5), (3, 4, 5)]


def test_word_to_one_that_is_behind_depends_on_whether_it_belongs() -> None:
    network = Network(3, settings=SETTINGS)
    network.crash(3)
    network.pass_time(CHANGE)
    network.lose()
    old = Status(1, 0, 0, [0, 0, 0], [], [], 0)
    network.inject(2, 1, old)
    network.inject(3, 1, old)
    answers = {each.destination: type(each.pdu) for each in network.under_way}
    assert answers == {2: Install, 3: Excluded}
