"""Channels between members of clusters: each hop once and in order, over a network that does as it likes."""

from __future__ import annotations

from random import Random

import pytest

from isthmus.core.endpoint import Outbox
from isthmus.core.message import Addressed
from isthmus.core.wire.clusters import Hop, HopAck, HopFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.addressed.channels import FRAME_BYTES, FRAME_HOPS, HOPS
from isthmus.ordering.channels import PeerChannels

Channels = PeerChannels[Hop, HopFrame]
PEER, OTHER = 7, 8
RETRY = 100


def hop(seq: int, size: int = 0) -> Hop:
    return Hop(0, 1, (), Addressed(1, seq, bytes(size), (PEER,)))


def sent(channels: Channels, *hops: Hop, to: int = PEER, now: int = 0) -> list[HopFrame]:
    out = Outbox()
    channels.send([(to, each) for each in hops], now, out)
    channels.invariants()
    return [pdu for _, pdu in out.sends if isinstance(pdu, HopFrame)]


def test_what_one_step_has_for_a_peer_goes_as_one_frame() -> None:
    channels = PeerChannels(HOPS, RETRY)
    out = Outbox()
    channels.send([(PEER, hop(1)), (OTHER, hop(2)), (PEER, hop(3))], 0, out)
    assert [(to, pdu.number, len(pdu.hops)) for to, pdu in out.sends if isinstance(pdu, HopFrame)] == [
        ((PEER,), 1, 2),
        ((OTHER,), 1, 1),
    ]
    assert channels.unacknowledged() == {PEER: 1, OTHER: 1}


def test_no_frame_is_larger_than_others_can_take() -> None:
    frames = sent(PeerChannels(HOPS, RETRY), *(hop(seq) for seq in range(2 * FRAME_HOPS + 1)))
    assert [len(frame.hops) for frame in frames] == [FRAME_HOPS, FRAME_HOPS, 1]
    assert [each.run.last for frame in frames for each in frame.hops] == list(range(2 * FRAME_HOPS + 1))
    frames = sent(PeerChannels(HOPS, RETRY), hop(1, FRAME_BYTES), hop(2, FRAME_BYTES), hop(3, 1), hop(4, 1))
    assert [len(frame.hops) for frame in frames] == [1, 1, 2]


def test_a_gap_that_shows_is_filled_before_its_time() -> None:
    channels = PeerChannels(HOPS, RETRY)
    first, _ = sent(channels, hop(1)) + sent(channels, hop(2), now=1)
    out = Outbox()
    channels.acknowledge(PEER, HopAck(0, 2), RETRY // 2, out)
    assert out.sends == [((PEER,), first)]


def test_a_channel_that_has_nothing_to_do_has_no_deadline() -> None:
    channels, out = PeerChannels(HOPS, RETRY), Outbox()
    sent(channels, hop(1))
    assert channels.deadline() == RETRY
    channels.acknowledge(PEER, HopAck(1, 1), 10, out)
    channels.wake(RETRY, out)
    assert channels.deadline() is None
    assert not out.sends


def test_an_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    channels, out = PeerChannels(HOPS, RETRY), Outbox()
    sent(channels, hop(1))
    for ack in (HopAck(9, 9), HopAck(2, 3)):
        channels.acknowledge(PEER, ack, 1, out)
    channels.acknowledge(OTHER, HopAck(1, 1), 1, out)
    assert channels.unacknowledged() == {PEER: 1}
    channels.invariants()


def silent_for_four_tries(channels: Channels) -> int:
    """A peer has acknowledged nothing so far. Returns what time it is."""
    sent(channels, hop(1))
    sent(channels, hop(2))
    now = 0
    for _ in range(4):
        now = channels.deadline() or now
        channels.wake(now, Outbox())
    return now


def test_a_peer_that_is_heard_of_again_does_not_wait_as_long_as_it_was_silent() -> None:
    channels, out = PeerChannels(HOPS, RETRY), Outbox()
    now = silent_for_four_tries(channels)
    channels.acknowledge(PEER, HopAck(1, 1), now + 1, out)
    assert channels.deadline() == now + 1 + RETRY


def test_a_peer_does_not_wait_as_long_as_another_one_is_silent() -> None:
    channels, out = PeerChannels(HOPS, RETRY), Outbox()
    now = silent_for_four_tries(channels)
    sent(channels, hop(3), to=OTHER, now=now + 1)
    assert channels.deadline() == now + 1 + RETRY
    channels.wake(now + 1 + RETRY, out)
    assert [to for to, _ in out.sends] == [(OTHER,)]


@pytest.mark.parametrize("seed", range(10))
def test_every_hop_arrives_once_and_in_order_whatever_the_network_does(seed: int) -> None:
    rng = Random(seed)
    here, there = PeerChannels(HOPS, RETRY), PeerChannels(HOPS, RETRY)
    under_way: list[tuple[Channels, Pdu]] = []
    arrived: list[int] = []
    now, seq = 0, 0

    def step(channels: Channels, *hops: Hop) -> None:
        out = Outbox()
        channels.send([(PEER, each) for each in hops], now, out)
        channels.wake(now, out)
        channels.invariants()
        for _, pdu in out.sends:
            under_way.extend([(there if channels is here else here, pdu)] * rng.choice((0, 1, 1, 2)))

    while seq < 60 or here.unacknowledged():
        now += rng.randrange(40)
        if seq < 60 and rng.random() < 0.3:
            seq += 1
            step(here, hop(seq))
        elif under_way:
            channels, pdu = under_way.pop(rng.randrange(len(under_way)))
            if isinstance(pdu, HopFrame):
                arrived += [each.run.last for each in channels.accept(PEER, pdu)]
            elif isinstance(pdu, HopAck):
                channels.acknowledge(PEER, pdu, now, Outbox())
            step(channels)
        else:
            step(here)
    assert arrived == list(range(1, 61))
