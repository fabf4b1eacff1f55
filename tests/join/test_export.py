"""The sending side of a join, step by step: what it says when something breaks, and what it never says twice.

Links come and go within an epoch; a new one is opened when the leader is gone, or when the far side asks for one.

System a is p1 p2 with gateways g1 (link 0) and g2 (link 1); g1 leads as long as it lives. See `join_support` for how
to read the lines.
"""

from __future__ import annotations

import pytest
from join_support import RETRY_AFTER, Desk, Scene, three_gateways, two_systems

from isthmus.topology.model import Topology

STRIPED = two_systems("causal")
SETS = two_systems("causal", "transfer-sets")
COUNTED = two_systems("causal", system_order="total")
FIFO = two_systems("fifo", "transfer-sets")


def opened(topology: Topology = STRIPED, delivered: str = "p1/1..3") -> Desk:
    """g1 without link 1, when the far side has lost a gateway: it has opened an epoch and waits for the answer."""
    g1 = Desk(topology, "g1")
    if delivered:
        g1.delivers(delivered)
    assert g1.fellow("g2", "link 1 down") == []
    assert g1.link(0, "broken 1") == ["to g2: open 2@g1", "link 0: open 2@g1"]
    return g1


# Links that break and come back


def test_a_link_breaks_and_its_messages_go_by_another_in_the_same_epoch() -> None:
    g1, g2 = Desk(FIFO, "g1"), Desk(FIFO, "g2")
    assert g1.delivers("p2/1") == []
    assert g2.delivers("p2/1") == ["link 1: block 1 p2/1 home h2"]
    assert g2.down(1) == ["to g1: link 1 down"]
    assert g1.fellow("g2", "link 1 down") == ["link 0: block 1 p2/1 home h2"]
    assert (g1.delivers("p2/2"), g2.delivers("p2/2")) == (["link 0: block 1 p2/2 home h2"], [])


def test_whoever_takes_an_origin_over_sends_what_nobody_has_confirmed() -> None:
    g1 = Desk(FIFO, "g1")
    g1.delivers("p2/1..3")
    g1.fellow("g2", "confirm p2/1")
    assert g1.fellow("g2", "link 1 down") == ["link 0: block 1 p2/2..3 home h2"]


def test_numbers_that_went_by_a_lost_link_go_by_another_too() -> None:
    g1 = Desk(SETS, "g1")
    assert g1.delivers("p2/1") == ["to g2: assign 1 #1 p2/1 link 1 home h2"]
    assert g1.delivers("p1/1") == ["link 0: block 1 #2 p1/1 home h1"]
    assert g1.delivers("p2/2") == ["to g2: assign 1 #3 p2/2 link 1 home h2"]
    g1.fellow("g2", "progress 1 #2")
    assert g1.fellow("g2", "link 1 down") == ["link 0: block 1 #3 p2/2 home h2"], "p2/1 has arrived"


def test_out_of_a_log_everybody_knows_which_numbers_of_a_lost_link_are_his() -> None:
    g1, g2 = Desk(COUNTED, "g1"), Desk(COUNTED, "g2")
    assert g1.delivers("p1/1..70") == ["link 0: block 1 #1 p1/1..64"]
    assert g2.delivers("p1/1..70") == ["link 1: block 1 #65 p1/65..70"]
    assert g2.down(1) == ["to g1: link 1 down"]
    assert g1.fellow("g2", "link 1 down") == ["link 0: block 1 #65 p1/65..70"]


def test_a_link_that_comes_back_is_used_again_in_the_same_epoch() -> None:
    g1, g2 = Desk(FIFO, "g1"), Desk(FIFO, "g2")
    g2.down(1)
    g1.fellow("g2", "link 1 down")
    assert (g1.delivers("p2/1"), g2.delivers("p2/1")) == (["link 0: block 1 p2/1 home h2"], [])
    assert g2.up(1, "h2") == ["to g1: link 1 up", "link 1: block 1 p2/1 home h2"], "it does not know how far g1 got"
    assert g1.fellow("g2", "link 1 up") == []
    assert (g1.delivers("p2/2"), g2.delivers("p2/2")) == ([], ["link 1: block 1 p2/2 home h2"])


def test_a_link_that_comes_back_is_given_numbers_when_it_is_ready() -> None:
    g1, g2 = Desk(STRIPED, "g1"), Desk(STRIPED, "g2")
    g2.down(1)
    g1.fellow("g2", "link 1 down")
    g1.delivers("p1/1")
    g2.delivers("p1/1")
    assert g2.up(1, "h2") == ["to g1: link 1 up"]
    assert g2.ready(1) == ["to g1: free 1 link 1"]
    assert g1.fellow("g2", "link 1 up", "free 1 link 1") == ["to g2: assign 1 #1 p1/1 link 1"]
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1") == ["link 1: block 1 #1 p1/1"]


def test_a_link_that_is_said_to_work_and_does_changes_nothing() -> None:
    g1 = Desk(STRIPED, "g1")
    assert g1.up(0, "h1") == []
    assert g1.fellow("g2", "link 1 up") == []
    g1.down(0)
    assert g1.down(0) == []


@pytest.mark.parametrize("topology", [STRIPED, SETS, COUNTED, FIFO], ids=["striped", "sets", "counted", "by-origin"])
def test_without_any_link_messages_wait_for_the_first_that_comes_back(topology: Topology) -> None:
    g1 = Desk(topology, "g1")
    g1.fellow("g2", "link 1 down")
    assert g1.down(0) == ["to g2: link 0 down"]
    assert g1.delivers("p1/1") == []
    lines = g1.up(0, "h1") + (g1.ready(0) if topology is STRIPED else [])
    number, home = "" if topology is FIFO else "#1 ", " home h1" if topology in (SETS, FIFO) else ""
    assert lines == ["to g2: link 0 up", f"link 0: block 1 {number}p1/1{home}"]


def test_without_any_link_an_epoch_is_opened_over_the_first_that_comes_back() -> None:
    g1 = opened()
    assert g1.down(0) == ["to g2: link 0 down"]
    assert g1.waits(RETRY_AFTER) == ["to g2: open 2@g1"]
    assert g1.up(0, "h1") == ["to g2: link 0 up", "link 0: open 2@g1"]


def test_a_fellows_link_that_comes_back_hears_of_an_epoch_that_is_being_opened() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.down(1)
    assert g2.fellow("g1", "open 2@g1") == []
    assert g2.up(1, "h2") == ["to g1: link 1 up", "link 1: open 2@g1"]


# An epoch between Open and the answer


@pytest.mark.parametrize(
    ("topology", "blocks"),
    [
        (STRIPED, ["link 0: block 2@g1 #1 p1/3..4 p2/1"]),
        (SETS, ["link 0: block 2@g1 #1 p1/3..4 home h1", "link 0: block 2@g1 #3 p2/1 home h2"]),
        (COUNTED, ["link 0: block 2@g1 #1 p1/3..4 p2/1"]),
        (FIFO, ["link 0: block 2@g1 p1/3..4 home h1", "link 0: block 2@g1 p2/1 home h2"]),
    ],
    ids=["striped", "sets", "counted", "by-origin"],
)
def test_nothing_goes_onto_a_link_while_an_epoch_is_opened(topology: Topology, blocks: list[str]) -> None:
    g1 = opened(topology)
    lines = g1.ready(0) + g1.delivers("p1/4") + g1.delivers("p2/1") + g1.fellow("g2", "free 1 link 1", "progress 1 #3")
    assert lines == []
    assert not any("block" in line for line in g1.link(0, "progress 1 #3", "resume 1")), "of another epoch"
    assert g1.link(0, "resume 2@g1 behind p1/2") == ["to g2: resume 2@g1 behind p1/2", *blocks]


def test_open_is_said_again_until_there_is_an_answer() -> None:
    g1 = opened()
    assert g1.gateway.deadline() == RETRY_AFTER
    assert g1.waits(RETRY_AFTER - 1) == []
    assert g1.waits(1) == ["to g2: open 2@g1", "link 0: open 2@g1"]
    assert g1.waits(RETRY_AFTER) == ["to g2: open 2@g1", "link 0: open 2@g1"]
    g1.link(0, "resume 2@g1")
    assert g1.gateway.deadline() is None
    assert g1.waits(RETRY_AFTER) == []


def test_a_fellow_passes_the_word_on_and_the_answer_back() -> None:
    g2 = Desk(STRIPED, "g2")
    assert g2.fellow("g1", "open 2@g1") == ["link 1: open 2@g1"]
    assert g2.fellow("g1", "open 2@g1") == ["link 1: open 2@g1"], "said again: the first may be lost"
    assert g2.link(1, "resume 2@g1 behind p1/1") == ["to g1: resume 2@g1 behind p1/1"]
    assert g2.ready(1) == []
    assert g2.fellow("g1", "resume 2@g1 behind p1/1") == ["to g1: free 2@g1 link 1"], "it was ready meanwhile"
    assert g2.fellow("g1", "open 2@g1") == [], "it has begun"


def test_the_leader_begins_with_an_answer_that_came_over_a_fellows_link() -> None:
    g1 = opened()
    g1.ready(0)
    assert g1.fellow("g2", "resume 2@g1 behind p1/1") == [
        "to g2: resume 2@g1 behind p1/1",
        "link 0: block 2@g1 #1 p1/2..3",
    ]
    assert g1.fellow("g2", "resume 2@g1 behind p1/1") == [], "a second answer begins nothing"


def test_words_of_an_older_epoch_are_void() -> None:
    g1 = opened()
    g1.link(0, "resume 2@g1")
    assert g1.fellow("g2", "free 1 link 1", "broken 1", "progress 1 #9") == []
    assert g1.link(0, "broken 1") == []
    g2 = Desk(STRIPED, "g2")
    g2.delivers("p1/1")
    g2.fellow("g1", "open 2@g1", "resume 2@g1")
    g2.ready(1)
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1") == []
    assert "link 1: block 2@g1 #1 p1/1" in g2.fellow("g1", "assign 2@g1 #1 p1/1 link 1")


def test_progress_is_passed_on_to_the_leader_by_whoever_hears_it_in_whichever_epoch_he_is() -> None:
    """The far side tells only one gateway, once, and that one may not have heard of the epoch that has begun."""
    g2 = Desk(STRIPED, "g2")
    assert g2.link(1, "progress 1 #4") == ["to g1: progress 1 #4"]
    g2.fellow("g1", "open 2@g1")
    assert g2.link(1, "progress 2@g1 #1") == ["to g1: progress 2@g1 #1"]
    new = Desk(STRIPED, "g2+1", joining=True)
    new.view("p1 p2 g1 g2+1", 3)
    assert new.link(1, "progress 2@g1 #2") == ["to g1: progress 2@g1 #2"], "it knows of no epoch at all"


def test_out_of_a_log_progress_is_passed_on_to_everybody() -> None:
    assert Desk(COUNTED, "g1").link(0, "progress 1 #4") == ["to g2: progress 1 #4"]
    assert Desk(COUNTED, "g2").link(1, "progress 1 #4") == ["to g1: progress 1 #4"]


def test_a_link_that_was_ready_asks_again_in_every_epoch() -> None:
    g2 = Desk(STRIPED, "g2")
    assert g2.ready(1) == ["to g1: free 1 link 1"]
    g2.fellow("g1", "open 2@g1")
    assert g2.fellow("g1", "resume 2@g1") == ["to g1: free 2@g1 link 1"]
    g2.fellow("g1", "open 3@g1")
    assert g2.fellow("g1", "resume 3@g1") == ["to g1: free 3@g1 link 1"]


def test_a_block_waits_until_all_of_it_is_delivered_here() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.ready(1)
    assert g2.fellow("g1", "assign 1 #1 p1/1 p2/1 link 1 after q1/1") == []
    assert g2.delivers("p2/1") == []
    assert g2.delivers("p1/1") == ["link 1: block 1 #1 p1/1 p2/1 after q1/1"]


def test_what_is_delivered_here_does_not_wait_for_lower_numbers_that_are_not() -> None:
    """The far side goes by numbers, not by the order in which they come."""
    g2 = Desk(SETS, "g2")
    g2.fellow("g1", "assign 1 #1 p1/1 link 1 home h2", "assign 1 #2 p2/1 link 1 home h2")
    assert g2.delivers("p2/1") == ["link 1: block 1 #2 p2/1 home h2"]
    assert g2.delivers("p1/1") == ["link 1: block 1 #1 p1/1 home h2"]


def test_what_is_assigned_to_a_link_that_is_down_is_dropped_and_not_lost() -> None:
    """g1 had not heard of it. When it does, it sends the same numbers by another link."""
    g1, g2 = Desk(SETS, "g1"), Desk(SETS, "g2")
    g2.delivers("p2/1")
    assert g1.delivers("p2/1") == ["to g2: assign 1 #1 p2/1 link 1 home h2"]
    assert g2.down(1) == ["to g1: link 1 down"]
    assert g2.fellow("g1", "assign 1 #1 p2/1 link 1 home h2") == []
    assert g1.fellow("g2", "link 1 down") == ["link 0: block 1 #1 p2/1 home h2"]
    assert g2.up(1, "h2") == ["to g1: link 1 up"], "nothing of it is left here"
    assert g1.fellow("g2", "link 1 up") == []


def test_what_is_assigned_and_not_delivered_here_yet_goes_by_its_link_when_that_has_come_back() -> None:
    g2 = Desk(SETS, "g2")
    g2.fellow("g1", "assign 1 #1 p2/1 link 1 home h2")
    g2.down(1)
    g2.up(1, "h2")
    assert g2.delivers("p2/1") == ["link 1: block 1 #1 p2/1 home h2"]


def test_what_was_confirmed_before_it_is_delivered_here_is_dropped() -> None:
    """It was assigned to link 1, and went by another as well, because it was overdue."""
    g2 = Desk(STRIPED, "g2")
    g2.ready(1)
    g2.fellow("g1", "assign 1 #1 p1/1 link 1", "assign 1 #2 p1/2 link 1", "confirm p1/1")
    assert g2.delivers("p1/1") == ["finish p1 1"]
    assert g2.delivers("p1/2") == ["link 1: block 1 #2 p1/2"]


def test_nobody_but_the_leader_assigns() -> None:
    g2 = Desk(three_gateways("causal"), "g2")
    g2.delivers("p2/1")
    assert g2.fellow("g3", "assign 1 #1 p2/1 link 1 home h2") == []
    assert g2.fellow("g1", "assign 1 #1 p2/1 link 1 home h2") == ["link 1: block 1 #1 p2/1 home h2"]


def test_an_epoch_that_is_being_opened_needs_no_other_one_in_its_place() -> None:
    g1 = opened()
    assert g1.fellow("g2", "broken 1") == []
    assert g1.link(0, "broken 1") == []
    assert g1.fellow("g2", "link 1 up") == []


def test_an_epoch_begins_over_the_links_that_work_by_then() -> None:
    g1 = opened(FIFO, "p1/1")
    g1.delivers("p2/1")
    g1.fellow("g2", "link 1 up")
    g1.down(0)
    assert g1.fellow("g2", "resume 2@g1") == ["to g2: resume 2@g1"]


# Gateways that are lost


@pytest.mark.parametrize("order", ["fifo", "causal"])
def test_a_carrier_dies_and_that_is_no_reason_for_an_epoch(order: str) -> None:
    """What it had put on its link, or was to put there, goes by another."""
    g1, g3 = Desk(three_gateways(order), "g1"), Desk(three_gateways(order), "g3")
    for each in (g1, g3):
        each.delivers("p2/1")
    number = "#1 " if order == "causal" else ""
    lines = g1.view("p1 p2 p3 g1 g3") + g3.view("p1 p2 p3 g1 g3")
    assert not any("open" in line for line in lines)
    (line,) = [line for line in lines if "p2/1" in line]
    if line.startswith("to g3: "):
        (line,) = g3.fellow("g1", line.removeprefix("to g3: "))
    assert line == f"link 2: block 1 {number}p2/1 home h2"


def test_the_sequencer_dies_and_that_is_a_reason_for_an_epoch() -> None:
    g2, g3 = Desk(three_gateways("causal"), "g2"), Desk(three_gateways("causal"), "g3")
    assert "link 1: open 2@g2:2" in g2.view("p1 p2 p3 g2 g3")
    assert not any("open" in line for line in g3.view("p1 p2 p3 g2 g3")), "g2 leads"
    assert g3.fellow("g2", "open 2@g2:2") == ["link 2: open 2@g2:2"]


def test_a_carrier_that_dies_while_an_epoch_is_opened_is_left_out_of_it() -> None:
    g1 = Desk(three_gateways("fifo"), "g1")
    g1.link(0, "broken 1")
    g1.view("p1 p2 p3 g1 g3")
    assert g1.link(0, "resume 2@g1") == ["to g3: resume 2@g1"]


def test_the_sequencer_dies_and_the_next_one_numbers_anew_in_its_own_order() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.delivers("p2/1")
    g2.delivers("p1/1")
    assert g2.fellow("g1", "assign 1 #7 p1/1..2 link 1") == [], "it waits for p1/2"
    g2.ready(1)
    assert g2.view("p1 p2 g2") == ["link 1: broken 1", "link 1: open 2@g2:2"]
    assert g2.delivers("p1/2") == [], "what the old sequencer said is void"
    assert g2.link(1, "resume 2@g2:2") == ["link 1: block 2@g2:2 #1 p2/1 p1/1..2"]


def test_two_leaders_never_open_the_same_epoch() -> None:
    """g2 may or may not have heard what g1 opened before it died; both ways its own epoch is a later one."""
    for heard in ([], ["open 2@g1"]):
        g2 = Desk(STRIPED, "g2")
        g2.fellow("g1", *heard)
        lines = g2.view("p1 p2 g2")
        (line,) = [line for line in lines if "open" in line]
        assert g2.names.epoch(line.split()[-1]) > g2.names.epoch("2@g1")


def test_what_the_dead_one_knew_to_be_confirmed_is_said_by_all() -> None:
    """It may have told only some: everybody tells everybody else, so that all keep the same."""
    g2, g3 = Desk(three_gateways("fifo"), "g2"), Desk(three_gateways("fifo"), "g3")
    for each in (g2, g3):
        each.delivers("p1/1")
    assert g2.fellow("g1", "confirm p1/1") == ["finish p1 1"], "g1 dies before it tells g3"
    assert "to g3: confirm p1/1" in g2.view("p1 p2 p3 g2 g3")
    assert g3.view("p1 p2 p3 g2 g3")[0] == "to g2: confirm", "it knows of nothing"
    assert g3.fellow("g2", "confirm p1/1") == ["finish p1 1"]


def test_a_confirmation_is_passed_on_once() -> None:
    g1, g2 = Desk(STRIPED, "g1"), Desk(STRIPED, "g2")
    for each in (g1, g2):
        each.delivers("p1/1")
    assert g1.link(0, "confirm p1/1") == ["finish p1 1", "to g2: confirm p1/1"]
    assert g1.link(0, "confirm p1/1") == []
    assert g2.fellow("g1", "confirm p1/1") == ["finish p1 1"], "and not on from there"
    assert g2.link(1, "confirm p1/1") == [], "what both links bring is told once"


def left_alone(topology: Topology) -> Desk:
    """g1 when g2 has died."""
    g1 = Desk(topology, "g1")
    assert not any("open" in line for line in g1.view("p1 p2 g1"))
    return g1


def test_neither_a_fellow_that_comes_nor_its_link_costs_an_epoch() -> None:
    g1 = left_alone(STRIPED)
    assert g1.view("p1 p2 g1 g2+1") == []
    g1.delivers("p1/1")
    assert not any("open" in line for line in g1.fellow("g2+1", "caught up", "link 1 up"))
    assert g1.fellow("g2+1", "free 1 link 1") == ["to g2+1: assign 1 #1 p1/1 link 1"]


def test_a_newcomer_carries_in_the_epoch_that_goes_on() -> None:
    g1, new = left_alone(FIFO), Desk(FIFO, "g2+1", joining=True)
    assert g1.delivers("p2/1") == ["link 0: block 1 p2/1 home h2"]
    g1.view("p1 p2 g1 g2+1")
    new.view("p1 p2 g1 g2+1", 3)
    new.up(1, "h2")
    new.takes_over("p2/1", ("p2", 1, "p2/1"))
    assert "to g2+1: resume 1" in g1.fellow("g2+1", "link 1 up", "caught up")
    assert new.delivers("p2/2", number=2) == [], "it does not know the epoch yet"
    assert new.fellow("g1", "resume 1") == ["link 1: block 1 p2/1..2 home h2"]
    assert (g1.delivers("p2/2"), new.delivers("p2/3")) == ([], ["link 1: block 1 p2/3 home h2"])


def test_a_newcomer_begins_no_epoch_before_it_knows_the_past() -> None:
    """Else it would carry p2/2 without p2/1. The leader tells it again."""
    new = Desk(FIFO, "g2+1", joining=True)
    new.view("p1 p2 g1 g2+1", 3)
    new.up(1, "h2")
    new.fellow("g1", "open 2@g1:3", "resume 2@g1:3")
    lines = new.delivers("p2/2", number=2) + new.takes_over("p2/1", ("p2", 1, "p2/1"))
    assert not any("block" in line for line in lines)
    assert new.fellow("g1", "resume 2@g1:3") == ["link 1: block 2@g1:3 p2/1..2 home h2"]


def test_a_newcomer_carries_behind_what_was_final_when_the_epoch_began() -> None:
    """Its system holds p2/1 still, but the far side had it before this epoch."""
    g1, new = left_alone(FIFO), Desk(FIFO, "g2+1", joining=True)
    g1.link(0, "broken 1")
    g1.link(0, "resume 2@g1:2 behind p2/1")
    g1.view("p1 p2 g1 g2+1")
    new.view("p1 p2 g1 g2+1", 3)
    new.up(1, "h2")
    new.takes_over("p2/2", ("p2", 1, "p2/1..2"))
    assert "to g2+1: resume 2@g1:2 behind p2/1" in g1.fellow("g2+1", "link 1 up", "caught up")
    assert new.fellow("g1", "resume 2@g1:2 behind p2/1") == ["link 1: block 2@g1:2 p2/2 home h2"]


def test_a_newcomer_is_told_of_an_epoch_that_is_being_opened() -> None:
    g1, new = left_alone(FIFO), Desk(FIFO, "g2+1", joining=True)
    g1.link(0, "broken 1")
    g1.view("p1 p2 g1 g2+1")
    new.view("p1 p2 g1 g2+1", 3)
    new.up(1, "h2")
    new.takes_over()
    assert "to g2+1: open 2@g1:2" in g1.fellow("g2+1", "link 1 up", "caught up")
    assert new.fellow("g1", "open 2@g1:2") == ["link 1: open 2@g1:2"]


# A new process at the far end


def test_a_new_process_at_the_far_end_gets_again_what_was_under_way_to_the_old_one() -> None:
    """It may have been lost with it, and the next message must not arrive without it."""
    g1 = Desk(FIFO, "g1")
    g1.up(0, "h1")
    assert g1.delivers("p1/1") == ["link 0: block 1 p1/1 home h1"]
    assert g1.up(0, "h1+1") == ["to g2: link 0 down", "to g2: link 0 up", "link 0: block 1 p1/1 home h1"]
    assert g1.delivers("p1/2") == ["link 0: block 1 p1/2 home h1"]


def test_numbers_under_way_to_an_old_process_go_again_too() -> None:
    g1 = Desk(SETS, "g1")
    g1.up(0, "h1")
    assert g1.delivers("p1/1") == ["link 0: block 1 #1 p1/1 home h1"]
    assert g1.fellow("g2", "link 1 down") == []
    assert g1.up(0, "h1+1") == ["to g2: link 0 down", "to g2: link 0 up", "link 0: block 1 #1 p1/1 home h1"]


def test_what_waited_for_the_old_process_is_assigned_anew() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.up(1, "h2")
    g2.delivers("p1/1")
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1") == [], "the link is not ready"
    assert g2.up(1, "h2+1") == ["to g1: link 1 down", "to g1: link 1 up"]
    assert g2.ready(1) == ["to g1: free 1 link 1"], "g1 says anew what goes by it"


def test_a_link_that_was_ready_for_the_old_process_is_not_for_the_new_one() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.up(1, "h2")
    g2.ready(1)
    g2.delivers("p1/1")
    g2.up(1, "h2+1")
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1") == []
    assert "link 1: block 1 #1 p1/1" in g2.ready(1)


def test_the_same_process_over_a_new_connection_is_no_loss() -> None:
    g1 = Desk(STRIPED, "g1")
    g1.up(0, "h1")
    assert g1.up(0, "h1") == []


# The far side says that an epoch cannot go on


def test_the_far_side_lost_a_gateway() -> None:
    g1, g2 = Desk(STRIPED, "g1"), Desk(STRIPED, "g2")
    assert g2.link(1, "broken 1") == ["to g1: broken 1"]
    assert g1.fellow("g2", "broken 1") == ["to g2: open 2@g1", "link 0: open 2@g1"]
    assert g1.link(0, "broken 1") == [], "it is being seen to"


def test_a_leader_goes_beyond_whatever_the_far_side_knows() -> None:
    g1 = opened()
    assert g1.link(0, "broken 9@g2") == ["to g2: open 10@g1", "link 0: open 10@g1"]


def test_the_far_side_loses_a_gateway_again_before_its_answer_has_come() -> None:
    g1 = opened()
    assert g1.link(0, "broken 2@g1") == ["to g2: open 3@g1", "link 0: open 3@g1"]
    assert g1.link(0, "resume 2@g1") == []


# What is final is never carried again


@pytest.mark.parametrize("topology", [STRIPED, SETS, COUNTED, FIFO], ids=["striped", "sets", "counted", "by-origin"])
def test_what_is_final_is_skipped_however_late_it_is_delivered_here(topology: Topology) -> None:
    """A fellow that has died carried p1/3 before g1 delivered it."""
    g1 = opened(topology, "p1/1..2")
    g1.ready(0)
    assert g1.link(0, "resume 2@g1 behind p1/3") == ["to g2: resume 2@g1 behind p1/3"]
    number, home = "" if topology is FIFO else "#1 ", " home h1" if topology in (SETS, FIFO) else ""
    assert g1.delivers("p1/3..4") == [f"link 0: block 2@g1 {number}p1/4{home}"]


def test_an_empty_answer_brings_everything_that_nobody_has_confirmed() -> None:
    """A receiving side that has lost everything."""
    g1 = Desk(STRIPED, "g1")
    g1.ready(0)
    g1.delivers("p1/1..4")
    g1.link(0, "confirm p1/1")
    g1.link(0, "broken 1")
    g1.ready(0)
    assert g1.link(0, "resume 2@g1")[-1] == "link 0: block 2@g1 #1 p1/2..4"


# Answers: a block says what it may be an answer to


def test_a_block_names_what_the_sequencer_had_delivered_of_the_far_side() -> None:
    g1 = Desk(STRIPED, "g1")
    g1.ready(0)
    g1.delivers("q1/1..2", "g2")
    g1.delivers("q2/1", "g1")
    assert g1.delivers("p1/1") == ["link 0: block 1 #1 p1/1 after q1/2 q2/1"]
    g1.ready(0)
    assert g1.delivers("p1/2") == ["link 0: block 1 #2 p1/2"], "only what is new"
    g1.delivers("q1/3", "g2")
    g1.ready(0)
    assert g1.delivers("p1/3") == ["link 0: block 1 #3 p1/3 after q1/3"]


def test_the_sequencer_names_it_for_fellows_too() -> None:
    """Whoever carries it, it is named once, along the numbers."""
    g1, g2 = Desk(STRIPED, "g1"), Desk(STRIPED, "g2")
    for each in (g1, g2):
        each.delivers("q1/1", "g1")
    g2.delivers("q1/2", "g1")
    g1.fellow("g2", "free 1 link 1")
    assert g1.delivers("p1/1") == ["to g2: assign 1 #1 p1/1 link 1 after q1/1"]
    g2.ready(1)
    g2.delivers("p1/1")
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1 after q1/1") == ["link 1: block 1 #1 p1/1 after q1/1"]
    g1.ready(0)
    assert g1.delivers("p1/2") == ["link 0: block 1 #2 p1/2"]


def test_what_goes_by_another_link_names_it_again() -> None:
    """The block that named it is lost with its link."""
    g1 = Desk(SETS, "g1")
    g1.delivers("q1/1", "g1")
    assert g1.delivers("p2/1") == ["to g2: assign 1 #1 p2/1 link 1 home h2 after q1/1"]
    assert g1.fellow("g2", "link 1 down")[0] == "link 0: block 1 #1 p2/1 home h2 after q1/1"


def test_a_new_epoch_names_all_of_it_again() -> None:
    """A block that named it may never have arrived."""
    g1 = Desk(STRIPED, "g1")
    g1.ready(0)
    g1.delivers("q1/1", "g1")
    g1.delivers("p1/1")
    g1.link(0, "broken 1")
    g1.ready(0)
    assert g1.link(0, "resume 2@g1 behind p1/1") == ["to g2: resume 2@g1 behind p1/1"]
    assert g1.delivers("p1/2") == ["link 0: block 2@g1 #1 p1/2 after q1/1"]


def test_a_fifo_join_needs_no_such_names() -> None:
    g1 = Desk(FIFO, "g1")
    g1.delivers("q1/1", "g1")
    assert g1.delivers("p1/1") == ["link 0: block 1 p1/1 home h1"]


# Words that overtake others


def test_a_new_leaders_word_counts_even_when_it_overtakes_the_view() -> None:
    """g1 is dead, and g2 has installed the view without it, opened an epoch and heard the answer; g3 is slow.

    Sites are reliable, so g2 says nothing twice: what g3 does not take now, it never hears.
    """
    g3 = Desk(three_gateways("fifo"), "g3")
    assert g3.fellow("g2", "open 2@g2") == ["link 2: open 2@g2"]
    g3.fellow("g2", "resume 2@g2")
    g3.view("p1 p2 p3 g2 g3")
    assert g3.delivers("p3/1") == ["link 2: block 2@g2 p3/1 home h3"]


def test_everybody_counts_alike_even_where_a_confirmation_overtakes_the_word_to_go_on() -> None:
    """A join out of a log. The epoch has begun, and p1/1 is confirmed in it before g2 hears that it may go on."""
    g1, g2 = Desk(COUNTED, "g1"), Desk(COUNTED, "g2")
    for each in (g1, g2):
        each.delivers("p1/1..70")
    g1.link(0, "broken 1")
    g2.fellow("g1", "open 2@g1")
    assert g1.link(0, "resume 2@g1") == ["to g2: resume 2@g1", "link 0: block 2@g1 #1 p1/1..64"]
    assert g2.link(1, "confirm p1/1") == ["to g1: confirm p1/1"]
    assert g2.fellow("g1", "resume 2@g1") == ["link 1: block 2@g1 #65 p1/65..70"]


def test_everybody_counts_alike_even_where_a_confirmation_overtakes_the_opening_of_its_epoch() -> None:
    """The same, when g2 has not even heard that there is a new epoch."""
    g1, g2 = Desk(COUNTED, "g1"), Desk(COUNTED, "g2")
    for each in (g1, g2):
        each.delivers("p1/1..70")
    g1.link(0, "broken 1")
    g1.link(0, "resume 2@g1")
    g2.link(1, "confirm p1/1")
    g2.fellow("g1", "open 2@g1")
    assert g2.fellow("g1", "resume 2@g1") == ["link 1: block 2@g1 #65 p1/65..70"]


# Word of epochs that others opened


def test_word_that_an_open_came_late_does_not_end_the_epoch_that_it_names() -> None:
    """An `Open` that waited behind a block comes when the next epoch has begun; that one is as good as before."""
    g1 = opened()
    g1.link(0, "broken 2@g1")
    g1.link(0, "resume 3@g1")
    assert g1.link(0, "behind 3@g1") == []
    assert g1.fellow("g2", "behind 3@g1") == []


def test_a_leader_goes_above_what_a_leader_before_it_opened() -> None:
    g2 = Desk(STRIPED, "g2")
    g2.view("p1 p2 g2")
    assert g2.link(1, "behind 5@g1") == [], "the term of its own epoch is higher already"
    g1 = Desk(STRIPED, "g1")
    g1.view("p1 p2 g1 g2")
    assert g1.link(0, "behind 5@g2") == ["to g2: open 6@g1:2", "link 0: open 6@g1:2"]
    assert Desk(STRIPED, "g2").link(1, "behind 5@g1") == ["to g1: behind 5@g1"], "the leader has to know"


@pytest.mark.parametrize("word", ["behind 2@g2:2", "broken 2@g2:2", "resume 2@g2:2"])
def test_one_that_was_left_out_does_not_outbid_its_successor(word: str) -> None:
    """g2 leads in view 2, which has not come to g1 and never will: each would answer the other with a higher epoch."""
    assert Desk(STRIPED, "g1").link(0, word) == []


# Who knows what when


def test_a_fellow_may_know_better_than_the_leader_which_links_work() -> None:
    """g1 says which links the epoch begins with before it has heard from g2 that one of them is down; g3 has."""
    g3 = Desk(three_gateways("fifo"), "g3")
    g3.fellow("g1", "open 2@g1")
    g3.fellow("g2", "link 1 down")
    g3.fellow("g1", "resume 2@g1")
    assert g3.delivers("p2/1") == ["link 2: block 2@g1 p2/1 home h2"]


def test_the_links_of_one_that_is_gone_do_not_come_back_with_a_word_of_the_leader() -> None:
    """g1 says which links the epoch begins with before its own view without g2 is there."""
    g3 = Desk(three_gateways("fifo"), "g3")
    g3.fellow("g1", "open 2@g1")
    g3.view("p1 p2 p3 g1 g3")
    g3.fellow("g1", "resume 2@g1")
    assert g3.delivers("p2/1") == ["link 2: block 2@g1 p2/1 home h2"]


def newcomer_beside(g1: Desk, topology: Topology) -> Scene:
    """g2+1 has come into g1's system, and has still to take over."""
    scene = Scene(topology)
    scene.add(g1)
    scene.add(Desk(topology, "g2+1", joining=True))
    scene.everybody(("g1", "g2+1"), "view", "p1 p2 g1 g2+1", 3)
    return scene


def test_what_waits_for_a_newcomers_link_goes_by_it() -> None:
    """No link works before the newcomer's: the sequencer gives it what waits as soon as it hears of that one."""
    g1 = left_alone(SETS)
    g1.down(0)
    g1.delivers("p2/1")
    scene = newcomer_beside(g1, SETS)
    scene.do("g2+1", "up", 1, "h2")
    scene.do("g2+1", "takes_over", "p2/1", ("p2", 1, "p2/1"))
    scene.talk()
    assert "block 1 #1 p2/1 home h2" in [g1.names.show(pdu) for link, _, pdu in scene.wires if link == 1]


@pytest.mark.parametrize("epoch", ["1", "2@g1:2"])
def test_a_newcomer_that_does_not_know_the_epoch_hears_that_the_far_side_has_lost_a_gateway(epoch: str) -> None:
    """The far side says it once, and the newcomer's link may be the only one that works."""
    g1 = left_alone(STRIPED)
    if epoch != "1":
        g1.link(0, "broken 1")
        g1.link(0, f"resume {epoch}")
    scene = newcomer_beside(g1, STRIPED)
    scene.do("g2+1", "up", 1, "h2")
    scene.do("g2+1", "link", 1, f"broken {epoch}")
    scene.do("g2+1", "takes_over")
    scene.talk()
    assert g1.gateway.deadline() == RETRY_AFTER, "it is opening an epoch"


def test_a_newcomer_hears_it_even_before_its_first_view() -> None:
    """Its link may work before it is let in, and it does not know then who leads."""
    new = Desk(STRIPED, "g2+1", joining=True)
    new.up(1, "h2")
    new.link(1, "broken 1")
    new.view("p1 p2 g1+1 g2+1", 3)
    lines = new.takes_over() + new.fellow("g1+1", "resume 1")
    assert "to g1+1: broken 1" in lines


def test_a_fellow_hears_before_it_may_go_on_that_the_far_side_has_lost_a_gateway() -> None:
    """The far side answers, loses a gateway and says so over link 1, before g1's word has come to g2."""
    scene = Scene(STRIPED, "g1", "g2")
    scene.do("g1", "link", 0, "broken 1")
    scene.talk()
    scene.do("g1", "link", 0, "resume 2@g1")
    scene.do("g2", "link", 1, "broken 2@g1")
    scene.talk()
    assert scene.desks["g1"].gateway.deadline() == RETRY_AFTER, "it is opening an epoch"


def test_what_is_assigned_and_confirmed_in_part_is_carried_for_the_rest() -> None:
    """Link 1 took a part of a block, which has arrived, and was lost before it took the rest."""
    g3 = Desk(three_gateways("causal"), "g3")
    g3.delivers("p2/1..2")
    g3.delivers("p2/3..4")
    g3.fellow("g1", "link 1 down", "confirm p2/2")
    assert g3.fellow("g1", "assign 1 #1 p2/1..4 link 2 home h2") == ["link 2: block 1 #3 p2/3..4 home h2"]


def test_a_newcomer_out_of_a_log_does_not_wait_for_word_of_what_arrived_before_its_time() -> None:
    """The far side has delivered more than a window of this epoch, and said so before the newcomer came."""
    new = Desk(COUNTED, "g2+1", joining=True)
    new.view("p1 p2 g1 g2+1", 3)
    new.up(1, "h2")
    new.takes_over("p1/70000")
    new.fellow("g1", "link 0 up", "confirm p1/70000", "resume 1")
    assert new.delivers("p1/70001") == ["link 1: block 1 #70001 p1/70001"]
