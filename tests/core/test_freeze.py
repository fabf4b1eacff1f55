"""A picture of a state: equal for equal states, different once anything has changed."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.endpoint import View
from isthmus.core.freeze import freeze
from isthmus.core.message import Batch
from isthmus.core.segment import Segment


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right


class Derived(Slotted):
    __slots__ = ("more",)

    def __init__(self, left: Any, right: Any, more: Any) -> None:
        super().__init__(left, right)
        self.more = more


class Pair(NamedTuple):
    left: Any
    right: Any


def batch(payload: bytes) -> Batch:
    return Batch(1, 2, 3, [4], 5, Segment.of(6, 7, [payload]))


atoms = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2) | st.binary(max_size=2)
states = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(0, 3), inner, max_size=3)
        | st.builds(Slotted, inner, inner)
        | st.builds(Derived, inner, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(deque, st.lists(inner, max_size=3))
    ),
    max_leaves=8,
)


def copy(value: Any) -> Any:
    """Rebuilt from new objects, with dictionaries filled the other way round."""
    match value:
        case Pair(left, right):
            return Pair(copy(left), copy(right))
        case Derived():
            return Derived(copy(value.left), copy(value.right), copy(value.more))
        case Slotted():
            return Slotted(copy(value.left), copy(value.right))
        case deque():
            return deque(copy(each) for each in value)
        case list():
            return [copy(each) for each in value]
        case dict():
            return {key: copy(each) for key, each in reversed(value.items())}
    return value


@given(states)
def test_equal_states_have_equal_pictures(state: Any) -> None:
    picture = freeze(state)
    assert picture == freeze(copy(state))
    assert hash(picture) == hash(freeze(copy(state)))


@given(states)
def test_a_picture_does_not_change_with_the_state(state: Any) -> None:
    holder = Plain(items=[state], more={})
    before = freeze(holder)
    holder.items.append(1)
    assert freeze(holder) != before
    holder.items.pop()
    assert freeze(holder) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        (deque([1, 2]), deque([2, 1])),
        ({1: 2}, {1: 3}),
        ({1: 2}, {2: 2}),
        ({1, 2}, {1, 3}),
        (Plain(field=1), Plain(field=2)),
        (Slotted(1, 2), Slotted(2, 1)),
        (Derived(1, 2, 3), Derived(0, 2, 3)),
        (Derived(1, 2, 3), Derived(1, 2, 0)),
        (Pair(1, 2), Pair(1, 3)),
        (Pair(1, [2]), Pair(1, [3])),
        (View(1, (1, 2)), View(2, (1, 2))),
        (View(1, (1, 2)), View(1, (1, 2, 3))),
        (batch(b"a"), batch(b"b")),
        (Segment.of(1, 1, [b"a"]), Segment.of(1, 2, [b"a"])),
        (Segment.of(1, 1, [b"ab", b""]), Segment.of(1, 1, [b"a", b"b"])),
        ([[1], 2], [1, [2]]),
        (b"a", "a"),
    ],
)
def test_a_change_anywhere_shows(one: Any, other: Any) -> None:
    assert freeze(one) != freeze(other)
    assert freeze([{"deep": [one]}]) != freeze([{"deep": [other]}])


def test_a_cycle_ends_where_it_began() -> None:
    def cycle(value: int) -> Plain:
        inner = Plain(value=value)
        outer = Plain(inner=inner)
        inner.owner = outer
        return outer

    assert freeze(cycle(1)) == freeze(cycle(1))
    assert freeze(cycle(1)) != freeze(cycle(2))


def test_code_is_not_state() -> None:
    assert freeze(Plain(make=test_code_is_not_state)) == freeze(Plain(make=test_code_is_not_state))
    assert hash(freeze(Plain(make=lambda: None))) is not None
