"""What a table remembers of its rows, so that late files can be added to it without reading all of them."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from isthmus.pipeline.engine.logs import Block

Log: TypeAlias = tuple[str, str, str]
"""Run, system and process."""


class Part(Struct):
    """A block, with what is needed to put it together with others."""

    block: Block
    file: int
    first_line: int
    """Of its first row; the others follow without a gap. 0: its rows have columns `file` and `line`."""
    rising: bool
    """No index comes twice."""

    @property
    def log(self) -> Log:
        return self.block.run, self.block.system, self.block.process


class Disputed(Struct):
    """Places of a log that different rows claimed. None of these counts, nor does any that comes later."""

    log: Log
    places: list[int]
