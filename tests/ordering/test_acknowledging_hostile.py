"""TO and PO on a medium on which anybody may say anything: a member goes on, and asks for no more than there can be."""

from __future__ import annotations

import pytest
from group_network import SETTINGS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pdu_strategies import group_kinds
from test_group_hostile import ballots, endure, groups, processes, views

from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.acknowledged.member import Protocol, make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings

MEMBERS = (1, 2, 3)

# What passes for sense gets further: small numbers, stamps of the right length.
numbers = st.sampled_from([0, 1, 1, 1, 2, 2, 3, 9, 1 << 62])
stamps = st.lists(st.sampled_from([0, 1, 1, 1, 2, 2, 3]), min_size=4, max_size=4) | st.lists(numbers, max_size=5)
kinds = group_kinds(processes, views, ballots, numbers, stamps, groups)
pdus: SearchStrategy[Pdu] = st.one_of(*kinds.values())
arrivals = st.tuples(processes, st.lists(pdus, min_size=1, max_size=3), st.integers(0, 3))


@pytest.mark.parametrize("protocol", ["to", "po"])
def test_no_sequence_of_pdus_raises_anything(protocol: Protocol) -> None:
    @settings(max_examples=30)
    @given(st.lists(arrivals, max_size=12))
    def holds(inputs: list[tuple[int, list[Pdu], int]]) -> None:
        endure(make_member(protocol, 2, MEMBERS, AcknowledgedSettings(answer_after=0), SETTINGS), inputs)

    holds()
