"""The source in production: files are compressed, moved, deleted and damaged, queries are restarted, processes idle."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from random_executions import number, row, sound_execution
from source_harness import Order, Query, Rotation, read_batch, write

from isthmus.pipeline.source.journal import WHOLE_EVERY, losses
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.writer import ParquetSink

EVERYTHING = {"events": "*", "roles": "*"}


def execution(seed: int, steps: int = 60) -> list[Event]:
    logs = sound_execution(Random(seed), steps)
    number(logs)
    return [event for log in logs.values() for event in log]


def log(name: str, *rows: tuple[str, tuple[str, int]] | str) -> list[Event]:
    events = [row(name, each) if isinstance(each, str) else row(name, *each) for each in rows]
    return [msgspec.structs.replace(event, index=index) for index, event in enumerate(events)]


ASK, ANSWER = ("a/p1", 1), ("b/p1", 1)
SHOP = log("a/p1", "start", ("send", ASK), ("deliver", ASK), ("deliver", ANSWER), "end")
WAREHOUSE = log("b/p1", "start", ("deliver", ASK), ("send", ANSWER), ("deliver", ANSWER), "end")


def places(events: list[Event]) -> set[tuple[str, int]]:
    return {(f"{each.system}/{each.process}", each.index) for each in events}


def kept(checkpoint: Path, **options: str) -> dict[str, str]:
    return EVERYTHING | {"checkpointLocation": str(checkpoint)} | options


def compress(path: Path, ending: str = ".gz") -> None:
    codec = "gzip" if ending == ".gz" else "zstd"
    with pa.output_stream(str(path) + ending, compression=codec) as stream:
        stream.write(path.read_bytes())
    path.unlink()


# Rotation and retention -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_files_may_be_compressed_moved_and_deleted_while_the_query_runs_and_dies(seed: int, tmp_path: Path) -> None:
    """Parts of logs are compressed and moved at any time, and deleted once they are committed."""
    random = Random(seed)
    events = execution(seed)
    logs = Rotation(tmp_path / "logs", events, random)
    options = EVERYTHING if seed % 4 == 0 else kept(tmp_path / "checkpoint")
    query = Query(tmp_path / "logs", **options)
    order, wanted = Order(events), places(events)
    growing, idle = True, 0
    while growing or idle < 3:
        growing = logs.write_some()
        logs.rotate_some(query.committed)
        batch = query.next_batch(random.choice([1, 3, 20, None]))
        idle = 0 if batch else idle + 1
        assert not order.problems(batch, wanted)
        if batch and random.random() < 0.3:
            query.restart()
            if random.random() < 0.5:
                assert query.last_batch_again() == batch
    assert order.seen == wanted
    assert logs.deeds


def test_a_committed_file_may_go_while_nothing_new_comes(tmp_path: Path) -> None:
    write(tmp_path / "logs", SHOP[:3])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    assert len(query.ids()) == 3
    (tmp_path / "logs/a.p1.jsonl").unlink()
    assert query.ids() == []
    query.restart()
    write(tmp_path / "logs", [*SHOP[3:], *WAREHOUSE], "later")
    assert len(query.ids()) == 7


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_log_that_was_compressed_half_read_goes_on_at_the_same_row(tmp_path: Path, ending: str) -> None:
    write(tmp_path / "logs", [*SHOP, *WAREHOUSE])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    some = query.ids(4)
    for path in list((tmp_path / "logs").glob("*.jsonl")):
        compress(path, ending)
    query.restart()
    rest = query.ids()
    assert len(some) == 4
    assert sorted(some + rest) == [f"r/{system}/p1/{index}" for system in "ab" for index in range(5)]
    assert query.ids() == []


@pytest.mark.parametrize("deed", [compress, lambda path: path.rename(path.parent / "b" / path.name)])
def test_a_query_that_ends_by_itself_finds_files_that_were_rotated_before_it_began(tmp_path: Path, deed: Any) -> None:
    write(tmp_path / "logs", [*SHOP, *WAREHOUSE])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    assert len(query.ids(4)) == 4
    (tmp_path / "logs/b").mkdir()
    for path in list((tmp_path / "logs").glob("*.jsonl")):
        deed(path)
    query.available_now = True
    query.restart()
    assert len(query.ids()) == 6


def test_a_log_whose_copy_is_being_compressed_is_read_once(tmp_path: Path) -> None:
    """A tool writes x.jsonl.gz beside x.jsonl, and deletes that when it is done."""
    write(tmp_path, SHOP[:3])
    (tmp_path / "a.p1.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.p1.jsonl").read_bytes())[:20])
    query = Query(tmp_path, **EVERYTHING)
    assert len(query.ids()) == 3
    assert query.ids() == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_log_may_be_cut_back_and_begun_anew_when_it_is_committed(tmp_path: Path, restart: bool) -> None:
    """Rotation by copy and truncate: the rows go on in the same file, from its beginning."""
    write(tmp_path / "logs", SHOP[:2])
    query = Query(tmp_path / "logs", outside="b", **kept(tmp_path / "checkpoint"))
    assert len(query.ids()) == 2
    (tmp_path / "logs/a.p1.jsonl").write_bytes(b"")
    if restart:
        query.restart()
    write(tmp_path / "logs", SHOP[2:])
    assert query.ids() == ["r/a/p1/2", "r/a/p1/3", "r/a/p1/4"]


def test_a_file_that_is_copied_again_and_longer_goes_on(tmp_path: Path) -> None:
    """As rsync does it: a new file with the same beginning takes the place of the old one."""
    write(tmp_path / "logs", SHOP[:2])
    query = Query(tmp_path / "logs", outside="b", **EVERYTHING)
    assert len(query.ids()) == 2
    write(tmp_path / "copy", SHOP)
    (tmp_path / "copy/a.p1.jsonl").rename(tmp_path / "logs/a.p1.jsonl")
    assert query.ids() == ["r/a/p1/2", "r/a/p1/3", "r/a/p1/4"]
    assert query.reader.index.bytes_read == (tmp_path / "logs/a.p1.jsonl").stat().st_size


def test_a_compressed_log_is_read_by_a_batch_too(tmp_path: Path) -> None:
    write(tmp_path, [*SHOP, *WAREHOUSE])
    rows = read_batch(tmp_path, **EVERYTHING)
    for path in list(tmp_path.glob("*.jsonl")):
        compress(path)
    assert read_batch(tmp_path, **EVERYTHING) == rows


# Data loss ------------------------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    path.write_bytes(b"\x00\xff" * 300 + b"\n")


def gz(path: Path) -> None:
    compress(path)
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(packed.read_bytes()[:-20])


def parquet(path: Path) -> None:
    rows = [msgspec.json.decode(line, type=Event) for line in path.read_bytes().splitlines()]
    path.unlink()
    sink = ParquetSink(path.parent, path.stem)
    sink.write(rows)
    (path.parent / f"{path.stem}-00000.parquet").rename(path.with_suffix(".parquet"))
    path.with_suffix(".parquet").write_bytes(path.with_suffix(".parquet").read_bytes()[:-9])


@pytest.mark.parametrize("harm", [damage, gz, parquet, Path.unlink])
def test_a_corrupt_or_vanished_part_ends_the_query_or_is_a_gap(tmp_path: Path, harm: Any) -> None:
    logs = tmp_path / "logs"
    write(logs, SHOP[:1], "log-00000")
    query = Query(logs, outside="b", failOnDataLoss="false", **kept(tmp_path / "checkpoint"))
    strict = Query(logs, outside="b", **EVERYTHING)
    assert query.ids() == strict.ids() == ["r/a/p1/0"]
    write(logs, SHOP[1:3], "log-00001")
    if harm is Path.unlink:  # it has to be seen before it goes
        for each in (query, strict):
            each.reader.index.poll(0)
    harm(logs / "log-00001.jsonl")
    write(logs, SHOP[3:], "log-00002")
    with pytest.raises(TraceError, match=r"^data loss: .*log-00001[^;]*; .*failOnDataLoss=false") as raised:
        strict.ids()
    assert "\n" not in str(raised.value)
    found = query.ids() + query.ids()
    assert found == ["r/a/p1/3", "r/a/p1/4"]
    assert query.start["gaps"] == {"r/a/p1": [[1, 3]]}
    batch = query.last_batch_again()
    for each in logs.glob("log-00001*"):
        each.unlink()
    write(logs, SHOP[1:3], "log-00001")
    query.restart()
    assert query.last_batch_again() == batch, "rows that turn up meanwhile do not come into a batch that was planned"
    told = losses(tmp_path / "checkpoint")
    assert [(gap.log, gap.first, gap.stop) for gap in told.gaps] == [("r/a/p1", 1, 3)]
    assert bool(told.quarantine) == (harm is not Path.unlink)


def test_a_file_that_was_repaired_is_read(tmp_path: Path) -> None:
    write(tmp_path / "logs", SHOP)
    whole = (tmp_path / "logs/a.p1.jsonl").read_bytes()
    damage(tmp_path / "logs/a.p1.jsonl")
    query = Query(tmp_path / "logs", outside="b", failOnDataLoss="false", **kept(tmp_path / "checkpoint"))
    assert query.ids() == []
    query.restart()
    assert query.ids() == []
    (tmp_path / "logs/a.p1.jsonl").write_bytes(whole)
    assert len(query.ids()) == 5


def test_a_file_that_goes_while_nobody_looks_is_a_loss_unless_it_was_committed(tmp_path: Path) -> None:
    write(tmp_path / "logs", [*SHOP, *WAREHOUSE])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    assert len(query.ids(9)) == 9
    (tmp_path / "logs/a.p1.jsonl").unlink()
    last = {"a": "r/b/p1/4", "b": "r/a/p1/4"}
    if query.start["logs"]["r/a/p1"][0] == 5:
        query.restart()
        assert query.ids() == [last["a"]]
    (tmp_path / "logs/b.p1.jsonl").unlink()
    if query.start["logs"]["r/b/p1"][0] == 4:
        query.restart()
        with pytest.raises(TraceError, match=r"data loss: .*b\.p1\.jsonl: has gone before it was read to its end"):
            query.ids()


def test_a_planned_batch_whose_file_has_gone_comes_without_it_only_if_that_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "logs", [*SHOP, *WAREHOUSE])
    options = kept(tmp_path / "checkpoint")
    query = Query(tmp_path / "logs", **options)
    assert len(query.ids()) == 10
    (tmp_path / "logs/a.p1.jsonl").unlink()
    query.restart()
    with pytest.raises(TraceError, match=r"has gone before"):
        query.last_batch_again()
    query.options |= {"failOnDataLoss": "false"}
    query.restart()
    assert {each["system"] for each in query.last_batch_again()} == {"b"}


# Offsets and restarts -------------------------------------------------------------------------------------------------


def finished_logs(directory: Path, run: str, processes: int) -> None:
    """A run in which everybody delivers one message, and ends."""
    names = [f"s{number % 2}/p{number}" for number in range(processes)]
    message = (names[0], 1)
    for name in names:
        rows = log(name, "start", *([("send", message)] if name == names[0] else []), ("deliver", message), "end")
        write(directory, [msgspec.structs.replace(each, run=run) for each in rows], f"{run}.{name.replace('/', '.')}")


def test_offsets_stay_small_and_a_restart_reads_nothing_again(tmp_path: Path) -> None:
    """300 logs in 15 runs, and one that lives."""
    write(tmp_path / "logs", SHOP[:1])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    sizes = []
    for run in range(15):
        finished_logs(tmp_path / "logs", f"run{run}", 20)
        assert query.next_batch()
        sizes.append(len(json.dumps(query.start)))
    assert max(sizes[2:]) <= sizes[1] + 30, "finished logs are not in the offsets"
    assert len(query.start["logs"]) == 21, "the log that lives, and those of the last batch"
    query.restart()
    assert query.ids() == []
    assert query.reader.index.bytes_read == 0
    write(tmp_path / "logs", SHOP[1:3])
    assert query.ids() == ["r/a/p1/1", "r/a/p1/2"]
    assert query.reader.index.bytes_read == sum(len(msgspec.json.encode(each)) + 1 for each in SHOP[1:3])
    assert len(query.start["logs"]) == 1


def test_the_journal_is_pruned_and_any_version_leads_back(tmp_path: Path) -> None:
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    ids = []
    for run in range(3 * WHOLE_EVERY):
        finished_logs(tmp_path / "logs", f"run{run:03}", 1)
        ids += query.ids()
        for path in (tmp_path / "logs").glob("*.jsonl"):
            path.unlink()
        if run % 17 == 0:
            query.restart()
    assert len(ids) == len(set(ids)) == 4 * 3 * WHOLE_EVERY
    assert len(list((tmp_path / "checkpoint/isthmus").iterdir())) <= 2 * WHOLE_EVERY + 1


def test_a_message_of_a_log_that_ended_long_ago_is_no_reason_to_wait(tmp_path: Path) -> None:
    write(tmp_path / "logs", [*SHOP[:3], msgspec.structs.replace(SHOP[4], index=3)])
    write(tmp_path / "logs", WAREHOUSE[:1])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    assert len(query.ids()) == 5
    (tmp_path / "logs/a.p1.jsonl").unlink()
    write(tmp_path / "logs", [row("b/p1", "view", index=1, peer="1", destinations=())])
    assert query.ids() == ["r/b/p1/1"]
    assert list(query.start["logs"]) == ["r/b/p1"]
    query.restart()
    write(tmp_path / "logs", [msgspec.structs.replace(WAREHOUSE[1], index=2)])
    assert query.ids() == ["r/b/p1/2"]


def test_a_journal_that_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path / "logs", SHOP)
    query = Query(tmp_path / "logs", outside="b", **kept(tmp_path / "checkpoint"))
    query.ids()
    for file in (tmp_path / "checkpoint/isthmus").iterdir():
        file.unlink()
    query.restart()
    with pytest.raises(TraceError, match=r"the journal of the source does not fit the checkpoint"):
        query.ids()
    del query.options["checkpointLocation"]
    query.restart()
    with pytest.raises(TraceError, match=r"give the source the same checkpointLocation as the query"):
        query.ids()


def test_the_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.offsets.append({"r/a/p1": 3})
    with pytest.raises(TraceError, match=r"not those of this version of the source.*new checkpoint"):
        query.ids()


# Cut ids --------------------------------------------------------------------------------------------------------------


def test_every_batch_has_a_cut_id_of_its_own_that_a_repeated_one_keeps(tmp_path: Path) -> None:
    write(tmp_path / "logs", [*SHOP, *WAREHOUSE])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    batches = [query.next_batch(3) for _ in range(4)]
    cuts = [{each["cut"] for each in batch} for batch in batches]
    assert all(len(cut) == 1 for cut in cuts)
    names = [name for cut in cuts for name in cut]
    assert names == sorted(set(names)), "they sort as the batches came"
    query.restart()
    assert query.last_batch_again() == batches[-1]
    other = Query(tmp_path / "logs", events="deliver")
    assert not {each["cut"] for each in other.next_batch(3)} & set(names)


# Idle processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_process_that_does_nothing_for_hours_delays_nobody(tmp_path: Path, restart: bool) -> None:
    """Of three processes one has delivered a message and then falls silent: its log does not grow, nor end."""
    idle = log("c/p1", "start", ("deliver", ASK))
    write(tmp_path / "logs", [*SHOP[:3], *WAREHOUSE[:1], *idle])
    query = Query(tmp_path / "logs", **kept(tmp_path / "checkpoint"))
    assert len(query.ids()) == 6
    if restart:
        query.restart()
    write(tmp_path / "logs", [*SHOP[3:], *WAREHOUSE[1:]])
    assert len(query.ids()) == 6, "everything of the others, in one batch"
    assert query.reader.index.histories.waits() == []


def test_a_process_that_sent_and_fell_silent_delays_nobody_who_delivered_it(tmp_path: Path) -> None:
    write(tmp_path, SHOP[:2])
    write(tmp_path, WAREHOUSE)
    assert len(Query(tmp_path, **EVERYTHING).ids()) == 7


def test_only_what_a_silent_process_caused_waits_for_its_log(tmp_path: Path) -> None:
    """Its last row has not reached the log: the one who delivered the message waits, and nobody else."""
    others = log("c/p1", "start", ("send", ("c/p1", 1)), "end")
    write(tmp_path, [*SHOP[:1], *WAREHOUSE, *others])
    assert Query(tmp_path, **EVERYTHING).ids() == ["r/a/p1/0", "r/b/p1/0", "r/c/p1/0", "r/c/p1/1", "r/c/p1/2"]
