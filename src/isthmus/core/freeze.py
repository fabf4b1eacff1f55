"""A hashable picture of a protocol's state, for the explorer and for tests that compare states."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from isthmus.core.segment import Segment

_ATOMS = (int, str, bytes, bool, float, type(None), Segment)
_slots_of: dict[type, frozenset[str]] = {}


def freeze(value: Any) -> Hashable:
    """A hashable value that is equal for equal states. Follows fields, containers and cycles; code is not state."""
    return _freeze(value, [])


def _freeze(value: Any, open_objects: list[Any]) -> Hashable:
    if isinstance(value, _ATOMS):
        return value
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    for depth, outer in enumerate(open_objects):
        if outer is value:
            return ("cycle", depth)
    nested = [*open_objects, value]
    if isinstance(value, (list, tuple)):
        # Before fields are looked for: a named tuple has slots too, and keeps nothing in them.
        return _all(value, nested)
    if isinstance(value, dict):
        return frozenset((_freeze(key, nested), _freeze(each, nested)) for key, each in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(_freeze(each, nested) for each in value)
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, _all((getattr(value, name) for name in value.__struct_fields__), nested))
    if hasattr(value, "__dict__") or hasattr(value, "__slots__"):
        names = sorted({*getattr(value, "__dict__", ()), *_slots(type(value))})
        return (type(value).__name__, _all((getattr(value, name) for name in names), nested))
    return _all(value, nested)


def _all(values: Iterable[Any], open_objects: list[Any]) -> Hashable:
    return tuple(_freeze(each, open_objects) for each in values)


def _slots(kind: type) -> frozenset[str]:
    """The slots of a class and of everything it inherits from."""
    if kind not in _slots_of:
        _slots_of[kind] = frozenset(name for base in kind.__mro__ for name in vars(base).get("__slots__", ()))
    return _slots_of[kind]
