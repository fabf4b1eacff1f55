"""Reading one TOML table with a name for everything that can be wrong with it.

A reader asks a `Table` for each key that it knows, by type; what nobody asked for is an unknown key. A wrong value is
reported and replaced by the default, so that one pass finds every problem of a file.

Keys of several words are spelled with hyphens (`transfer-sets`); underscores are taken as well, because people who
come from Python type them without thinking.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from isthmus.core.ids import Nanos
from isthmus.core.units import parse_duration, parse_rate
from isthmus.topology.problem import Problems, choose_from, closest, listing, quote

NAME = re.compile(r"[A-Za-z0-9_-]+")
UNLIMITED = "unlimited"

_TYPE_NAMES = {
    "str": "a string",
    "bool": "true or false",
    "int": "a whole number",
    "list": "an array",
    "dict": "a table",
}

Choice = TypeVar("Choice", bound=str)
Number = TypeVar("Number", int, float)


class Table:
    """One table of the file, at the dotted path `key`. With `named` its keys are names that the author made up."""

    def __init__(self, report: Problems, key: str, entries: dict[str, Any], named: bool = False) -> None:
        self.report = report
        self.key = key
        self.entries = entries
        self._named = named
        self._known: list[str] = []
        self._used: set[str] = set()

    # Where things are.

    def at(self, name: str) -> str:
        """The dotted path of a key of this table, as its author spelled it."""
        spelled = name if name in self.entries else name.replace("-", "_")
        written = spelled if spelled in self.entries else name
        written = written if NAME.fullmatch(written) else quote(written)
        return f"{self.key}.{written}" if self.key else written

    def take(self, name: str) -> Any | None:
        """The value of a key, or None; TOML has no null, so None always means absent."""
        self._known.append(name)
        variants = (name,) if self._named else dict.fromkeys((name, name.replace("-", "_")))
        spellings = [variant for variant in variants if variant in self.entries]
        self._used.update(spellings)
        if len(spellings) == 2:
            self.refuse(name, f"given twice, as {listing(spellings)}", f"keep {name}")
        return self.entries[spellings[0]] if spellings else None

    def close(self) -> None:
        """Report every key that nobody asked for."""
        for name in self.entries:
            if name in self._used:
                continue
            # A misspelt key leaves a hole where its value was meant to be.
            self.report.incomplete |= closest(name, self._known) is not None
            self.report.refuse(
                self.at(name), "unknown key", choose_from(name, self._known, "remove it; the keys here are")
            )

    # What is wrong.

    def refuse(self, name: str, reason: str, way_out: str) -> None:
        self.report.incomplete = True
        self.report.refuse(self.at(name), reason, way_out)

    def refuse_element(self, name: str, index: int, reason: str, way_out: str) -> None:
        self.report.incomplete = True
        self.report.refuse(f"{self.at(name)}[{index}]", reason, way_out)

    def foreign(self, name: str, reason: str, way_out: str) -> None:
        """Refuse a key that makes sense in another table of this kind, if it is here."""
        for spelling in {name, name.replace("-", "_")} & self.entries.keys():
            self._used.add(spelling)
            self.refuse(name, reason, way_out)

    def missing(self, name: str, why: str, way_out: str) -> None:
        self.refuse(name, f"missing: {why}", way_out)

    # Values by type.

    def boolean(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.refuse(name, f"must be true or false, not {describe(value)}", f"write {name} = {str(default).lower()}")
        return default

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is None or (isinstance(value, str) and value and value.isprintable()):
            return value
        found = "text with control characters" if isinstance(value, str) and value else describe(value)
        self.refuse(name, f"must be a string, not {found}", f'write {name} = "…"')
        return None

    def choice(
        self, name: str, choices: Sequence[Choice], default: Choice | None, why: str = "", hidden: str = ""
    ) -> Choice:
        """One word of several; without a default the key is required, and `why` says what for.

        `hidden` is a choice that is understood but not offered, as a later check will probably refuse it.
        """
        offered = [choice for choice in choices if choice != hidden]
        value = self.take(name)
        fallback = choices[0] if default is None else default
        if value is None:
            if default is None:
                self.missing(name, why, f"set it to {listing(map(quote, offered), 'or')}")
            return fallback
        for choice in choices:
            if value == choice:
                return choice
        word = value if isinstance(value, str) else ""
        found = quote(value) if isinstance(value, str) else describe(value)
        way_out = choose_from(word, offered, "the choices are")
        self.refuse(name, f"must be {listing(map(quote, offered), 'or')}, not {found}", way_out)
        return fallback

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.take(name)
        if value is None:
            return default
        if type(value) is not int:
            self.refuse(name, f"must be a whole number, not {describe(value)}", f"write {name} = {default}")
            return default
        return self._within(name, value, default, low, high)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.take(name)
        if value is None:
            return default
        if type(value) is not int and (type(value) is not float or not math.isfinite(value)):
            self.refuse(name, f"must be a number, not {describe(value)}", f"write {name} = {default}")
            return default
        # Compared before it becomes a float: a whole number may have thousands of digits.
        return float(self._within(name, value, default, low, high))

    def _within(self, name: str, value: Number, default: Number, low: Number, high: Number) -> Number:
        if low <= value <= high:
            return value
        nearest = low if value < low else high
        self.refuse(name, f"must be from {low} to {high}, not {shorten(value)}", f"write {name} = {nearest}")
        return default

    def duration(self, name: str, default: Nanos, low: Nanos = 0) -> Nanos:
        return self._quantity(name, default, low, parse_duration, "5ms")

    def rate(self, name: str, default: int | None) -> int | None:
        """Bits per second; None for no limit, which a file spells `unlimited`."""
        if self.entries.get(name) == UNLIMITED:
            self.take(name)
            return None
        return self._quantity(name, default or 0, 1, parse_rate, "20Mbit") or None

    def _quantity(self, name: str, default: int, low: int, parse: Callable[[str], int], example: str) -> int:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(
                name, f"must be a string with a unit, not {describe(value)}", f"write {name} = {quote(example)}"
            )
            return default
        try:
            quantity = parse(value)
        except ValueError as error:
            self.refuse(name, f"cannot read {quote(value)}: {error}", f"write {name} = {quote(example)}")
            return default
        if quantity < low:
            self.refuse(name, f"{quote(value)} is too small", f"write {name} = {quote(example)}")
            return default
        return quantity

    # Names and nested values.

    def names(
        self,
        name: str,
        is_name: Callable[[str], object] = NAME.fullmatch,
        form: str = "use letters, digits, _ and -",
        empty: bool = False,
    ) -> tuple[str, ...] | None:
        """An array of different names; None when the key is absent."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or (not value and not empty):
            found = "an empty array" if value == [] else describe(value)
            self.refuse(name, f"must be an array of names, not {found}", "name at least one")
            return ()
        result: dict[str, None] = {}
        for index, each in enumerate(value):
            if not isinstance(each, str) or not is_name(each):
                found = quote(each) if isinstance(each, str) else describe(each)
                self.refuse_element(name, index, f"{found} is not a name", form)
            elif each in result:
                self.refuse_element(name, index, f"the name {quote(each)} is there twice", "remove one of the two")
            else:
                result[each] = None
        return tuple(result)

    def table(self, name: str, named: bool = False) -> Table:
        """A table of this table; an empty one when it is absent."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, f"must be a table, not {describe(value)}", f"write [{self.at(name)}]")
        return Table(self.report, self.at(name), value if isinstance(value, dict) else {}, named)

    def tables(self, name: str) -> list[Table]:
        """An array of tables."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, f"must be an array of tables, not {describe(value)}", f"write [[{self.at(name)}]]")
            return []
        result = []
        for index, each in enumerate(value):
            if isinstance(each, dict):
                result.append(Table(self.report, f"{self.at(name)}[{index}]", each))
            else:
                self.refuse_element(name, index, f"must be a table, not {describe(each)}", f"write [[{self.at(name)}]]")
        return result


def describe(value: object) -> str:
    """What kind of thing a value of the file is, in words."""
    if value == "":
        return "an empty string"
    if isinstance(value, float):
        return str(value)
    return _TYPE_NAMES.get(type(value).__name__, "a date or a time")


def shorten(value: float) -> str:
    """A number for a message; one with hundreds of digits cannot even be printed."""
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"
