"""One gateway with all its joins: where messages go and never go back, and when a batch is finished with.

    a (p1; g1) --- join 0 --- m (r1 r2; m1 m2) --- join 1 --- b (q1; h1)

In `ONE` gateway m1 has both joins, links 0 and 1. In `APART` m1 has join 0 and m2 has join 1.
"""

from __future__ import annotations

import pytest
from join_support import Desk, join, system, two_systems

from isthmus.core.endpoint import Outbox
from isthmus.core.freeze import freeze
from isthmus.core.wire.join import Broken, LinkFarewell, first_epoch
from isthmus.explorer.world import make_gateways
from isthmus.topology.file import parse
from isthmus.topology.model import Topology


def chain(order: str, by: str) -> Topology:
    text = system("a", order, "p1", "g1") + system("m", order, "r1 r2", "m1 m2") + system("b", order, "q1", "h1")
    for (one, gate), (other, far), mine in ((("a", "g1"), ("m", "m1"), "m1"), (("m", by), ("b", "h1"), by)):
        sets = f'[joins.transfer-sets]\n"{one}/{gate}" = ["*"]\n"{other}/{far}" = ["*"]\n'
        assert mine in (gate, far)
        text += join(one, other, order, f'links = 1\nassign = "transfer-sets"\n{sets}')
    return parse(text, "t.toml")


ONE, APART = chain("fifo", "m1"), chain("fifo", "m2")


# Where messages go


def test_a_message_of_the_own_system_goes_out_by_every_join() -> None:
    assert Desk(ONE, "m1").delivers("r1/1") == ["link 0: block 1 r1/1 home g1", "link 1: block 1 r1/1 home h1"]


@pytest.mark.parametrize(("message", "onward", "home"), [("p1/1", 1, "h1"), ("q1/1", 0, "g1")])
def test_a_message_never_goes_back_over_the_join_that_it_came_by(message: str, onward: int, home: str) -> None:
    m1 = Desk(ONE, "m1")
    assert m1.link(1 - onward, f"block 1 {message} home m1") == [f"relay {message}"]
    assert m1.delivers(message, "m1") == ["finish m1 1", f"link {onward}: block 1 {message} home {home}"]


def test_a_message_from_far_away_is_known_by_its_origin_and_not_by_who_brought_it() -> None:
    """p1/1 has come through m to b: h1 sends it nowhere, wherever else it may be delivered."""
    assert Desk(ONE, "h1").delivers("p1/1", "h1") == ["finish h1 1"]
    assert Desk(ONE, "g1").delivers("q1/1", "g1") == ["finish g1 1"]


def test_a_batch_of_many_origins_is_taken_apart() -> None:
    m1 = Desk(ONE, "m1")
    assert m1.delivers("p1/1 q1/1 p1/2", "m1") == [
        "finish m1 1",
        "link 0: block 1 q1/1 home g1",
        "link 1: block 1 p1/1..2 home h1",
    ]


def test_nothing_is_taken_from_a_link_that_one_does_not_have() -> None:
    assert Desk(APART, "m1").link(1, "block 1 q1/1", "open 2@h1", "confirm r1/1") == []


# When a batch is finished with


def test_a_batch_is_finished_with_when_every_join_has_confirmed_it() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1..2")
    assert m1.link(0, "confirm r1/2") == [], "join 1 has not"
    assert m1.link(1, "confirm r1/1") == [], "a part of the batch"
    assert m1.link(1, "confirm r1/2") == ["finish r1 1"]


def test_batches_are_finished_with_in_their_order() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1")
    m1.delivers("r1/2")
    m1.delivers("r1/3")
    m1.link(0, "confirm r1/3")
    assert m1.link(1, "confirm r1/2") == ["finish r1 2"]
    assert m1.link(1, "confirm r1/3") == ["finish r1 3"]


def test_one_sender_does_not_wait_for_another() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1")
    m1.delivers("r2/1")
    m1.link(0, "confirm r2/1")
    assert m1.link(1, "confirm r2/1") == ["finish r2 1"]


def test_what_a_gateway_broadcast_is_finished_with_at_once() -> None:
    """Its stream mixes messages of all joins; two systems that wait for each other's streams would wait for ever."""
    m1 = Desk(ONE, "m1")
    assert m1.delivers("p1/1", "m1")[0] == "finish m1 1"
    assert m1.delivers("q1/1", "m2")[0] == "finish m2 1"


# What is confirmed upstream


def test_a_message_is_confirmed_upstream_when_it_is_settled_here_and_confirmed_by_every_join_onward() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("p1/1..2", "m1")
    assert m1.settled("m1", 1) == [], "b has not confirmed it"
    assert m1.link(1, "confirm p1/1") == ["link 0: confirm p1/1"]
    assert m1.link(1, "confirm p1/2") == ["link 0: confirm p1/2"]


def test_the_other_way_round_it_waits_to_be_settled_here() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("p1/1", "m1")
    assert m1.link(1, "confirm p1/1") == []
    assert m1.settled("m1", 1) == ["link 0: confirm p1/1"]


def test_nothing_is_confirmed_upstream_beyond_what_is_settled_here() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("p1/1", "m1")
    m1.delivers("p1/2", "m1")
    m1.link(1, "confirm p1/2")
    assert m1.settled("m1", 1) == ["link 0: confirm p1/1"]
    assert m1.settled("m1", 2) == ["link 0: confirm p1/2"]


def test_confirmations_go_by_origin_and_no_origin_waits_for_another() -> None:
    """p1/1 and q1/1 were broadcast in one batch, and r1/1 before it; each is confirmed as soon as it is its turn."""
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1")
    m1.delivers("p1/1 q1/1", "m1")
    m1.settled("m1", 1)
    assert m1.link(1, "confirm p1/1") == ["link 0: confirm p1/1"]
    assert m1.link(0, "confirm q1/1") == ["link 1: confirm q1/1"]


def test_what_ends_here_is_confirmed_when_it_is_settled() -> None:
    h1 = Desk(ONE, "h1")
    h1.delivers("p1/1 r1/1", "h1")
    assert h1.settled("h1", 1) == ["link 1: confirm p1/1 r1/1"]


def test_a_join_that_a_gateway_has_no_link_of_is_waited_for_all_the_same() -> None:
    """m1 brought p1/1 in, and m2 carries it on to b."""
    m1, m2 = Desk(APART, "m1"), Desk(APART, "m2")
    assert m1.delivers("p1/1", "m1") == ["finish m1 1"]
    assert m2.delivers("p1/1", "m1") == ["finish m1 1", "link 1: block 1 p1/1 home h1"]
    assert m1.settled("m1", 1) == []
    assert m2.link(1, "confirm p1/1") == ["to m1: confirm p1/1 of join 1"]
    assert m1.fellow("m2", "confirm p1/1", join=1) == ["link 0: confirm p1/1"]
    assert m1.fellow("m2", "confirm p1/1", join=1) == []


def test_a_batch_of_the_own_system_waits_at_each_gateway_for_the_joins_that_it_has() -> None:
    m1, m2 = Desk(APART, "m1"), Desk(APART, "m2")
    m1.delivers("r1/1")
    m2.delivers("r1/1")
    assert m1.link(0, "confirm r1/1") == ["finish r1 1", "to m2: confirm r1/1"]
    assert m2.fellow("m1", "confirm r1/1") == []
    assert m2.link(1, "confirm r1/1") == ["finish r1 1", "to m1: confirm r1/1 of join 1"]


# Joins do not disturb each other


def test_an_epoch_of_one_join_does_not_stop_the_other() -> None:
    m1 = Desk(ONE, "m1")
    m1.link(0, "broken 1")
    assert m1.delivers("r1/1") == ["link 1: block 1 r1/1 home h1"]
    assert m1.link(0, "resume 2@m1") == ["link 0: block 2@m1 r1/1 home g1"]


def test_a_link_that_one_join_has_lost_does_not_stop_the_other() -> None:
    m1 = Desk(ONE, "m1")
    assert m1.down(0) == []
    assert m1.delivers("r1/1") == ["link 1: block 1 r1/1 home h1"]
    assert m1.up(0, "g1") == ["link 0: block 1 r1/1 home g1"]


def test_a_gateway_of_another_join_that_is_gone_costs_no_epoch() -> None:
    """Each has a link of one join only."""
    assert Desk(APART, "m1").view("r1 r2 m1") == []
    assert Desk(APART, "m2").view("r1 r2 m2") == []


def test_a_link_whose_far_end_says_farewell_is_used_no_more() -> None:
    g2 = Desk(two_systems("fifo", "transfer-sets"), "g2")
    assert g2.link(1, LinkFarewell()) == ["to g1: link 1 down"]
    assert g2.delivers("p2/1") == []


def test_a_gateway_that_leaves_says_so_over_its_links_and_to_its_fellows() -> None:
    topology = two_systems("fifo", "transfer-sets")
    g1, g2, leaving = Desk(topology, "g1"), Desk(topology, "g2"), Outbox()
    g2.gateway.leave(g2.now, leaving)
    assert leaving.links == [(1, Broken(first_epoch())), (1, LinkFarewell())], "the far side is to do without it"
    g1.delivers("p2/1")
    ((destinations, word),) = leaving.to_fellows
    assert destinations == g1.names.ids("g1")
    assert g1.fellow("g2", word) == ["link 0: block 1 p2/1 home h2"]


def test_numbers_are_per_join() -> None:
    """protocols: a join's sequence counts every message delivered at the sequencer but those that came by this join."""
    m1 = Desk(chain("causal", "m1"), "m1")
    assert "link 1: block 1 #1 p1/1 home h1" in m1.delivers("p1/1", "m1")
    lines = m1.delivers("r1/1")
    assert "link 0: block 1 #1 r1/1 home g1 after p1/1" in lines
    assert "link 1: block 1 #2 r1/1 home h1" in lines


def test_words_of_strangers_are_ignored() -> None:
    g1 = Desk(two_systems(), "g1")
    assert g1.fellow("h1", "link 1 down", "broken 1", "freeze 2@g1") == []
    assert g1.fellow("g2", "link 1 down", join=7) == []


# The cold path


def test_the_work_that_is_left_is_what_far_sides_have_not_confirmed() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1..3")
    assert m1.gateway.unfinished() == 6
    m1.link(0, "confirm r1/2")
    assert m1.gateway.unfinished() == 4


def test_a_fork_goes_its_own_way() -> None:
    m1 = Desk(ONE, "m1")
    m1.delivers("r1/1")
    before = m1.gateway.snapshot()
    twin = m1.gateway.fork()
    assert twin.snapshot() == before
    m1.link(0, "confirm r1/1")
    assert twin.snapshot() == before != m1.gateway.snapshot()
    m1.gateway = twin
    m1.link(1, "confirm r1/1")
    assert m1.link(0, "confirm r1/1") == ["finish r1 1"], "a fork's joins and batches belong together"


def test_all_gateways_of_a_topology_are_made_in_the_state_that_all_begin_with() -> None:
    topology = two_systems()
    made = make_gateways(topology)
    names = Desk(topology, "g1").names
    assert [names.name(process) for process in made] == ["g1", "g2", "h1", "h2"]
    assert all(process == gateway.id for process, gateway in made.items())
    assert all(gateway.is_caught_up and gateway.deadline() is None for gateway in made.values())
    assert len({freeze(gateway) for gateway in made.values()}) == 4
