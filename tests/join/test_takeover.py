"""The takeover trap: messages of one origin have one way in only until its link dies; then there are two for a while.

Messages of p1 go by link 0 (g1 - h1) as long as that works, and by link 1 (g2 - h2) afterwards. h1 is their home: while
it lives it broadcasts them, whichever way they come, and each once. When it has died, somebody else does that only
after the view without it is installed, for then what it broadcast is final.
"""

from __future__ import annotations

from join_support import RETRY_AFTER, Scene, two_systems

FIFO = two_systems("fifo", "transfer-sets")


def two_sites() -> Scene:
    scene = Scene(FIFO, "g1", "g2", "h1", "h2")
    for name, link, peer in (("g1", 0, "h1"), ("g2", 1, "h2"), ("h1", 0, "g1"), ("h2", 1, "g2")):
        scene.do(name, "up", link, peer)
    return scene


def blocks_under_way(scene: Scene) -> list[str]:
    show = scene.desks["h2"].names.show
    return [f"{link} {show(pdu)}" for link, _, pdu in scene.wires if type(pdu).__name__ == "Block"]


def test_a_receiving_gateway_dies_after_broadcasting() -> None:
    """h1 broadcast p1/1 and p1/2 and died. Everybody delivers p1/1; of p1/2 nobody has heard but h1."""
    scene = two_sites()
    scene.deliver("p1", "p1/1", "p1", "p2", "g1", "g2")
    scene.deliver("p1", "p1/2", "p1", "p2", "g1", "g2")
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"]
    scene.deliver("h1", "p1/1", "q1", "h1")
    scene.crash("h1")

    # The sending side gives the link up long before the receiving side's view changes.
    scene.do("g1", "down", 0)
    scene.deliver("p1", "p1/3", "p1", "p2", "g1", "g2")
    for _ in range(5):
        scene.carry(1)
        scene.do("g1", "waits", RETRY_AFTER)
    assert scene.broadcasts["h2"] == [], "p1/1 may still be on its way to somebody here, from h1"
    assert blocks_under_way(scene) == []

    # The view change: q2 and h2 get p1/1 before it, and p1/2 is gone for good.
    scene.deliver("h1", "p1/1", "q2", "h2")
    scene.do("h2", "view", "q1 q2 h2")
    scene.do("g1", "waits", RETRY_AFTER)
    scene.carry(1)
    assert scene.broadcasts["h2"] == ["p1/2..3"], "nothing twice, nothing left out, nothing out of order"


def test_what_the_dead_one_broadcast_and_somebody_got_is_not_sent_again() -> None:
    scene = two_sites()
    scene.deliver("p1", "p1/1..2", "g1", "g2")
    scene.carry(0)
    scene.crash("h1")
    scene.do("g1", "down", 0)
    scene.carry(1)

    # Only q1 had it; the view change brings it to everybody.
    scene.deliver("h1", "p1/1..2", "q1", "q2", "h2")
    scene.do("h2", "view", "q1 q2 h2")
    scene.deliver("p1", "p1/3", "g1", "g2")
    scene.do("g1", "waits", RETRY_AFTER)
    scene.carry(1)
    assert scene.broadcasts["h2"] == ["p1/3"]


def test_a_sending_gateway_dies_after_it_put_a_message_on_its_link() -> None:
    """p1/1 came by g1 and h1, and is on its way to q2; p1/2 now comes by g2 and h2."""
    scene = two_sites()
    scene.deliver("p1", "p1/1", "g1", "g2")
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1"]
    scene.crash("g1")
    scene.deliver("p1", "p1/2", "g2")
    assert blocks_under_way(scene) == [], "g2 does not know that g1 is dead"

    scene.do("g2", "view", "p1 p2 g2")
    scene.carry(1)
    scene.deliver("h1", "p1/1", "q1", "h1", "h2")
    scene.carry(1)
    assert blocks_under_way(scene) == [], "q2 has not delivered p1/1: it is not known everywhere what is final"

    scene.deliver("h1", "p1/1", "q2")
    scene.everybody(["h1", "h2"], "settled", "h1", 1)
    scene.carry(1)
    assert scene.broadcasts == {"g1": [], "g2": [], "h1": ["p1/1", "p1/2"], "h2": []}, "h2 passes it on"


def test_a_block_of_the_old_route_that_arrives_late_is_void() -> None:
    """g1 is dead, but p1/2 is still on its link, and h1 lives."""
    scene = two_sites()
    scene.deliver("p1", "p1/1", "g1", "g2")
    scene.carry(0)
    scene.deliver("p1", "p1/2", "g1", "g2")
    scene.crash("g1")
    scene.do("g2", "view", "p1 p2 g2")
    scene.carry(1)
    for name in ("h1", "h2"):
        scene.deliver("h1", "p1/1", name)
    scene.everybody(["h1", "h2"], "settled", "h1", 1)
    scene.carry(1)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"]
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"], "p1/2 came in by the new route"


def test_a_block_of_the_old_route_that_arrives_before_the_freeze_is_waited_for() -> None:
    scene = two_sites()
    scene.deliver("p1", "p1/1", "g1", "g2")
    scene.crash("g1")
    scene.do("g2", "view", "p1 p2 g2")
    scene.carry(0)
    scene.carry(1)
    assert scene.broadcasts["h1"] == ["p1/1"]
    assert blocks_under_way(scene) == [], "the epoch has not begun: p1/1 is not delivered yet"
    scene.deliver("h1", "p1/1", "h1", "h2", "q1", "q2")
    scene.everybody(["h1", "h2"], "settled", "h1", 1)
    scene.deliver("p1", "p1/2", "g2")
    scene.carry(1)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"]


# Only a link dies: no epoch ends


def epochs_said(scene: Scene) -> list[str]:
    show = scene.desks["h1"].names.show
    return [show(pdu) for _, _, pdu in scene.wires if type(pdu).__name__ in ("Open", "Resume", "Broken", "Behind")]


def test_a_link_dies_with_a_message_on_it_and_the_message_comes_by_another() -> None:
    scene = two_sites()
    scene.deliver("p1", "p1/1", "g1", "g2")
    scene.carry(0)
    scene.deliver("p1", "p1/2", "g1", "g2")
    scene.do("g1", "down", 0)
    scene.talk()
    assert blocks_under_way(scene) == ["0 block 1 p1/2 home h1", "1 block 1 p1/1..2 home h1"]
    assert epochs_said(scene) == []
    scene.carry(1)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"], "h2 passes it on, and nothing is broadcast twice"
    scene.carry(0)
    assert scene.broadcasts == {"g1": [], "g2": [], "h1": ["p1/1", "p1/2"], "h2": []}


def test_the_old_way_is_faster_than_the_new_one() -> None:
    """What was given up arrives after all, and then comes by the other link as well."""
    scene = two_sites()
    scene.deliver("p1", "p1/1..2", "g1", "g2")
    scene.do("g1", "down", 0)
    scene.talk()
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1..2"]
    scene.deliver("p1", "p1/3", "g1", "g2")
    scene.carry(1)
    assert scene.broadcasts == {"g1": [], "g2": [], "h1": ["p1/1..2", "p1/3"], "h2": []}


def test_a_link_that_comes_back_takes_its_origins_back() -> None:
    scene = two_sites()
    scene.do("g1", "down", 0)
    scene.talk()
    scene.deliver("p1", "p1/1", "g1", "g2")
    scene.do("g1", "up", 0, "h1")
    scene.do("g2", "fellow", "g1", "link 0 up")
    scene.deliver("p1", "p1/2", "g1", "g2")
    assert blocks_under_way(scene) == [
        "1 block 1 p1/1 home h1",
        "0 block 1 p1/1 home h1",
        "0 block 1 p1/2 home h1",
    ], "g1 does not know how far g2 got"
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1", "p1/2"]
    scene.carry(1)
    assert scene.broadcasts == {"g1": [], "g2": [], "h1": ["p1/1", "p1/2"], "h2": []}
    assert epochs_said(scene) == []
