"""Hypothesis strategies for PDUs: every kind, every field within what the wire allows."""

from __future__ import annotations

from array import array
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import Meta, Struct

from isthmus.core.message import Addressed, Batch, runs_of
from isthmus.core.segment import Segment
from isthmus.core.wire.group import (
    Accept,
    Ack,
    Ask,
    Busy,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    LeaveRequest,
    Places,
    Prepare,
    Present,
    Promise,
    Proposal,
    Propose,
    Safe,
    Seek,
    Stable,
    Status,
)
from isthmus.core.wire.join import Epoch, Line
from isthmus.core.wire.pdu import Pdu

MAX_NUMBER = 1 << 62
LONGEST = 6
"""Of lists and payloads: long enough to have a middle."""


def integers(meta: Meta) -> SearchStrategy[int]:
    """Small ones, those at the borders of the format, and everything between."""
    low, high = int(meta.ge or 0), int(meta.le or MAX_NUMBER)
    borders = [each for each in (low, high, 0, 127, 128, 255, 256, 1 << 32) if low <= each <= high]
    return st.integers(low, min(high, 5)) | st.integers(low, high) | st.sampled_from(borders)


NUMBERS = integers(Meta(ge=0, le=MAX_NUMBER))


def wide_enough(numbers: list[int]) -> SearchStrategy[bytes]:
    """A column of these numbers, of any width that holds them all."""
    formats = [each for each in "BHIQ" if max(numbers, default=0) >> 8 * array(each).itemsize == 0]
    return st.sampled_from([array(each, numbers).tobytes() for each in formats])


@st.composite
def segments(
    draw: st.DrawFn,
    origins: SearchStrategy[int] = NUMBERS,
    numbers: SearchStrategy[int] = NUMBERS,
    *,
    longest: int = LONGEST,
    most: int = 8,
) -> Segment:
    """Up to `most` messages, in runs of any origins, with payloads of one size or not: whatever the wire allows.

    Runs may follow on each other, or begin anywhere (with one of `numbers`); columns may be wider than their numbers
    take, and there may be lengths although all of them are equal. `longest` is the most bytes of a payload.
    """
    messages = left = draw(st.integers(0, most))
    whose: list[int] = []
    lasts: list[int] = []
    counts: list[int] = []
    while left:
        count = draw(st.integers(1, left))
        if lasts and lasts[-1] + count <= MAX_NUMBER and draw(st.booleans()):
            origin, first = whose[-1], lasts[-1] + 1
        else:
            origin, first = draw(origins), min(draw(numbers), MAX_NUMBER - count + 1)
        whose.append(origin)
        lasts.append(first + count - 1)
        counts.append(count)
        left -= count
    columns: tuple[int, int, int] | tuple[bytes, bytes, bytes]
    if len(counts) == 1:
        columns = whose[0], lasts[0], counts[0]
    else:
        columns = draw(wide_enough(whose)), draw(wide_enough(lasts)), array("H", counts).tobytes()
    lengths = st.integers(0, longest)
    if draw(st.booleans()):
        size = draw(lengths) if messages else 0
        return Segment(*columns, size, b"", draw(st.binary(min_size=size * messages, max_size=size * messages)))
    different = draw(st.lists(lengths, min_size=messages, max_size=messages))
    data = draw(st.binary(min_size=sum(different), max_size=sum(different)))
    return Segment(*columns, 0, array("I", different).tobytes(), data)


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
    if kind is Segment:
        return segments()
    if kind is Epoch:
        return st.builds(Epoch, *[integers(Meta(ge=0, le=1 << 62))] * len(Epoch._fields))
    if kind is Line:
        return st.builds(Line, integers(Meta(ge=1, le=1 << 62)), *[integers(Meta(ge=0, le=1 << 62))] * 3)
    assert issubclass(kind, Struct), f"no strategy for a field of type {kind}"
    hints = get_type_hints(kind, include_extras=True)
    if issubclass(kind, Addressed):
        payloads = st.lists(st.binary(max_size=LONGEST), min_size=1, max_size=LONGEST)
        rest = (values(hints[name]) for name in kind.__struct_fields__[3:])
        contents = st.builds(lambda first, payloads: next(runs_of(first, payloads)), st.integers(0, 99), payloads)
        return st.builds(lambda origin, run, *rest: kind(origin, *run, *rest), NUMBERS, contents, *rest)
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
    messages = segments(processes, counts, longest=3, most=2)
    departed = st.lists(st.tuples(processes, counts), max_size=3)
    return {
        Batch: st.builds(Batch, views, processes, counts, vectors, counts, messages),
        Ack: st.builds(Ack, views, counts, counts),
        Safe: st.builds(Safe, views, counts),
        Status: st.builds(Status, views, counts, counts, vectors, departed, groups, ballots),
        Ask: st.builds(Ask, views, st.booleans()),
        Stable: st.builds(Stable, views, vectors, departed),
        Present: st.builds(Present, views, groups),
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
