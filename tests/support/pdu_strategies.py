"""Hypothesis strategies for PDUs: every kind, every field within what the wire allows."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import Meta, Struct

from isthmus.core.message import Batch, Message
from isthmus.core.wire.group import (
    Accept,
    Ack,
    Busy,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    LeaveRequest,
    Places,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Safe,
    Seek,
    Status,
)
from isthmus.core.wire.pdu import Pdu

LONGEST = 6
"""Of lists and payloads: long enough to have a middle."""


def integers(meta: Meta) -> SearchStrategy[int]:
    """Small ones, those at the borders of the format, and everything between."""
    low, high = int(meta.ge or 0), int(meta.le or 1 << 62)
    borders = [each for each in (low, high, 0, 127, 128, 255, 256, 1 << 32) if low <= each <= high]
    return st.integers(low, min(high, 5)) | st.integers(low, high) | st.sampled_from(borders)


def values(kind: Any, meta: Meta | None = None) -> SearchStrategy[Any]:
    """Values of a type as PDUs declare it, within the bounds that its annotations set."""
    meta = meta or Meta()
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values(arguments[0], arguments[1])
    if origin is list:
        return st.lists(values(arguments[0]), max_size=min(LONGEST, meta.max_length or LONGEST))
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(values(arguments[0]), max_size=min(LONGEST, meta.max_length or LONGEST)).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin in (Union, UnionType):
        return st.one_of(*map(values, arguments))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return integers(meta)
    if kind is bytes:
        return st.binary(max_size=LONGEST)
    if kind is str:
        return st.text(max_size=LONGEST)
    if kind is type(None):
        return st.none()
    assert issubclass(kind, Struct), f"no strategy for a field of type {kind}"
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, *(values(hints[name]) for name in kind.__struct_fields__))


KINDS: dict[type, SearchStrategy[Pdu]] = {kind: values(kind) for kind in get_args(Pdu)}
pdus: SearchStrategy[Pdu] = st.one_of(*KINDS.values())


def group_kinds(
    processes: SearchStrategy[int],
    views: SearchStrategy[int],
    ballots: SearchStrategy[int],
    counts: SearchStrategy[int],
    vectors: SearchStrategy[list[int]],
    groups: SearchStrategy[list[int]],
) -> dict[type, SearchStrategy[Pdu]]:
    """The PDUs of the group layer, one strategy per kind, for a group whose ids and numbers look like this."""
    proposals = st.builds(Proposal, groups, groups, vectors)
    messages = st.lists(st.builds(Message, processes, counts, st.binary(max_size=3)), max_size=2)
    departed = st.lists(st.tuples(processes, counts), max_size=3)
    return {
        Batch: st.builds(Batch, views, processes, counts, vectors, counts, messages),
        Ack: st.builds(Ack, views, counts, counts),
        Safe: st.builds(Safe, views, counts),
        Status: st.builds(Status, views, counts, counts, vectors, departed, groups, ballots),
        JoinRequest: st.builds(JoinRequest, processes),
        LeaveRequest: st.builds(LeaveRequest, views),
        Prepare: st.builds(Prepare, views, ballots),
        Promise: st.builds(Promise, views, ballots, vectors, ballots, st.none() | proposals),
        Fetch: st.builds(Fetch, views, processes, counts, counts),
        Seek: st.builds(Seek, views, counts, processes, counts, counts),
        Places: st.builds(Places, views, counts, vectors),
        Propose: st.builds(Propose, views, ballots, proposals),
        Accept: st.builds(Accept, views, ballots),
        Busy: st.builds(Busy, views, ballots),
        Install: st.builds(Install, views, proposals),
        Excluded: st.builds(Excluded, views),
    }
