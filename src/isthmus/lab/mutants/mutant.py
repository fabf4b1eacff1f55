"""What a mutant is: a protocol with one thing wrong, how its mistake is written down, and how it is committed.

    @mutant("stamp-forgets-one", of=CausalOrder.stamp)
    def _forgets_one(self: CausalOrder, number: int) -> list[int]:
        '''A stamp leaves out what was delivered of one member.'''

The first paragraph of the docstring says what the mistake is. A mistake that takes more than one function has the
others as `@part_of` it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from isthmus.lab.standard import Scenario

Patch: TypeAlias = tuple[object, str, object]
Function = TypeVar("Function", bound=Callable[..., Any])


class Mutant(Struct, frozen=True):
    """One mistake: the order that it breaks, the functions that commit it, and the topology in which it shows soon."""

    name: str
    order: Literal["fifo", "causal", "total"]
    mistake: str
    patches: tuple[Patch, ...]
    scenario: Scenario = "group"


REGISTERED: dict[str, Mutant] = {}
"""By name, in the order in which they were written down."""


def mutant(
    name: str,
    *,
    of: Any,
    where: ModuleType | None = None,
    breaks: Literal["fifo", "causal", "total"] = "causal",
    scenario: Scenario = "group",
    among: dict[str, Mutant] = REGISTERED,
) -> Callable[[Function], Function]:
    """Write a mistake down: the decorated function takes the place of `of`.

    `of` is a method, a property or a function; `where` is the module that calls it, if it has it from another one.
    """

    def write_down(wrong: Function) -> Function:
        assert name not in among, f"there are two mutants {name}"
        first, _, _ = (inspect.getdoc(wrong) or "").partition("\n\n")
        among[name] = Mutant(name, breaks, " ".join(first.split()), (_patch(of, where, wrong),), scenario)
        return wrong

    return write_down


def part_of(name: str, *, of: Any, where: ModuleType | None = None) -> Callable[[Function], Function]:
    """One function more that the mistake of this name takes."""

    def write_down(wrong: Function) -> Function:
        whole = REGISTERED[name]
        REGISTERED[name] = structs.replace(whole, patches=(*whole.patches, _patch(of, where, wrong)))
        return wrong

    return write_down


def _patch(of: Any, where: ModuleType | None, wrong: Callable[..., Any]) -> Patch:
    right: Any = of.fget if isinstance(of, property) else of
    *owners, attribute = right.__qualname__.split(".")
    target = where or reduce(getattr, owners, sys.modules[right.__module__])
    return target, attribute, property(wrong) if isinstance(of, property) else wrong


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
