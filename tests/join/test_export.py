"""The sending side of a join, step by step: what it says when something breaks, and what it never says twice.

System a is p1 p2 with gateways g1 (link 0) and g2 (link 1); g1 leads as long as it lives. See `join_support` for how
to read the lines.
"""

from __future__ import annotations

import pytest
from join_support import RETRY_AFTER, Desk, three_gateways, two_systems

from isthmus.topology.model import Topology

STRIPED = two_systems("causal")
SETS = two_systems("causal", "transfer-sets")
COUNTED = two_systems("causal", system_order="total")
FIFO = two_systems("fifo", "transfer-sets")


def opened(topology: Topology = STRIPED, delivered: str = "p1/1..3") -> Desk:
    """g1 when link 1 has broken: it has opened the second epoch and waits for the answer."""
    g1 = Desk(topology, "g1")
    if delivered:
        g1.delivers(delivered)
    assert g1.fellow("g2", "link 1 down") == ["to g2: open 2@g1", "link 0: open 2@g1"]
    return g1


# Links that break and come back


def test_a_link_breaks_and_its_messages_go_by_another() -> None:
    g1, g2 = Desk(FIFO, "g1"), Desk(FIFO, "g2")
    assert g1.delivers("p2/1") == []
    assert g2.delivers("p2/1") == ["link 1: block 1 p2/1"]
    assert g2.down(1) == ["to g1: link 1 down"]
    assert g1.fellow("g2", "link 1 down") == ["to g2: open 2@g1", "link 0: open 2@g1"]
    assert g2.fellow("g1", "open 2@g1") == [], "its link is down: there is nobody to tell"
    assert g1.link(0, "resume 2@g1") == ["to g2: resume 2@g1 by 0", "link 0: block 2@g1 p2/1"]
    assert g2.fellow("g1", "resume 2@g1 by 0") == []
    assert (g1.delivers("p2/2"), g2.delivers("p2/2")) == (["link 0: block 2@g1 p2/2"], [])


def test_a_link_that_comes_back_is_used_again() -> None:
    g1, g2 = Desk(FIFO, "g1"), Desk(FIFO, "g2")
    g2.down(1)
    g1.fellow("g2", "link 1 down")
    g1.link(0, "resume 2@g1")
    g2.fellow("g1", "open 2@g1", "resume 2@g1 by 0")
    assert g2.up(1, "h2") == ["to g1: link 1 up"]
    assert g1.fellow("g2", "link 1 up") == ["to g2: open 3@g1", "link 0: open 3@g1"]
    assert g2.fellow("g1", "open 3@g1") == ["link 1: open 3@g1"]
    assert g1.link(0, "resume 3@g1") == ["to g2: resume 3@g1 by 0 1"]
    assert g2.fellow("g1", "resume 3@g1 by 0 1") == []
    assert g2.delivers("p2/1") == ["link 1: block 3@g1 p2/1"]


def test_a_link_that_is_said_to_work_and_does_changes_nothing() -> None:
    g1 = Desk(STRIPED, "g1")
    assert g1.up(0, "h1") == []
    assert g1.fellow("g2", "link 1 up") == []
    g1.down(0)
    assert g1.down(0) == []


def test_without_any_link_an_epoch_waits_for_the_first_that_comes_back() -> None:
    g1 = opened()
    assert g1.down(0) == ["to g2: link 0 down", "to g2: open 3@g1"]
    assert set(g1.up(0, "h1")) == {"to g2: link 0 up", "to g2: open 4@g1", "link 0: open 4@g1"}


# An epoch between Open and the answer


@pytest.mark.parametrize("topology", [STRIPED, SETS, COUNTED, FIFO], ids=["striped", "sets", "counted", "by-origin"])
def test_nothing_goes_onto_a_link_while_an_epoch_is_opened(topology: Topology) -> None:
    g1 = opened(topology)
    lines = g1.ready(0) + g1.delivers("p1/4") + g1.delivers("p2/1") + g1.fellow("g2", "free 1 link 1", "progress 1 #3")
    assert lines == []
    assert g1.link(0, "progress 1 #3", "resume 1") == [], "of another epoch"
    resumed = g1.link(0, "resume 2@g1 behind p1/2")
    number = "" if topology is FIFO else "#1 "
    assert resumed == ["to g2: resume 2@g1 behind p1/2 by 0", f"link 0: block 2@g1 {number}p1/3..4 p2/1"]


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
    assert g2.fellow("g1", "resume 2@g1 behind p1/1 by 0 1") == ["to g1: free 2@g1 link 1"], "it was ready meanwhile"
    assert g2.fellow("g1", "open 2@g1") == [], "it has begun"


def test_the_leader_begins_with_an_answer_that_came_over_a_fellows_link() -> None:
    g1 = opened()
    g1.ready(0)
    assert g1.fellow("g2", "resume 2@g1 behind p1/1") == [
        "to g2: resume 2@g1 behind p1/1 by 0",
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
    g2.fellow("g1", "open 2@g1", "resume 2@g1 by 0 1")
    g2.ready(1)
    assert g2.fellow("g1", "assign 1 #1 p1/1 link 1") == []
    assert "link 1: block 2@g1 #1 p1/1" in g2.fellow("g1", "assign 2@g1 #1 p1/1 link 1")


def test_a_fellow_passes_on_how_far_the_far_side_is_in_this_epoch() -> None:
    g2 = Desk(STRIPED, "g2")
    assert g2.link(1, "progress 1 #4") == ["to g1: progress 1 #4"]
    g2.fellow("g1", "open 2@g1")
    assert g2.link(1, "progress 1 #5", "progress 2@g1 #1") == [], "of the old one, and too early"
    g2.fellow("g1", "resume 2@g1 by 0 1")
    assert g2.link(1, "progress 1 #5", "progress 2@g1 #1") == ["to g1: progress 2@g1 #1"]


def test_a_link_that_was_ready_asks_again_in_every_epoch() -> None:
    g2 = Desk(STRIPED, "g2")
    assert g2.ready(1) == ["to g1: free 1 link 1"]
    g2.fellow("g1", "open 2@g1")
    assert g2.fellow("g1", "resume 2@g1 by 0 1") == ["to g1: free 2@g1 link 1"]
    g2.fellow("g1", "open 3@g1")
    assert g2.fellow("g1", "resume 3@g1 by 0 1") == ["to g1: free 3@g1 link 1"]


def test_a_block_waits_until_all_of_it_is_delivered_here() -> None:
    g2 = Desk(SETS, "g2")
    g2.fellow("g1", "open 2@g1", "resume 2@g1 by 1")
    assert g2.fellow("g1", "assign 2@g1 #1 p1/1 p2/1 link 1") == []
    assert g2.delivers("p2/1") == []
    assert g2.delivers("p1/1") == ["link 1: block 2@g1 #1 p1/1 p2/1"]


def test_numbers_of_one_link_stay_in_order() -> None:
    """p2/1 is there, but its number is behind that of p1/1, which is not."""
    g2 = Desk(SETS, "g2")
    g2.fellow("g1", "open 2@g1", "resume 2@g1 by 1")
    g2.fellow("g1", "assign 2@g1 #1 p1/1 link 1", "assign 2@g1 #2 p2/1 link 1")
    assert g2.delivers("p2/1") == []
    assert g2.delivers("p1/1") == ["link 1: block 2@g1 #1 p1/1", "link 1: block 2@g1 #2 p2/1"]


def test_an_epoch_that_is_being_opened_needs_no_other_one_in_its_place() -> None:
    g1 = opened()
    assert g1.fellow("g2", "broken 1") == []
    assert g1.link(0, "broken 1") == []


# Gateways that are lost


def test_a_new_leader_uses_the_links_that_the_old_one_used() -> None:
    """It has not heard from g3 that link 2 is down, but g1 had, and left it out."""
    g2 = Desk(three_gateways("fifo"), "g2")
    g2.fellow("g1", "open 2@g1", "resume 2@g1 by 0 1")
    g2.view("p1 p2 p3 g2 g3")
    assert g2.link(1, "resume 3@g2:2") == ["to g3: resume 3@g2:2 by 1"]


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


def test_a_fellow_that_comes_costs_no_epoch_but_its_link_does() -> None:
    g1 = Desk(STRIPED, "g1")
    g1.view("p1 p2 g1")
    g1.link(0, "resume 2@g1:2")
    assert g1.view("p1 p2 g1 g2+1") == []
    assert g1.fellow("g2+1", "link 1 up") == ["to g2+1: open 3@g1:3", "link 0: open 3@g1:3"]


# A new process at the far end


def test_a_new_process_at_the_far_end_gets_nothing_of_the_old_epoch() -> None:
    """What went before is lost with the old process; the next message must not arrive without it."""
    g1 = Desk(FIFO, "g1")
    g1.up(0, "h1")
    assert g1.delivers("p1/1") == ["link 0: block 1 p1/1"]
    assert set(g1.up(0, "h1+1")) == {"to g2: open 2@g1", "link 0: open 2@g1", "link 0: broken 1"}
    assert g1.delivers("p1/2") == []
    assert g1.link(0, "resume 2@g1") == ["to g2: resume 2@g1 by 0 1", "link 0: block 2@g1 p1/1..2"]


def test_one_that_does_not_lead_puts_nothing_on_a_void_link_either() -> None:
    g2 = Desk(FIFO, "g2")
    g2.up(1, "h2")
    assert g2.delivers("p2/1") == ["link 1: block 1 p2/1"]
    assert g2.up(1, "h2+1") == ["to g1: broken 1", "link 1: broken 1"]
    assert g2.delivers("p2/2") == [], "the leader has not opened an epoch yet, but this link is void"
    g2.fellow("g1", "open 2@g1")
    assert g2.fellow("g1", "resume 2@g1 by 0 1") == ["link 1: block 2@g1 p2/1..2"]
    assert g2.delivers("p2/3") == ["link 1: block 2@g1 p2/3"]


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


# What is final is never carried again


@pytest.mark.parametrize("topology", [STRIPED, SETS, COUNTED, FIFO], ids=["striped", "sets", "counted", "by-origin"])
def test_what_is_final_is_skipped_however_late_it_is_delivered_here(topology: Topology) -> None:
    """A fellow that has died carried p1/3 before g1 delivered it."""
    g1 = opened(topology, "p1/1..2")
    g1.ready(0)
    assert g1.link(0, "resume 2@g1 behind p1/3") == ["to g2: resume 2@g1 behind p1/3 by 0"]
    number = "" if topology is FIFO else "#1 "
    assert g1.delivers("p1/3..4") == [f"link 0: block 2@g1 {number}p1/4"]


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


def test_a_block_names_what_its_carrier_had_delivered_of_the_far_side() -> None:
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


def test_a_new_epoch_names_all_of_it_again() -> None:
    """A block that named it may never have arrived."""
    g1 = Desk(STRIPED, "g1")
    g1.ready(0)
    g1.delivers("q1/1", "g1")
    g1.delivers("p1/1")
    g1.fellow("g2", "link 1 down")
    g1.ready(0)
    assert g1.link(0, "resume 2@g1 behind p1/1") == ["to g2: resume 2@g1 behind p1/1 by 0"]
    assert g1.delivers("p1/2") == ["link 0: block 2@g1 #1 p1/2 after q1/1"]


def test_a_fifo_join_needs_no_such_names() -> None:
    g1 = Desk(FIFO, "g1")
    g1.delivers("q1/1", "g1")
    assert g1.delivers("p1/1") == ["link 0: block 1 p1/1"]


# Words that overtake others


def test_a_new_leaders_word_counts_even_when_it_overtakes_the_view() -> None:
    """g1 is dead, and g2 has installed the view without it, opened an epoch and heard the answer; g3 is slow.

    Sites are reliable, so g2 says nothing twice: what g3 does not take now, it never hears.
    """
    g3 = Desk(three_gateways("fifo"), "g3")
    assert g3.fellow("g2", "open 2@g2") == ["link 2: open 2@g2"]
    g3.fellow("g2", "resume 2@g2 by 1 2")
    g3.view("p1 p2 p3 g2 g3")
    assert g3.delivers("p3/1") == ["link 2: block 2@g2 p3/1"]


def test_everybody_counts_alike_even_where_a_confirmation_overtakes_the_word_to_go_on() -> None:
    """A join out of a log. The epoch has begun, and p1/1 is confirmed in it before g2 hears that it may go on."""
    g1, g2 = Desk(COUNTED, "g1"), Desk(COUNTED, "g2")
    for each in (g1, g2):
        each.delivers("p1/1..70")
    g1.link(0, "broken 1")
    g2.fellow("g1", "open 2@g1")
    assert g1.link(0, "resume 2@g1") == ["to g2: resume 2@g1 by 0 1", "link 0: block 2@g1 #1 p1/1..64"]
    assert g2.link(1, "confirm p1/1") == ["to g1: confirm p1/1"]
    assert g2.fellow("g1", "resume 2@g1 by 0 1") == ["link 1: block 2@g1 #65 p1/65..70"]


def test_everybody_counts_alike_even_where_a_confirmation_overtakes_the_opening_of_its_epoch() -> None:
    """The same, when g2 has not even heard that there is a new epoch."""
    g1, g2 = Desk(COUNTED, "g1"), Desk(COUNTED, "g2")
    for each in (g1, g2):
        each.delivers("p1/1..70")
    g1.link(0, "broken 1")
    g1.link(0, "resume 2@g1")
    g2.link(1, "confirm p1/1")
    g2.fellow("g1", "open 2@g1")
    assert g2.fellow("g1", "resume 2@g1 by 0 1") == ["link 1: block 2@g1 #65 p1/65..70"]


# Word of epochs that others opened


def test_word_that_an_open_came_late_does_not_end_the_epoch_that_it_names() -> None:
    """An `Open` that waited behind a block comes when the next epoch has begun; that one is as good as before."""
    g1 = opened()
    g1.fellow("g2", "link 1 up")
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
