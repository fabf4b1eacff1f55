"""What the papers say that a broadcast over joins costs, claim by claim, counted on the real protocol code.

Each test quotes its claim. The sections of `isthmus counts` are held by the same tests, so the table cannot say
anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from msgspec import structs

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, ProcessName
from isthmus.lab.counts.joins import (
    SECTIONS,
    broadcasts,
    chain,
    count_best_links,
    count_hops,
    count_join_rate,
    count_messages,
    count_parallel,
    count_serialisation,
    count_star,
    count_system_rate,
    count_transfer_time,
    one_per_set,
    saturate,
    star,
    star_of,
    topology,
    tree,
)
from isthmus.lab.counts.rig import Broadcast, Rig
from isthmus.lab.counts.table import CountRow
from isthmus.planner.expressions import JoinModel, best_links, broadcast_messages, links_needed
from isthmus.topology.model import Topology


def all_hold(rows: list[CountRow]) -> bool:
    return bool(rows) and all(row.holds for row in rows)


def messages(described: Topology) -> set[int]:
    """What one broadcast costs, whoever sends it."""
    return {sent.tally.messages for sent in broadcasts(described)}


# message-passing, Sect. 4, Performance


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 12])
def test_one_system_takes_a_message_for_each_receiver(processes: int) -> None:
    """Message-passing, Sect. 4: "in a global system with n processes, each broadcast operation generates n − 1
    messages."
    """
    assert messages(topology((processes,), ())) == {processes - 1}


@pytest.mark.parametrize("sizes", [(1, 1), (2, 5), (6, 6)])
def test_two_systems_take_two_messages_more(sizes: tuple[int, int]) -> None:
    """Message-passing, Sect. 4: "With our interconnection protocol n + 1 messages are generated for two subsystems,
    since we add two interconnecting processes, and one message will be sent from one process to the other."
    """
    assert messages(topology(sizes, chain(2))) == {sum(sizes) + 1}


@pytest.mark.parametrize("order", ["fifo", "causal"])
@pytest.mark.parametrize("shape", [chain, tree, lambda systems: star(systems - 1)], ids=["chain", "tree", "star"])
def test_m_systems_take_n_plus_m_less_one_messages(
    shape: Callable[[int], list[tuple[int, int]]], order: OrderName
) -> None:
    """Message-passing, Sect. 4: "Generalizing these results for m subsystems, the number of messages for the
    interconnected system becomes n + m − 1."
    """
    for systems in (2, 3, 6):
        sizes = [1 + index % 3 for index in range(systems)]
        assert messages(topology(sizes, shape(systems), order=order)) == {sum(sizes) + systems - 1}


def test_only_one_message_crosses_a_link() -> None:
    """Message-passing, Sect. 1: "With the appropriate interconnecting protocol, only one message crosses the link for
    each broadcast."
    """
    for sent in broadcasts(topology((3, 2, 3, 2), tree(4))):
        assert sent.tally.between == 3
        assert sent.tally.numbering == 0


def test_the_table_of_messages() -> None:
    assert all_hold(count_messages())


def test_a_star_takes_three_local_latencies_and_two_links() -> None:
    """Message-passing, Sect. 4: "if we have m subsystems, a system running the basic protocol has latency l, the delay
    of a message between two interconnecting processes is d, and we interconnect the systems in a star fashion, the
    worst case latency is 3l + 2d."
    """
    assert all_hold(count_star())


def test_the_star_and_the_count_of_messages_mean_different_gateways() -> None:
    """Message-passing, Sect. 4: "n + m − 1" and "3l + 2d" are not of one and the same star.

    With one gateway in the hub there are n + m − 1 messages, and the gateway that broadcasts a message there has it at
    once and sends it on: 2l + 2d. With a gateway for each join the hub takes its l, and its broadcast reaches
    m − 2 gateways more.
    """
    model = JoinModel(local_delay=MILLISECOND, link_delay=25 * MILLISECOND)
    leaves, processes = 4, 10
    shared = broadcasts(star_of(leaves, model, gateway_per_join=False))
    assert {sent.tally.messages for sent in shared} == {broadcast_messages(processes, leaves + 1)} == {14}
    assert max(map(Broadcast.worst, shared)) == 52 * MILLISECOND
    apart = broadcasts(star_of(leaves, model, gateway_per_join=True))
    assert {sent.tally.messages for sent in apart} == {17}, "n + 2m − 3"
    assert max(map(Broadcast.worst, apart)) == 53 * MILLISECOND


def test_a_join_leaves_the_response_time_alone() -> None:
    """Message-passing, Sect. 4: "our interconnecting protocol should not affect the response time a process observes
    when issuing a broadcast operation, since its broadcast protocol is not affected by the interconnection."
    """
    alone = Rig(topology((3,), ())).broadcast(ProcessName("s0", "p1"))
    joined = Rig(topology((3, 3, 3), chain(3))).broadcast(ProcessName("s0", "p1"))
    own = {name: time for name, time in joined.latency.items() if name.system == "s0"}
    assert own == alone.latency
    assert own[ProcessName("s0", "p1")] == 0


def test_uniform_delivery_is_why_these_counts_are_of_fast_delivery() -> None:
    """Parallel, Sect. 7: "a message is not delivered until the group communication system can ensure that it has been
    received by all message target processes." That takes a system of four two hops more, which no formula counts.
    """
    model = JoinModel(local_delay=MILLISECOND, link_delay=25 * MILLISECOND)
    fast = topology((3, 3), chain(2), model=model)
    uniform = structs.replace(
        fast, systems=tuple(structs.replace(system, delivery="uniform") for system in fast.systems)
    )
    sender = ProcessName("s0", "p2")
    assert Rig(fast).broadcast(sender).worst() == 27 * MILLISECOND
    assert Rig(uniform).broadcast(sender).worst() == 31 * MILLISECOND
    assert Rig(uniform).broadcast(sender).tally.messages == Rig(fast).broadcast(sender).tally.messages


# parallel, Sect. 8.2


@pytest.mark.parametrize("set_size", [2, 5])
def test_a_parallel_join_takes_six_n_less_one_messages(set_size: int) -> None:
    """Parallel, Sect. 8.2: "Globally, this has required 6n − 1 messages (that might be 6n − 2 if the isp being used in
    S⁰ is also the sequencer process) transmitted through intra-system links and one single message traversing
    inter-system (and slower) links."
    """
    own, *others = one_per_set(set_size, "transfer-sets")
    assert own.tally.inside == 6 * set_size - 2
    assert [sent.tally.inside for sent in others] == [6 * set_size - 1] * 2
    assert [sent.tally.between for sent in (own, *others)] == [1, 1, 1]


def test_what_these_messages_are() -> None:
    """Parallel, Sect. 8.2: "3n − 1 messages in order to broadcast such message into S⁰. One additional message (in the
    worst case) in order to assign a sequence number to such message and notify it to the associated IS process. One
    inter-system message through the interconnecting link. 3n − 1 messages in order to broadcast m into S¹."
    """
    own, *others = one_per_set(3, "transfer-sets")
    for sent, numbering in ((own, 0), *((other, 1) for other in others)):
        assert (sent.tally.data, sent.tally.numbering, sent.tally.between) == (2 * (3 * 3 - 1), numbering, 1)


def test_a_parallel_join_takes_three_or_four_hops() -> None:
    """Parallel, Sect. 8.2: "Additionally, it has required three hops in the best case, or four, in the worst one." """
    assert all_hold(count_hops())


def test_only_one_hop_is_needed_at_home() -> None:
    """Parallel, Sect. 8.2: "using our solution only one hop is needed into each of the initial systems S⁰ and S¹ in
    order to locally broadcast a given message".
    """
    assert all(sent.worst("s0") == MILLISECOND for sent in one_per_set(3, "transfer-sets"))


def test_an_idle_striped_join_never_needs_the_numbering_message() -> None:
    """Parallel, Sect. 8.1: "the sequencer is also an IS process. So, this additional message is only needed with a
    probability of 1 − 1/n_isps." Striped, the sequencer's own link goes first, and without load it is always free.
    """
    for sent in one_per_set(4, "striped"):
        assert (sent.tally.inside, sent.tally.between) == (6 * 4 - 2, 1)
        assert sent.worst("s1") == 3 * MILLISECOND


def test_the_table_of_the_parallel_join() -> None:
    assert all_hold(count_parallel())


# parallel, Sect. 8 and 8.1


def test_the_latency_of_an_unloaded_join_is_expression_3() -> None:
    """Parallel, Sect. 8.1: "if no additional workload is considered, the minimal time needed for receiving a message
    broadcast by system Si in a node of system Sj (trans_time) is: trans_time = (3 − 1/n_isps) × (id + ms/ibw) +
    (ed + ms/ebw)".
    """
    rows = count_transfer_time()
    assert all_hold(rows)
    # Three links, by hand: (3 − 1/3)(1 ms + 0.1 ms) + (50 ms + 1 ms).
    assert rows[2].counted == (Fraction(8, 3) * Fraction(11, 10) + 51) * MILLISECOND


def test_without_load_one_link_is_best() -> None:
    """Parallel, Sect. 8.1: "with a negligible workload, the optimal number of IS processes per system is 1, since this
    eliminates the need of a synchronisation (intra-system) message".
    """
    counted = [row.counted for row in count_transfer_time()]
    assert counted == sorted(counted)
    assert counted[0] < counted[1]


def test_a_saturated_system_carries_what_expression_1_says() -> None:
    """Parallel, Sect. 8: "the product sr × ms is an expression that provides the required bandwidth (in Mbps). So, the
    following should be ensured: sr < ibw / ms (1)".
    """
    assert all_hold(count_system_rate())


def test_a_saturated_join_carries_what_expression_2_says() -> None:
    """Parallel, Sect. 8: "This parameter sets an important constraint in the global system, since the interconnection
    will usually be the bottleneck of such system. Such constraint is: sr < ebw × n_isps / ms (2)".
    """
    assert all_hold(count_join_rate())


def test_more_links_than_expression_4_says_gain_nothing() -> None:
    """Parallel, Sect. 8.1: "we need to set as many interconnecting links as given by expression (4): n_isps =
    ⌈ibw / ebw⌉".
    """
    assert all_hold(count_best_links())


def test_where_links_are_as_fast_as_systems_one_is_best() -> None:
    """Parallel, Sect. 8.1: "the bandwidth of the interconnecting links could be the same as the internal bandwidth of
    each interconnected system; i.e., constraints (1) and (2) generate the same thresholds when n_isps is 1. If so
    happens, the optimal number of sender IS processes will be one".
    """
    assert best_links(JoinModel(local_rate=1000, link_rate=1000)) == 1
    assert best_links(JoinModel(local_rate=1000, link_rate=2000)) == 1
    assert best_links(JoinModel(local_rate=1001, link_rate=1000)) == 2


def test_a_load_needs_the_links_that_expression_2_leaves_room_on() -> None:
    """Parallel, Sect. 8: "sr < ebw × n_isps / ms (2)": less, and not as much as."""
    model = JoinModel(link_rate=1_000_000, message_bits=1000)
    assert [links_needed(model, Fraction(rate)) for rate in (0, 999, 1000, 2999, 3000)] == [1, 1, 2, 3, 4]
    assert links_needed(JoinModel(message_bits=1000), Fraction(10**9)) == 1


# What the expressions leave out


def test_transfer_sets_admit_one_message_per_local_hop() -> None:
    """Parallel, Fig. 5, Propagate_in: "wait until sn(m) = received + 1", where received counts deliveries.

    So where number k − 1 came over another link, number k waits a local hop for it, and links do not help.
    """
    assert all_hold(count_serialisation())


def test_a_second_link_may_be_worse_than_none_with_transfer_sets() -> None:
    """Parallel, Sect. 8: "the parallelisation of such interconnections is able to multiply the resulting bandwidth
    without increasing the transmission delays." Not with Fig. 5 as printed, where a local hop takes longer than a
    message on a link: here one link carries 30 messages in 30 ms, and two carry 6.
    """
    model = JoinModel(local_delay=5 * MILLISECOND, link_rate=10_000_000, message_bits=10_000)
    assert saturate(model).delivered_within(30 * MILLISECOND) == 30
    assert saturate(structs.replace(model, links=2)).delivered_within(30 * MILLISECOND) == 6


# The table itself


def test_every_section_says_where_its_claim_stands() -> None:
    assert len({section.name for section in SECTIONS}) == len(SECTIONS)
    for section in SECTIONS:
        assert section.paper.split(",")[0] in {"message-passing", "parallel"}
        assert section.formula
