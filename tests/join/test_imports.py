"""The receiving side of a join, step by step: what it broadcasts and when, and how an epoch ends there.

System b is q1 q2 with gateways h1 (link 0) and h2 (link 1); h1 leads as long as it lives, and relays what names no
home. Where there are three, h3 has link 2, and each origin has a link and a home of its own. See `join_support` for how
to read the lines.
"""

from __future__ import annotations

import pytest
from join_support import RETRY_AFTER, Desk, Scene, join, system, three_gateways, two_systems

from isthmus.core.wire.join import term_of
from isthmus.join.grouped import GroupGateway
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans

CAUSAL = two_systems("causal")
FIFO = two_systems("fifo", "transfer-sets")
THREE = three_gateways("causal")
HUB = parse(
    system("a", "causal", "p1 p2", "g1 g2") + system("b", "causal", "q1 q2", "h1") + join("a", "b", "causal"), "t.toml"
)
"""h1 alone has both links: 0 to g1, 1 to g2."""


# Turns


def test_numbers_are_broadcast_in_their_order_whatever_order_they_arrive_in() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #3 p1/3") == []
    assert h1.link(0, "block 1 #1 p1/1..2") == ["relay p1/1..3"]


def test_a_number_waits_until_those_before_it_that_others_broadcast_are_delivered_here() -> None:
    """parallel, Fig. 5: a gateway broadcasts number k only after it has itself delivered number k - 1."""
    h2 = Desk(THREE, "h2")
    assert h2.link(1, "block 1 #3 p2/1 home h2") == []
    assert h2.delivers("p1/1", "h1") == ["finish h1 1"]
    assert h2.delivers("p1/2", "h1") == ["relay p2/1", "finish h1 2"]


def test_numbers_of_its_own_follow_each_other_without_waiting() -> None:
    """They come in this order everywhere: they are broadcast by the same process."""
    h1 = Desk(THREE, "h1")
    assert h1.link(0, "block 1 #1 p1/1..2 home h1", "block 1 #3 p1/3 home h1") == ["relay p1/1..3"]
    assert h1.link(0, "block 1 #4 p1/4 home h1") == ["relay p1/4"]
    assert h1.link(0, "block 1 #6 p1/5 home h1") == [], "5 has another home"
    h1.delivers("p1/1..4", "h1")
    assert "relay p1/5" in h1.delivers("p2/1", "h2")


def test_fifo_joins_broadcast_what_comes_as_it_comes() -> None:
    h2 = Desk(FIFO, "h2")
    assert h2.link(1, "block 1 p2/1..2 home h2", "block 1 p2/3 home h2") == ["relay p2/1..3"]


# Homes


@pytest.mark.parametrize(
    ("topology", "block"),
    [(CAUSAL, "block 1 #1 p2/1"), (FIFO, "block 1 p1/1 home h1"), (THREE, "block 1 #1 p1/1 home h1 after q2/1")],
    ids=["striped", "fifo", "sets"],
)
def test_whoever_gets_a_block_passes_it_on_to_its_home(topology: Topology, block: str) -> None:
    h1, h2 = Desk(topology, "h1"), Desk(topology, "h2")
    h1.delivers("q2/1")
    h2.delivers("q2/1")
    assert h2.link(1, block) == [f"to h1: pass {block}"]
    assert h1.fellow("h2", f"pass {block}") == [f"relay {'p2/1' if topology is CAUSAL else 'p1/1'}"]


def test_a_block_counts_as_accepted_where_it_came_off_a_link() -> None:
    h1, h2 = Desk(CAUSAL, "h1"), Desk(CAUSAL, "h2")
    h2.link(1, "block 1 #1 p2/1")
    assert [(each.event, each.link) for each in h2.out.carried] == [("accept", 1)]
    h1.fellow("h2", "pass block 1 #1 p2/1")
    assert h1.out.carried == []


def test_what_is_passed_on_waits_for_its_turn_like_all_else() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.fellow("h2", "pass block 1 #2 p2/1") == []
    assert h1.link(0, "block 1 #1 p1/1") == ["relay p1/1 p2/1"]


def test_a_home_that_was_not_there_when_the_epoch_began_is_the_relay() -> None:
    """h2 was away then, and whoever has come in its place since does not know what this epoch brought before."""
    h1 = Desk(THREE, "h1")
    h1.view("q1 q2 q3 h1 h3")
    h1.link(0, "open 2@g1")
    assert h1.fellow("h3", "frozen 2@g1")[0] == "to h3: begin 2@g1~2 with h1 h3"
    h1.view("q1 q2 q3 h1 h3 h2+1")
    assert h1.link(0, "block 2@g1~2 #1 p2/1 home h2") == ["relay p2/1"]
    assert h1.link(0, "block 2@g1~2 #2 p3/1 home h3") == ["to h3: pass block 2@g1~2 #2 p3/1 home h3"]


# What comes more than once


def test_numbers_that_come_by_two_links_are_broadcast_once() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1..2") == ["relay p1/1..2"]
    assert h1.fellow("h2", "pass block 1 #1 p1/1..2") == []
    h1.delivers("p1/1..2", "h1")
    assert not any("relay" in line for line in h1.fellow("h2", "pass block 1 #1 p1/1..2"))


@pytest.mark.parametrize(
    ("first", "second", "relayed"),
    [
        ("#1 p1/1..3", "#2 p1/2..5", ["relay p1/1..3", "relay p1/4..5"]),
        ("#1 p1/1..5", "#2 p1/2..3", ["relay p1/1..5"]),
        ("#1 p1/1..2", "#1 p1/1..4", ["relay p1/1..2", "relay p1/3..4"]),
        ("#2 p1/2..3", "#1 p1/1..5", ["relay p1/1..5"]),
        ("#2 p1/2..5", "#1 p1/1..3", ["relay p1/1..5"]),
    ],
)
def test_of_blocks_that_overlap_every_number_is_broadcast_once(first: str, second: str, relayed: list[str]) -> None:
    """The same numbers go by another link in larger or smaller blocks: as suits its line."""
    h1 = Desk(CAUSAL, "h1")
    lines = h1.link(0, f"block 1 {first}") + h1.fellow("h2", f"pass block 1 {second}")
    assert lines == relayed


def test_of_two_blocks_that_wait_from_the_same_number_on_the_larger_one_counts() -> None:
    h1 = Desk(CAUSAL, "h1")
    for words in ("#2 p1/2..3", "#2 p1/2..5", "#2 p1/2"):
        assert h1.link(0, f"block 1 {words}") == []
    assert h1.link(0, "block 1 #1 p1/1") == ["relay p1/1..5"]


def test_what_is_broadcast_already_is_dropped_while_the_next_number_waits_for_what_it_may_answer() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1..5", "block 1 #6 p1/6 after q1/1") == ["relay p1/1..5"]
    assert h1.fellow("h2", "pass block 1 #3 p1/3..4", "pass block 1 #5 p1/5..7") == []
    assert h1.delivers("q1/1")[0] == "relay p1/6..7"


def test_what_overlaps_still_waits_for_what_it_may_answer() -> None:
    h1 = Desk(CAUSAL, "h1")
    assert h1.link(0, "block 1 #1 p1/1") == ["relay p1/1"]
    assert h1.link(0, "block 1 #1 p1/1..2 after q1/1") == []
    assert h1.delivers("q1/1")[0] == "relay p1/2"


def test_in_a_fifo_join_too_every_message_is_broadcast_once() -> None:
    h1 = Desk(FIFO, "h1")
    assert h1.link(0, "block 1 p1/1..3 home h1") == ["relay p1/1..3"]
    assert h1.fellow("h2", "pass block 1 p1/1..3 home h1") == []
    assert h1.fellow("h2", "pass block 1 p1/2..5 home h1") == ["relay p1/4..5"]
    h1.delivers("p1/1..5", "h1")
    assert h1.link(0, "block 1 p1/4..6 home h1") == ["relay p1/6"]


# The same again


def test_of_a_fifo_block_only_what_is_new_is_broadcast() -> None:
    """Whoever comes to carry p1 sends all that nobody has confirmed; some of it came by the other link."""
    h1 = Desk(FIFO, "h1")
    assert h1.link(0, "block 1 p1/1..2 home h1") == ["relay p1/1..2"]
    assert h1.fellow("h2", "pass block 1 p1/1..3 p2/1 home h1") == ["relay p1/3 p2/1"]
    assert h1.link(0, "block 1 p1/2..3 home h1") == []


def test_what_was_delivered_here_is_not_broadcast_whoever_broadcast_it() -> None:
    h1 = Desk(FIFO, "h1")
    h1.delivers("p1/1", "h2")
    assert h1.link(0, "block 1 p1/1..2 home h1") == ["relay p1/2"]


def test_a_stream_may_begin_behind_what_somebody_confirmed_of_whom_nothing_is_left_here() -> None:
    h1 = Desk(FIFO, "h1")
    assert h1.link(0, "block 1 p1/5 home h1") == ["relay p1/5"]


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


def test_only_the_relay_says_how_far_it_is() -> None:
    assert Desk(CAUSAL, "h1").delivers("p1/1", "h1") == ["finish h1 1", "link 0: progress 1 #1"]
    assert Desk(CAUSAL, "h2").delivers("p1/1", "h1") == ["finish h1 1"]


def test_others_say_it_while_the_relay_has_no_link_that_works() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.fellow("h1", "link 0 down")
    assert h2.delivers("p1/1", "h1") == ["finish h1 1", "link 1: progress 1 #1"]
    h2.fellow("h1", "link 0 up")
    assert h2.delivers("p1/2", "h1") == ["finish h1 2"]


def test_what_the_relay_said_over_a_link_that_is_lost_others_say_again() -> None:
    """The sending side may have filled its window meanwhile: nothing more comes until it hears of this."""
    h2 = Desk(CAUSAL, "h2")
    h2.delivers("p1/1", "h1")
    assert h2.fellow("h1", "link 0 down") == ["link 1: progress 1 #1"]
    assert h2.fellow("h1", "link 0 up") == []


def test_a_relay_with_several_links_says_it_over_one_to_the_leader_of_the_epoch() -> None:
    h1 = Desk(HUB, "h1")
    assert h1.link(0, "open 2@g2") == ["link 0: resume 2@g2", "link 1: resume 2@g2"]
    assert h1.delivers("p1/1", "h1") == ["finish h1 1", "link 1: progress 2@g2 #1"], "g2 is at the end of link 1"
    assert h1.down(1)[-1] == "link 0: progress 2@g2 #1", "what was said over a lost link is said over another"
    assert h1.delivers("p1/2", "h1") == ["finish h1 2", "link 0: progress 2@g2 #2"]
    h1.up(1, "g2")
    assert h1.delivers("p1/3", "h1") == ["finish h1 3", "link 1: progress 2@g2 #3"]


def test_in_an_epoch_that_nobody_opened_the_links_of_the_relay_take_turns() -> None:
    h1 = Desk(HUB, "h1")
    said = [h1.delivers(f"p1/{seq}", "h1")[-1] for seq in (1, 2, 3, 4)]
    assert sorted(line.partition(":")[0] for line in said) == ["link 0", "link 0", "link 1", "link 1"]


def test_a_block_that_was_delivered_already_makes_the_relay_repeat_its_progress() -> None:
    """Whoever sends it has not heard of it."""
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "block 1 #1 p1/1..2")
    assert h1.link(0, "block 1 #1 p1/1..2") == [], "broadcast, but not delivered"
    h1.delivers("p1/1..2", "h1")
    assert h1.fellow("h2", "pass block 1 #1 p1/1") == ["link 0: progress 1 #2"]
    assert h1.fellow("h2", "pass block 1 #2 p1/2..3") == ["relay p1/3"]


def test_a_link_that_is_up_again_hears_everything_again() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1..2", "h1")
    assert h1.settled("h1", 1) == ["link 0: confirm p1/2"]
    assert h1.up(0, "g1") == ["link 0: confirm p1/2", "link 0: progress 1 #2"]


# Epochs: freeze, report, conclude


def frozen(topology: Topology = CAUSAL, handed: str = "p1/1..2") -> Desk:
    """h1 when the sending side has opened the second epoch; it has broadcast something, and delivered nothing."""
    h1 = Desk(topology, "h1")
    h1.link(0, f"block 1 {handed} home h1" if topology is FIFO else f"block 1 #1 {handed}")
    assert h1.link(0, "open 2@g1") == ["to h2: freeze 2@g1"]
    return h1


def test_an_epoch_begins_when_all_have_reported_and_all_they_broadcast_is_delivered() -> None:
    h1 = frozen()
    assert h1.fellow("h2", "frozen 2@g1 handed p2/1") == []
    assert h1.delivers("p2/1", "h2") == ["finish h2 1"], "its own is missing; and no word of progress while frozen"
    assert h1.delivers("p1/1..2", "h1") == [
        "finish h1 1",
        "to h2: begin 2@g1 behind p1/2 p2/1 with h1 h2",
        "link 0: resume 2@g1 behind p1/2 p2/1",
    ]


def test_an_epoch_waits_for_the_report_of_every_fellow() -> None:
    h1 = frozen()
    assert h1.delivers("p1/1..2", "h1") == ["finish h1 1"]
    assert h1.fellow("h2", "frozen 2@g1") == [
        "to h2: begin 2@g1 behind p1/2 with h1 h2",
        "link 0: resume 2@g1 behind p1/2",
    ]


def test_a_report_for_another_epoch_does_not_count() -> None:
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    assert h1.fellow("h2", "frozen 1") == []
    assert h1.link(0, "open 3@g1") == ["to h2: freeze 3@g1"]
    assert h1.fellow("h2", "frozen 2@g1") == []
    assert len(h1.fellow("h2", "frozen 3@g1")) == 2


def test_reports_for_an_epoch_that_was_never_begun_are_not_used_for_the_next() -> None:
    h1 = Desk(THREE, "h1")
    h1.link(0, "open 2@g1")
    h1.fellow("h2", "frozen 2@g1")
    assert h1.link(0, "open 3@g1") == ["to h2: freeze 3@g1", "to h3: freeze 3@g1"]
    assert h1.fellow("h3", "frozen 3@g1") == [], "h2 may have broadcast something since"


def test_what_is_delivered_is_final_and_not_what_was_reported() -> None:
    """Of what one that died before has broadcast nobody reports."""
    h1 = frozen()
    h1.delivers("p1/1..2", "h1")
    h1.delivers("p2/1..2", "h2")
    assert h1.fellow("h2", "frozen 2@g1 handed p2/1")[-1] == "link 0: resume 2@g1 behind p1/2 p2/2"


@pytest.mark.parametrize("name", ["h1", "h2"])
def test_who_is_frozen_broadcasts_nothing(name: str) -> None:
    desk = Desk(THREE, name)
    if name == "h1":
        desk.link(0, "open 2@g1")
    else:
        assert desk.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1"]
    link = int(name == "h2")
    assert desk.link(link, f"block 1 #1 p1/1 home {name}") == []
    assert not any("relay" in line for line in desk.delivers("q1/1"))


def test_who_is_frozen_passes_nothing_on_either() -> None:
    """Its home is frozen or will be, and the next epoch brings it again."""
    h2 = Desk(CAUSAL, "h2")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.link(1, "block 1 #1 p1/1") == []


def test_who_is_frozen_does_not_broadcast_what_it_held_before_either() -> None:
    """It has reported all that it broadcast: one more would not be waited for."""
    h2 = Desk(THREE, "h2")
    h2.link(1, "block 1 #2 p2/1 home h2")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.delivers("p1/1", "h1") == ["finish h1 1"], "it is the turn of p2/1, but no longer in this epoch"


def test_nor_does_one_in_a_fifo_system() -> None:
    h2 = Desk(FIFO, "h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1 with h1 h2")
    assert h2.link(1, "block 2@g1 p1/2 home h2") == [], "p1/1 is still to come"
    h2.fellow("h1", "freeze 3@g1")
    assert h2.delivers("p1/1", "h1") == ["finish h1 1"]
    h2.fellow("h1", "begin 3@g1 behind p1/1 with h1 h2")
    assert h2.link(1, "block 3@g1 p1/2 home h2") == ["relay p1/2"], "once, in the epoch that goes on"


def test_what_was_held_of_an_old_epoch_is_dropped() -> None:
    h2 = Desk(THREE, "h2")
    h2.link(1, "block 1 #2 p2/1 home h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1 with h1 h2 h3")
    lines = h2.delivers("p1/1", "h1") + h2.link(1, "block 1 #1 p2/1 home h2")
    assert not any("relay" in line for line in lines)
    assert h2.link(1, "block 2@g1 #1 p2/1 home h2") == ["relay p2/1"]


def test_a_report_says_all_that_was_ever_broadcast() -> None:
    h2 = Desk(THREE, "h2")
    h2.link(1, "block 1 #1 p2/1..3 home h2")
    assert h2.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1 handed p2/3"]
    h2.fellow("h1", "begin 2@g1 behind p2/3 with h1 h2 h3")
    assert h2.fellow("h1", "freeze 3@g1") == ["to h1: frozen 3@g1 handed p2/3"]


def test_what_was_passed_on_is_reported_by_its_home_alone() -> None:
    h1, h2 = Desk(CAUSAL, "h1"), Desk(CAUSAL, "h2")
    assert h2.link(1, "block 1 #1 p2/1") == ["to h1: pass block 1 #1 p2/1"]
    assert h2.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1"]
    h1.link(0, "open 2@g1")
    assert h1.fellow("h2", "pass block 1 #1 p2/1") == [], "it has come too late for this epoch"
    assert h1.fellow("h2", "frozen 2@g1")[-1] == "link 0: resume 2@g1", "the next one brings it again"


def test_a_new_epoch_counts_from_one_behind_all_that_came_before() -> None:
    h2 = Desk(THREE, "h2")
    h2.delivers("p1/1..2", "h1")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.fellow("h1", "begin 2@g1 behind p1/4 with h2 h3") == ["link 1: resume 2@g1 behind p1/4"]
    assert h2.link(1, "block 2@g1 #1 p2/1 home h2") == [], "p1/3 and p1/4 are still to come"
    assert h2.delivers("p1/3", "h1") == ["finish h1 2"]
    assert h2.delivers("p1/4", "h1") == ["relay p2/1", "finish h1 3"]
    assert h2.delivers("p2/1", "h2") == ["finish h2 1", "link 1: progress 2@g1 #1"]


def test_a_block_that_arrives_before_its_epoch_has_begun_here_waits_for_it() -> None:
    h2 = Desk(FIFO, "h2")
    h2.fellow("h1", "freeze 2@g1")
    assert h2.link(1, "block 2@g1 p2/1 home h2") == []
    assert h2.fellow("h1", "begin 2@g1 with h1 h2") == ["relay p2/1", "link 1: resume 2@g1"]


def test_and_so_does_one_that_is_passed_on_before() -> None:
    """Words and blocks go their own ways from fellow to fellow."""
    h3 = Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1")
    assert h3.fellow("h2", "pass block 2@g1 #1 p3/1 home h3") == []
    assert h3.fellow("h1", "begin 2@g1 with h1 h2 h3") == ["relay p3/1", "link 2: resume 2@g1"]


def test_a_block_of_an_epoch_that_nobody_has_told_of_makes_its_gateway_ask_the_leader_once() -> None:
    h1, h2 = Desk(FIFO, "h1"), Desk(FIFO, "h2")
    h1.link(0, "open 2@g1")
    assert h1.fellow("h2", "frozen 2@g1")[0] == "to h2: begin 2@g1 with h1 h2"
    assert h2.link(1, "block 2@g1 p2/1 home h2") == ["to h1: freeze 2@g1"]
    assert h2.link(1, "block 2@g1 p2/2 home h2") == [], "it has asked already"
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: begin 2@g1 with h1 h2"], "it has begun, and nobody freezes"
    assert h2.fellow("h1", "begin 2@g1 with h1 h2") == ["relay p2/1..2", "link 1: resume 2@g1"]


def test_who_asks_for_an_epoch_that_is_over_is_told_which_one_it_is() -> None:
    h1 = Desk(FIFO, "h1")
    h1.link(0, "open 3@g1")
    h1.fellow("h2", "frozen 3@g1")
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: begin 3@g1 with h1 h2"]


def test_a_leader_that_gets_such_a_block_sees_to_the_epoch_itself() -> None:
    """Whoever began it is gone. What it begins is another epoch, and the sending side hears that it has to go on."""
    h2 = Desk(CAUSAL, "h2")
    h2.view("q1 q2 h2")
    assert h2.link(1, "block 2@g1 #1 p2/1") == ["link 1: resume 2@g1~2"]
    assert h2.link(1, "block 2@g1~2 #1 p2/1") == ["relay p2/1"]


@pytest.mark.parametrize(("topology", "concludes"), [(CAUSAL, True), (FIFO, False)], ids=["causal", "fifo"])
def test_where_a_system_is_only_fifo_what_is_final_has_to_be_everywhere(topology: Topology, concludes: bool) -> None:
    """There, what another gateway broadcasts next could be delivered first by somebody."""
    h1 = frozen(topology)
    h1.fellow("h2", "frozen 2@g1")
    resume = "link 0: resume 2@g1 behind p1/2"
    assert (resume in h1.delivers("p1/1..2", "h1")) is concludes
    assert (resume in h1.settled("h1", 1)) is not concludes


def test_in_a_fifo_system_what_is_new_waits_for_what_is_old() -> None:
    h2 = Desk(FIFO, "h2")
    h2.fellow("h1", "freeze 2@g1")
    h2.fellow("h1", "begin 2@g1 behind p1/1 with h1 h2")
    assert h2.link(1, "block 2@g1 p1/2 home h2", "block 2@g1 p2/1 home h2") == []
    assert h2.delivers("p1/1", "h1") == ["relay p1/2 p2/1", "finish h1 1"]


# Who is asked


def test_a_fellow_has_the_leader_see_to_an_epoch() -> None:
    h1, h2 = Desk(CAUSAL, "h1"), Desk(CAUSAL, "h2")
    assert h2.link(1, "open 2@g1") == ["to h1: freeze 2@g1"]
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: freeze 2@g1"]
    assert h1.fellow("h2", "freeze 2@g1") == ["to h2: freeze 2@g1"], "asked again, it asks again who has not answered"
    assert h2.fellow("h1", "freeze 2@g1") == ["to h1: frozen 2@g1"]
    assert h1.fellow("h2", "frozen 2@g1") == ["to h2: begin 2@g1 with h1 h2", "link 0: resume 2@g1"]
    assert h2.fellow("h1", "begin 2@g1 with h1 h2") == ["link 1: resume 2@g1"]


def test_an_epoch_that_has_begun_is_answered_again() -> None:
    h2 = Desk(CAUSAL, "h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1 with h1 h2")
    assert h2.link(1, "open 2@g1") == ["link 1: resume 2@g1 behind p1/1"]


def test_whoever_comes_to_a_link_hears_which_epoch_has_begun() -> None:
    """The one before it may have died with the answer, and nobody opens again what has begun."""
    h2 = Desk(CAUSAL, "h2")
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1 with h1 h2")
    assert "link 1: resume 2@g1 behind p1/1" in h2.up(1, "g2+1")
    h2.fellow("h1", "freeze 3@g1")
    assert not any("resume" in line for line in h2.up(1, "g2+2")), "that one is ending"


@pytest.mark.parametrize("old", ["1", "2@g1"])
def test_who_opens_an_old_epoch_is_told_to_go_higher(old: str) -> None:
    """A leader that does not know what its predecessor opened."""
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "open 3@g1")
    assert h1.fellow("h2", "frozen 3@g1")[-1] == "link 0: resume 3@g1"
    assert h1.link(0, f"open {old}") == ["link 0: behind 3@g1"]


def test_an_epoch_that_is_only_being_opened_counts_as_well() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "open 3@g1")
    assert h1.link(0, "open 2@g2") == ["link 0: behind 3@g1"]


# Gateways that are lost


def test_a_lost_fellow_is_told_over_the_links() -> None:
    assert Desk(CAUSAL, "h1").view("q1 q2 h1")[0] == "link 0: broken 1"
    assert "link 1: broken 1" in Desk(CAUSAL, "h2").view("q1 q2 h2")


def test_that_a_home_is_gone_is_said_again_when_a_link_comes_up() -> None:
    """What the epoch brought to it is lost, and whoever is there now may not have heard of that."""
    h1 = Desk(CAUSAL, "h1")
    h1.delivers("p1/1", "h1")
    h1.down(0)
    assert "link 0: broken 1" not in h1.view("q1 q2 h1")
    assert h1.up(0, "g1")[-1] == "link 0: broken 1", "and how far it was matters no more"
    h1.view("q1 q2 h1 h2+1")
    assert "link 0: broken 1" in h1.up(0, "g1+1"), "who has come in its place does not have what it held"
    h1.link(0, "open 2@g1")
    h1.fellow("h2+1", "frozen 2@g1")
    assert not any("broken" in line for line in h1.up(0, "g1+2"))


def test_who_came_after_the_epoch_began_may_go_without_breaking_it() -> None:
    h1 = Desk(CAUSAL, "h1")
    h1.view("q1 q2 h1")
    h1.link(0, "open 2@g1")
    h1.view("q1 q2 h1 h2+1")
    assert not any("broken" in line for line in h1.view("q1 q2 h1") + h1.up(0, "g1"))


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
    assert h1.fellow("h2", "frozen 2@g1 handed p2/5") == []
    assert "link 0: resume 2@g1~2 behind p1/2" in h1.view("q1 q2 h1")


def test_a_leader_dies_between_freezing_and_beginning() -> None:
    h2 = Desk(THREE, "h2")
    h2.link(1, "block 1 #1 p2/1 home h2")
    h2.fellow("h1", "freeze 2@g1")
    lines = h2.view("q1 q2 q3 h2 h3")
    assert "to h3: freeze 2@g1" in lines
    assert "link 1: broken 1" in lines
    assert h2.fellow("h3", "frozen 2@g1") == [], "p2/1 is not delivered yet"
    assert h2.delivers("p2/1", "h2") == [
        "finish h2 1",
        "to h3: begin 2@g1~2 behind p2/1 with h2 h3",
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
    h2.fellow("h1", "freeze 2@g1", "begin 2@g1 with h1 h2 h3")
    assert not any("freeze" in line for line in h2.view("q1 q2 q3 h2 h3"))


def test_who_is_frozen_when_the_leader_dies_has_the_next_one_see_to_it() -> None:
    """Nobody else may know: h1 told h3 to freeze, and died before it told h2."""
    h2, h3 = Desk(THREE, "h2"), Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1")
    assert "to h2: freeze 2@g1" in h3.view("q1 q2 q3 h2 h3")
    h2.view("q1 q2 q3 h2 h3")
    assert h2.fellow("h3", "freeze 2@g1") == ["to h3: freeze 2@g1"]
    assert h2.fellow("h3", "frozen 2@g1")[0] == "to h3: begin 2@g1~2 with h2 h3"


def test_word_of_the_next_leader_that_is_there_before_its_view_is_not_forgotten() -> None:
    """h1 began the epoch, told only the sending side, and died; so nobody over there asks for it again."""
    scene = Scene(THREE, "h2", "h3")
    for name in ("h2", "h3"):
        scene.do(name, "fellow", "h1", "freeze 2@g1")
    scene.do("h2", "view", "q1 q2 q3 h2 h3")
    scene.talk()
    scene.do("h3", "view", "q1 q2 q3 h2 h3")
    scene.talk()
    scene.do("h3", "link", 2, "block 2@g1~2 #1 p3/1 home h3")
    assert scene.broadcasts["h3"] == ["p3/1"], "the epoch has begun"


def test_a_question_that_is_there_before_the_view_that_makes_one_lead_is_not_forgotten() -> None:
    """h3 knows before h2 that h1 is dead, and asks once, because of a block; the sending side does not ask at all."""
    h2, h3 = Desk(THREE, "h2"), Desk(THREE, "h3")
    h3.view("q1 q2 q3 h2 h3")
    assert h3.link(2, "block 2@g1 #1 p3/1 home h3") == ["to h2: freeze 2@g1"]
    assert h2.fellow("h3", "freeze 2@g1") == []
    assert "to h3: freeze 2@g1" in h2.view("q1 q2 q3 h2 h3")


def test_what_a_dead_leader_had_begun_the_next_one_begins_anew() -> None:
    """h1 told h3 to begin behind p1/1, and died. h3 may have broadcast p3/1 in its epoch: that is final in the next."""
    h2 = Desk(THREE, "h2")
    h2.delivers("p1/1", "h1")
    h2.fellow("h1", "freeze 2@g1")
    h2.delivers("p3/1", "h3")
    h2.view("q1 q2 q3 h2 h3")
    assert h2.fellow("h3", "frozen 2@g1 handed p3/1") == [
        "to h3: begin 2@g1~2 behind p1/1 p3/1 with h2 h3",
        "link 1: resume 2@g1~2 behind p1/1 p3/1",
    ]


def test_who_had_begun_it_before_is_frozen_until_then() -> None:
    h3 = Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1", "begin 2@g1 behind p1/1 with h1 h2 h3")
    h3.delivers("p1/1", "h1")
    assert h3.link(2, "block 2@g1 #1 p3/1 home h3") == ["relay p3/1"]
    assert "link 2: broken 2@g1" in h3.view("q1 q2 q3 h2 h3")
    assert h3.fellow("h2", "freeze 2@g1") == ["to h2: frozen 2@g1 handed p3/1"]
    assert h3.link(2, "block 2@g1 #2 p3/2 home h3") == []
    h3.delivers("p3/1", "h3")
    assert h3.fellow("h2", "begin 2@g1~2 behind p1/1 p3/1 with h2 h3") == ["link 2: resume 2@g1~2 behind p1/1 p3/1"]
    assert h3.link(2, "block 2@g1 #2 p3/2 home h3") == [], "what the dead one began is over"
    assert h3.link(2, "block 2@g1~2 #1 p3/2 home h3") == ["relay p3/2"]


def test_a_late_word_of_a_dead_leader_begins_nothing() -> None:
    h3 = Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1")
    h3.view("q1 q2 q3 h2 h3")
    assert h3.fellow("h1", "begin 2@g1 with h1 h2 h3") == []
    h3.fellow("h2", "freeze 2@g1", "begin 2@g1~2 with h2 h3")
    assert h3.fellow("h2", "begin 2@g1 with h1 h2 h3") == [], "nor does an old answer from anybody"
    assert h3.link(2, "block 2@g1~2 #1 p3/1 home h3") == ["relay p3/1"]


def test_a_fellow_that_has_begun_does_not_begin_twice() -> None:
    h3 = Desk(THREE, "h3")
    h3.fellow("h1", "freeze 2@g1", "begin 2@g1 with h1 h2 h3")
    assert h3.link(2, "block 2@g1 #1 p3/1 home h3") == ["relay p3/1"]
    assert h3.link(2, "block 2@g1 #2 p3/2 home h3 after q1/1") == []
    assert h3.fellow("h1", "begin 2@g1 with h1 h2 h3") == []
    assert "relay p3/2" in h3.delivers("q1/1"), "what it held is still there"


# A later life of the system


def later_life(name: str) -> Desk:
    """A gateway after all of its system died at once and was started again."""
    desk = Desk(CAUSAL, name)
    members = desk.names.ids("q1+100000 q2+100000 h1+100000 h2+100000")
    desk.gateway = GroupGateway(desk.names.id(name), members, plans(CAUSAL, "b"), RETRY_AFTER)
    return desk


def test_a_later_life_takes_nothing_of_an_epoch_that_has_not_begun_with_it() -> None:
    """It does not know what the lives before it took of the first epoch, of which its own begins nothing."""
    h1, h2 = later_life("h1+100000"), later_life("h2+100000")
    assert h2.link(1, "block 1 #2 p2/1") == ["to h1+100000: freeze 1"]
    assert h1.link(0, "block 1 #1 p1/1") == ["to h2+100000: freeze 1"]
    assert h2.fellow("h1+100000", "freeze 1") == ["to h1+100000: frozen 1"]
    begun = f"1@p1~{term_of(1, 1)}"
    assert h1.fellow("h2+100000", "frozen 1") == [
        f"to h2+100000: begin {begun} with h1+100000 h2+100000",
        f"link 0: resume {begun}",
    ], "no word of p1/1: it belongs to an epoch that an earlier life began"
    assert h1.link(0, "block 1 #1 p1/1") == []


def test_in_a_later_life_the_next_epoch_begins_like_any_other() -> None:
    h1 = later_life("h1+100000")
    assert h1.link(0, "open 2@g1") == ["to h2+100000: freeze 2@g1"]
    begun = f"2@g1~{term_of(1, 1)}"
    assert h1.fellow("h2+100000", "frozen 2@g1")[-1] == f"link 0: resume {begun}"
    assert h1.link(0, f"block {begun} #1 p1/1") == ["relay p1/1"]


def test_a_later_life_says_nothing_of_how_far_it_is_before_an_epoch_has_begun() -> None:
    h1 = later_life("h1+100000")
    assert h1.delivers("p1/1", "h1+100000") == ["finish h1+100000 1"], "what the life before had not finished with"
    assert not any("progress" in line or "broken" in line for line in h1.up(0, "g1"))


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
