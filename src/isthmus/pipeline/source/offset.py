"""Offsets: the end of a micro-batch as Spark keeps it in its checkpoint, and the **cut id** that names it.

    {"cut": "0000000042-9f8a3c1e5b70", "rank": 1234, "logs": {"run/system/process": [index, sent, 0]}}

`index` is that of the first row that is not in the cut, `sent` the greatest number of a message that the process sent
in it, and 1 follows when the log has ended; `rank` is the first rank of the next batch. With `"kept": true`, logs that
had ended in the cut before are not named: the journal beside the checkpoint has them. `gaps` are rows between the cut
before and this one that are lost: a batch that is repeated leaves the same rows out, also when they turn up meanwhile.

A cut id is the number of the batch and a digest of the cut before and what is new. A batch that is repeated has the
same id; two batches that differ, in one query or in two, do not.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from isthmus.trace.schema import TraceError

LogPlace: TypeAlias = tuple[int, int, int]
"""Of a log: how many rows, the greatest number of a message sent in them, and 1 if the last says that none follows."""
Gaps: TypeAlias = dict[str, list[tuple[int, int]]]
"""Log to stretches of rows that are lost: the index of the first, and of the first one behind."""


class Offset(NamedTuple):
    cut: str
    rank: int
    kept: bool
    logs: dict[str, LogPlace]
    gaps: Gaps

    def to_json(self) -> dict[str, Any]:
        """In one order, because Spark compares offsets as text."""
        if not self.cut:
            return {}
        logs = {name: list(self.logs[name]) for name in sorted(self.logs)}
        written: dict[str, Any] = {"cut": self.cut, "rank": self.rank, "logs": logs}
        if self.kept:
            written["kept"] = True
        if self.gaps:
            written["gaps"] = {name: list(map(list, self.gaps[name])) for name in sorted(self.gaps)}
        return written

    @property
    def number(self) -> int:
        return int(self.cut.partition("-")[0] or 0)

    def count(self, name: str) -> int:
        return self.logs[name][0] if name in self.logs else 0

    def next_cut(self, changes: Any, salt: str) -> str:
        """The id of the cut that follows this one with these changes."""
        said = msgspec.json.encode([self.cut, changes, salt], order="sorted")
        return f"{self.number + 1:010}-{blake2b(said, digest_size=6).hexdigest()}"


BEGINNING = Offset("", 0, False, {}, {})


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    cut: Annotated[str, msgspec.Meta(pattern=r"^\d{10}-[0-9a-f]{12}$")]
    rank: int
    logs: dict[str, LogPlace]
    kept: bool = False
    gaps: Gaps = {}


def read_offset(written: dict[str, Any]) -> Offset:
    """An offset as Spark hands it back."""
    if not written:
        return BEGINNING
    try:
        return Offset(*(getattr(msgspec.convert(written, _Written), name) for name in Offset._fields))
    except msgspec.ValidationError as error:
        raise TraceError(
            "checkpoint",
            f"its offsets are not those of this version of the source: {error}",
            "start the query with a new checkpoint",
        ) from error
