"""Hypothesis strategies for PDUs: every kind, every field within what the wire allows."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from isthmus.core.message import Batch, Message
from isthmus.core.pdu import (
    Accept,
    Ack,
    Busy,
    Excluded,
    Fetch,
    Install,
    Join,
    Leave,
    Pdu,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Safe,
    Status,
)

MAX_NUMBER = 1 << 62

borders = st.sampled_from([127, 128, 255, 256, 1 << 32, MAX_NUMBER])
all_numbers = st.integers(0, 5) | st.integers(0, MAX_NUMBER) | borders


def every_kind(
    processes: SearchStrategy[int] = all_numbers,
    views: SearchStrategy[int] = all_numbers,
    ballots: SearchStrategy[int] = all_numbers,
    counts: SearchStrategy[int] = all_numbers,
    longest: int = 6,
) -> dict[type, SearchStrategy[Pdu]]:
    """One strategy per kind of PDU. The arguments say what process ids, view numbers, ballots and counts look like."""
    some_processes = st.lists(processes, max_size=longest)
    vectors = st.lists(counts, max_size=longest)
    # Most vectors of a real group are as long as the group; a vector that never fits would only test one check.
    proposals = st.builds(Proposal, some_processes, some_processes, vectors)
    messages = st.builds(Message, processes, counts, st.binary(max_size=20))
    return {
        Batch: st.builds(Batch, views, processes, counts, vectors, counts, st.lists(messages, max_size=3)),
        Ack: st.builds(Ack, views, counts, counts),
        Safe: st.builds(Safe, views, counts),
        Status: st.builds(
            Status,
            views,
            counts,
            counts,
            vectors,
            st.lists(st.tuples(processes, counts), max_size=longest),
            some_processes,
            ballots,
        ),
        Join: st.builds(Join, processes),
        Leave: st.builds(Leave, views),
        Prepare: st.builds(Prepare, views, ballots),
        Promise: st.builds(Promise, views, ballots, vectors, ballots, st.none() | proposals),
        Fetch: st.builds(Fetch, views, processes, counts, counts),
        Propose: st.builds(Propose, views, ballots, proposals),
        Accept: st.builds(Accept, views, ballots),
        Busy: st.builds(Busy, views, ballots),
        Install: st.builds(Install, views, proposals),
        Excluded: st.builds(Excluded, views),
    }


KINDS = every_kind()
pdus: SearchStrategy[Pdu] = st.one_of(*KINDS.values())
