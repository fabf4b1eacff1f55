"""Small runs of a group, line by line, as people can read them: `transcripts/*.txt`.

A line that begins with a process is an input to it; what the input leads to is indented below. A change of protocol
shows here as a change of text, to be read and judged before `pytest --rewrite` makes it the new expectation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from group_network import HEARTBEAT, SUSPECT_AFTER, Network

from isthmus.core.message import Batch
from isthmus.core.wire.group import Ack, Prepare, Safe, Status
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.total import TotalOrder

FOLDER = Path(__file__).parent / "transcripts"


def heartbeat(network: Network, *members: int) -> None:
    """These members wake up, once; nothing is carried."""
    network.now += HEARTBEAT
    for member in members:
        network.wake(member)


def one_broadcast_among_three() -> Network:
    network = Network(3, FifoOrder)
    network.say("Sender and receiver are a quorum of three: one hop, and everybody delivers.")
    network.broadcast(1, "m")
    network.carry(Batch)
    network.say("p1 delivers its own message when somebody else holds it too.")
    network.carry(Ack)
    network.say("Heartbeats say who has finished with what. After them it is stable.")
    heartbeat(network, 1, 2, 3)
    network.carry(Status)
    return network


def one_broadcast_among_five() -> Network:
    network = Network(5, FifoOrder)
    network.say("Nobody delivers before a quorum of five is known to hold the message: batch, ack, safe.")
    network.broadcast(1, "m")
    network.carry(Batch)
    network.carry(Ack)
    network.carry(Safe)
    return network


def an_effect_waits_for_its_cause() -> Network:
    network = Network(3, CausalOrder)
    network.broadcast(1, "cause")
    network.carry(Batch, to=2)
    network.broadcast(2, "effect")
    network.say("The effect overtakes its cause on the way to p3, and is held.")
    network.carry(Batch, source=2, to=3)
    network.carry(Batch, source=1, to=3)
    return network


def a_lost_batch_is_sent_again() -> Network:
    network = Network(2, FifoOrder)
    network.broadcast(1, "a")
    network.say("The batch is lost.")
    network.lose(Batch)
    heartbeat(network, 2)
    network.carry(Status)
    network.broadcast(1, "b")
    network.say("p2 sees the gap and says so.")
    network.carry_all()
    return network


def a_view_ends_with_a_crash() -> Network:
    network = Network(4, CausalOrder)
    network.say("p4 crashes inside its multicast: only p3 has the batch.")
    network.broadcast(4, "last words")
    network.carry(Batch, to=3)
    network.crash(4)
    network.lose()
    network.say("Nobody hears of p4 for too long.")
    quiet(network, SUSPECT_AFTER - HEARTBEAT)
    network.say("p1 is the first that nobody suspects. It asks what everybody holds.")
    heartbeat(network, 1)
    network.lose(Status)
    network.say("The cut is the maximum. What p1 lacks it fetches, and p2 after it.")
    network.carry_all()
    return network


def a_coordinator_dies_after_proposing() -> Network:
    network = Network(5, CausalOrder)
    network.crash(5)
    quiet(network, SUSPECT_AFTER - HEARTBEAT)
    network.say("p1 coordinates, is accepted by p2 and p3, and dies before it says so.")
    heartbeat(network, 1)
    network.lose(Status)
    network.carry()
    network.carry()
    network.carry(to=(2, 3))
    network.crash(1)
    network.lose()
    network.say("p2 has to propose the same: three of five have accepted it. That p1 is dead is for the next view.")
    story = len(network.journal)
    while not network.sent(Prepare):
        network.carry_all()
        del network.journal[story:]
        heartbeat(network, 4, 3, 2)
    network.journal = network.journal[:story] + network.journal[network.journal.index("p2 wakes", story) :]
    network.lose(Status)
    network.carry_all()
    return network


def two_messages_in_total_order() -> Network:
    network = Network(3, TotalOrder)
    network.say("p3 and p2 send at the same time. What reaches p1 first is placed first, for everybody.")
    network.broadcast(3, "x")
    network.broadcast(2, "y")
    network.carry(Batch, source=2, to=3)
    network.carry(Batch, source=3, to=1)
    network.carry(Batch, source=2, to=1)
    network.carry_all()
    return network


def one_comes_and_one_goes() -> Network:
    network = Network(2, FifoOrder)
    network.broadcast(1, "before")
    network.carry_all()
    network.join(3)
    network.carry_all()
    heartbeat(network, 1)
    network.lose(Status)
    network.carry_all()
    network.say("p3 starts behind what came before it.")
    network.broadcast(2, "after")
    network.carry_all()
    heartbeat(network, 1, 2, 3)
    network.carry_all()
    network.leave(2)
    heartbeat(network, 2)
    network.lose(Status)
    network.carry_all()
    heartbeat(network, 1)
    network.lose(Status)
    network.carry_all()
    network.say("Everybody who stays has moved on. p2 need not wait any longer.")
    heartbeat(network, 2)
    network.carry_all()
    return network


def quiet(network: Network, duration: int) -> None:
    """Time passes, and only heartbeats happen: not worth reading."""
    length = len(network.journal)
    network.pass_time(duration)
    del network.journal[length:]


RUNS: dict[str, Callable[[], Network]] = {
    "one-broadcast-among-three": one_broadcast_among_three,
    "one-broadcast-among-five": one_broadcast_among_five,
    "an-effect-waits-for-its-cause": an_effect_waits_for_its_cause,
    "a-lost-batch-is-sent-again": a_lost_batch_is_sent_again,
    "a-view-ends-with-a-crash": a_view_ends_with_a_crash,
    "a-coordinator-dies-after-proposing": a_coordinator_dies_after_proposing,
    "two-messages-in-total-order": two_messages_in_total_order,
    "one-comes-and-one-goes": one_comes_and_one_goes,
}


@pytest.mark.parametrize("name", RUNS)
def test_the_run_reads_as_it_is_written_down(name: str, rewrite: bool) -> None:
    transcript = "\n".join(RUNS[name]().journal) + "\n"
    file = FOLDER / f"{name}.txt"
    if rewrite:
        file.write_text(transcript, encoding="utf-8")
    assert transcript == file.read_text(encoding="utf-8"), f"{file.name} tells another story; see `pytest --rewrite`"


def test_every_transcript_belongs_to_a_run() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(RUNS)
