"""What is recorded arrives: whole, in order, numbered, in bounded memory, in both formats."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec import structs

from isthmus.core.ids import Directory, ProcessName, incarnation_of
from isthmus.core.segment import EMPTY, Segment
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import COLUMNS, Event, TraceError
from isthmus.trace.writer import JsonlSink, MemorySink, ParquetSink, ProcessLog, TraceFormat, open_log

NAMES = Directory([ProcessName("madrid", "p1"), ProcessName("madrid", "p2"), ProcessName("valencia", "p1")])
FORMATS: list[TraceFormat] = ["jsonl", "parquet"]


def batch(origin: int, first: int, count: int, payload: bytes = b"payload") -> Segment:
    return Segment.of(origin, first, [payload] * count)


def record_a_bit_of_everything(log: ProcessLog) -> None:
    log.event("start", 1)
    log.event("view", 2, peer="1", destinations=("madrid/p1", "madrid/p2"))
    log.messages("send", 3, batch(0, 1, 2), 0, destinations=("madrid/p1", "valencia/p1"))
    log.messages("deliver", 4, batch(0, 1, 2), 12, peer="madrid/p1")
    log.messages("hold", 5, batch(2, 1, 1), 12, peer="madrid/p2", note="its cause 7 of madrid/p2 is missing")
    log.messages("stable", -6, batch(0, 1, 1), 0)
    log.event("end", 7)


def memory_rows() -> list[Event]:
    sink = MemorySink()
    with ProcessLog(sink, "r1", "madrid", "p1", "app", NAMES) as log:
        record_a_bit_of_everything(log)
    return sink.events


def test_a_log_numbers_its_rows_and_names_the_origins() -> None:
    rows = memory_rows()
    assert [row.index for row in rows] == list(range(8 + 1))
    assert [row.event for row in rows] == [
        "start", "view", "send", "send", "deliver", "deliver", "hold", "stable", "end",
    ]  # fmt: skip
    hold = rows[6]
    assert (hold.origin_system, hold.origin_process, hold.origin_seq) == ("valencia", "p1", 1)
    assert (hold.payload_bytes, hold.control_bytes, hold.peer) == (7, 12, "madrid/p2")


def test_a_process_that_came_back_has_a_name_of_its_own() -> None:
    sink = MemorySink()
    with ProcessLog(sink, "r1", "madrid", "p1", "app", NAMES) as log:
        log.messages("deliver", 0, batch(incarnation_of(1, 2), 1, 1), 0)
    assert sink.events[0].origin_process == "p2+2"


@pytest.mark.parametrize("trace_format", FORMATS)
def test_what_is_written_is_read_again(tmp_path: Path, trace_format: TraceFormat) -> None:
    with open_log(tmp_path, trace_format, "r1", "madrid", "p1", "app", NAMES, flush_rows=4, fsync=True) as log:
        record_a_bit_of_everything(log)
    trace = read_trace(tmp_path)
    assert list(trace.events()) == memory_rows()
    assert trace.quarantined == []
    assert trace.logs["r1", "madrid", "p1"].complete


@pytest.mark.parametrize("trace_format", FORMATS)
def test_equal_histories_give_equal_bytes(tmp_path: Path, trace_format: TraceFormat) -> None:
    contents = []
    for folder in ("one", "two"):
        with open_log(tmp_path / folder, trace_format, "r1", "madrid", "p1", "app", NAMES, flush_rows=4) as log:
            record_a_bit_of_everything(log)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert contents[0] == contents[1]


def test_a_json_line_has_the_columns_of_the_contract_in_their_order(tmp_path: Path) -> None:
    with JsonlSink(tmp_path / "log.jsonl") as sink:
        sink.write(memory_rows())
    for line in (tmp_path / "log.jsonl").read_text().splitlines():
        assert tuple(json.loads(line)) == COLUMNS
    assert COLUMNS == (
        "run", "system", "process", "role", "index", "event", "origin_system", "origin_process", "origin_seq",
        "destinations", "peer", "payload_bytes", "control_bytes", "time_ns", "note",
    )  # fmt: skip


def test_a_parquet_file_has_the_types_of_the_contract(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    ParquetSink(tmp_path, "log").write(memory_rows())
    schema = parquet.read_schema(tmp_path / "log-00000.parquet")
    assert tuple(schema.names) == COLUMNS
    integers = {"index", "origin_seq", "payload_bytes", "control_bytes", "time_ns"}
    assert {field.name for field in schema if str(field.type) == "int64"} == integers
    assert str(schema.field("destinations").type).startswith("list<")
    assert {field.name for field in schema if str(field.type) == "string"} == {*COLUMNS} - integers - {"destinations"}


def test_every_flush_is_one_parquet_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    with open_log(tmp_path, "parquet", "r1", "madrid", "p1", "app", NAMES, flush_rows=2) as log:
        record_a_bit_of_everything(log)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"r1.madrid.p1-{part:05}.parquet" for part in range(4)
        ]


def test_memory_is_bounded_by_rows_and_by_the_payloads_that_are_kept_alive() -> None:
    sink = MemorySink()
    log = ProcessLog(sink, "r1", "madrid", "p1", "app", NAMES, flush_rows=100, flush_bytes=10_000)
    log.messages("deliver", 0, batch(0, 1, 99), 0)
    assert len(sink.events) == 0
    log.event("view", 0, peer="1", destinations=())
    assert len(sink.events) == 100
    log.messages("deliver", 0, batch(0, 100, 2, b"x" * 5_000), 0)
    assert len(sink.events) == 102


def test_recording_a_batch_does_not_look_at_its_messages() -> None:
    class Unread(Segment, frozen=True):
        def unread(self) -> NoReturn:
            raise AssertionError("expanded too early")

        __iter__ = runs = ids = sizes = payloads = unread

    log = ProcessLog(MemorySink(), "r1", "madrid", "p1", "app", NAMES)
    log.messages("deliver", 0, Unread(*structs.astuple(batch(0, 1, 32))), 0)
    assert log.next_index == 32


def test_an_empty_batch_leaves_no_trace() -> None:
    log = ProcessLog(MemorySink(), "r1", "madrid", "p1", "app", NAMES)
    log.messages("deliver", 0, EMPTY, 0)
    assert log.next_index == 0


def test_an_unknown_event_is_refused_when_it_is_recorded() -> None:
    log = ProcessLog(MemorySink(), "r1", "madrid", "p1", "app", NAMES)
    with pytest.raises(ValueError, match="unknown event 'explode'"):
        log.event("explode", 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown event 'explode'"):
        log.messages("explode", 0, batch(0, 1, 1), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("trace_format", FORMATS)
def test_a_log_that_is_already_there_is_never_continued(tmp_path: Path, trace_format: TraceFormat) -> None:
    with open_log(tmp_path, trace_format, "r1", "madrid", "p1", "app", NAMES) as log:
        log.event("start", 0)
    with pytest.raises(TraceError, match=r"already a log of madrid/p1 in run r1; choose another directory"):
        open_log(tmp_path, trace_format, "r1", "madrid", "p1", "app", NAMES)


def test_names_become_file_names_without_meeting_each_other(tmp_path: Path) -> None:
    names = ["r.1", "r", "../r", "_r", ".r", "r/1", "r~2F1", "ré", "R r"]
    for run in names:
        open_log(tmp_path, "jsonl", run, "1.s", "p+1", "app", NAMES).close()
    files = [path.name for path in tmp_path.iterdir()]
    assert len(files) == len(names)
    assert all(file.endswith(".1~2Es.p+1.jsonl") and file[0] not in "._" for file in files)


def test_the_torn_line_of_an_earlier_writer_does_not_swallow_a_row(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"run": "r1", "sys')
    with JsonlSink(path) as sink:
        sink.write(memory_rows())
    trace = read_trace(path)
    assert len(list(trace.events())) == 9
    assert [bad.line for bad in trace.quarantined] == [1]


def test_a_full_disk_costs_the_rows_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, "jsonl", "r1", "madrid", "p1", "app", NAMES)
    log.event("start", 0)
    log.flush()
    real_write = os.write

    def half_a_write(descriptor: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", no_write)
        return real_write(descriptor, data[: len(data) // 2])

    def no_write(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context():
        monkeypatch.setattr(os, "write", half_a_write)
        log.messages("deliver", 0, batch(0, 1, 10), 0)
        with pytest.raises(TraceError, match="No space left on device; free some space"):
            log.flush()
    monkeypatch.setattr(os, "write", real_write)
    log.event("end", 0)
    log.close()
    trace = read_trace(tmp_path)
    assert trace.quarantined == []
    assert trace.logs["r1", "madrid", "p1"].gaps == [(1, 10)]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"file/logs: cannot write: Not a directory"):
        open_log(tmp_path / "file" / "logs", "jsonl", "r1", "madrid", "p1", "app", NAMES)
    with pytest.raises(TraceError, match="cannot write: File name too long"):
        open_log(tmp_path, "jsonl", "r" * 300, "madrid", "p1", "app", NAMES)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(TraceError, match=r"pip install 'isthmus\[parquet\]'"):
        open_log(tmp_path, "parquet", "r1", "madrid", "p1", "app", NAMES)
    (tmp_path / "part.parquet").touch()
    with pytest.raises(TraceError, match=r"pip install 'isthmus\[parquet\]'"):
        read_trace(tmp_path)
