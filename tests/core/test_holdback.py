"""The hold-back queue gives back exactly what a level releases, oldest need first, and knows why the rest waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from isthmus.core.holdback import HoldBack

keys = st.integers(0, 3)
levels = st.integers(0, 6)


class AgainstAPlainList(RuleBasedStateMachine):
    """The same operations on a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: HoldBack[int, int] = HoldBack()
        self.plain: list[tuple[int, int, int]] = []
        self.parked = 0

    @rule(key=keys, level=levels)
    def park(self, key: int, level: int) -> None:
        self.parked += 1
        self.queue.park(key, level, self.parked)
        self.plain.append((key, level, self.parked))

    @rule(key=keys, level=levels)
    def release(self, key: int, level: int) -> None:
        due = [entry for entry in self.plain if entry[0] == key and entry[1] <= level]
        self.plain = [entry for entry in self.plain if entry not in due]
        # `sorted` is stable: equal levels stay in the order in which they were parked.
        expected = [item for _, _, item in sorted(due, key=lambda entry: entry[1])]
        assert self.queue.release(key, level) == expected

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.plain.clear()

    @invariant()
    def holds_the_same(self) -> None:
        assert sorted(self.queue.waiting()) == sorted(self.plain)
        assert bool(self.queue) == bool(self.plain)


TestAgainstAPlainList = AgainstAPlainList.TestCase


@given(st.permutations(range(6)))
def test_items_come_out_lowest_level_first_whatever_the_order_of_arrival(arrival: list[int]) -> None:
    queue: HoldBack[str, int] = HoldBack()
    for level in arrival:
        queue.park("key", level, level)
    assert queue.release("key", 3) == [0, 1, 2, 3]
    assert queue.release("key", 3) == []
    assert queue.release("key", 9) == [4, 5]


def test_items_of_one_level_come_out_in_order_of_arrival_even_if_they_cannot_be_compared() -> None:
    queue: HoldBack[str, object] = HoldBack()
    items = [object(), object(), object()]
    for item in items:
        queue.park("key", 1, item)
    assert queue.release("key", 1) == items


def test_another_key_releases_nothing() -> None:
    queue: HoldBack[str, str] = HoldBack()
    queue.park("mine", 1, "item")
    assert queue.release("yours", 99) == []
    assert list(queue.waiting()) == [("mine", 1, "item")]
