"""What a mutant is: a protocol with one thing wrong, as data, and how to commit the mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from isthmus.lab.standard import Scenario

Patch: TypeAlias = tuple[object, str, object]


class Mutant(Struct, frozen=True):
    """One mistake: the order that it breaks, the functions that commit it, and the topology in which it shows soon."""

    name: str
    order: Literal["fifo", "causal", "total"]
    mistake: str
    patches: tuple[Patch, ...]
    scenario: Scenario = "group"


@contextmanager
def alive(mutant: Mutant) -> Iterator[None]:
    """Commit the mistake, in this OS process, until the block ends."""
    originals: list[tuple[Any, str, object]] = []
    try:
        for target, attribute, replacement in mutant.patches:
            originals.append((target, attribute, vars(target)[attribute]))
            setattr(target, attribute, replacement)
        yield
    finally:
        for target, attribute, original in reversed(originals):
            setattr(target, attribute, original)
