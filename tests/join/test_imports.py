"""The receiving side of a join, step by step: what it broadcasts and when, and how an epoch ends there.

System b is q1 q2 with gateways h1 (link 0) and h2 (link 1); h1 leads as long as it lives. See `join_support` for how to
read the lines.
"""

from __future__ import annotations

import pytest
from join_support import Desk, three_gateways, two_systems

from isthmus.topology.model import Topology

CAUSAL = two_systems("causal")
FIFO = two_systems("fifo", "transfer-sets")
THREE = three_gateways("causal")


# Turns


def test_numbers_are_broadcast_in_their_order_whatever_order_they_arrive_in() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #3 p1/3") == []
    assert h1.link(0, "block 1 #1 p1/1..2") == ["relay p1/1..3"]


def test_a_number_waits_until_those_before_it_that_others_broadcast_are_delivered_here() -> None:
    """parallel, Fig. 5: a gateway broadcasts number k only after it has itself delivered number k - 1."""
    h2 = Desk(CAUSAL, "h2")
    assert h2.link(1, "block 1 #3 p2/1") == []
    assert h2.delivers("p1/1", "h1") == ["finish h1 1", "link 1: progress 1 #1"]
    assert h2.delivers("p1/2", "h1") == ["relay p2/1", "finish h1 2", "link 1: progress 1 #2"]


def test_numbers_of_its_own_follow_each_other_without_waiting() -> None:
    """They come in this order everywhere: they are broadcast by the same process."""
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1..2", "block 1 #3 p2/1") == ["relay p1/1..2 p2/1"]
    assert h1.link(0, "block 1 #4 p1/3") == ["relay p1/3"]
    assert h1.link(0, "block 1 #6 p2/3") == [], "5 came by another link"
    h1.delivers("p1/1..2 p2/1 p1/3", "h1")
    assert "relay p2/3" in h1.delivers("p2/2", "h2")


def test_fifo_joins_broadcast_what_comes_as_it_comes() -> None:
    h2 = Desk(FIFO, "h2")
    assert h2.link(1, "block 1 p2/1..2", "block 1 p2/3") == ["relay p2/1..3"]


# Answers


def test_an_answer_waits_for_what_it_may_answer() -> None:
    """A fellow carried q1/1 out, and the answer p1/1 is back before q1/1 is delivered here."""
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1 after q1/1") == []
    assert h1.link(0, "block 1 #2 p1/2") == [], "and so does everything behind it"
    h1.delivers("q2/1")
    assert h1.delivers("q1/1")[0] == "relay p1/1..2"


def test_an_answer_to_several_waits_for_all_of_them() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("q1/1")
    assert h1.link(0, "block 1 #1 p1/1 after q1/2 q2/1") == []
    assert not any("relay" in line for line in h1.delivers("q1/2"))
    assert "relay p1/1" in h1.delivers("q2/1")


def test_an_answer_to_what_is_delivered_and_confirmed_already_waits_for_nothing() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("q1/1")
    h1.link(0, "confirm q1/1")
    assert h1.link(0, "block 1 #1 p1/1 after q1/1") == ["relay p1/1"]


# How far it is


def test_progress_is_what_is_delivered_here_once_per_step() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1..3") == ["relay p1/1..3"], "broadcast is not delivered"
    assert h1.delivers("p1/1..3", "h1") == ["finish h1 1", "link 0: progress 1 #3"]
    assert h1.delivers("q1/1")[-1:] != ["link 0: progress 1 #3"]
    assert Desk(FIFO, "h1").delivers("p1/1", "h1") == ["finish h1 1"], "nobody counts in a FIFO join"


def test_a_link_that_is_up_again_hears_everything_again() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1..2", "h1")
    assert h1.settled("h1", 1) == ["link 0: confirm p1/2"]
    assert h1.up(0, "g1") == ["link 0: confirm p1/2", "link 0: progress 1 #2"]


# Epochs: freeze, report, conclude


def frozen(topology: Topology = CAUSAL, handed: str = "p1/1..2") -> Desk:
    """h1 when the sending side has opened the second epoch; it has broadcast something, and delivered nothing."""
    h1 = Desk(topology, "h1")
    number = "" if topology is FIFO else "#1 "
    h1.link(0, f"block 1 {number}{handed}")
    assert h1.link(0, "open 2@g1") == ["to h2: freeze 2@g1"]
    return h1


def test_an_epoch_begins_when_all_have_reported_and_all_they_broadcast_is_delivered() -> None:
    h1 = frozen()
    assert h1.fellow("h2", "frozen 2@g1 begun 1 handed p2/1") == []
    assert h1.delivers("p2/1", "h2") == ["finish h2 1"], "its own is missing; and no word of progress while frozen"
    assert h1.delivers("p1/1..2", "h1") == [
        "finish h1 1",
        "to h2: begin 2@g1 behind p1/2 p2/1",
        "link 0: resume 2@g1 behind p1/2 p2/1",
    ]


def test_an_epoch_waits_for_the_report_of_every_fellow() -> None:
    h1 = frozen()
    assert h1.delivers("p1/1..2", "h1") == ["finish h1 1"]
    assert h1.fellow("h2", "frozen 2@g1 begun 1") == [
        "to h2: begin 2@g1 behind p1/2",
        "link 0: resume 2@g1 behind p1/2",
    ]


def test_a_report_for_another_epoch_does_not_count() -> None:
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    assert h1.fellow("h2", "frozen 1 begun 1") == []
    assert h1.link(0, "open 3@g1") == ["to h2: freeze 3@g1"]
    assert h1.fellow("h2", "frozen 2@g1 begun 1") == []
    assert len(h1.fellow("h2", "frozen 3@g1 begun 1")) == 2


def test_reports_for_an_epoch_that_was_never_begun_are_not_used_for_the_next() -> None:
    h1 = Desk(THREE, "h1")
    h1.link(0, "open 2@g1")
    h1.fellow("h2", "frozen 2@g1 begun 1")
    assert h1.link(0, "open 3@g1") == ["to h2: freeze 3@g1", "to h3: freeze 3@g1"]
    assert h1.fellow("h3", "frozen 3@g1 begun 1") == [], "h2 may have broadcast something since"


def test_what_is_delivered_is_final_and_not_what_was_reported() -> None:
    """Of what one that died before has broadcast nobody reports."""
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    h1.delivers("p2/1..2", "h2")
    assert h1.fellow("h2", "frozen 2@g1 begun 1 handed p2/1")[-1] == "link 0: resume 2@g1 behind p1/2 p2/2"


@pytest.mark.parametrize("name", ["h1", "h2"])
def test_who_is_frozen_broadcasts_nothing(name: str) -> None:
    desk = Desk(CAUSAL, name)
    if name == "h1":
        desk.link(0, "open 2@g1")
    else:
        assert desk.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1 begun 1"]
    link = int(name == "h2")
    assert desk.link(link, "block 1 #1 p1/1") == []
    assert not any("relay" in line for line in desk.delivers("q1/1"))


def test_who_is_frozen_does_not_broadcast_what_it_held_before_either() -> None:
    """It has reported all that it broadcast: one more would not be waited for."""
    h2 = Desk(CAUSAL, "h2")
    h2.link(1, "block 1 #2 p2/1")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.delivers("p1/1", "h1") == ["finish h1 1"], "it is the turn of p2/1, but no longer in this epoch"


def test_nor_does_one_in_a_fifo_system() -> None:
    h2 = Desk(FIFO, "h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1")
    assert h2.link(1, "block 2@g1 p1/2") == [], "p1/1 is still to come"
    h2.fellow("h1", "freeze 3@g1")
    assert h2.delivers("p1/1", "h1") == ["finish h1 1"]
    h2.fellow("h1", "begin 3@g1 behind p1/1")
    assert h2.link(1, "block 3@g1 p1/2") == ["relay p1/2"], "once, in the epoch that goes on"


def test_what_was_held_of_an_old_epoch_is_dropped() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.link(1, "block 1 #2 p2/1")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1")
    lines = h2.delivers("p1/1", "h1") + h2.link(1, "block 1 #1 p2/1")
    assert not any("relay" in line for line in lines)
    assert h2.link(1, "block 2@g1 #1 p2/1") == ["relay p2/1"]


def test_a_report_says_what_was_broadcast_and_which_epoch_has_begun() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.link(1, "block 1 #1 p2/1..3")
    assert h2.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1 begun 1 handed p2/3"]
    h2.fellow("h1", "begin 2@g1 behind p2/3")
    assert h2.fellow("h1", "freeze 3@g1") == ["to h1: frozen 3@g1 begun 2@g1 behind p2/3 handed p2/3"]


def test_a_new_epoch_counts_from_one_behind_all_that_came_before() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.delivers("p1/1..2", "h1")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.fellow("h1", "begin 2@g1 behind p1/4") == ["link 1: resume 2@g1 behind p1/4"]
    assert h2.link(1, "block 2@g1 #1 p2/1") == [], "p1/3 and p1/4 are still to come"
    assert h2.delivers("p1/3", "h1") == ["finish h1 2"]
    assert h2.delivers("p1/4", "h1") == ["relay p2/1", "finish h1 3"]
    assert h2.delivers("p2/1", "h2") == ["finish h2 1", "link 1: progress 2@g1 #1"]


def test_a_block_that_arrives_before_its_epoch_has_begun_here_waits_for_it() -> None:
    h2 = Desk(CAUSAL, "h2")
    assert h2.link(1, "block 2@g1 #1 p2/1") == []
    h2.fellow("h1", "freeze 2@g1")
    assert h2.fellow("h1", "begin 2@g1") == ["relay p2/1", "link 1: resume 2@g1"]


@pytest.mark.parametrize(("topology", "concludes"), [(CAUSAL, True), (FIFO, False)], ids=["causal", "fifo"])
def test_where_a_system_is_only_fifo_what_is_final_has_to_be_everywhere(topology: Topology, concludes: bool) -> None:
    """There, what another gateway broadcasts next could be delivered first by somebody."""
    h1 = frozen(topology)
    h1.fellow("h2", "frozen 2@g1 begun 1")
    resume = "link 0: resume 2@g1 behind p1/2"
    assert (resume in h1.delivers("p1/1..2", "h1")) is concludes
    assert (resume in h1.settled("h1", 1)) is not concludes


def test_in_a_fifo_system_what_is_new_waits_for_what_is_old() -> None:
    h2 = Desk(FIFO, "h2")
    h2.fellow("h1", "freeze 2@g1")
    h2.fellow("h1", "begin 2@g1 behind p1/1")
    assert h2.link(1, "block 2@g1 p1/2") == []
    assert h2.delivers("p1/1", "h1") == ["relay p1/2", "finish h1 1"]


# Who is asked


def test_a_fellow_has_the_leader_see_to_an_epoch() -> None:
    h1, h2 = Desk(CAUSAL, "h1"), Desk(CAUSAL, "h2")
    assert h2.link(1, "open 2@g1") == ["to h1: freeze 2@g1"]
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: freeze 2@g1"]
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: freeze 2@g1"], "asked again, it asks again who has not answered"
    assert h2.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1 begun 1"]
    assert h1.fellow("h2", "frozen 2@g1 begun 1") == ["to h2: begin 2@g1", "link 0: resume 2@g1"]
    assert h2.fellow("h1", "begin 2@g1") == ["link 1: resume 2@g1"]


def test_an_epoch_that_has_begun_is_answered_again() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1")
    assert h2.link(1, "open 2@g1") == ["link 1: resume 2@g1 behind p1/1"]


@pytest.mark.parametrize("old", ["1", "2@g1"])
def test_who_opens_an_old_epoch_is_told_to_go_higher(old: str) -> None:
    """A leader that does not know what its predecessor opened."""
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "open 3@g1")
    assert h1.fellow("h2", "frozen 3@g1 begun 1")[-1] == "link 0: resume 3@g1"
    assert h1.link(0, f"open {old}") == ["link 0: behind 3@g1"]


def test_an_epoch_that_is_only_being_opened_counts_as_well() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "open 3@g1")
    assert h1.link(0, "open 2@g2") == ["link 0: behind 3@g1"]


# Gateways that are lost


def test_a_lost_fellow_is_told_over_the_links() -> None:
    assert Desk(CAUSAL, "h1").view("q1 q2 h1")[0] == "link 0: broken 1"
    assert "link 1: broken 1" in Desk(CAUSAL, "h2").view("q1 q2 h2")


def test_a_process_that_is_no_gateway_may_die_without_an_epoch() -> None:
    assert Desk(CAUSAL, "h1").view("q1 h1 h2") == []


def test_a_fellow_that_dies_before_it_reports_is_not_waited_for() -> None:
    """What it broadcast is delivered, or gone for good, once the view without it is there."""
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    h1.delivers("p2/1", "h2")
    assert "link 0: resume 2@g1~2 behind p1/2 p2/1" in h1.view("q1 q2 h1")


def test_a_report_of_one_that_died_since_is_not_waited_for_either() -> None:
    """It reported that it broadcast p2/5, which the view change has shown nobody to have."""
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    assert h1.fellow("h2", "frozen 2@g1 begun 1 handed p2/5") == []
    assert "link 0: resume 2@g1~2 behind p1/2" in h1.view("q1 q2 h1")


def test_a_leader_dies_between_freezing_and_beginning() -> None:
    h2 = Desk(THREE, "h2")
    h2.link(1, "block 1 #1 p2/1")
    h2.fellow("h1", "freeze 2@g1")
    lines = h2.view("q1 q2 q3 h2 h3")
    assert "to h3: freeze 2@g1" in lines
    assert "link 1: broken 1" in lines
    assert h2.fellow("h3", "frozen 2@g1 begun 1") == [], "p2/1 is not delivered yet"
    assert h2.delivers("p2/1", "h2") == [
        "finish h2 1",
        "to h3: begin 2@g1~2 behind p2/1",
        "link 1: resume 2@g1~2 behind p2/1",
    ]


def test_what_a_dead_leader_was_asked_the_next_one_sees_to() -> None:
    """The sending side noticed first, and its question died with h1. Its next one may be two seconds away."""
    h2, h3 = Desk(THREE, "h2"), Desk(THREE, "h3")
    assert h2.link(1, "open 2@g1") == ["to h1: freeze 2@g1"]
    assert "to h3: freeze 2@g1" in h2.view("q1 q2 q3 h2 h3")
    assert h3.link(2, "open 2@g1") == ["to h1: freeze 2@g1"]
    assert "to h2: freeze 2@g1" in h3.view("q1 q2 q3 h2 h3"), "one that does not lead asks who leads now"


def test_what_is_done_already_the_next_leader_does_not_see_to() -> None:
    h2 = Desk(THREE, "h2")
    h2.link(1, "open 2@g1")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1")
    assert not any("freeze" in line for line in h2.view("q1 q2 q3 h2 h3"))


def test_where_a_dead_leader_had_begun_its_word_stands() -> None:
    """h1 told h3 to begin behind p1/1, and died. h3 may have broadcast p3/1 in the new epoch: that is not final."""
    h2 = Desk(THREE, "h2")
    h2.delivers("p1/1", "h1")
    h2.fellow("h1", "freeze 2@g1")
    h2.delivers("p3/1", "h3")
    h2.view("q1 q2 q3 h2 h3")
    assert h2.fellow("h3", "frozen 2@g1 begun 2@g1 behind p1/1 handed p3/1") == [
        "to h3: begin 2@g1 behind p1/1",
        "link 1: resume 2@g1 behind p1/1",
        "link 1: progress 2@g1 #1",
    ]


def test_a_fellow_that_has_begun_does_not_begin_twice() -> None:
    h3 = Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1", "begin 2@g1")
    assert h3.link(2, "block 2@g1 #1 p3/1") == ["relay p3/1"]
    assert h3.link(2, "block 2@g1 #2 p3/2 after q1/1") == []
    assert h3.fellow("h2", "begin 2@g1") == []
    assert "relay p3/2" in h3.delivers("q1/1"), "what it held is still there"


# Confirmations


def test_what_is_settled_here_is_confirmed_by_origin() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1..2 p2/1", "h1")
    h1.delivers("p1/3", "h2")
    assert h1.settled("h1", 1) == ["link 0: confirm p1/2 p2/1"]
    assert h1.settled("h1", 1) == [], "no news"
    assert h1.settled("h2", 1) == ["link 0: confirm p1/3"]


def test_an_origin_is_confirmed_only_as_far_as_all_before_is_settled() -> None:
    """p1/1 came by h1 and p1/2 by h2, whose batch is settled first."""
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1", "h1")
    h1.delivers("p1/2", "h2")
    assert h1.settled("h2", 1) == []
    assert h1.settled("h1", 1) == ["link 0: confirm p1/2"]


def test_own_messages_of_the_system_are_not_confirmed_to_anybody() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("q1/1")
    assert h1.settled("q1", 1) == []


def test_a_link_that_is_down_is_told_nothing_and_hears_it_when_it_is_up() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1", "h1")
    h1.down(0)
    assert h1.settled("h1", 1) == []
    assert "link 0: confirm p1/1" in h1.up(0, "g1")
