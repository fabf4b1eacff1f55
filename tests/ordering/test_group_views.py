"""Views: what a group promises when processes crash, fall silent, or are taken for dead."""

from __future__ import annotations

import pytest
from group_network import HEARTBEAT, SUSPECT_AFTER, Network, kept

from isthmus.core.endpoint import View
from isthmus.core.ids import SECOND
from isthmus.core.message import MAX_MEMBERS, Batch
from isthmus.core.segment import EMPTY
from isthmus.core.wire.group import (
    Accept,
    Ack,
    Busy,
    Excluded,
    Fetch,
    Install,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Safe,
    Status,
)
from isthmus.ordering.group.membership import EXCLUDED
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

CHANGE = SUSPECT_AFTER + 10 * HEARTBEAT
"""Long enough to suspect somebody and go on without him."""


def until_suspicion(network: Network) -> None:
    """Let time pass until just before the silence of whoever is dead becomes suspicious."""
    network.pass_time(SUSPECT_AFTER - HEARTBEAT)


def run_until_sent(network: Network, kind: type) -> None:
    """Heartbeat by heartbeat and hop by hop, until PDUs of a kind are under way (and nothing else is)."""
    for _ in range(40):
        network.now += HEARTBEAT
        for member in network.alive():
            network.wake(member)
        for _ in range(10):
            if network.sent(kind):
                network.carry(where=lambda each: not isinstance(each.pdu, kind))
                return
            network.carry()
    raise AssertionError(f"nobody ever sent a {kind.__name__}")


# Agreement


def test_the_survivors_of_a_crash_go_on_together() -> None:
    network = Network(3)
    network.broadcast(3, "last words")
    network.carry_all()
    network.crash(3)
    network.pass_time(CHANGE)
    assert network.views(1) == network.views(2) == [(1, 2)]
    network.broadcast(1, "after")
    network.carry_all()
    assert network.delivered(1) == network.delivered(2) == ["last words", "after"]


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])
def test_what_one_survivor_holds_all_survivors_deliver(order: type) -> None:
    """A sender dies inside its multicast: only p4 has the batch."""
    network = Network(5, order)
    network.broadcast(5, "m")
    network.carry(to=4)
    network.crash(5)
    network.lose(source=5)
    network.pass_time(CHANGE)
    for member in (1, 2, 3, 4):
        assert network.views(member) == [(1, 2, 3, 4)]
        assert network.delivered(member) == ["m"]


def test_what_died_with_its_only_holders_is_delivered_by_nobody() -> None:
    network = Network(5)
    network.broadcast(5, "m")
    network.carry(Batch, to=4)
    network.crash(4, 5)
    network.lose()
    network.pass_time(CHANGE)
    assert [network.delivered(member) for member in (1, 2, 3)] == [[], [], []]
    assert network.views(1) == [(1, 2, 3)]


def test_what_a_crashed_process_delivered_is_delivered_by_everybody() -> None:
    """Uniform agreement: p1 delivers its own message on the word of p2 and p3, and dies with all it wanted to say."""
    network = Network(5)
    network.broadcast(1, "m")
    network.carry(Batch, to=(2, 3))
    network.carry(Ack)
    assert network.delivered(1) == ["m"]
    network.crash(1)
    network.lose()
    network.pass_time(CHANGE)
    for member in (2, 3, 4, 5):
        assert network.delivered(member) == ["m"]


def test_the_messages_of_those_who_stay_survive_every_change() -> None:
    network = Network(3)
    network.crash(3)
    run_until_sent(network, Promise)
    assert network[1].membership.blocked
    network.broadcast(1, "sent during the change")
    network.broadcast(2, "also")
    assert not network.sent(Batch), "nothing goes out while the view ends"
    network.pass_time(CHANGE)
    for member in (1, 2):
        assert sorted(network.delivered_since_view(member, 2)) == ["also", "sent during the change"]


def test_two_processes_that_change_views_together_delivered_the_same_before() -> None:
    """Virtual synchrony: at the change p2 lacks what p3 has, and p3 what p2 has."""
    network = Network(4, FifoOrder)
    network.broadcast(4, "a")
    network.carry(Batch, to=2)
    network.lose(Batch, to=3)
    network.broadcast(1, "b")
    network.carry(Batch, to=3)
    network.lose()
    network.crash(4)
    network.pass_time(CHANGE)
    before = []
    for member in (1, 2, 3):
        history = network.history[member]
        first_view = next(index for index, item in enumerate(history) if isinstance(item, View))
        before.append({(item.sender, item.number) for item in history[:first_view] if isinstance(item, Batch)})
    assert before == [{(4, 1), (1, 1)}] * 3


def test_the_leftovers_of_a_view_come_in_one_order() -> None:
    """Total order: the sequencer dies with batches unplaced; all survivors order them alike."""
    network = Network(5, TotalOrder)
    for member in (5, 4, 3, 2):
        network.broadcast(member, f"m{member}")
    network.crash(1)
    network.carry(Batch, to=(3, 5))
    network.lose(Batch)
    network.pass_time(CHANGE)
    orders = {tuple(network.delivered(member)) for member in (2, 3, 4, 5)}
    assert orders == {("m2", "m3", "m4", "m5")}


# Promises


def test_a_member_that_promised_delivers_nothing_until_it_installs() -> None:
    network = Network(5)
    network.broadcast(2, "m")
    network.carry(Batch)
    network.carry(Ack)  # p2 knows that it is safe; nobody else does
    network.crash(5)
    network.under_way = [each for each in network.under_way if not isinstance(each.pdu, Safe)]
    run_until_sent_without_safe(network)
    assert network[3].membership.blocked
    before = network.delivered(3)
    network.inject(2, 3, Safe(1, 1))
    network.inject(2, 3, Status(1, 1, 1, [0] * 5, [], [], 0))
    assert network.delivered(3) == before == []
    network.pass_time(CHANGE)
    assert network.delivered(3) == ["m"]


def run_until_sent_without_safe(network: Network) -> None:
    """As `run_until_sent` for `Promise`, in a network that loses all word of what is safe: it rides on heartbeats."""
    for _ in range(20):
        network.now += HEARTBEAT
        for member in network.alive():
            network.wake(member)
        # Heartbeats of p2 would tell. Everybody else's keep everybody from being suspected.
        network.lose(Status, source=2, where=lambda each: each.destination == 3)
        network.inject(2, 3)  # it hears p2, and not a word from it
        network.carry(Status)
        network.carry(Prepare)
        if network.sent(Promise):
            return
        network.lose(Ack)
        network.lose(Safe)
    raise AssertionError("nobody promised anything")


def test_a_member_that_promised_acknowledges_nothing() -> None:
    network = Network(3)
    network.crash(3)
    run_until_sent(network, Promise)
    late = Batch(1, 1, 1, [0, 0, 0], 0, EMPTY)
    network.inject(1, 2, late)
    assert not network.sent(Ack)
    assert network[2].received() == [1, 0, 0], "but it keeps what comes: it may belong to the view"


def test_a_coordinator_that_dies_after_proposing_does_not_change_the_decision() -> None:
    """p1 and p3 accepted that p4 and p5 go: a quorum did, so nobody may decide otherwise. p1 dies before it says so.

    p2, which knows nothing of that proposal and hears from p4 and p5 again, takes it over from p3's promise.
    """
    network = Network(5)
    network.isolate(4)
    network.isolate(5)
    run_until_sent(network, Propose)
    first = network.sent(Propose)[0].pdu
    assert isinstance(first, Propose)
    assert first.proposal.members == [1, 2, 3]
    network.carry(Propose, to=3)
    network.crash(1)
    network.lose()
    network.mend()
    network.pass_time(2 * CHANGE)
    assert network.views(2)[0] == network.views(3)[0] == (1, 2, 3), "as decided, although p1 is dead by now"
    assert network.views(2)[-1] == network.views(3)[-1] == (2, 3)
    assert network.stopped == {4: EXCLUDED, 5: EXCLUDED}


def test_a_coordinator_that_dies_before_anybody_accepted_binds_nobody() -> None:
    network = Network(5)
    network.isolate(5)
    run_until_sent(network, Propose)
    (proposal, *_) = {str(each.pdu.proposal.members) for each in network.sent(Propose) if isinstance(each.pdu, Propose)}
    assert proposal == "[1, 2, 3, 4]"
    network.crash(1)
    network.lose()
    network.pass_time(2 * CHANGE)
    assert network.views(2) == network.views(3) == network.views(4) == [(2, 3, 4)]


def test_a_coordinator_that_dies_half_way_through_telling_is_no_special_case() -> None:
    """Only p2 has heard the decision; the others hear it from p2."""
    network = Network(4)
    network.broadcast(4, "m")
    network.carry(Batch, to=2)
    network.lose(Batch)
    network.crash(4)
    run_until_sent(network, Install)
    network.carry(Install, to=2)
    network.crash(1)
    network.lose()
    network.pass_time(2 * CHANGE)
    assert network.views(2) == network.views(3) == [(1, 2, 3), (2, 3)]
    assert network.delivered(2) == network.delivered(3) == ["m"]


def test_two_coordinators_at_once_end_in_one_view() -> None:
    """p1 and p2 do not hear each other; everybody else hears both."""
    network = Network(5)
    network.cut |= {(1, 2), (2, 1)}
    network.pass_time(SECOND)
    network.mend()
    network.pass_time(SECOND)
    alive = network.alive()
    assert len(alive) == 4
    assert {network[member].view for member in alive} == {network[alive[0]].view}
    assert set(network[alive[0]].view.members) == set(alive)


def a_change_under_way() -> tuple[Network, int]:
    """p1 of five has asked for promises, and none has come back yet."""
    network = Network(5)
    network.crash(5)
    run_until_sent(network, Prepare)
    attempt = network[1].membership.attempt
    assert attempt is not None
    return network, attempt.ballot


def test_a_coordinator_that_promised_a_higher_ballot_gives_up_its_own() -> None:
    """Otherwise it would accept its own proposal under a ballot that it has promised not to accept any more."""
    network, ballot = a_change_under_way()
    network.carry(Prepare)
    network.inject(2, 1, Prepare(1, ballot + MAX_MEMBERS))
    network.carry(Promise, to=1)
    assert not network.sent(Propose)
    assert network[1].membership.accepted is None


def test_a_member_that_promised_a_higher_ballot_accepts_no_lower_one() -> None:
    network, ballot = a_change_under_way()
    network.carry(Prepare, to=3)
    network.inject(2, 3, Prepare(1, ballot + MAX_MEMBERS))
    network.lose()
    network.inject(1, 3, Propose(1, ballot, Proposal([1, 2, 3, 4], [1, 2, 3, 4, 5], [0] * 5)))
    assert [type(each.pdu) for each in network.under_way] == [Busy]


def test_a_proposal_that_waits_for_batches_is_void_once_a_higher_ballot_is_promised() -> None:
    """The last batch that the old proposal waited for arrives after the new promise, and must not make it accepted."""
    network, ballot = a_change_under_way()
    network.carry(Prepare, to=3)
    network.inject(1, 3, Propose(1, ballot, Proposal([1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 0, 0, 0, 1])))
    assert network.sent(Fetch)
    network.inject(2, 3, Prepare(1, ballot + MAX_MEMBERS))
    network.inject(1, 3, Batch(1, 5, 1, [0] * 5, 0, EMPTY))
    assert not network.sent(Accept)
    assert network[3].membership.accepted is None


# The flush


def test_a_member_accepts_only_when_it_holds_everything_up_to_the_cut() -> None:
    network = Network(4)
    network.broadcast(4, "m")
    network.carry(Batch, to=1)
    network.lose(Batch)
    network.crash(4)
    network.lose()
    run_until_sent(network, Propose)
    network.carry(Propose, to=2)
    assert not network.sent(Accept)
    assert [each.pdu for each in network.sent(Fetch)] == [Fetch(1, 4, 1, 1, 0)]
    network.carry(Fetch)
    network.carry(Batch, to=2)
    assert len(network.sent(Accept)) == 1


def test_the_coordinator_fetches_what_only_others_hold() -> None:
    network = Network(4)
    network.broadcast(4, "a")
    network.broadcast(4, "b")
    network.carry(Batch, to=3)
    network.lose()
    network.crash(4)
    run_until_sent(network, Fetch)
    assert [(each.destination, each.pdu) for each in network.sent(Fetch)] == [(3, Fetch(1, 4, 1, 2, 0))]
    assert not network.sent(Propose)
    network.pass_time(CHANGE)
    assert network.delivered(1) == network.delivered(2) == network.delivered(3) == ["a", "b"]


def test_one_that_is_behind_asks_once_for_what_it_lacks_however_many_tell_it() -> None:
    """All who have moved on answer its heartbeats. Were each answer a reason to ask, each would send everything."""
    network = Network(5, FifoOrder)
    network.broadcast(5, "m")
    network.carry(Batch, to=1)
    network.lose()
    network.crash(5)
    for member in (1, 2, 3):
        network.cut_line(member, 4)
    network.pass_time(SUSPECT_AFTER - 2 * HEARTBEAT)
    network.mend()
    decision = Install(1, Proposal([1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 0, 0, 0, 1]))
    for member in (1, 2, 3):
        network.inject(member, 4, decision)
    assert [each.destination for each in network.sent(Fetch)] == [1]
    network.lose()
    for _ in range(2):
        network.now += HEARTBEAT
        network.wake(4)
    assert [each.destination for each in network.sent(Fetch)] == [3], (
        "it asks again after a while, whoever told it last"
    )


def test_what_was_fetched_is_sent_again_only_if_it_is_lost() -> None:
    network = Network(2)
    network.broadcast(1, "m")
    network.lose()
    for heard, copies in ((0, 1), (0, 0), (1, 1), (1, 0), (2, 1)):
        network.inject(2, 1, Fetch(1, 1, 1, 1, heard))
        assert len(network.sent(Batch)) == copies, "sent again to who has heard a heartbeat that left after the last"
        network.lose()


def test_one_that_missed_a_decision_says_so_to_a_newcomer_that_has_it() -> None:
    """Of those who decided nobody may be left. The newcomer in the place of one of them tells it."""
    network = Network(3)
    newcomer = 1 << 16 | 3
    network.inject(newcomer, 2, Status(2, 0, 0, [0, 0, 0], [], [], 0))
    assert [(each.destination, each.pdu.view) for each in network.sent(Status) if isinstance(each.pdu, Status)] == [
        (newcomer, 1)
    ]


def test_what_lies_beyond_the_cut_is_gone_for_good() -> None:
    """p3 gets a batch of the dead p4 after it promised; the cut is decided without it."""
    network = Network(4)
    network.broadcast(4, "m")
    late = network.under_way[0].pdu
    network.lose()
    network.crash(4)
    run_until_sent(network, Propose)
    network.inject(4, 3, late)
    network.pass_time(CHANGE)
    assert network.views(3) == [(1, 2, 3)]
    assert [network.delivered(member) for member in (1, 2, 3)] == [[], [], []]
    network.inject(4, 3, late)
    assert network.delivered(3) == []


def test_a_batch_of_another_view_is_ignored() -> None:
    network = Network(3)
    network.crash(3)
    network.pass_time(CHANGE)
    network.inject(1, 2, Batch(1, 1, 1, [0, 0], 0, EMPTY), Batch(3, 1, 1, [0, 0], 0, EMPTY))
    assert network[2].received() == [0, 0]


# Exclusion


def test_an_excluded_process_stops() -> None:
    network = Network(3)
    network.isolate(3)
    network.pass_time(CHANGE)
    assert network.views(1) == network.views(2) == [(1, 2)]
    assert network.is_alive(3)
    assert network.views(3) == []
    network.mend()
    network.pass_time(HEARTBEAT)
    assert network.stopped == {3: EXCLUDED}
    assert network[3].credit() == 0
    assert network[3].deadline() is None
    network.broadcast(3, "nobody hears this")
    assert not [each for each in network.under_way if each.source == 3]


def test_a_minority_delivers_nothing_new_and_forms_no_view() -> None:
    network = Network(5)
    for member in (1, 2):
        for other in (3, 4, 5):
            network.cut |= {(member, other), (other, member)}
    network.broadcast(1, "from the minority")
    network.broadcast(3, "from the majority")
    network.pass_time(2 * CHANGE)
    assert network.views(1) == network.views(2) == []
    assert network.delivered(1) == network.delivered(2) == []
    for member in (3, 4, 5):
        assert network.views(member) == [(3, 4, 5)]
        assert network.delivered(member) == ["from the majority"]


def test_of_two_halves_the_one_with_the_first_member_goes_on() -> None:
    network = Network(4)
    for member in (1, 2):
        for other in (3, 4):
            network.cut |= {(member, other), (other, member)}
    network.pass_time(2 * CHANGE)
    assert network.views(1) == network.views(2) == [(1, 2)]
    assert network.views(3) == network.views(4) == []


def test_a_process_that_returns_after_several_views_stops_all_the_same() -> None:
    network = Network(5)
    network.isolate(5)
    network.pass_time(CHANGE)
    network.crash(4)
    network.pass_time(CHANGE)
    assert network[1].view == View(3, (1, 2, 3))
    network.mend()
    network.pass_time(2 * HEARTBEAT)
    assert network.stopped == {5: EXCLUDED}


def test_word_of_an_earlier_exclusion_does_not_stop_a_member() -> None:
    network = Network(3)
    network.inject(2, 1, Excluded(1))
    assert network.is_alive(1)


# Progress


def test_a_process_that_hears_nobody_does_not_stop_the_others() -> None:
    """p4 is deaf: everybody hears it, and hears from it that everybody is silent. The others must go on without it."""
    network = Network(4)
    network.cut |= {(1, 4), (2, 4), (3, 4)}
    network.pass_time(2 * CHANGE)
    network.broadcast(1, "m")
    network.pass_time(CHANGE)
    for member in (1, 2, 3):
        assert network.views(member) == [(1, 2, 3)]
        assert network.delivered(member) == ["m"]
        assert network[member].unfinished() == 0


def test_one_deaf_ear_does_not_stop_a_pair() -> None:
    """Of two, the first is a quorum by itself: it need not wait for one that cannot hear it."""
    network = Network(2)
    network.cut_line(1, 2)
    network.pass_time(2 * CHANGE)
    network.broadcast(1, "m")
    network.pass_time(CHANGE)
    assert network.delivered(1) == ["m"]
    assert network[1].unfinished() == 0


@pytest.mark.parametrize("lines", [[(1, 3)], [(3, 1)], [(1, 2)], [(2, 1)], [(2, 3)], [(3, 2)]])
def test_one_line_that_is_cut_for_good_costs_one_member_at_most(lines: list[tuple[int, int]]) -> None:
    network = Network(3)
    network.cut |= set(lines)
    network.pass_time(3 * SECOND)
    sender = network.views(2)[-1][0] if network.views(2) and network.is_alive(2) else 1
    network.broadcast(sender, "m")
    network.pass_time(SECOND)
    served = [member for member in network.members if network.delivered(member) == ["m"]]
    assert len(served) >= 2
    assert network[sender].unfinished() == 0


def test_a_change_is_finished_by_others_when_whoever_began_it_is_gone() -> None:
    """p1 makes everybody promise and dies: nobody may stay blocked."""
    network = Network(3)
    network.crash(3)
    run_until_sent(network, Promise)
    network.crash(1)
    network.lose()
    assert network[2].membership.blocked
    # One of three is no quorum: p2 waits. A group that loses its quorum at one blow never splits.
    network.pass_time(4 * CHANGE)
    assert network.views(2) == []

    network = Network(5)
    network.crash(5)
    run_until_sent(network, Promise)
    network.crash(1)
    network.lose()
    network.pass_time(4 * CHANGE)
    assert network.views(2) == network.views(3) == network.views(4)
    assert network.views(2)[-1] == (2, 3, 4)


@pytest.mark.parametrize("order", [FifoOrder, CausalOrder, TotalOrder])
def test_a_group_shrinks_one_by_one_to_a_single_process(order: type) -> None:
    network = Network(5, order)
    for last in (5, 4, 3, 2):
        network.broadcast(last, f"goodbye of {last}")
        network.carry_all()
        network.crash(last)
        network.pass_time(CHANGE)
    network.broadcast(1, "alone")
    assert network.views(1) == [(1, 2, 3, 4), (1, 2, 3), (1, 2), (1,)]
    assert network.delivered(1) == [*(f"goodbye of {last}" for last in (5, 4, 3, 2)), "alone"]


# Fast delivery


def test_fast_survivors_agree_among_themselves() -> None:
    network = Network(4, CausalOrder, GroupSettings(uniform=False))
    network.broadcast(4, "m")
    network.carry(Batch, to=2)
    network.lose()
    assert network.delivered(2) == ["m"]
    network.crash(4)
    network.pass_time(CHANGE)
    assert [network.delivered(member) for member in (1, 2, 3)] == [["m"]] * 3


def test_an_effect_whose_cause_died_is_delivered_by_no_survivor() -> None:
    """p4 delivers p5's message at once, answers, and both die: only the answer is left, and nobody may see it."""
    network = Network(5, CausalOrder, GroupSettings(uniform=False))
    network.broadcast(5, "cause")
    network.carry(Batch, to=4)
    network.lose()
    network.broadcast(4, "effect")
    network.carry(Batch, to=(1, 2))
    network.lose()
    network.crash(4, 5)
    network.pass_time(2 * CHANGE)
    assert [network.delivered(member) for member in (1, 2, 3)] == [[], [], []]
    assert network.views(1) == network.views(2) == network.views(3) == [(1, 2, 3)]
    assert [kept(network[member]) for member in (1, 2, 3)] == [0, 0, 0], "and nobody keeps it for ever"
