"""Makes a topology small that fails: takes out whatever it fails without, until nothing more can be taken out.

One pass tries every change once: to leave out a key, an element of a list, or a whole table; then to halve a number.
A change stays if the document is still valid and still fails in the same way. Passes repeat until one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from isthmus.lab.topologies.generate import Document, is_valid

Fails = Callable[[Document], bool]
"""Whether a document fails as the one that is being reduced does."""


def reduce(document: Document, fails: Fails, most_tries: int = 400) -> Document:
    """The smallest document that this finds within some tries."""
    left = most_tries
    changed = True
    while changed and left > 0:
        changed = False
        for smaller in _smaller(document):
            if left <= 0:
                break
            if not is_valid(smaller):
                continue
            left -= 1
            if fails(smaller):
                document, changed = smaller, True
                break
    return document


def _smaller(document: Document) -> Iterator[Document]:
    """Every document that is one change smaller, the largest changes first."""
    places = sorted(_places(document), key=lambda place: (len(place), str(place)))
    for place in places:
        smaller = deepcopy(document)
        holder = _at(smaller, place[:-1])
        if place[:1] == ("systems",) and len(place) == 2:
            _forget_system(smaller, str(place[1]))
        del holder[place[-1]]
        yield smaller
    for place in places:
        value = _at(document, place)
        if type(value) is int and value > 1:
            smaller = deepcopy(document)
            _at(smaller, place[:-1])[place[-1]] = value // 2
            yield smaller


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything inside."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*place, key)
        yield from _places(value[key], (*place, key))


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def _forget_system(document: Document, name: str) -> None:
    """Take out what names a system that is about to go."""
    document["joins"] = [join for join in document.get("joins", []) if name not in join["between"]]
    if not document["joins"]:
        for key in ("joins", "paths"):
            document.pop(key, None)
    simulation = document.get("simulation", {})
    own = [line for line in simulation.pop("link", []) if name not in line["between"]]
    if own:
        simulation["link"] = own
