"""Traces that are damaged in every way: what cannot count is quarantined with its place and reason, never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_executions import row
from trace_files import all_rows, executions, numbered, rounds, write_jsonl

import isthmus
from isthmus.pipeline.audit import audit
from isthmus.pipeline.ingest import files, ingest, is_table, open_table, write_blocks
from isthmus.trace.parquet import arrow_schema, write_part
from isthmus.trace.places import write_whole
from isthmus.trace.reader import read_trace
from isthmus.trace.rows import MAX_LINE
from isthmus.trace.schema import Event, TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_ROWS = arrow_schema()
GOOD = msgspec.to_builtins(row("a/p1", "send", ("a/p1", 1), index=1))
BAD_VALUES: list[dict[str, Any]] = [
    {"run": ""},
    {"run": None},
    {"system": "a/b"},
    {"index": -1},
    {"index": None},
    {"role": "boss"},
    {"event": "explode"},
    {"event": "end"},
    {"event": "view"},
    {"origin_system": ""},
    {"origin_seq": 0},
    {"origin_seq": None},
    {"origin_process": None, "origin_system": None, "origin_seq": None},
    {"origin_process": "p2"},
    {"origin_system": "a/b", "event": "deliver"},
    {"destinations": ["a/p1", None]},
    {"payload_bytes": -5},
    {"control_bytes": -5},
    {"time_ns": None},
]
BAD_LINES = [
    b"",
    b"   ",
    b"{",
    b"nonsense",
    b"[1, 2]",
    b'{"run": "r"}',
    b'{"run": "r", "index": "3"}',
    b"\xff\xfe\x00",
    b'{"deep": ' + b"[" * 5000,
    b'{"long": "' + b"x" * (MAX_LINE + 10) + b'"}',
]


def log(run: str, name: str = "a/p1") -> list[Event]:
    return numbered(
        run, [row(name, "start"), row(name, "send", (name, 1)), row(name, "deliver", (name, 1)), row(name, "end")]
    )


def parquet(path: Path, rows: list[dict[str, Any]], schema: Any = ARROW_ROWS) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trace with everything that can be wrong with rows, as JSON Lines and as Parquet."""
    directory = tmp_path_factory.mktemp("hostile")
    encode = msgspec.json.encode
    good = [encode(event) for event in log("jsonl")]
    bad = [encode(GOOD | values) for values in BAD_VALUES]
    lines = [good[0], *BAD_LINES, good[1], *bad, *good[2:]]
    (directory / "lines.jsonl").write_bytes(b"\n".join(lines) + b"\n" + good[1][:40])
    other = [msgspec.to_builtins(event) for event in log("parquet")]
    parquet(directory / "rows.parquet", [other[0], *(GOOD | values for values in BAD_VALUES), *other[1:]])
    twice = log("twice")
    changed = msgspec.structs.replace(twice[2], note="another")
    write_jsonl(directory / "one.jsonl", [twice[3], twice[0], twice[1]])
    write_jsonl(directory / "two.jsonl", [twice[2], twice[0], changed, twice[0]])
    return directory


def test_the_quarantine_holds_what_the_reader_refuses_with_the_same_words(
    spark: SparkSession, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 4000)  # pieces that end inside lines, and lines longer than pieces
    table = ingest(spark, [hostile], tmp_path / "table")
    expected = read_trace(hostile)
    found = {(each.file, each.line): each.reason for each in table.worst(spark, 1000)}
    assert found == {(each.file, each.line): each.reason for each in expected.quarantined}
    assert table.quarantined(spark) == len(expected.quarantined) == len(found)
    assert table.torn_files(spark) == [file.path for file in expected.files if file.truncated]
    columns = [name for name in ARROW_ROWS.names if name != "destinations"]
    kept = {tuple(row[name] for name in columns) for row in table.rows(spark).collect()}
    assert kept == {tuple(getattr(event, name) for name in columns) for event in expected.events()}


def test_files_that_cannot_be_read_are_quarantined_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    write_jsonl(trace / "good.jsonl", log("r"))
    whole = parquet(trace / "half.parquet", [msgspec.to_builtins(event) for event in log("half")])
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (trace / "empty.parquet").write_bytes(b"")
    parquet(trace / "other.parquet", [{"x": 1}], pa.schema([("x", pa.int64())]))
    parquet(trace / "types.parquet", [GOOD | {"index": "1"}], ARROW_ROWS.set(4, pa.field("index", pa.string())))
    table = ingest(spark, [trace], tmp_path / "table")
    reasons = {Path(each.file).name: (each.line, each.reason) for each in table.worst(spark)}
    assert set(reasons) == {"half.parquet", "empty.parquet", "other.parquet", "types.parquet"}
    assert {line for line, _ in reasons.values()} == {0}
    assert "not a readable Parquet file" in reasons["half.parquet"][1]
    assert reasons["other.parquet"][1] == "not a trace: it has no column `run`"
    assert reasons["types.parquet"][1] == "not a trace: column `index` is string, not int64"
    assert table.rows(spark).count() == 4


def test_a_file_with_a_damaged_page_is_found_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    write_jsonl(trace / "good.jsonl", log("r"))
    damaged = trace / "damaged.parquet"
    write_part(damaged, all_rows(rounds("damaged", 2, 100)))
    content = bytearray(damaged.read_bytes())
    content[4:400] = b"\xff" * 396
    damaged.write_bytes(content)
    table = ingest(spark, [trace], tmp_path / "table")
    assert [(Path(each.file).name, each.line) for each in table.worst(spark)] == [("damaged.parquet", 0)]
    assert table.rows(spark).count() == 4


def test_other_integers_and_other_strings_will_do(spark: SparkSession, tmp_path: Path) -> None:
    schema = ARROW_ROWS.set(4, pa.field("index", pa.int32()))
    schema = schema.set(0, pa.field("run", pa.large_string()))
    schema = schema.set(5, pa.field("event", pa.dictionary(pa.int8(), pa.string())))
    (tmp_path / "trace").mkdir()
    parquet(tmp_path / "trace" / "odd.parquet", [msgspec.to_builtins(event) for event in log("r")], schema)
    table = ingest(spark, [tmp_path / "trace"], tmp_path / "table")
    assert table.rows(spark).count() == 4
    assert table.quarantined(spark) == 0


def test_a_row_whose_text_is_not_utf8_is_put_aside_alone(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([msgspec.to_builtins(event) for event in log("r")], schema=ARROW_ROWS)
    notes = pa.array([None, None, b"\xff", None], pa.binary()).view(pa.string())
    (tmp_path / "trace").mkdir()
    pq.write_table(rows.set_column(rows.column_names.index("note"), "note", notes), tmp_path / "trace" / "odd.parquet")
    table = ingest(spark, [tmp_path / "trace"], tmp_path / "table")
    assert [(each.line, each.reason) for each in table.worst(spark)] == [(3, "not UTF-8 - at `$.note`")]
    assert table.rows(spark).count() == 3


def test_small_files_share_a_file_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    for number in range(30):
        write_jsonl(tmp_path / "trace" / f"{number}.jsonl", log(f"r{number:02}"))
        parquet(
            tmp_path / "trace" / f"{number}.parquet", [msgspec.to_builtins(event) for event in log(f"s{number:02}")]
        )
    table = ingest(spark, [tmp_path / "trace"], tmp_path / "table")
    assert len(list((table.path / "rows").iterdir())) == 1
    assert table.rows(spark).count() == 2 * 30 * len(log("r"))
    assert [block.run for block in table.blocks()] == [f"{kind}{number:02}" for kind in "rs" for number in range(30)]


def test_a_log_that_arrives_later_settles_what_was_unknown(spark: SparkSession, tmp_path: Path) -> None:
    logs = rounds("r", 3, 3)
    early, late = tmp_path / "early", tmp_path / "late"
    early.mkdir()
    late.mkdir()
    for name in ("a/p0", "a/p1"):
        write_jsonl(early / f"{name.replace('/', '.')}.jsonl", logs[name])
    write_jsonl(late / "p2.jsonl", logs["a/p2"])
    before = isthmus.audit(spark, early, table=tmp_path / "first").report
    assert {before.verdict(each) for each in ("integrity", "fifo", "causal")} == {"unknown"}
    table = ingest(spark, [early, late], tmp_path / "second")
    assert is_table(tmp_path / "second")
    after = audit(spark, open_table(tmp_path / "second"))
    assert {after.verdict(each) for each in ("integrity", "agreement", "fifo", "causal")} == {"holds"}
    assert after.events == table.rows(spark).count() == sum(map(len, logs.values()))


def test_what_holds_no_usable_row_is_refused_with_the_first_reason(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"nonsense\n")
    with pytest.raises(TraceError, match=r"bad\.jsonl: no row of the trace can be used; the first reason: .*line 1"):
        ingest(spark, [tmp_path / "bad.jsonl"], tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_table_is_never_written_over(spark: SparkSession, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "good.jsonl", log("r"))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "thesis.tex").write_text("years of work")
    with pytest.raises(TraceError, match="not empty"):
        ingest(spark, [tmp_path / "good.jsonl"], tmp_path / "table")


LOOK_ALIKES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"destinations": ("a/p1",)}, {"peer": "a/p1"}),
    ({"destinations": ()}, {}),
    ({"destinations": ("a/p1", "a/p2")}, {"destinations": ("a/p1",), "peer": "a/p2"}),
    ({"peer": "x"}, {"note": "x"}),
    ({"payload_bytes": 7}, {"control_bytes": 7}),
    ({"note": ""}, {}),
]
"""What two rows have that are otherwise the same: values that a hash which leaves out nulls cannot tell apart."""


def test_two_rows_that_differ_in_where_their_nulls_are_dispute_a_place(spark: SparkSession, tmp_path: Path) -> None:
    """One of them says that the message is for p1 only, where nothing is missing; nobody knows whether it is right."""
    events: list[Event] = []
    for number, claims in enumerate(LOOK_ALIKES):
        for name in ("a/p1", "a/p2"):
            log = [row(name, "start"), *([row(name, "send", (name, 1))] if name == "a/p1" else [])]
            if name == "a/p1":
                log.append(row(name, "deliver", (name, 1)))
            events += numbered(f"r{number}", [*log, row(name, "end")])
        sent = next(each for each in events if each.run == f"r{number}" and each.event == "send")
        events.remove(sent)
        events += [msgspec.structs.replace(sent, **more) for more in claims]
    write_jsonl(tmp_path / "rows.jsonl", events)

    table = ingest(spark, [tmp_path], tmp_path / "table")
    read = read_trace([tmp_path / "rows.jsonl"])
    assert len(read.quarantined) == table.quarantined(spark) == 2 * len(LOOK_ALIKES)
    assert all("two different rows claim index 1 of a/p1" in bad.reason for bad in table.worst(spark))
    for rows_per_task in (1000, 0):
        report = audit(spark, table, rows_per_task=rows_per_task)
        assert {each.verdict for each in report.verdicts if each.property == "integrity"} == {"unknown"}
        assert not [each for each in report.verdicts if each.property == "agreement" and each.verdict == "holds"]


# Late files -----------------------------------------------------------------------------------------------------------


def as_of_one_ingest(spark: SparkSession, table: Path, trace: Path, whole: Path) -> None:
    """A table that was made bit by bit has the rows, the verdicts and the number of bad rows of one made at once."""
    grown, once = open_table(table), ingest(spark, [trace], whole)
    one, other = (sorted(map(str, each.rows(spark).collect())) for each in (grown, once))
    assert one == other
    one, other = (audit(spark, each, expected=["total"]) for each in (grown, once))
    assert one == other
    assert len(grown.worst(spark, 1000)) == grown.quarantined(spark)
    assert grown.torn_files(spark) == once.torn_files(spark)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_late_files_are_added_to_is_that_of_one_ingest(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Rows in any order, repeated and disputed, in files that come one by one; some are there in part at first."""
    random = Random(seed)
    trace = tmp_path / "trace"
    trace.mkdir()
    events = [event for run in executions(range(10 * seed, 10 * seed + 10)).values() for event in run]
    events += random.sample(events, 20)
    events += [msgspec.structs.replace(event, note="another") for event in random.sample(events, 5)]
    random.shuffle(events)
    for number in range(6):
        mine = events[number::6]
        if number % 2:
            write_part(trace / f"{number}.parquet", mine)
        else:
            lines = [*map(msgspec.json.encode, mine), b"nonsense", b""]
            (trace / f"{number}.jsonl").write_bytes(b"\n".join(lines[: len(lines) // 2]) + b"\n" + lines[-3][:9])
        ingest(spark, [trace], tmp_path / "table", append=True, block_rows=8)
        if not number % 2:
            (trace / f"{number}.jsonl").write_bytes(b"\n".join(lines))
    (trace / "bad.parquet").write_bytes(b"PAR1")
    ingest(spark, [trace], tmp_path / "table", append=True, block_rows=8)
    made = ingest(spark, [trace], tmp_path / "table", append=True)
    assert made.mark.ingests == 8, "an unchanged trace adds nothing but what could not be read"
    as_of_one_ingest(spark, tmp_path / "table", trace, tmp_path / "whole")


def test_an_ingest_that_dies_leaves_the_table_as_it_was_and_its_repetition_adds_what_is_missing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = rounds("r", 3, 5)
    trace, target = tmp_path / "trace", tmp_path / "table"
    trace.mkdir()
    write_jsonl(trace / "p0.jsonl", [*logs["a/p0"], *logs["a/p1"][::2]])
    before = audit(spark, ingest(spark, [trace], target))
    opened = open_table(target)
    write_jsonl(trace / "late.jsonl", [*logs["a/p1"][1::2], *logs["a/p2"]])

    class Killed(BaseException):
        pass

    def die_before(name: str) -> Callable[[Path, bytes], None]:
        def write(where: Path, data: bytes) -> None:
            if where.name == name:
                raise Killed
            write_whole(where, data)

        return write

    for name in ("blocks-2.msgpack", "table.json"):
        with monkeypatch.context() as patched:
            patched.setattr("isthmus.pipeline.ingest.write_whole", die_before(name))
            with pytest.raises(Killed):
                ingest(spark, [trace], target, append=True)
        assert audit(spark, open_table(target)) == before
        assert open_table(target).rows(spark).count() == before.events
    ingest(spark, [trace], target, append=True)
    as_of_one_ingest(spark, target, trace, tmp_path / "whole")
    assert opened.rows(spark).count() == before.events, "who has it open can go on reading"
    named = {block.path for table in (opened, open_table(target)) for block in table.blocks()}
    assert {file.name for file in (target / "rows").iterdir()} == named, "what died is cleaned up"


def test_two_that_add_at_the_same_time_are_found_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = rounds("r", 2, 3)
    write_jsonl(tmp_path / "early.jsonl", logs["a/p0"])
    late = write_jsonl(tmp_path / "late.jsonl", logs["a/p1"])
    target = tmp_path / "table"
    ingest(spark, [tmp_path / "early.jsonl"], target)
    real = write_blocks

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        ingest(spark, [late], target, append=True)
        return real(*arguments)

    monkeypatch.setattr("isthmus.pipeline.ingest.write_blocks", overtaken)
    with pytest.raises(TraceError, match="something else was added to the table at the same time"):
        ingest(spark, [late], target, append=True)
    assert open_table(target).rows(spark).count() == len(all_rows(logs))
