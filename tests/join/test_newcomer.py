"""A gateway that comes later: what it hears of the past, what it does with it, and what it does before.

System a is p1 p2 with g1 (link 0) and g2 (link 1), which has died; `g2+1` comes in its place. Or there are three each.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from join_support import Desk, Scene, join, system, three_gateways, two_systems

from isthmus.core.wire.join import FellowState
from isthmus.join import share
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

FIFO = two_systems("fifo", "transfer-sets")
CAUSAL = two_systems("causal")
WITH = "p1 p2 g1 g2+1"


def left_alone(topology: Topology) -> Desk:
    """g1 when g2 has died and the epoch without it has begun."""
    g1 = Desk(topology, "g1")
    g1.view("p1 p2 g1")
    g1.link(0, "resume 2@g1:2")
    return g1


def states_of(g1: Desk, members: str = WITH) -> list[FellowState]:
    g1.view(members)
    return g1.states()


def newcomer(topology: Topology, name: str = "g2+1") -> Desk:
    return Desk(topology, name, joining=True)


# Catching up


def test_a_newcomer_is_told_the_past_and_says_when_it_knows_it() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1..2")
    (state,) = states_of(g1)
    assert new.view(WITH, 3) == []
    assert not new.gateway.is_caught_up
    assert new.fellow("g1", state) == ["to g1: caught up"]
    assert new.gateway.is_caught_up


def test_its_link_is_used_only_when_it_knows_the_past_and_then_in_an_epoch_of_its_own() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    assert new.up(1, "h2") == [], "it has nothing to carry yet"
    assert new.delivers("p2/2", number=2) == [], "no link of its own, and nothing finished"
    g1.delivers("p2/2")
    assert new.fellow("g1", state) == ["to g1: link 1 up", "to g1: caught up"]
    assert new.delivers("p2/3") == []
    g1.delivers("p2/3")
    assert g1.fellow("g2+1", "link 1 up", "caught up") == ["to g2+1: open 3@g1:3", "link 0: open 3@g1:3"]
    assert new.fellow("g1", "open 3@g1:3") == ["link 1: open 3@g1:3"]
    assert g1.link(0, "resume 3@g1:3") == ["to g2+1: resume 3@g1:3 by 0 1"]
    assert new.fellow("g1", "resume 3@g1:3 by 0 1") == ["link 1: block 3@g1:3 p2/1..3"], "and the past"


def test_a_link_that_went_down_again_meanwhile_is_not_announced() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.up(1, "h2")
    new.down(1)
    assert new.fellow("g1", state) == ["to g1: caught up"]


def test_a_long_past_comes_in_pieces() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1..3 p1/1..2 p2/4")
    with patch.multiple(share, BLOCK_MESSAGES=2):
        states = states_of(g1)
    assert [(len(state.outstanding), state.last) for state in states] == [(2, False), (2, False), (2, True)]
    new.view(WITH, 3)
    new.up(1, "h2")
    assert new.fellow("g1", states[0]) == []
    assert new.fellow("g1", states[1]) == []
    assert not new.gateway.is_caught_up
    assert new.fellow("g1", states[2]) == ["to g1: link 1 up", "to g1: caught up"]
    assert new.fellow("g1", "resume 3@g1:3 by 1") == ["link 1: block 3@g1:3 p2/1..3 p1/1..2 p2/4"]


def test_what_a_fellow_says_of_a_view_that_has_not_come_yet_is_kept_for_then() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1")
    (state,) = states_of(g1)
    assert new.fellow("g1", state) == []
    assert new.view(WITH, 3) == ["to g1: caught up"]
    assert new.fellow("g1", "resume 3@g1:3 by 0 1") == ["link 1: block 3@g1:3 p2/1"]


def test_the_state_of_another_view_is_of_no_use() -> None:
    """It was to come with view 3, which was never installed here; view 4 begins elsewhere."""
    g1, new = left_alone(FIFO), newcomer(FIFO)
    (state,) = states_of(g1)
    new.view("p1 g1 g2+1", 4)
    assert new.fellow("g1", state) == []
    assert not new.gateway.is_caught_up


def test_a_newcomer_whose_teller_dies_begins_again_with_the_next() -> None:
    topology = three_gateways("fifo")
    g1, g2, new = Desk(topology, "g1"), Desk(topology, "g2"), newcomer(topology, "g3+1")
    for each in (g1, g2):
        each.view("p1 p2 p3 g1 g2")
        each.delivers("p3/1..3")
    with patch.multiple(share, BLOCK_MESSAGES=2):
        first, _ = states_of(g1, "p1 p2 p3 g1 g2 g3+1")
        assert states_of(g2, "p1 p2 p3 g1 g2 g3+1") == [], "one is enough"
    new.view("p1 p2 p3 g1 g2 g3+1", 3)
    new.fellow("g1", first)
    for each in (g2, new):
        each.delivers("p3/4", number=2)
    states = states_of(g2, "p1 p2 p3 g2 g3+1")
    new.view("p1 p2 p3 g2 g3+1", 4)
    lines = [line for state in states for line in new.fellow("g2", state)]
    assert lines == ["to g2: caught up"]
    assert new.fellow("g2", "resume 9@g2:9 by 2") == ["link 2: block 9@g2:9 p3/1..4"], "every message once"


def test_one_that_has_caught_up_is_not_told_again() -> None:
    g1 = left_alone(FIFO)
    assert len(states_of(g1)) == 1
    assert len(states_of(g1, "p1 g1 g2+1")) == 1, "it may have begun again"
    g1.fellow("g2+1", "caught up")
    assert states_of(g1, "g1 g2+1") == []


def test_a_state_that_comes_twice_is_taken_once() -> None:
    """A new leader that has not heard that the newcomer has caught up tells it again."""
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("q1/1", "g1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.fellow("g1", state)
    assert new.fellow("g1", state) == []
    assert new.link(1, "block 1 #2 q1/2") == ["relay q1/2"], "one has come before, not two"


def test_a_newcomer_carries_nothing_before_it_knows_the_past() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    lines = new.fellow("g1", "open 3@g1:3", "resume 3@g1:3 by 0 1") + new.delivers("p2/2", number=2)
    assert not any("block" in line for line in lines), "p2/1 goes first"
    assert not any("block" in line for line in new.fellow("g1", state) + new.delivers("p2/3"))


# What it finishes with


def test_a_newcomer_finishes_with_nothing_before_it_knows_what_is_unfinished() -> None:
    """Batches 1 to 3 of p1 lie before its view; the far side has confirmed the messages of the first."""
    g1, new = left_alone(FIFO), newcomer(FIFO)
    for text in ("p1/1", "p1/2", "p1/3"):
        g1.delivers(text)
    assert g1.link(0, "confirm p1/1") == ["finish p1 1"]
    (state,) = states_of(g1)
    new.view(WITH, 3, cut={"p1": 3, "p2": 5})
    assert new.delivers("p1/4", number=4) == []
    assert new.fellow("g1", state) == ["finish p2 5", "to g1: caught up"], "of p1 nothing is confirmed since"
    assert new.fellow("g1", "confirm p1/2") == ["finish p1 2"]
    assert new.fellow("g1", "confirm p1/3") == ["finish p1 3"]
    assert new.fellow("g1", "confirm p1/4") == ["finish p1 4"]


def test_what_is_confirmed_while_it_catches_up_counts() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p1/1")
    (state,) = states_of(g1)
    new.view(WITH, 3, cut={"p1": 1})
    new.delivers("p1/2", number=2)
    assert new.link(1, "confirm p1/2") == ["to g1: confirm p1/2"]
    assert new.fellow("g1", state) == ["finish p1 2", "to g1: caught up"]


# What it brings in


def test_a_newcomer_counts_on_from_where_the_others_are() -> None:
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("q1/1..2", "g1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.delivers("q1/3", "g1", number=2)
    assert new.link(1, "block 1 #4 q2/1") == [], "it does not know yet that three have come"
    assert new.fellow("g1", state)[0] == "relay q2/1"


def test_a_newcomer_counts_from_the_beginning_of_the_epoch_that_goes_on() -> None:
    """Three have come, two of them in epochs before this one."""
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("q1/1..2", "g1")
    g1.link(0, "open 2@h1")
    g1.delivers("q1/3", "g1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.fellow("g1", state)
    assert new.link(1, "block 1 #4 q2/1", "block 2@h1 #4 q2/1") == [], "of an old epoch, and not yet its turn"
    assert new.link(1, "block 2@h1 #2 q1/4..5") == ["relay q1/4..5 q2/1"]


def test_a_newcomer_too_waits_for_what_is_left_of_older_epochs() -> None:
    """g1 has begun an epoch behind q1/4, of which it has delivered only q1/2."""
    topology = three_gateways("causal")
    g2, new = Desk(topology, "g2"), newcomer(topology, "g3+1")
    g2.view("p1 p2 p3 g1 g2")
    g2.delivers("q1/1..2", "g1")
    g2.fellow("g1", "freeze 2@h1", "begin 2@h1 behind q1/4 base 4")
    (state,) = states_of(g2, "p1 p2 p3 g2 g3+1")
    new.view("p1 p2 p3 g2 g3+1", 3)
    new.fellow("g2", state)
    assert new.link(2, "block 2@h1 #1 q3/1") == []
    new.delivers("q1/3", "g2", number=1)
    assert new.delivers("q1/4", "g2")[0] == "relay q3/1"


def test_a_block_that_came_before_the_first_view_is_kept() -> None:
    """The link was there before the newcomer was in."""
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    (state,) = states_of(g1)
    assert new.link(1, "block 1 #1 q2/1") == []
    assert new.view(WITH, 3) == []
    assert new.fellow("g1", state)[0] == "relay q2/1"


def test_a_newcomer_that_leads_later_knows_what_is_final() -> None:
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("q1/1..2", "g1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.fellow("g1", state)
    new.delivers("q2/1", "g1", number=2)
    new.view("p1 p2 g2+1", 4)
    assert new.link(1, "open 2@h1") == ["link 1: resume 2@h1 behind q1/2 q2/1"]


def test_a_newcomer_waits_for_what_an_answer_may_answer_like_anybody_else() -> None:
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("p1/1")
    g1.link(0, "confirm p1/1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.fellow("g1", state)
    assert new.link(1, "block 1 #1 q1/1 after p1/1") == ["relay q1/1"], "delivered before it came, and kept by nobody"
    assert new.link(1, "block 1 #2 q1/2 after p1/2") == []
    assert new.delivers("p1/2")[0] == "relay q1/2"


def test_a_newcomer_names_what_was_brought_in_before_it_came() -> None:
    """Its first block may hold an answer to it."""
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    g1.delivers("q1/1", "g1")
    g1.delivers("p1/1")
    (state,) = states_of(g1)
    new.view(WITH, 3)
    new.fellow("g1", state)
    new.ready(1)
    assert new.fellow("g1", "resume 3@g1:3 by 0 1") == ["to g1: free 3@g1:3 link 1"]
    assert "link 1: block 3@g1:3 #1 p1/1 after q1/1" in new.fellow("g1", "assign 3@g1:3 #1 p1/1 link 1")


def test_a_newcomer_confirms_what_was_stable_before_it_came() -> None:
    """Its link may be the only one that works."""
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("q1/1", "g1")
    g1.settled("g1", 1)
    (state,) = states_of(g1)
    new.view(WITH, 3)
    assert "link 1: confirm q1/1" in new.fellow("g1", state)


def test_a_newcomer_that_is_left_alone_confirms_what_nobody_had_confirmed() -> None:
    """q1/1 was delivered before it came, and g1 died before it could tell the sending side that it is stable."""
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("q1/1", "g1")
    (state,) = states_of(g1)
    new.view(WITH, 3, cut={"g1": 1})
    lines = new.fellow("g1", state)
    lines += new.view("p1 p2 g2+1", 4)
    lines += new.settled("g1", 1)
    lines += new.up(1, "h2")
    assert "link 1: confirm q1/1" not in lines, "p2 may not be as far as that view, and so not have delivered it"
    assert "link 1: confirm q1/1" in new.all_have_arrived()


# Words that overtake others


def test_what_follows_a_state_that_is_too_early_comes_after_it() -> None:
    """g1 has installed view 3, and begun the second epoch of what comes from b, before the newcomer installs it."""
    g1, new = left_alone(CAUSAL), newcomer(CAUSAL)
    (state,) = states_of(g1)
    new.fellow("g1", state)
    new.fellow("g1", "freeze 2@h1")
    new.fellow("g1", "begin 2@h1 base 0")
    new.view(WITH, 3)
    assert new.gateway.is_caught_up
    assert new.link(1, "block 2@h1 #1 q2/1") == ["relay q2/1"]


def hub() -> Topology:
    """Join 0 is that of a with m1 and m3, join 1 that of b with m2 and m3."""
    text = system("a", "fifo", "p1", "g1 g2") + system("m", "fifo", "r1 r2", "m1 m2 m3")
    text += system("b", "fifo", "q1", "h1 h2")
    for one, other, pairs in (("a", "m", ("g1 m1", "g2 m3")), ("m", "b", ("m2 h1", "m3 h2"))):
        sets = []
        for index, pair in enumerate(pairs):
            near, far = pair.split()
            for here, there, gate, to in ((one, other, near, far), (other, one, far, near)):
                mine = "*" if not index else "r2" if here == "m" else ""
                if mine:
                    sets.append(f'[[joins.sets]]\nfrom = "{here}/{gate}"\nto = "{there}/{to}"\nprocesses = ["{mine}"]')
        text += join(one, other, "fifo", "links = 2\nassign = 'transfer-sets'\n" + "\n".join(sets))
    return parse(text, "t.toml")


@pytest.mark.parametrize("in_time", [True, False])
def test_a_view_that_comes_between_the_states_of_two_joins_costs_nothing(in_time: bool) -> None:
    """m1 tells m3+1 of join 0 and m2 of join 1. Before m2's word arrives r2 dies, and there is a new view."""
    scene = Scene(hub(), "m1", "m2")
    scene.everybody(["m1", "m2"], "view", "r1 r2 m1 m2")
    scene.talk()
    scene.add(newcomer(hub(), "m3+1"))
    everybody = ["m1", "m2", "m3+1"]
    scene.do("m3+1", "view", "r1 r2 m1 m2 m3+1", number=3)
    scene.do("m1", "view", "r1 r2 m1 m2 m3+1")
    scene.talk()
    scene.do("m2", "view", "r1 r2 m1 m2 m3+1")
    if in_time:
        scene.talk()
    scene.everybody(everybody, "view", "r1 m1 m2 m3+1")
    scene.talk()
    assert scene.desks["m3+1"].gateway.is_caught_up
