"""The takeover trap: a per-origin link keeps FIFO order only until its gateway dies; then two routes exist for a while.

A new gateway starts only after the view without the old one is installed, for then what the old one broadcast is final.
Messages of p1 go by link 0 (g1 - h1) as long as that works, and by link 1 (g2 - h2) afterwards.
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
    """p1/1 came by g1 and h1, and is on its way to q2; p1/2 now comes by g2 and h2, and could overtake it."""
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
    assert scene.broadcasts["h2"] == [], "q2 has not delivered p1/1, and would take p1/2 first"

    scene.deliver("h1", "p1/1", "q2")
    scene.everybody(["h1", "h2"], "settled", "h1", 1)
    scene.carry(1)
    assert scene.broadcasts == {"g1": [], "g2": [], "h1": ["p1/1"], "h2": ["p1/2"]}


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
    assert scene.broadcasts["h2"] == ["p1/2"]
    scene.carry(0)
    assert scene.broadcasts["h1"] == ["p1/1"], "p1/2 came in by the new route"


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
    assert scene.broadcasts["h2"] == ["p1/2"]
