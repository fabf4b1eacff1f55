"""Relays and deliveries without channels keep causal order, by its definition, in any tree; and processes with them."""

from __future__ import annotations

from random import Random

import pytest
from cluster_support import Relays, cluster, random_table

from isthmus.core.endpoint import Outbox
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop, HopAck, HopFrame
from isthmus.hierarchy.clusters.process import ClusterProcess, ClusterSettings

TWO_LAYERS = cluster(
    cluster("x", "p", "p2", name="a"), cluster("y", "q", name="b", delivery="coordinator"), cluster("z", "r", name="c")
)


@pytest.mark.parametrize("seed", range(60))
def test_causal_order_holds_in_any_tree(seed: int) -> None:
    rng = Random(seed)
    relays = Relays(random_table(rng, depth=rng.randint(1, 4)))
    relays.play(rng, 60)
    relays.assert_causal()


@pytest.mark.parametrize("delivery", ["rst", "coordinator"])
def test_a_flat_system_is_the_case_of_one_cluster(delivery: str) -> None:
    relays = Relays(cluster("a", "b", "c", "d", delivery=delivery))
    relays.play(Random(1), 200)
    relays.assert_causal()
    assert {entries for _, entries in relays.header} == {16 if delivery == "rst" else 0}


def test_the_header_of_a_cluster_never_leaves_it() -> None:
    """From p in a (3 members) over the agents (3) to q in b (coordinator): 9, 9 and no numbers."""
    relays = Relays(TWO_LAYERS)
    ids = relays.ids
    relays.send(ids["p"], ids["q"])
    relays.arrive(ids["p"], ids["x"])
    relays.arrive(ids["x"], ids["y"])
    relays.arrive(ids["y"], ids["q"])
    assert relays.delivered[ids["q"]] == [0]
    assert [entries for _, entries in relays.header] == [9, 9, 0]


def test_an_effect_that_overtakes_its_cause_waits_for_it() -> None:
    relays = Relays(cluster("a", "b", "c"))
    a, b, c = (relays.ids[name] for name in "abc")
    cause = relays.send(a, c)
    relays.send(a, b)
    relays.arrive(a, b)
    effect = relays.send(b, c)
    relays.arrive(b, c)
    assert relays.delivered[c] == []
    (hold,) = relays.relays[c].waiting()
    assert (list(hold.batch.segment.ids()), hold.awaited, hold.number, hold.unit) == ([(b, effect)], a, 1, "message")
    relays.arrive(a, c)
    assert relays.delivered[c] == [cause, effect]
    assert not list(relays.relays[c].waiting())


def test_a_message_to_oneself_is_delivered_at_once_and_enters_no_cluster() -> None:
    relays = Relays(TWO_LAYERS)
    relays.send(relays.ids["p"], relays.ids["p"])
    assert relays.delivered[relays.ids["p"]] == [0]
    assert not relays.ready()


# As an endpoint


def process(relays: Relays, name: str, window: int = 4) -> ClusterProcess:
    return ClusterProcess(relays.ids[name], relays.tree, ClusterSettings(100, window))


def test_what_is_not_acknowledged_is_sent_again_and_counts_against_the_window() -> None:
    relays = Relays(TWO_LAYERS)
    p, x, out = process(relays, "p"), relays.ids["x"], Outbox()
    assert (p.credit(), p.deadline()) == (4, None)
    assert p.send(relays.ids["q"], [b"1", b"2"], 0, out) == 1
    ((destinations, frame),) = out.sends
    assert destinations == (x,)
    assert isinstance(frame, HopFrame)
    assert [list(hop.run.segment.payloads()) for hop in frame.hops] == [[b"1", b"2"]]
    assert (p.credit(), p.deadline()) == (3, 100)
    out.clear()
    p.wake(99, out)
    assert not out.sends
    p.wake(100, out)
    assert out.sends == [((x,), frame)]
    assert p.deadline() == 300
    out.clear()
    p.receive(x, [HopAck(1, 1)], 150, out)
    assert p.credit() == 4
    p.wake(300, out)
    assert not out.sends
    assert p.deadline() is None
    p.invariants()


def test_a_relay_passes_a_run_on_as_it_came() -> None:
    relays = Relays(TWO_LAYERS)
    p, x, out = process(relays, "p"), process(relays, "x"), Outbox()
    p.send(relays.ids["q"], [b"1", b"22", b"333"], 0, out)
    ((_, frame),) = out.sends
    assert isinstance(frame, HopFrame)
    out.clear()
    x.receive(p.id, [frame], 0, out)
    (_, onward), _ = out.sends
    assert isinstance(onward, HopFrame)
    ((came,), (went,)) = frame.hops, onward.hops
    assert came.run is went.run
    assert [each.segment for each in out.carried] == [came.run.segment]


def test_everything_that_came_in_a_step_is_acknowledged_at_its_end() -> None:
    relays = Relays(TWO_LAYERS)
    p, x, out = process(relays, "p"), process(relays, "x"), Outbox()
    p.send(relays.ids["q"], [b"1"], 0, out)
    p.send(relays.ids["x"], [b"2"], 0, out)
    frames = [pdu for _, pdu in out.sends]
    out.clear()
    x.receive(p.id, [frames[1], frames[0], frames[0]], 5, out)
    assert [payload for each in out.addressed for payload in each.run.segment.payloads()] == [b"2"]
    (onward, first), (back, ack) = out.sends
    assert (onward, back, ack) == ((relays.ids["y"],), (p.id,), HopAck(2, 2))
    assert isinstance(first, HopFrame)
    assert [(each.event, each.peer) for each in out.carried] == [("transfer", relays.ids["y"])]
    x.invariants()


@pytest.mark.parametrize(
    "hop",
    [
        Hop(9, 0, (), Addressed(1, 1, b"", (0,))),  # a cluster that does not exist
        Hop(2, 1, (), Addressed(1, 1, b"", (0,))),  # one that x is not in
        Hop(1, 0, (), Addressed(1, 1, b"", (0,))),  # no matrix in a cluster that needs one
        Hop(1, 0, ((0, 0, 0), (0, 0, 0), (0,)), Addressed(1, 1, b"", (0,))),  # a matrix with a hole
        Hop(1, 1, ((0, 0, 0),) * 3, Addressed(1, 1, b"", (0,))),  # for another member
        Hop(1, 0, ((0, 0, 0),) * 3, Addressed(1, 1, b"", (99,))),  # for a process that does not exist
        Hop(1, 0, ((0, 0, 0),) * 3, Addressed(1, 1, b"", ())),  # for nobody
        Hop(1, 0, ((0, 0, 0),) * 3, Addressed(1, 1, b"", (0, 1))),  # for two
    ],
)
def test_a_hop_that_nobody_can_have_sent_is_ignored(hop: Hop) -> None:
    relays = Relays(TWO_LAYERS)
    x, out = process(relays, "x"), Outbox()
    before = x.snapshot()
    x.receive(relays.ids["p"], [HopFrame(1, [hop])], 0, out)
    assert (out.sends, out.addressed) == ([], [])
    assert x.snapshot() == before


def test_a_stranger_is_not_heard() -> None:
    relays = Relays(TWO_LAYERS)
    x, out = process(relays, "x"), Outbox()
    good = Hop(1, 0, ((0, 0, 0),) * 3, Addressed(relays.ids["p"], 1, b"", (relays.ids["x"],)))
    x.receive(relays.ids["r"], [HopFrame(1, [good])], 0, out)
    assert (out.sends, out.addressed) == ([], [])
    x.receive(relays.ids["p"], [HopFrame(1, [good])], 0, out)
    assert [payload for each in out.addressed for payload in each.run.segment.payloads()] == [b""]


def test_a_fork_goes_its_own_way() -> None:
    relays = Relays(TWO_LAYERS)
    p, out = process(relays, "p"), Outbox()
    p.send(relays.ids["q"], [b"1"], 0, out)
    fork = p.fork()
    assert fork.snapshot() == p.snapshot()
    assert fork.relay.tree is p.relay.tree
    fork.send(relays.ids["q"], [b"2"], 0, out)
    assert fork.snapshot() != p.snapshot()
