"""Whatever is wrong with a trace is found and named; whatever is right is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.trace.reader import Trace, read_trace
from isthmus.trace.rows import MAX_LINE
from isthmus.trace.schema import TraceError

KEY = ("r1", "madrid", "p1")


def line(index: int, event: str = "deliver", /, **changes: Any) -> str:
    row: dict[str, Any] = {
        "run": "r1", "system": "madrid", "process": "p1", "role": "app",
        "index": index, "event": event, "time_ns": index,
    }  # fmt: skip
    if event in ("send", "deliver", "stable", "hold"):
        row |= {"origin_system": "madrid", "origin_process": "p1", "origin_seq": index + 1}
    return json.dumps(row | changes)


def read(path: Path, *lines: str, end: str = "\n") -> Trace:
    file = path / "log.jsonl"
    file.write_text("\n".join(lines) + end)
    return read_trace(file)


def reasons(trace: Trace) -> list[tuple[int, str]]:
    return [(bad.line, bad.reason) for bad in trace.quarantined]


# Sound rows -----------------------------------------------------------------------------------------------------------


def test_rows_are_sorted_by_process_and_index_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "b.jsonl").write_text(line(2, "end") + "\n" + line(0, "start") + "\n")
    (tmp_path / "deep" / "er" / "a.jsonl").write_text(line(1) + "\n" + line(0, "start", process="p0") + "\n")
    trace = read_trace([tmp_path, tmp_path / "b.jsonl"])
    assert [(event.process, event.index) for event in trace.events()] == [("p0", 0), ("p1", 0), ("p1", 1), ("p1", 2)]
    assert trace.logs[KEY].complete
    assert not trace.logs["r1", "madrid", "p0"].complete
    assert trace.runs == ["r1"]
    assert trace.quarantined == []


def test_nulls_may_be_left_out_and_columns_may_be_added(tmp_path: Path) -> None:
    trace = read(tmp_path, line(0, "start", colour="blue", peer=None), line(1, "end", nested={"a": [1, {}]}))
    assert trace.quarantined == []
    assert trace.logs[KEY].complete


def test_files_of_housekeeping_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "_temporary").mkdir()
    for name in ("_temporary/x.jsonl", ".x.jsonl", "_x.jsonl", "x.parquet.tmp", "README.md"):
        (tmp_path / name).write_text("not a trace")
    (tmp_path / "log.jsonl").write_text(line(0, "start") + "\n")
    assert [file.path for file in read_trace(tmp_path).files] == [str(tmp_path / "log.jsonl")]


# Logs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["end", "crash", "leave"])
def test_a_log_is_complete_when_its_last_row_says_so(tmp_path: Path, last: str) -> None:
    log = read(tmp_path, line(0, "start"), line(1), line(2, last)).logs[KEY]
    assert log.complete
    assert log.ending == last


def test_a_log_without_a_last_row_is_not_complete(tmp_path: Path) -> None:
    log = read(tmp_path, line(0, "start"), line(1, "end"), line(2)).logs[KEY]
    assert not log.complete
    assert log.ending is None


def test_gaps_are_found_also_at_the_beginning(tmp_path: Path) -> None:
    log = read(tmp_path, line(2), line(3), line(7), line(9, "end")).logs[KEY]
    assert log.gaps == [(0, 1), (4, 6), (8, 8)]
    assert log.ending == "end"
    assert not log.complete


def test_a_row_that_comes_twice_counts_once(tmp_path: Path) -> None:
    trace = read(tmp_path, line(0, "start"), line(1), line(1), line(2, "end"))
    assert reasons(trace) == [(3, "the same row again: index 1 of madrid/p1 in run r1")]
    assert trace.logs[KEY].complete
    assert trace.files[0].rows == 3


def test_where_two_rows_claim_one_index_neither_counts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join([line(0, "start"), line(1), line(2, "end")]) + "\n")
    (tmp_path / "b.jsonl").write_text(line(1, origin_seq=9) + "\n" + line(1, origin_seq=7) + "\n")
    trace = read_trace(tmp_path)
    dispute = "two different rows claim index 1 of madrid/p1 in run r1, so neither counts"
    places = [(Path(bad.file).name, bad.line, bad.reason) for bad in trace.quarantined]
    assert places == [("a.jsonl", 2, dispute), ("b.jsonl", 1, dispute), ("b.jsonl", 2, dispute)]
    assert trace.logs[KEY].gaps == [(1, 1)]
    assert [file.rows for file in trace.files] == [2, 0]


# Bad rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("nonsense", "JSON is malformed"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ('{"run": "r1"}', "missing required field"),
        (line(1, index=-1), "Expected `int` >= 0 - at `$.index`"),
        (line(1, index=1.5), "Expected `int`, got `float` - at `$.index`"),
        (line(1, index="1"), "Expected `int`, got `str` - at `$.index`"),
        (line(1, index=1 << 63), "- at `$.index`"),
        (line(1, index=True), "Expected `int`, got `bool` - at `$.index`"),
        (line(1, "explode"), "Invalid enum value 'explode' - at `$.event`"),
        (line(1, role="king"), "Invalid enum value 'king' - at `$.role`"),
        (line(1, run=""), "Expected `str` of length >= 1 - at `$.run`"),
        (line(1, run=None), "Expected `str`, got `null` - at `$.run`"),
        (line(1, destinations="madrid/p1"), "`$.destinations`"),
        (line(1, destinations=[1]), "Expected `str`, got `int`"),
        (line(1, time_ns=None), "`$.time_ns`"),
        (line(1, payload_bytes=-1), "`$.payload_bytes`"),
        (line(1, origin_seq=0), "Expected `int` >= 1 - at `$.origin_seq`"),
        (line(1, origin_seq=None), "the message id is incomplete"),
        (line(1, origin_system=None, origin_process=None, origin_seq=None), "a `deliver` row needs a message id"),
        (line(1, "crash", origin_system="a", origin_process="p", origin_seq=1), "a `crash` row has no message"),
        (line(1, "send", origin_process="p2"), "a process sends messages of its own only"),
        (line(1, system="mad/rid"), "the name of a system must not contain a slash"),
        (line(1, origin_system="mad/rid"), "the name of a system must not contain a slash"),
        (line(1, "view"), "a `view` row needs its members"),
        ('{"run": ' + "[" * 100_000, "Expected `str`, got `array`"),
        ('{"other": ' + '{"a":' * 100_000, "maximum recursion depth"),
        (line(1, note="x" * MAX_LINE), f"longer than {MAX_LINE} bytes"),
    ],
)
def test_a_row_that_does_not_fit_is_quarantined_with_its_line_and_the_reason(
    tmp_path: Path, bad: str, reason: str
) -> None:
    trace = read(tmp_path, line(0, "start"), bad, line(2), line(3, "end"))
    assert [bad.line for bad in trace.quarantined] == [2]
    assert reason in trace.quarantined[0].reason
    assert [event.index for event in trace.events()] == [0, 2, 3]
    assert trace.logs[KEY].gaps == [(1, 1)]


def test_an_invalid_byte_costs_one_row(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"\n".join([line(0, "start").encode(), line(1, note="?").encode().replace(b"?", b"\xff"), b""]))
    trace = read_trace(file)
    assert [bad.line for bad in trace.quarantined] == [2]
    assert len(list(trace.events())) == 1


def test_line_numbers_count_blank_lines(tmp_path: Path) -> None:
    trace = read(tmp_path, "", line(0, "start"), "  ", line(1, role="king"), '{"run":', line(2)[8:])
    assert [bad.line for bad in trace.quarantined] == [4, 5, 6]


def test_line_numbers_go_on_from_block_to_block(tmp_path: Path) -> None:
    rows = [line(index) for index in range(20_000)]
    rows[13_000] = "nonsense"
    rows[17_000] = line(17_000, note="x" * (2 * MAX_LINE))
    rows[17_002] = line(17_002, note="x" * (MAX_LINE + MAX_LINE // 2))
    trace = read(tmp_path, *rows)
    assert [bad.line for bad in trace.quarantined] == [13_001, 17_001, 17_003]
    assert trace.files[0].rows == 19_997


def test_a_reason_is_one_harmless_line(tmp_path: Path) -> None:
    trace = read(tmp_path, line(0, "\x1b[2J\nfake" + "x" * 10_000))
    [bad] = trace.quarantined
    assert bad.reason.isprintable()
    assert len(bad.reason) < 300


# Torn tails -----------------------------------------------------------------------------------------------------------


def test_every_cut_through_a_file_loses_the_torn_line_only(tmp_path: Path) -> None:
    whole = "".join(line(index, "start" if index == 0 else "deliver", note="né") + "\n" for index in range(4)).encode()
    file = tmp_path / "log.jsonl"
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        trace = read_trace(file)
        lines = whole[:size].count(b"\n")
        at_the_end_of_a_line = size == 0 or whole[:size].endswith((b"\n", b"}"))
        assert trace.files[0].truncated != at_the_end_of_a_line
        assert len(list(trace.events())) == lines + whole[:size].endswith(b"}")
        assert trace.quarantined == []


def test_a_last_row_without_a_newline_is_a_row(tmp_path: Path) -> None:
    trace = read(tmp_path, line(0, "start"), line(1, "end"), end="")
    assert trace.logs[KEY].complete
    assert not trace.files[0].truncated


def test_a_last_row_that_is_whole_but_wrong_is_quarantined(tmp_path: Path) -> None:
    trace = read(tmp_path, line(0, "start"), line(1, role="king"), end="")
    assert [bad.line for bad in trace.quarantined] == [2]
    assert not trace.files[0].truncated


# No trace at all ------------------------------------------------------------------------------------------------------


def test_no_trace_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "link.jsonl").symlink_to("link.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "empty").mkdir()
    cases: dict[Any, str] = {
        tmp_path / "nowhere": "nowhere: no such file or directory; give",
        tmp_path / "empty": "empty: no trace files in this directory; give",
        tmp_path / "notes.txt": "notes.txt: not a trace file; give",
        tmp_path / "link.jsonl": "link.jsonl: no such file or directory; give",
        tmp_path / "pipe.jsonl": "pipe.jsonl: not a regular file; remove",
        tmp_path / ("x" * 300): "cannot read: .*File name too long",
        tmp_path / "a\x1b[2J\nb": r"a\\x1b\[2J\\nb: no such file",
        tmp_path: "not a regular file; remove it",
    }
    for path, message in cases.items():
        with pytest.raises(TraceError, match=message) as raised:
            read_trace(path)
        assert str(raised.value).isprintable()
    with pytest.raises(TraceError, match="no files given"):
        read_trace([])


def test_an_empty_file_is_a_trace_without_rows(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    trace = read_trace(tmp_path)
    assert trace.logs == {}
    assert trace.files[0].rows == 0


# Parquet --------------------------------------------------------------------------------------------------------------


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


def sound_columns() -> dict[str, Any]:
    return {
        "run": ["r1"] * 3, "system": ["madrid"] * 3, "process": ["p1"] * 3, "role": ["app"] * 3,
        "index": [0, 1, 2], "event": ["start", "deliver", "end"], "time_ns": [0, 1, 2],
        "origin_system": [None, "madrid", None], "origin_process": [None, "p1", None], "origin_seq": [None, 1, None],
        "destinations": [None, ["madrid/p1"], None],
    }  # fmt: skip


def test_parquet_of_other_writers_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    columns = sound_columns()
    columns["index"] = pyarrow.array([0, 1, 2], pyarrow.int16())
    columns["run"] = pyarrow.array(["r1"] * 3).dictionary_encode()
    columns["system"] = pyarrow.array(["madrid"] * 3, pyarrow.large_string())
    columns["colour"] = ["blue"] * 3
    trace = read_trace(write_parquet(tmp_path / "log.parquet", columns))
    assert trace.quarantined == []
    assert trace.logs[KEY].complete
    assert trace.logs[KEY].events[1].destinations == ("madrid/p1",)


def test_bad_rows_of_parquet_are_quarantined_like_others(tmp_path: Path) -> None:
    columns = sound_columns() | {"event": ["start", "explode", "end"], "run": [None, "r1", "r1"]}
    trace = read_trace(write_parquet(tmp_path / "log.parquet", columns))
    assert [bad.line for bad in trace.quarantined] == [1, 2]
    assert trace.logs[KEY].gaps == [(0, 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": None}, "not a trace: it has no column `event`; see"),
        ({"index": ["0", "1", "2"]}, "not a trace: column `index` is string, not int64; see"),
        ({"run": [1, 2, 3]}, "not a trace: column `run` is int64, not string; see"),
        ({"destinations": ["a", "b", "c"]}, "not a trace: column `destinations` is string"),
    ],
)
def test_parquet_that_is_no_trace_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in (sound_columns() | change).items() if values is not None}
    with pytest.raises(TraceError, match=message):
        read_trace(write_parquet(tmp_path / "log.parquet", columns))


def test_damaged_parquet_is_one_clear_line(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "log.parquet", sound_columns())
    whole = path.read_bytes()
    for size in [0, 1, 4, 8, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(TraceError, match="not a readable Parquet file"):
            read_trace(path)
