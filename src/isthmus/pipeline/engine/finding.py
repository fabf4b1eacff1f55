"""What is found about one property of one run: counts, and mistakes of which up to ten are described."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from isthmus.trace.properties import Mistake
from isthmus.trace.schema import Answer

WITNESSES = 10
"""Violations that are described, per run and property. All are counted."""


class Described(Struct):
    """A mistake, with the addresses of its messages for whoever has more to say about it."""

    mistake: Mistake
    first: int = -1
    second: int = -1


class Finding(Struct):
    judged: str
    """The property."""
    checked: int = 0
    violations: int = 0
    unknown: bool = False
    described: list[Described] = field(default_factory=list)

    def count(self, violations: Any) -> Any:
        """Count all of these, a sequence or an array, and give back as many as may still be described."""
        self.violations += len(violations)
        return violations[: WITNESSES - len(self.described)]

    @property
    def verdict(self) -> Answer:
        return "violated" if self.violations else "unknown" if self.unknown else "holds"

    def merge(self, others: Iterable[Finding]) -> Finding:
        """Take in what was found about the same property elsewhere."""
        for other in others:
            self.checked += other.checked
            self.violations += other.violations
            self.unknown |= other.unknown
            self.described += other.described[: WITNESSES - len(self.described)]
        return self
