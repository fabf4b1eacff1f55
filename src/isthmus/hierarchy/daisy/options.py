"""What the author of a daisy chooses: its groups by name, and how all of them work (daisy, Sect. 3.1 and 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

Inside = Literal["everybody", "recipients"]
Forward = Literal["on-delivery", "on-receipt"]
Audience = Literal["some", "everybody"]


class DaisyOptions(Struct, frozen=True, kw_only=True):
    """How all groups of a daisy work, whatever its tree is (daisy, Sect. 3.4).

    In a `star` members of a local group send through its server. `inside` says to whom a message goes in a local group;
    where that is its recipients, `resilience` is how many members may go at a time and no message with them. Groups of
    more than `split_above` are split and those of less than `merge_below` merged, if it is said how many that is;
    everybody is sorted anew by who writes to whom after `reconsider` messages, if it is said how many. `forward` is
    when servers pass on what they get: when it can be delivered, or at once. `audience` is whom messages are for: each
    for some processes, or all for everybody (docs/design/daisy-joins.md).
    """

    star: bool = False
    inside: Inside = "everybody"
    resilience: int = 0
    split_above: int = 0
    merge_below: int = 0
    reconsider: int = 0
    forward: Forward = "on-delivery"
    audience: Audience = "some"

    @property
    def changes(self) -> bool:
        """Whether groups split and merge while the daisy runs (docs/design/daisy-changes.md)."""
        return self.split_above > 0


PLAIN = DaisyOptions()


class DaisyTable(Struct, frozen=True, kw_only=True, tag="daisy"):
    """One group as the file has it: a local group of processes, or the servers' group of its parts.

    `name` is its path from the top; that of the topmost is empty, and its `options` are those of the daisy.
    """

    name: str = ""
    options: DaisyOptions = PLAIN
    processes: tuple[str, ...] = ()
    parts: tuple[DaisyTable, ...] = ()

    @property
    def levels(self) -> int:
        """How many levels of groups there are: 1 for a single local group."""
        return 1 + max((part.levels for part in self.parts), default=0)

    def all_groups(self) -> Iterator[DaisyTable]:
        yield self
        for part in self.parts:
            yield from part.all_groups()
