"""Whatever the bytes, a reader gives a trace or a TraceError, and every line is accounted for."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.trace.oracles import judge
from isthmus.trace.reader import Trace, read_trace
from isthmus.trace.schema import COLUMNS, EVENTS, TraceError
from isthmus.trace.story import tell

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["a", "b", "p1", "\x1b[2J", "é"])

likely_rows = st.fixed_dictionaries(
    {
        "run": st.just("r"),
        "system": st.sampled_from(["a", "b"]),
        "process": names,
        "role": st.sampled_from(["app", "app", "app", "gateway"]),
        "index": st.integers(0, 8),
        "event": st.sampled_from(sorted(EVENTS)),
        "time_ns": st.integers(-(1 << 63), (1 << 63) - 1),
    },
    optional={
        "origin_system": st.sampled_from(["a", "b"]),
        "origin_process": names,
        "origin_seq": st.integers(1, 3) | st.just((1 << 63) - 1),
        "destinations": st.none() | st.lists(st.sampled_from(["a/p1", "b/a", "nowhere", ""]), max_size=3),
        "peer": st.none() | names,
        "note": st.none() | names,
    },
)
broken_rows = st.builds(
    lambda row, column, value: row | {column: value}, likely_rows, st.sampled_from(COLUMNS), json_values
)
lines = st.one_of(
    likely_rows.map(lambda row: json.dumps(row).encode()),
    likely_rows.map(lambda row: json.dumps(row).encode()),
    broken_rows.map(lambda row: json.dumps(row).encode()),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b" ")),
)


def read_bytes(data: bytes, suffix: str = "jsonl") -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"log.{suffix}"
        file.write_bytes(data)
        return read_trace(file)


@settings(max_examples=400, deadline=None)
@given(st.lists(lines, max_size=12))
def test_every_line_is_a_row_or_is_quarantined_or_is_blank(content: list[bytes]) -> None:
    trace = read_bytes(b"".join(line + b"\n" for line in content))
    rows = list(trace.events())
    blank = sum(not line.strip() for line in content)
    assert len(rows) + len(trace.quarantined) + blank == len(content)
    assert len(rows) == trace.files[0].rows
    assert all(bad.reason.isprintable() for bad in trace.quarantined)
    for log in trace.logs.values():
        indices = [event.index for event in log.events]
        assert indices == sorted(set(indices))


@settings(max_examples=400, deadline=None)
@given(st.lists(likely_rows, max_size=14))
def test_whatever_is_read_can_be_judged_and_told(content: list[dict[str, object]]) -> None:
    trace = read_bytes("".join(json.dumps(row) + "\n" for row in content).encode())
    judge(trace.events())
    for event in trace.events():
        if event.origin_seq is not None:
            story = tell(trace, f"{event.origin_system}/{event.origin_process}/{event.origin_seq}")
            assert all(line.isprintable() for line in story.lines())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_end_in_a_traceback(data: bytes) -> None:
    read_bytes(data)
    with pytest.raises(TraceError):
        read_bytes(data, "parquet")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_parquet_file_never_ends_in_a_traceback(data: st.DataObject) -> None:
    content = bytearray(_parquet_file())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(TraceError):
        judge(read_bytes(bytes(content), "parquet").events())


def _parquet_file() -> bytes:
    if not _parquet_cache:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {
            "run": ["r"] * 4, "system": ["a"] * 4, "process": ["p1"] * 4, "role": ["app"] * 4, "index": [0, 1, 2, 3],
            "event": ["start", "send", "deliver", "end"], "time_ns": [0] * 4, "origin_system": [None, "a", "a", None],
            "origin_process": [None, "p1", "p1", None], "origin_seq": [None, 1, 1, None],
            "destinations": [None, ["a/p1"], ["a/p1"], None],
        }  # fmt: skip
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(columns), sink)
        _parquet_cache.append(sink.getvalue().to_pybytes())
    return _parquet_cache[0]


_parquet_cache: list[bytes] = []
