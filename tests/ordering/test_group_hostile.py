"""Whatever arrives, and from whomever: a member goes on, and what makes no sense is as good as lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_network import HEARTBEAT, SETTINGS, SUSPECT_AFTER, Network, UnderWay, make_batch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace
from pdu_strategies import group_kinds

from isthmus.core.codec import body_of
from isthmus.core.endpoint import Outbox
from isthmus.core.ids import incarnation_of
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY, Segment
from isthmus.core.wire.group import (
    Accept,
    Ack,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Safe,
    Status,
)
from isthmus.core.wire.join import Block, first_epoch
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import EXCLUDED
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.order import Order
from isthmus.ordering.orders.total import MAX_PLACED, TotalOrder

MEMBERS = (1, 2, 3)
STRANGER = 77
ORDERS = [FifoOrder, CausalOrder, TotalOrder]

processes = st.sampled_from([0, 1, 2, 3, 3, 4, 7, incarnation_of(3, 1), STRANGER, 1 << 62])
views = st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3, 1 << 62])
ballots = st.sampled_from([0, 1, 4096, 4097, 8192, 8194, 1 << 62])
counts = st.sampled_from([0, 0, 1, 1, 2, 3, 9, 1 << 62])

# Of the right length more often than chance would have it: a wrong length is refused before anything else happens.
vectors = st.lists(counts, min_size=3, max_size=3) | st.lists(counts, max_size=5)
groups = st.sampled_from([[1, 2, 3], [1, 2], [2, 3], [1, 2, 3, 7], [1, 1, 2], []]) | st.lists(processes, max_size=4)

pdus: SearchStrategy[Pdu] = st.one_of(*group_kinds(processes, views, ballots, counts, vectors, groups).values())
arrivals = st.tuples(processes, st.lists(pdus, min_size=1, max_size=3), st.integers(0, 3))


IN_A_RING = replace(SETTINGS, all_speak=1, watchers=1)
"""Even three members are too many for everybody to speak to everybody."""


def endure(member: GroupMember, inputs: list[tuple[int, list[Pdu], int]]) -> None:
    """PDUs and the time between them. Nothing but an exception, or a PDU that cannot be sent, fails."""
    now = 0
    for source, received, pause in inputs:
        out = Outbox()
        member.receive(source, received, now, out)
        now += pause * HEARTBEAT
        member.wake(now, out)
        member.broadcast([b"own"], now, out)
        for _, pdu in out.sends:
            body_of(pdu)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("owner", [1, 3])
@pytest.mark.parametrize("settings", [SETTINGS, IN_A_RING], ids=["all speak", "in a ring"])
def test_no_sequence_of_pdus_raises_anything_at_a_member(
    order: type[Order], owner: int, settings: GroupSettings
) -> None:
    @given(st.lists(arrivals, max_size=12))
    def holds(inputs: list[tuple[int, list[Pdu], int]]) -> None:
        endure(GroupMember(owner, MEMBERS, order, settings), inputs)

    holds()


@pytest.mark.parametrize("order", ORDERS)
def test_no_sequence_of_pdus_raises_anything_at_a_joining_process(order: type[Order]) -> None:
    welcome = Install(1, Proposal([1, 2, 3, 7], [1, 2, 3], [4, 0, 2]))

    @given(st.lists(arrivals, max_size=6), st.lists(arrivals, max_size=6))
    @example([(1, [Status(0, 0, 0, [], [], [], 0)], 0)], [])
    @example([(1, [Ack(0, 1, 1)], 0)], [])
    @example([(1, [Install(1, Proposal([7, 7, 7], [], []))], 0)], [])
    @example([(1, [Install(0, Proposal([1, 2, 3, 7], [1, 2, 3, 7], [0, 0, 0, 1]))], 0)], [])
    def holds(before: list[tuple[int, list[Pdu], int]], after: list[tuple[int, list[Pdu], int]]) -> None:
        member = GroupMember(7, MEMBERS, order, SETTINGS, joining=True)
        endure(member, [*before, (1, [welcome], 0), *after])

    holds()


def spoiled(draw: st.DrawFn, pdu: Pdu) -> Pdu:
    """The same PDU with one field that is wrong, and of the right type."""
    name = draw(st.sampled_from(pdu.__struct_fields__))
    value = getattr(pdu, name)
    if isinstance(value, int):
        return replace(pdu, **{name: draw(counts | ballots)})
    if isinstance(value, Proposal):
        proposal = replace(value, cut=draw(vectors)) if draw(st.booleans()) else replace(value, members=draw(groups))
        return replace(pdu, **{name: proposal})
    if isinstance(value, list) and name in ("stamp", "received", "confirmed"):
        return replace(pdu, **{name: draw(vectors)})
    return pdu


@pytest.mark.parametrize("order", ORDERS)
def test_a_group_in_the_middle_of_its_work_endures_what_was_spoiled_on_the_way(order: type[Order]) -> None:
    """Views end and begin, members crash and leave, and any PDU under way may arrive changed, and twice."""

    @given(st.data())
    def holds(data: st.DataObject) -> None:
        network = CarelessNetwork(4, order)
        for _ in range(data.draw(st.integers(1, 25))):
            deed = data.draw(st.sampled_from("bbbccccccccsstttxl"))
            member = data.draw(st.sampled_from((1, 2, 3, 4)))
            if deed == "b":
                network.broadcast(member, "m")
            elif deed == "c":
                network.carry(to=member)
            elif deed == "s" and network.under_way:
                each = data.draw(st.sampled_from(network.under_way))
                bad = data.draw(st.composite(spoiled)(each.pdu))
                network.inject(each.source, each.destination, bad, each.pdu)
            elif deed == "t":
                network.pass_time(data.draw(st.sampled_from([HEARTBEAT, SUSPECT_AFTER])))
            elif deed == "x" and len(network.alive()) > 2:
                network.crash(member)
            elif deed == "l":
                network.leave(member)
        network.pass_time(SUSPECT_AFTER)

    holds()


class CarelessNetwork(Network):
    """Who believes spoiled PDUs may end up in a state that breaks invariants; it must not raise anything."""

    def step(self, member: int, action: object, *arguments: object) -> Outbox | None:  # type: ignore[override]
        endpoint = self[member]
        invariants = endpoint.invariants
        endpoint.invariants = lambda: None  # type: ignore[method-assign]
        try:
            return super().step(member, action, *arguments)  # type: ignore[arg-type]
        finally:
            endpoint.invariants = invariants  # type: ignore[method-assign]

    def _arrive(self, each: UnderWay) -> None:
        if self.is_alive(each.destination):
            super()._arrive(each)


# Strangers


def states() -> Iterator[tuple[str, Network]]:
    yield "at rest", Network(3)
    network = Network(3)
    network.broadcast(2, "m")
    network.carry(to=1)
    yield "with a batch that is not stable", network
    network = Network(3)
    network.crash(3)
    network.pass_time(SUSPECT_AFTER - HEARTBEAT)
    network.now += 2 * HEARTBEAT
    network.wake(1)
    assert network[1].membership.blocked
    yield "in a view change", network
    network = Network(3)
    network.crash(3)
    network.pass_time(2 * SUSPECT_AFTER)
    yield "in its second view", network


@pytest.mark.parametrize("source", [STRANGER, 1], ids=["stranger", "itself"])
@pytest.mark.parametrize("name", [name for name, _ in states()])
def test_what_a_stranger_says_changes_nothing(name: str, source: int) -> None:
    """Strangers may ask to be let in, and be told that they are out. The process itself does not write to itself."""
    network = dict(states())[name]
    member = network[1]
    before = member.snapshot()

    @given(pdus.filter(lambda pdu: not isinstance(pdu, JoinRequest) or source == 1))
    def holds(pdu: Pdu) -> None:
        out = Outbox()
        member.receive(source, [pdu], network.now, out)
        assert member.snapshot() == before
        assert out.deliveries == []
        assert out.stopped == ""
        assert all(destinations == (source,) and type(answer) is Excluded for destinations, answer in out.sends)

    holds()


def test_a_stranger_gets_no_messages() -> None:
    network = Network(3)
    network.broadcast(1, "secret")
    network.lose()
    network.inject(STRANGER, 1, Fetch(1, 1, 1, 1))
    assert network.under_way == []


def test_a_stranger_cannot_slip_in_a_batch_while_a_view_ends() -> None:
    network = dict(states())["in a view change"]
    network.inject(STRANGER, 1, make_batch(2, 1, "forged", stamp=[0, 0, 0]))
    assert network[1].received() == [0, 0, 0]


def test_a_member_cannot_send_under_the_name_of_another() -> None:
    network = Network(3)
    network.inject(2, 1, make_batch(3, 1, "forged", stamp=[0, 0, 0]))
    assert network.delivered(1) == []


def test_who_takes_the_place_of_a_member_may_say_that_it_is_over() -> None:
    """All others came back as new processes while p3 was away; they are the only ones left to tell it."""
    network = Network(3)
    network.inject(incarnation_of(1, 1), 3, Excluded(9))
    assert network.stopped == {3: EXCLUDED}


def test_pdus_of_other_protocols_are_ignored() -> None:
    network = Network(3)
    before = network[1].snapshot()
    network.inject(2, 1, Block(first_epoch(), 1, []))
    assert network[1].snapshot() == before


# Stamps


@pytest.mark.parametrize(
    ("order", "sender", "stamp"),
    [
        (FifoOrder, 2, [1]),
        (FifoOrder, 2, [0, 0, 0]),
        (CausalOrder, 2, []),
        (CausalOrder, 2, [0, 0]),
        (CausalOrder, 2, [0, 0, 0, 0]),
        (CausalOrder, 2, [0, 1, 0]),
        (TotalOrder, 2, [1, 1]),
        (TotalOrder, 1, [1]),
        (TotalOrder, 1, [0, 1]),
        (TotalOrder, 1, [3, 1]),
        (TotalOrder, 1, [1, 0]),
        (TotalOrder, 1, [1, MAX_PLACED + 1]),
        (TotalOrder, 1, [1, MAX_PLACED, 2, 1]),
        (TotalOrder, 1, [1, 1 << 62]),
    ],
)
def test_a_malformed_stamp_is_as_good_as_lost(order: type[Order], sender: int, stamp: list[int]) -> None:
    network = Network(3, order)
    network.inject(sender, 3, Batch(1, sender, 1, stamp, 0, Segment.of(sender, 1, [b"bad"])))
    assert network[3].received() == [0, 0, 0]
    assert network.delivered(3) == []
    assert not network.sent(Ack)
    good = {FifoOrder: [], CausalOrder: [0, 0, 0], TotalOrder: []}[order]
    network.inject(sender, 3, Batch(1, sender, 1, good, 0, Segment.of(sender, 1, [b"good"])))
    assert network[3].received()[sender - 1] == 1


def test_one_stamp_cannot_make_a_member_remember_more_than_it_could_ever_need() -> None:
    network = Network(3, TotalOrder)
    for number in range(1, 4):
        network.inject(1, 3, Batch(1, 1, number, [1, MAX_PLACED] * 4, 0, EMPTY))
    assert network[3].received() == [0, 0, 0]


# Nonsense inside the membership protocol


def test_a_promise_with_a_proposal_that_does_not_fit_is_ignored() -> None:
    network = Network(3)
    network.inject(3, 1, Status(1, 0, 0, [0, 0, 0], [], [], 1))  # p1 begins a change
    network.pass_time(HEARTBEAT, every=lambda: network.lose(Promise))
    attempt = network[1].membership.attempt
    assert attempt is not None
    for nonsense in (
        Proposal([1, 2], [1, 2], [0, 0]),
        Proposal([1, 2], [1, 2, 3], [0]),
        Proposal([2, 2], [1, 2, 3], [0] * 3),
    ):
        for member in (2, 3):
            network.inject(member, 1, Promise(1, attempt.ballot, [0, 0, 0], 1, nonsense))
    assert list(attempt.promises) == [1]
    network.pass_time(4 * HEARTBEAT)
    assert network.views(1) == [(1, 2, 3)]


def test_acceptances_that_come_before_the_proposal_do_not_decide_it() -> None:
    """The coordinator still lacks a batch below the cut; nobody can have accepted that."""
    network = Network(3)
    network.broadcast(3, "m")
    network.carry(Batch, to=2)
    network.lose()
    network.inject(3, 1, Status(1, 0, 0, [0, 0, 0], [], [], 1))
    network.pass_time(HEARTBEAT, every=lambda: network.lose(Fetch))
    attempt = network[1].membership.attempt
    assert attempt is not None
    assert attempt.proposal is not None
    for member in (2, 3):
        network.inject(member, 1, Accept(1, attempt.ballot))
    assert network.views(1) == []
    network.pass_time(4 * HEARTBEAT)
    assert network.views(1) == [(1, 2, 3)]
    assert network.delivered(1) == ["m"]


def test_a_proposal_for_another_view_is_not_accepted() -> None:
    network = Network(3)
    network.inject(2, 1, Propose(1, 8193, Proposal([1, 2], [1, 2], [0, 0])))
    network.inject(2, 1, Propose(2, 8193, Proposal([1, 2], [1, 2, 3], [0, 0, 0])))
    assert not network[1].membership.blocked
    assert network[1].membership.accepted is None


def test_gossip_about_processes_nobody_knows_is_not_kept() -> None:
    network = Network(3)
    for start in range(0, 100_000, 1000):
        departed = [(process, 5) for process in range(start, start + 1000)]
        network.inject(2, 1, Status(1, 0, 0, [0, 0, 0], departed, [], 0))
    assert all(row.keys() <= {1, 2, 3} for row in network[1].stability.rows.values())


def test_a_safe_notice_counts_only_for_whoever_sends_it() -> None:
    network = Network(5)
    network.broadcast(3, "m")
    network.carry(Batch, to=(1, 4))
    network.inject(2, 1, Safe(1, 9))
    network.inject(2, 1, Status(1, 0, 9, [0] * 5, [], [], 0))
    assert network.delivered(1) == []


def test_prepare_of_a_stranger_blocks_nobody() -> None:
    network = Network(3)
    network.inject(STRANGER, 1, Prepare(1, 1 << 62))
    assert not network[1].membership.blocked
    assert network[1].membership.highest_ballot == 0
