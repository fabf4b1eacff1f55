"""Equal things stored once, and called by a small number from then on.

A state of the world is a handful of these numbers, which makes it cheap to hash, to compare and to keep by the million.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Interner(Generic[Item]):
    """`number` gives the same number for the same key; what was stored under it first stays."""

    __slots__ = ("_numbers", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Item:
        return self.items[number]

    def number(self, key: Hashable, item: Item) -> int:
        known = self._numbers.setdefault(key, len(self.items))
        if known == len(self.items):
            self.items.append(item)
        return known
