"""The table of counts: what a paper's formula says, beside what the simulator counted.

A `Section` is one claim of one paper; it counts when asked to. Whoever implements another claim writes another section
and adds it to a tuple like `joins.SECTIONS`; `isthmus counts` prints whatever it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.lab.counts.rig import Tally

Unit: TypeAlias = Literal["messages", "hops", "nanoseconds", "links", "entries", "loads", "bytes"]
HEARTBEAT = "heartbeat"


class CountRow(Struct, frozen=True, kw_only=True):
    """One setting. `above` rows hold when more was counted than the formula says; all others when exactly as much.

    `printed` is what the paper says, where the formula here is a better one.
    """

    setting: str
    unit: Unit
    expected: Fraction
    counted: Fraction
    also: Mapping[str, int] = {}
    above: bool = False
    printed: Fraction | None = None

    @property
    def holds(self) -> bool:
        return self.counted > self.expected if self.above else self.counted == self.expected


class Section(Struct, frozen=True, kw_only=True):
    """One claim: its name, what it is about, where it stands, and how it is written there."""

    name: str
    what: str
    paper: str
    formula: str
    count: Callable[[], list[CountRow]]


def row(
    setting: str,
    unit: Unit,
    expected: Fraction | int,
    counted: Iterable[Fraction | int],
    tally: Tally | None = None,
    *,
    above: bool = False,
    printed: Fraction | int | None = None,
) -> CountRow:
    """A row for something that was counted several times and has to come out the same each time.

    Where it does not, the row shows a count that is wrong.
    """
    counts = [Fraction(each) for each in counted]
    wrong = next((each for each in counts if each != expected), counts[0])
    also = {} if tally is None else dict(sorted(tally.also.items()))
    return CountRow(
        setting=setting,
        unit=unit,
        expected=Fraction(expected),
        counted=wrong,
        also=also,
        above=above,
        printed=None if printed is None else Fraction(printed),
    )
