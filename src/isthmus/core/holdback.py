"""The hold-back queue: what has arrived and may not be delivered yet.

A held item waits for exactly one thing at a time: that some counter (a *key*) reaches a *level*. When the counter
gets there the item comes out and its owner looks at it again; it may be held again for another reason. So an
arrival costs O(1) and so does each release, however many items are held, and "what is this waiting for?" always
has a short answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class HoldBack(Generic[Key, Item]):
    """Items parked under (key, level). Items of one key and level come out in the order in which they went in."""

    __slots__ = ("_arrivals", "_parked")

    def __init__(self) -> None:
        self._parked: dict[Key, list[tuple[int, int, Item]]] = {}
        self._arrivals = 0

    def park(self, key: Key, level: int, item: Item) -> None:
        """Hold `item` until `release(key, at_least_level)`."""
        self._arrivals += 1
        heappush(self._parked.setdefault(key, []), (level, self._arrivals, item))

    def release(self, key: Key, level: int) -> list[Item]:
        """Take out everything under `key` that waits for at most `level`, lowest level first."""
        heap = self._parked.get(key)
        if heap is None or heap[0][0] > level:
            return []
        released = [heappop(heap)[2]]
        while heap and heap[0][0] <= level:
            released.append(heappop(heap)[2])
        if not heap:
            del self._parked[key]
        return released

    def waiting(self) -> Iterator[tuple[Key, int, Item]]:
        """Everything held, with what it waits for."""
        for key, heap in self._parked.items():
            for level, _, item in sorted(heap, key=lambda entry: entry[:2]):
                yield key, level, item

    def clear(self) -> None:
        self._parked.clear()

    def __bool__(self) -> bool:
        return bool(self._parked)
