"""A gateway that comes later: what it takes over from its system, what it does with it, and what it does before.

System a is p1 p2 with g1 (link 0) and g2 (link 1), which has died; `g2+1` comes in its place. Or it is the only one.
"""

from __future__ import annotations

from join_support import Desk, two_systems

from isthmus.join.gateway import MOST_WORDS
from isthmus.topology.model import Topology

FIFO = two_systems("fifo", "transfer-sets")
CAUSAL = two_systems("causal")
SETS = two_systems("causal", "transfer-sets")
WITH = "p1 p2 g1 g2+1"
ALONE = "p1 p2 g2+1"


def newcomer(topology: Topology, members: str = WITH, **cut: int) -> Desk:
    """g2+1 in its first view, which is the third."""
    new = Desk(topology, "g2+1", joining=True)
    assert new.view(members, 3, cut=cut) == []
    return new


def left_alone(topology: Topology) -> Desk:
    """g1 when g2 has died. The epoch that g1 sends in goes on, without link 1."""
    g1 = Desk(topology, "g1")
    g1.view("p1 p2 g1")
    return g1


# Taking over


def test_a_newcomer_says_when_it_knows_the_past() -> None:
    new = newcomer(FIFO)
    assert not new.gateway.is_caught_up
    assert new.takes_over("p2/2", ("p2", 1, "p2/1..2")) == ["to g1: caught up"]
    assert new.gateway.is_caught_up


def test_its_link_is_used_only_when_it_knows_the_past_and_then_in_the_epoch_that_goes_on() -> None:
    g1, new = left_alone(FIFO), newcomer(FIFO)
    g1.delivers("p2/1")
    g1.view(WITH)
    assert new.up(1, "h2") == [], "it has nothing to carry yet"
    for each in (g1, new):
        assert each.delivers("p2/2", number=2) == (["link 0: block 1 p2/2 home h2"] if each is g1 else [])
    assert new.takes_over("p2/1", ("p2", 1, "p2/1")) == ["to g1: caught up", "to g1: link 1 up"]
    assert new.delivers("p2/3") == [], "in which epoch?"
    assert g1.delivers("p2/3") == ["link 0: block 1 p2/3 home h2"]
    assert g1.fellow("g2+1", "link 1 up") == []
    assert "to g2+1: resume 1" in g1.fellow("g2+1", "caught up")
    assert new.fellow("g1", "resume 1") == ["link 1: block 1 p2/1..3 home h2"], "and the past"
    assert g1.delivers("p2/4") == [], "the link of p2 works again"
    assert new.delivers("p2/4") == ["link 1: block 1 p2/4 home h2"]


def test_a_link_that_went_down_again_meanwhile_is_not_announced() -> None:
    new = newcomer(FIFO)
    new.up(1, "h2")
    new.down(1)
    assert new.takes_over() == ["to g1: caught up"]


def test_what_a_newcomer_says_before_its_view_has_come_here_is_heard_then() -> None:
    g1 = left_alone(FIFO)
    assert g1.fellow("g2+1", "link 1 up", "caught up") == []
    assert g1.view(WITH) == [
        "to g2+1: link 0 up",
        "to g2+1: resume 1",
        "to g2+1: begin 1 with g1 g2",
    ]


def test_of_who_is_in_no_view_only_so_much_is_kept() -> None:
    g1 = left_alone(FIFO)
    for _ in range(3):
        g1.fellow("g2+1", *["caught up"] * (MOST_WORDS // 2))
    assert g1.fellow("p1+9", "caught up") == [], "no gateway, and never will be"
    told = [line for line in g1.view(WITH) if line == "to g2+1: link 0 up"]
    assert len(told) == MOST_WORDS


def test_a_newcomer_is_told_what_only_gateways_know() -> None:
    g1 = left_alone(FIFO)
    g1.delivers("p1/1")
    g1.link(0, "confirm p1/1")
    g1.view(WITH)
    assert g1.fellow("g2+1", "caught up") == [
        "to g2+1: link 0 up",
        "to g2+1: confirm p1/1",
        "to g2+1: resume 1",
        "to g2+1: begin 1 with g1 g2",
    ]


def test_a_newcomer_is_told_of_an_epoch_that_is_being_opened() -> None:
    g1 = left_alone(FIFO)
    g1.view(WITH)
    assert "to g2+1: open 2@g1:3" in g1.link(0, "broken 1")
    lines = g1.fellow("g2+1", "caught up")
    assert "to g2+1: open 2@g1:3" in lines
    assert not any("resume" in line for line in lines)


def test_a_newcomer_carries_nothing_before_it_knows_the_past() -> None:
    new = newcomer(FIFO)
    new.up(1, "h2")
    lines = new.fellow("g1", "open 3@g1:3", "resume 3@g1:3") + new.delivers("p2/2", number=2)
    assert not any("block" in line for line in lines), "p2/1 goes first"
    assert not any("block" in line for line in new.takes_over("p2/1", ("p2", 1, "p2/1")) + new.delivers("p2/3"))
    told_again = new.fellow("g1", "resume 3@g1:3")
    assert told_again == ["link 1: block 3@g1:3 p2/1..3 home h2"]


# The last one is replaced


def test_the_successor_of_the_last_gateway_opens_an_epoch_and_carries_what_its_system_holds() -> None:
    """parallel, Sect. 7: a gateway that fails is "replaced by another process"; here nobody of the old ones lives."""
    new = newcomer(FIFO, ALONE)
    new.up(1, "h2")
    held = (("p1", 2, "p1/3..4"), ("p2", 1, "p2/1"))
    assert new.takes_over("p1/4 p2/1", *held) == ["link 1: open 2@g2+1:3"]
    assert new.link(1, "resume 2@g2+1:3 behind p1/3") == [
        "link 1: block 2@g2+1:3 p1/4 home h1",
        "link 1: block 2@g2+1:3 p2/1 home h2",
    ], "what is there already, not"


def test_it_answers_only_when_it_knows_what_came_in_before_it() -> None:
    """Else the sending side would send all of it again, and it would be delivered twice."""
    new = newcomer(CAUSAL, ALONE)
    assert new.link(1, "open 2@h1") == [], "what is final is not known here yet"
    assert "link 1: resume 2@h1~3 behind q1/2" in new.takes_over("q1/2")
    assert new.link(1, "block 2@h1~3 #1 q1/3") == ["relay q1/3"]


def test_it_answers_what_was_asked_before_its_first_view() -> None:
    """The link may work before the newcomer is let in, and it does not know then that nobody else leads."""
    new = Desk(CAUSAL, "g2+1", joining=True)
    new.link(1, "open 2@h1")
    new.view(ALONE, 3)
    assert "link 1: resume 2@h1~3 behind q1/2" in new.takes_over("q1/2")


def test_it_answers_a_block_of_an_epoch_that_it_knows_nothing_of() -> None:
    """Nobody over there knows that all who were in it are gone. What it took of it, and in which place, nobody does."""
    new = newcomer(CAUSAL, ALONE)
    assert new.link(1, "block 2@h1 #4 q1/4") == []
    lines = new.takes_over("q1/2")
    assert "link 1: resume 2@h1~3 behind q1/2" in lines
    assert not any("relay" in line for line in lines)
    h1 = Desk(CAUSAL, "h1")
    h1.link(0, "broken 1")
    h1.link(0, "resume 2@h1")
    assert h1.link(0, "resume 2@h1~3 behind q1/2") == ["to h2: open 3@h1", "link 0: open 3@h1"]


def test_an_answer_of_one_that_was_left_out_is_another_epoch() -> None:
    """h1 began the second epoch in view 1, and h2, which has taken its place, in view 2."""
    g1 = Desk(CAUSAL, "g1")
    g1.link(0, "broken 1")
    assert g1.link(0, "resume 2@g1") == ["to g2: resume 2@g1"]
    assert g1.link(0, "resume 2@g1~2") == ["to g2: open 3@g1", "link 0: open 3@g1"]
    assert g1.link(0, "resume 3@g1") == [], "h1 again"
    assert g1.link(0, "resume 3@g1~2") == ["to g2: resume 3@g1~2"]
    h1 = Desk(CAUSAL, "h1")
    h1.view("q1 q2 h1")
    h1.link(0, "open 2@g1")
    assert h1.link(0, "block 2@g1 #1 p1/1") == [], "answered by another"
    assert h1.link(0, "block 2@g1~2 #1 p1/1") == ["relay p1/1"]


# What it finishes with


def test_a_newcomer_finishes_with_nothing_before_it_knows_what_is_unfinished() -> None:
    """Batches 1 to 3 of p1 lie before its view, and of p2 five, which nobody holds any more."""
    new = newcomer(FIFO, p1=3, p2=5)
    assert new.delivers("p1/4", number=4) == []
    held = (("p1", 2, "p1/2"), ("p1", 3, "p1/3"))
    assert new.takes_over("p1/3", *held) == ["finish p2 5", "to g1: caught up"], "of p1 nothing is confirmed"
    assert new.fellow("g1", "confirm p1/2") == ["finish p1 2"]
    assert new.fellow("g1", "confirm p1/3") == ["finish p1 3"]
    assert new.fellow("g1", "confirm p1/4") == ["finish p1 4"]


def test_what_is_confirmed_while_it_catches_up_counts() -> None:
    new = newcomer(FIFO, p1=1)
    new.delivers("p1/2", number=2)
    assert new.link(1, "confirm p1/2") == ["to g1: confirm p1/2"]
    assert new.takes_over("p1/1", ("p1", 1, "p1/1")) == ["finish p1 2", "to g1: caught up"]


# What it brings in


def test_a_newcomer_counts_on_from_where_the_others_are() -> None:
    """Others tell how far they are while the relay has no link: here the newcomer."""
    new = newcomer(CAUSAL)
    new.up(1, "h2")
    new.delivers("q1/3", "g1", number=2)
    assert not any("progress" in line for line in new.takes_over("q1/2")), "three have come, but in which epoch?"
    assert "link 1: progress 1 #3" in new.fellow("g1", "link 0 down", "begin 1 with g1")


def test_a_newcomer_passes_on_what_an_epoch_brings_that_began_without_it() -> None:
    new = newcomer(CAUSAL)
    assert new.link(1, "block 1 #4 q2/1") == []
    assert "to g1: freeze 1" in new.takes_over("q1/3"), "which epoch is it?"
    assert new.fellow("g1", "begin 1 with g1")[0] == "to g1: pass block 1 #4 q2/1"
    assert new.link(1, "block 1 #5 q2/2") == ["to g1: pass block 1 #5 q2/2"]


def test_a_newcomer_says_too_that_a_home_is_gone() -> None:
    """g1 could not, while its link was down; and what has g2 for its home would be passed on to nobody for ever."""
    new = newcomer(FIFO)
    new.up(1, "h2")
    new.takes_over()
    assert new.fellow("g1", "begin 1 with g1 g2") == ["link 1: resume 1", "link 1: broken 1"]
    assert "link 1: broken 1" in new.up(1, "h2+1")
    assert Desk(FIFO, "h1").link(0, "resume 1", "broken 1")[-1] == "link 0: open 2@h1"


def test_a_newcomer_counts_from_the_beginning_of_the_epoch_that_goes_on() -> None:
    """Three have come, two of them in epochs before this one."""
    new = newcomer(SETS)
    new.takes_over("q1/3")
    new.fellow("g1", "begin 2@h1 behind q1/2 with g1 g2+1")
    blocks = ("block 1 #4 q2/1 home g2", "block 2@h1 #4 q2/1 home g2")
    assert new.link(1, *blocks) == [], "of an old epoch, and not yet its turn"
    assert new.delivers("q1/4..5", "g1", number=1)[0] == "relay q2/1"


def test_a_newcomer_too_waits_for_what_is_left_of_older_epochs() -> None:
    """g1 has begun an epoch behind q1/4, of which the newcomer knows only q1/2."""
    new = newcomer(SETS)
    new.takes_over("q1/2")
    new.fellow("g1", "begin 2@h1 behind q1/4 with g1 g2+1")
    assert new.link(1, "block 2@h1 #1 q2/1 home g2") == []
    new.delivers("q1/3", "g1", number=1)
    assert new.delivers("q1/4", "g1")[0] == "relay q2/1"


def test_a_block_that_came_before_the_first_view_is_kept() -> None:
    """The link was there before the newcomer was in."""
    new = Desk(CAUSAL, "g2+1", joining=True)
    assert new.link(1, "block 1 #1 q2/1") == []
    assert new.view(WITH, 3) == []
    new.takes_over()
    assert new.fellow("g1", "begin 1 with g1")[0] == "to g1: pass block 1 #1 q2/1"


def test_a_newcomer_that_leads_later_knows_what_is_final() -> None:
    new = newcomer(CAUSAL)
    new.takes_over("q1/2")
    new.delivers("q2/1", "g1", number=2)
    new.view("p1 p2 g2+1", 4)
    assert new.link(1, "open 2@h1") == ["link 1: resume 2@h1~4 behind q1/2 q2/1"]


def test_a_newcomer_waits_for_what_an_answer_may_answer_like_anybody_else() -> None:
    new = newcomer(SETS)
    new.takes_over("p1/1")
    new.fellow("g1", "begin 2@h1 with g1 g2+1")
    answer = "block 2@h1 #1 q2/1 home g2 after p1/1"
    assert new.link(1, answer) == ["relay q2/1"], "delivered before it came, and kept by nobody"
    assert new.link(1, "block 2@h1 #2 q2/2 home g2 after p1/2") == []
    assert new.delivers("p1/2")[0] == "relay q2/2"


def test_a_newcomer_that_numbers_names_what_was_brought_in_before_it_came() -> None:
    """Its first block may hold an answer to it."""
    new = newcomer(CAUSAL, ALONE)
    new.up(1, "h2")
    new.takes_over("p1/1 q1/1", ("p1", 1, "p1/1"))
    new.ready(1)
    assert new.link(1, "resume 2@g2+1:3") == ["link 1: block 2@g2+1:3 #1 p1/1 after q1/1"]


def test_a_newcomer_that_does_not_number_names_what_it_is_told_to() -> None:
    new = newcomer(CAUSAL)
    new.up(1, "h2")
    new.takes_over("p1/1 q1/1 q2/1", ("p1", 1, "p1/1"))
    new.ready(1)
    assert new.fellow("g1", "resume 3@g1:3") == ["to g1: free 3@g1:3 link 1"]
    words = "3@g1:3 #1 p1/1"
    assert new.fellow("g1", f"assign {words} link 1 after q1/1") == [f"link 1: block {words} after q1/1"]


def test_a_newcomer_that_is_left_alone_confirms_what_nobody_had_confirmed() -> None:
    """q1/1 was delivered before it came, and g1 died before it could tell the sending side that it is stable."""
    new = newcomer(FIFO, g1=1)
    lines = new.takes_over("q1/1")
    lines += new.view("p1 p2 g2+1", 4)
    lines += new.settled("g1", 1)
    lines += new.up(1, "h2")
    assert "link 1: confirm q1/1" not in lines, "p2 may not be as far as that view, and so not have delivered it"
    assert "link 1: confirm q1/1" in new.all_have_arrived()
