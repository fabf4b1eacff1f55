"""What an audit finds in one run, on its way from the tasks of Spark to the report: verdicts and witnesses as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

TOO_LARGE = "too large"

_TEXTS = ("run", "property", "record", "verdict", "kind", "detail")
_NUMBERS = (
    *("checked", "violations", "process", "first_origin", "first_seq", "second_origin", "second_seq"),
    *("first_index", "second_index", "other", "other_first_index", "other_second_index"),
)
ARROW_FINDINGS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in _TEXTS),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        pa.field("chain", pa.list_(pa.int64())),
    ]
)
FINDINGS = StructType(
    [
        *(StructField(name, StringType()) for name in _TEXTS),
        *(StructField(name, LongType()) for name in _NUMBERS),
        StructField("chain", ArrayType(LongType())),
    ]
)
"""`record` is `verdict` or `witness`. A witness is a `Mistake` of trace/properties.py, with codes of processes and
origins instead of names; its `chain` has origin and number of each message in turn."""

Key = tuple[int, int]


WITNESSES = 10
"""Violations that are described, per run and property. All are counted."""


class Finding:
    """What was found about one property of one run."""

    def __init__(self, judged: str, most: int = WITNESSES, *, unknown: bool = False) -> None:
        self.property = judged
        self.checked = 0
        self.violations = 0
        self.unknown = unknown
        self._most = most
        self._witnesses: list[dict[str, Any]] = []

    @classmethod
    def too_large(cls) -> Finding:
        return cls(TOO_LARGE, 0)

    def described(self, violations: Any) -> Any:
        """Count all of these, a sequence or an array, and give back as many as may still be described."""
        self.violations += len(violations)
        return violations[: self.room]

    @property
    def room(self) -> int:
        """How many more violations may be described."""
        return self._most - len(self._witnesses)

    def witness(
        self,
        process: int,
        first: Key,
        second: Key | None = None,
        at: tuple[Any, Any] = (None, None),
        other: int | None = None,
        other_at: tuple[Any, Any] = (None, None),
        *,
        kind: str | None = None,
        detail: str | None = None,
        chain: Iterable[Key] = (),
    ) -> None:
        """Describe a violation that was counted: `at` and `other_at` are the indices of `first` and `second`."""
        indices = [None if each is None else int(each) for each in (*at, *other_at)]
        self._witnesses.append(
            {
                "kind": kind,
                "detail": detail,
                "process": process,
                "first_origin": first[0],
                "first_seq": first[1],
                "second_origin": second[0] if second else None,
                "second_seq": second[1] if second else None,
                "first_index": indices[0],
                "second_index": indices[1],
                "other": other,
                "other_first_index": indices[2],
                "other_second_index": indices[3],
                "chain": [number for key in chain for number in key],
            }
        )

    def rows(self, run: str) -> Iterator[dict[str, Any]]:
        about = {"run": run, "property": self.property}
        verdict = "violated" if self.violations else "unknown" if self.unknown else "holds"
        counts = {"checked": self.checked, "violations": self.violations}
        yield about | {"record": "verdict", "verdict": verdict} | counts
        for witness in self._witnesses:
            yield about | {"record": "witness"} | witness
