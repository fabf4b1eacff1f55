"""What cluster says of message cost and processing load (Sect. IV), counted on the real protocol code."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest

from isthmus.lab.counts.clusters import (
    ClusterRig,
    count_cost,
    count_loads,
    count_matrix,
    even_tree,
    figure_7,
    loads,
    worst_header,
)
from isthmus.lab.counts.table import CountRow
from isthmus.planner.clusters import (
    exact_from_above,
    exact_from_below,
    message_cost,
    printed_from_above,
    printed_from_below,
)

SHAPES = (lambda k: (1, 1), lambda k: (2**k, 2), lambda k: (4, k))
"""Flat, two layers of √n, layers of four: parts and layers for n = 4^k."""


def assert_counted(rows: list[CountRow]) -> None:
    wrong = [f"{row.setting}: {row.counted}, not {row.expected}" for row in rows if not row.holds]
    assert rows
    assert not wrong, "\n".join(wrong)


def test_the_rst_algorithm_carries_a_matrix() -> None:
    """ "Fully distributed approaches … impose a size of O(n²) message header on every message" (Sect. I)"""
    assert_counted(count_matrix())


def test_the_worst_message_cost() -> None:
    """ "The message cost of an inter-cluster message is the sum of the costs of individual intra-cluster messages, each
    of which corresponds to a hop of that message." (Sect. IV.A)
    """
    assert_counted(count_cost())


@pytest.mark.parametrize("n", [16, 64, 256, 4096])
def test_with_two_layers_and_b_the_root_of_n_the_cost_is_linear(n: int) -> None:
    """ "setting b = √n yields O(n) message cost" (Sect. IV.A)"""
    assert message_cost(n, int(n**0.5), 2) == 3 * n


def test_with_more_layers_the_cost_is_logarithmic() -> None:
    """ "the message cost is only O(log n), for b being fixed" (Sect. IV.A): every layer adds the same."""
    costs = [message_cost(4**layers, 4, layers) for layers in range(2, 7)]
    assert {later - earlier for earlier, later in pairwise(costs)} == {32}


def test_header_bytes_stay_in_their_cluster() -> None:
    """What a message weighs in each cluster depends on the size of that cluster alone."""
    rig = ClusterRig(even_tree(16, 4, 2, "rst"), weigh=True)
    inside = rig.send(rig.senders[1], rig.senders[2], 100)
    across = rig.send(rig.senders[1], rig.senders[5], 100)
    rig.rest()
    assert (rig.entries[inside], rig.entries[across]) == (16, 48)
    assert rig.header_bytes[across] == pytest.approx(3 * rig.header_bytes[inside], abs=3)


def test_headers_grow_as_the_square_as_n_and_as_its_logarithm() -> None:
    """Bytes of the worst message: nothing is sent yet, so that every number takes one byte."""
    flat, two, many = ([worst_header(4**k, *shape(k)) for k in (2, 3, 4)] for shape in SHAPES)
    assert [each.entries for each in flat] == [4**4, 4**6, 4**8]
    assert [each.entries for each in two] == [3 * 4**2, 3 * 4**3, 3 * 4**4]
    assert [each.entries for each in many] == [48, 80, 112]
    for headers in (flat, two, many):
        assert all(each.entries < each.size < 1.6 * each.entries + 60 for each in headers)


# Loads


def test_the_exact_loads_are_what_is_counted() -> None:
    assert_counted(count_loads())


def test_the_flat_centralised_load_is_that_of_everybody() -> None:
    """ "if the system adopts the centralized approach, the message arrival rate at the coordinator is nλ" (IV.B)"""
    (load,) = loads(9, 1, 1)
    assert load.below == [9]


@pytest.mark.parametrize("parts", [2, 3, 4, 6])
def test_for_two_layers_the_printed_loads_are_exact(parts: int) -> None:
    """ "As an example, consider a two-layer hierarchy. We have L(n) = (b − 1)nλ/b" (Sect. IV.B)"""
    n = 24
    assert printed_from_below(n, parts, 2, 2) == exact_from_below(n, parts, 2, 2) == Fraction((parts - 1) * n, parts)
    assert printed_from_below(n, parts, 2, 1) == exact_from_below(n, parts, 2, 1) == Fraction(n, parts)
    assert printed_from_above(n, parts, 2, 1) == exact_from_above(n, parts, 2, 1)


@pytest.mark.parametrize(("parts", "layers"), [(2, 3), (3, 3), (2, 5)])
def test_for_more_layers_the_printed_loads_are_too_small(parts: int, layers: int) -> None:
    n = parts ** (layers + 1)
    assert printed_from_below(n, parts, layers, layers) < exact_from_below(n, parts, layers, layers)
    for layer in range(1, layers):
        assert printed_from_above(n, parts, layers, layer) < exact_from_above(n, parts, layers, layer)


def test_figure_7() -> None:
    """ "on the condition of b being 2, the processing load on the top-layer coordinator is only half of that on the
    coordinator in the centralized approach … As b increases, the processing load on the layer-two coordinator increases
    while processing loads on other coordinators decrease." (Sect. IV.B)
    """
    top, bottom = figure_7(12, (2, 3, 4, 6)).values()
    assert top == [(2, 6), (3, 8), (4, 9), (6, 10)]
    assert bottom == [(2, 9), (3, Fraction(20, 3)), (4, Fraction(21, 4)), (6, Fraction(11, 3))]
