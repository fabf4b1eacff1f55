"""Anybody's tables and logs as traces: a mapping says what their columns, words and lines mean.

`model` is the file, `rows` what Spark makes of it, `lines` how text logs become tables. See docs/design/mapping.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from isthmus.pipeline.mapping.model import Mapping
from isthmus.trace.places import Place

if TYPE_CHECKING:
    from isthmus.pipeline.mapping.rows import Given


class Mapped(NamedTuple):
    """Tables with their mapping: given to the pipeline instead of the paths of traces."""

    mapping: Mapping
    tables: Given

    def __str__(self) -> str:
        return self.mapping.label


Traces: TypeAlias = "Sequence[str | Place] | Mapped"
"""What the pipeline reads: paths of traces, one table of its own, or tables with a mapping."""
