"""The simulated network: who gets what, when, in exact numbers where the model is exact."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from isthmus.core.codec import body_of
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, incarnation_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import FRAME_OVERHEAD, HELD_UP, Network
from isthmus.topology.read.simulation import Delay, Exponential, Fixed, Uniform

MANY = 20_000
HOP = MILLISECOND


def network(delay: Delay | None = None, bandwidth: int | None = None, faults: NetworkFaults | None = None) -> Network:
    return Network(Random(7), delay or Fixed(HOP), bandwidth, faults or NetworkFaults(), Sometimes())


def pdu(payload: int = 100) -> Batch:
    return Batch(1, 0, 1, [], 0, Segment.of(0, 1, [bytes(payload)]))


def bits(each: Batch) -> int:
    return 8 * (len(body_of(each)) + FRAME_OVERHEAD)


def send_many(line: Network, count: int = MANY, every: Nanos = 1000) -> list[list[Nanos]]:
    """The arrivals of PDUs that left one after the other, from 0 to 1."""
    return [list(line.arrivals(0, 1, pdu(), sent * every)) for sent in range(count)]


# Delay


def test_a_fixed_delay_is_exact() -> None:
    assert list(network(Fixed(HOP)).arrivals(0, 1, pdu(), 5)) == [HOP + 5]


def test_a_uniform_delay_stays_within_its_bounds() -> None:
    # One line each, so that nobody waits for an earlier PDU.
    line = network(Uniform(HOP, 3 * HOP))
    delays = [arrival for slot in range(2, 2000) for arrival in line.arrivals(0, slot, pdu(), 0)]
    assert HOP <= min(delays) < 1.1 * HOP
    assert 2.9 * HOP < max(delays) < 3 * HOP


def test_an_exponential_delay_has_its_mean() -> None:
    line = network(Exponential(2 * HOP))
    delays = [arrival for slot in range(2, MANY) for arrival in line.arrivals(0, slot, pdu(), 0)]
    assert sum(delays) / len(delays) == pytest.approx(2 * HOP, rel=0.05)


# Order


@pytest.mark.parametrize("faults", [NetworkFaults(), NetworkFaults(loss=0.1), NetworkFaults(duplication=0.1)])
def test_a_line_without_reordering_is_fifo(faults: NetworkFaults) -> None:
    first_arrivals = [arrivals[0] for arrivals in send_many(network(Exponential(HOP), faults=faults)) if arrivals]
    assert all(early < late for early, late in pairwise(first_arrivals))


def test_lines_do_not_wait_for_each_other() -> None:
    line = network(Exponential(HOP))
    late = max(arrival for _ in range(200) for arrival in line.arrivals(0, 1, pdu(), 0))
    assert min(min(line.arrivals(0, slot, pdu(), 0)) for slot in range(2, 50)) < late


def test_a_reordered_pdu_is_overtaken_by_later_ones_and_late_by_a_bounded_time() -> None:
    line = network(Fixed(HOP), faults=NetworkFaults(reordering=0.1))
    delays = [arrivals[0] - sent * 1000 for sent, arrivals in enumerate(send_many(line))]
    held_up = [delay for delay in delays if delay > HOP]
    assert len(held_up) == pytest.approx(0.1 * MANY, rel=0.15)
    assert max(delays) < HOP + HELD_UP
    assert delays.count(HOP) == MANY - len(held_up)  # Nobody else waits for those that are held up.


# Loss and duplication


def test_as_many_are_lost_as_the_rate_says() -> None:
    line = network(faults=NetworkFaults(loss=0.1))
    lost = sum(not arrivals for arrivals in send_many(line))
    assert lost == pytest.approx(0.1 * MANY, rel=0.1)
    assert line.sometimes["loss"] == lost


def test_as_many_arrive_twice_as_the_rate_says() -> None:
    line = network(faults=NetworkFaults(duplication=0.05))
    arrivals = send_many(line)
    twice = [each for each in arrivals if len(each) == 2]
    assert len(twice) == pytest.approx(0.05 * MANY, rel=0.15)
    assert all(0 <= second - first < HELD_UP for first, second in twice)
    assert line.sometimes["duplication"] == len(twice)


def test_a_calm_network_draws_nothing_but_delays() -> None:
    assert all(len(arrivals) == 1 for arrivals in send_many(network(Uniform(HOP, 2 * HOP))))


# Bandwidth


def test_a_pdu_takes_the_time_of_its_bits_and_then_the_delay() -> None:
    line = network(Fixed(HOP), bandwidth=1_000_000)
    each = pdu(1000)
    assert list(line.arrivals(0, 1, each, 0)) == [bits(each) * 1000 + HOP]  # 1 Mbit/s is 1,000 ns a bit.


def test_pdus_queue_for_their_line_and_for_no_other() -> None:
    line = network(Fixed(HOP), bandwidth=1_000_000)
    each = pdu(1000)
    time = bits(each) * 1000
    assert [list(line.arrivals(0, 1, each, 0)) for _ in range(3)] == [[n * time + HOP] for n in (1, 2, 3)]
    assert list(line.arrivals(0, 2, each, 0)) == [time + HOP]
    assert list(line.arrivals(1, 0, each, 0)) == [time + HOP]


def test_a_line_that_was_idle_owes_nothing() -> None:
    line = network(Fixed(HOP), bandwidth=1_000_000)
    each = pdu(1000)
    line.arrivals(0, 1, each, 0)
    assert list(line.arrivals(0, 1, each, SECOND)) == [SECOND + bits(each) * 1000 + HOP]


# Cuts


def test_a_cut_stops_one_direction_only() -> None:
    line = network()
    line.cut(0, 1)
    assert list(line.arrivals(0, 1, pdu(), 0)) == []
    assert list(line.arrivals(1, 0, pdu(), 0)) == [HOP]
    assert list(line.arrivals(0, 2, pdu(), 0)) == [HOP]


def test_a_line_that_was_cut_twice_is_mended_twice() -> None:
    line = network()
    line.cut(0, 1)
    line.cut(0, 1)
    line.mend(0, 1)
    assert line.is_cut(0, 1)
    line.mend(0, 1)
    assert not line.is_cut(0, 1)
    assert list(line.arrivals(0, 1, pdu(), 0)) == [HOP]


def test_mending_everything_ends_all_cuts_however_often_they_were_made() -> None:
    line = network()
    for destination in (1, 1, 2):
        line.cut(0, destination)
    line.mend_all()
    assert list(line.arrivals(0, 1, pdu(), 0)) == list(line.arrivals(0, 2, pdu(), 0)) == [HOP]


def test_a_process_that_came_back_uses_the_lines_of_its_slot() -> None:
    line = network()
    line.cut(3, 4)
    assert list(line.arrivals(incarnation_of(3, 2), incarnation_of(4, 1), pdu(), 0)) == []


def test_equal_generators_give_equal_arrivals() -> None:
    faults = NetworkFaults(loss=0.1, duplication=0.1, reordering=0.1)
    first, second = (send_many(network(Exponential(HOP), faults=faults)) for _ in range(2))
    assert first == second
