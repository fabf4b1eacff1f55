"""What parallel (Sect. 8.2) and daisy (Sect. 3.3) say that a daisy costs, counted; and how headers grow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from isthmus.core.codec import body_of
from isthmus.core.ids import MILLISECOND, ProcessName
from isthmus.core.message import Batch
from isthmus.core.wire.join import Block
from isthmus.core.wire.pdu import Pdu
from isthmus.lab.counts.clusters import Header
from isthmus.lab.counts.daisies import (
    compared,
    count_hops,
    count_messages,
    count_vectors,
    curves,
    daisy,
    flat_vector,
    growth,
    parallel_join,
)
from isthmus.lab.counts.joins import topology
from isthmus.lab.counts.rig import Rig, Tally
from isthmus.lab.counts.table import CountRow
from isthmus.planner.expressions import JoinModel

SIZES = (8, 16, 64, 256)
MODEL = JoinModel(local_delay=MILLISECOND, link_delay=MILLISECOND)


def assert_counted(rows: list[CountRow]) -> None:
    wrong = [f"{row.setting}: {row.counted}, not {row.expected}" for row in rows if not row.holds]
    assert rows
    assert not wrong, "\n".join(wrong)


def test_messages_of_a_daisy_and_of_a_parallel_join() -> None:
    """ "At the end, this architecture needs the same global amount of point-to-point messages; i.e., 6n − 1 messages.
    But in our approach, only one of such messages need to use the slow links, whilst in the daisy architecture, three
    messages have been forwarded through such links." (parallel, Sect. 8.2)
    """
    assert_counted(count_messages())


def test_hops_of_a_daisy() -> None:
    """ "the daisy architecture needs only three logical hops to broadcast a message between different systems …
    whilst the daisy architecture introduces also three hops between processes located in different parts of such
    original systems" (parallel, Sect. 8.2)
    """
    assert_counted(count_hops())


def test_a_message_carries_one_vector_of_the_size_of_its_group() -> None:
    """ "a message always carries a single vector of length m, where m is the size of the (local or servers) group the
    message is being sent in" (daisy, Sect. 3.3)
    """
    assert_counted(count_vectors())


def test_a_broadcast_is_one_multicast_in_each_group() -> None:
    """ "such global broadcast consists of three different causal broadcast interactions" (parallel, Sect. 8.2): one
    in the own group, one among servers, and one in each of the five others at the same time."""
    for sent in compared(3):
        assert sorted(group for group, _, _ in sent.headers) == list(range(7))


# Headers as n grows


def test_entries_are_as_the_formulas_say() -> None:
    for each in growth(SIZES):
        assert each.header.entries == each.expected, f"{each.kind}, n = {each.processes}"


def test_which_header_grows_how() -> None:
    """When n is four times as large: the square 16 times, vectors four times, two levels twice, many levels a step."""
    # At fewer processes than that, what every PDU has besides its vector takes as many bytes as the vector.
    by_kind = {kind: [size for _, size in points] for kind, points in curves((64, 256, 1024)).items()}
    factors = {kind: later / earlier for kind, (*_, earlier, later) in by_kind.items() if len(by_kind[kind]) == 3}
    assert 14 < factors["flat RST"] < 17
    assert 3 < factors["flat vector"] < 4
    assert 3 < factors["clusters, 2 layers"] < 4
    assert 2 < factors["parallel join"] < 4
    assert factors["daisy, 2 levels"] < 2
    steps = [later.entries - earlier.entries for earlier, later in pairwise(daisy(4**k, 4, k) for k in (3, 4, 5))]
    assert set(steps) == {8}


def headers(pdus: Iterable[Pdu]) -> Header:
    """Of each PDU once, to however many it goes; a number on a link is no entry of a vector."""
    distinct = {id(pdu): pdu for pdu in pdus if isinstance(pdu, Batch | Block) and pdu.segment}.values()
    entries = sum(len(pdu.stamp) for pdu in distinct if isinstance(pdu, Batch))
    return Header(entries, sum(len(body_of(pdu)) for pdu in distinct))


@pytest.mark.parametrize("size", [8, 32])
def test_a_whole_group_and_a_whole_join_send_what_is_said_of_their_headers(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector does not depend on whether the others are there. Ids and numbers may take a byte more or less."""
    seen: list[Pdu] = []
    monkeypatch.setattr(Tally, "note", lambda tally, pdu: seen.append(pdu))
    Rig(topology((size,), (), order="causal", model=MODEL), checked=False).broadcast(ProcessName("s0", "p1"))
    alone = headers(seen)
    seen.clear()
    half = (size // 2 - 1, size // 2 - 1)
    Rig(topology(half, [(0, 1)], order="causal", model=MODEL), checked=False).broadcast(ProcessName("s0", "p1"))
    joined = headers(seen)
    assert (alone.entries, joined.entries) == (flat_vector(size).entries, parallel_join(size).entries)
    assert abs(alone.size - flat_vector(size).size) <= 2
    assert abs(joined.size - parallel_join(size).size) <= 4
